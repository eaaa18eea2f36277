"""Points, panels and fronts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.points import (
    Panel,
    block_of,
    front_of,
    group_of,
    panels,
    pareto,
    points,
    primary_metric,
    setting,
    speaking_metric,
)
from harness.report.rows import records
from harness.report.runs import find_runs
from harness.report.sweep import in_order, sweep_frame, swept_settings
from tests.report.synthetic import write_run

POINTS = st.lists(st.tuples(st.floats(2, 16), st.floats(-1, 10)), max_size=40)


def rows_of(folder, primary="nll"):
    runs = in_order(find_runs([folder]))
    return points(records(sweep_frame(runs)), primary, list(swept_settings(runs)))


def scheme(ffn=("rtn", "int4", 64), attention=("rtn", "int4", 64), arm="both", **more):
    names = ("method", "precision", "group_size")
    cells = {
        f"{b}_{n}": v for b, own in (("ffn", ffn), ("attention", attention)) for n, v in zip(names, own, strict=True)
    }
    return {**cells, "arm": arm, **more}


@pytest.mark.parametrize(
    ("arm", "block"),
    [
        ("ffn", "ffn"),
        ("ffn.down", "ffn"),
        ("attention.q+attention.k", "attention"),
        ("ffn.layers.3", "ffn"),
        ("both", "both"),
        ("all-ffn.down", "both"),
        ("layers.0-9", "both"),
        ("ffn.up+attention.q", "both"),
    ],
)
def test_block_of_an_arm(arm, block):
    assert block_of(arm) == block


@pytest.mark.parametrize("control", ["noise.0", "matched.ffn", "matched.attention", "fp16_cast", "random.0", "ffn@1"])
def test_controls_are_no_settings(tmp_path, control):
    write_run(tmp_path / "1")
    rows = records(sweep_frame(find_runs([tmp_path])))
    assert points(rows, "nll")
    assert not points([row | {"arm": control} for row in rows], "nll")


def test_setting_in_words():
    kept = ("keep", None, None)
    assert setting(scheme(attention=kept, arm="ffn"), False) == "int4 g64"
    assert setting(scheme(), True) == "rtn int4 g64"
    assert setting(scheme(ffn=("rtn", "int4", -1)), False) == "ffn int4 per row, attention int4 g64"
    other = "quant.ffn.keep_columns"
    assert setting(scheme(**{other: 8}), False, [other]) == "int4 g64, keep_columns 8"
    assert setting(scheme(ffn=kept, arm="attention", **{other: 8}), False, [other]) == "int4 g64"


def test_group_size_is_that_of_the_swept_block():
    row = scheme(ffn=("rtn", "int4", 32))
    assert group_of(row) is None and group_of(row, ["quant.ffn.group_size"]) == 32
    assert group_of(scheme()) == 64


def test_a_metric_speaks_for_a_task():
    assert speaking_metric(["acc", "nll"], "nll") == "nll"
    assert speaking_metric(["acc", "kl"], "nll") == "kl"
    assert speaking_metric(["f1"], "nll") == "f1"
    assert primary_metric([{"attribute": {"primary_metric": "kl"}}] * 2 + [{}]) == "kl" and primary_metric([]) == "nll"


def test_an_arm_that_a_sweep_does_not_touch_is_one_point(tmp_path):
    for number, group in enumerate((32, 64, 128)):
        write_run(tmp_path / str(number), "int4", group)
    rows = [row for row in rows_of(tmp_path) if row["task"] == "capitals"]
    assert [row["setting"] for row in rows if row["arm"] == "attention"] == ["int4 g64"]
    assert [row["setting"] for row in rows if row["arm"] == "ffn"] == ["int4 g32", "int4 g64", "int4 g128"]


def test_runs_scored_otherwise_get_panels_of_their_own(tmp_path):
    write_run(tmp_path / "1", "int4", 32)
    write_run(tmp_path / "2", "int4", 64, cells={"protocol": {"window": 2048}})
    titles = [panel.title for panel in panels(rows_of(tmp_path))]
    assert titles == [
        "general \N{MIDDLE DOT} moby_dick (scored otherwise, 1)",
        "general \N{MIDDLE DOT} moby_dick (scored otherwise, 2)",
        "knowledge \N{MIDDLE DOT} capitals (scored otherwise, 1)",
        "knowledge \N{MIDDLE DOT} capitals (scored otherwise, 2)",
    ]


def test_models_get_panels_of_their_own(tmp_path):
    write_run(tmp_path / "1", **{"model.name": "a"})
    write_run(tmp_path / "2", **{"model.name": "b"})
    assert {panel.model for panel in panels(rows_of(tmp_path))} == {"a", "b"}
    assert all(panel.title.endswith(panel.model) for panel in panels(rows_of(tmp_path)))


@given(POINTS)
def test_front_is_what_no_other_point_beats(found):
    bits, losses = [b for b, _ in found], [loss for _, loss in found]
    front = pareto(bits, losses)
    beaten = {
        n
        for n in range(len(found))
        if any(
            bits[m] <= bits[n] and losses[m] <= losses[n] and (bits[m], losses[m]) != (bits[n], losses[n])
            for m in range(len(found))
        )
    }
    assert {found[n] for n in front} == {found[n] for n in range(len(found)) if n not in beaten}
    assert [bits[n] for n in front] == sorted(bits[n] for n in front)
    assert [losses[n] for n in front] == sorted((losses[n] for n in front), reverse=True)


def test_front_ends_where_losses_are_noise():
    cells = [(4, 1.0, 0.9), (5, 0.5, 0.4), (6, 0.01, -0.01), (7, -0.02, -0.05)]
    rows = [{"bits_per_weight": b, "loss": loss, "loss_lo": low} for b, loss, low in cells]
    rows.append({"bits_per_weight": None, "loss": -9, "loss_lo": None})
    front = front_of(Panel("t", "m", "s", "t", "nll", "", rows))
    assert [row["bits_per_weight"] for row in front] == [4, 5, 6]
