"""Many runs as one table, and what may be subtracted."""

import pytest

from harness.errors import UserError
from harness.report.rows import records
from harness.report.runs import find_runs, flat
from harness.report.stored import COLUMNS, read_report, write_table
from harness.report.sweep import cohorts, comparable, in_order, sweep_frame, swept_fields, swept_settings
from tests.report.synthetic import make_config, write_failed, write_partial, write_run


def frame_of(*folders):
    return sweep_frame(in_order(find_runs(folders)))


def test_swept_fields_are_those_with_several_values():
    configs = [make_config("x", precision, 64) for precision in ("int3", "int4")]
    assert swept_fields(configs) == ["quant.ffn.precision", "quant.attention.precision"]
    assert swept_fields(configs[:1]) == []


def test_settings_that_do_not_compute_are_not_swept():
    configs = [make_config("x", "int4", 64, **{"outputs": name, "harness.force": name == "a"}) for name in "ab"]
    assert swept_fields(configs) == []


def test_what_a_machine_allows_is_not_swept():
    """Memory is cut to what is free; a run's configuration then says so."""
    configs = [
        make_config("x", "int4", 64, **{"engine": {"memory_gib": size, "pack_tokens": 768}}) for size in (4.0, 3.1)
    ]
    assert swept_fields(configs) == []
    asked = make_config("x", "int4", 64, engine={"memory_gib": 4.0, "pack_tokens": 512})
    assert swept_fields([*configs, asked]) == ["engine.pack_tokens"]


def test_what_a_models_name_tells_is_left_out():
    configs = [make_config("x", "int4", 64, **{"model.name": n, "model.path": f"hub/{n}"}) for n in "ab"]
    assert swept_fields(configs) == ["model.name"]
    other = make_config("x", "int4", 64, **{"model.name": "a", "model.path": "local"})
    assert swept_fields([*configs, other]) == ["model.name", "model.path"]


def test_a_setting_that_older_runs_lack_is_not_swept():
    old, new = make_config("x", "int4", 64), make_config("x", "int4", 64, **{"quant.indivisible": "tail"})
    assert swept_fields([old, new]) == []


def test_lists_are_one_value():
    assert dict(flat({"a": {"b": [1, {"c": 2}], "d": {}}})) == {"a.b": '[1, {"c": 2}]', "a.d": "{}"}


@pytest.mark.case("H14")
def test_sweep_csv_has_all_rows_and_a_column_per_swept_setting(tmp_path):
    write_run(tmp_path / "0000000000000012", "int3", 32)
    write_run(tmp_path / "12e4567890123456", "int4", 64, cells={"base_lattice": "None"})
    frame = frame_of(tmp_path)
    assert list(frame.columns) == [
        *COLUMNS,
        "quant.ffn.precision",
        "quant.ffn.group_size",
        "quant.attention.precision",
    ]
    assert len(frame) == 16 and set(frame["quant.ffn.group_size"]) == {32, 64}
    write_table(frame, tmp_path / "sweep.csv")
    back = read_report(tmp_path / "sweep.csv")
    assert set(back["run_id"]) == {"0000000000000012", "12e4567890123456"}
    assert set(back["base_lattice"].dropna()) == {"None"} and back["n_items"].dtype == "Int64"
    assert "32.0" not in (tmp_path / "sweep.csv").read_text(encoding="utf-8")


@pytest.mark.case("H1")
def test_failed_and_incomplete_runs_are_rows_with_status_and_settings(tmp_path):
    write_run(tmp_path / "1", "int4", 64)
    write_failed(tmp_path / "2", "ValueError: no\nsecond line", "int3", 32)
    write_partial(tmp_path / "3", "int3", 128)
    rows = {row["run_id"]: row for row in records(frame_of(tmp_path)) if row["status"] != "done"}
    assert rows["2"]["status"] == "failed" and rows["2"]["reason"] == "ValueError: no second line"
    assert rows["3"]["status"] == "incomplete" and rows["3"]["value"] is None
    assert (rows["2"]["quant.ffn.group_size"], rows["3"]["quant.ffn.group_size"]) == (32, 128)


@pytest.mark.case("H6")
def test_order_does_not_depend_on_where_or_when_a_run_was_made(tmp_path):
    first, second = tmp_path / "a" / "x", tmp_path / "b" / "x"
    for name, group in (("9", 32), ("1", 128), ("5", -1)):
        write_run(first / name, "int4", group)
    for name, group in (("5", -1), ("1", 128), ("9", 32)):
        write_run(second / name, "int4", group)
    assert list(dict.fromkeys(frame_of(first)["run_id"])) == ["9", "1", "5"]  # one group a row comes last
    assert frame_of(first).equals(frame_of(second))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        pytest.param(
            {"protocol": {"window": 2048, "stride": 0}},
            r"protocol\.window \(384 and 2048\)",
            marks=pytest.mark.case("F12"),
        ),
        ({"data_hash": "other"}, r"data_hash \(da7a and other\)"),
        pytest.param({"template_hash": None}, r"template_hash \(7e3 and none\)", marks=pytest.mark.case("F7")),
    ],
)
def test_runs_scored_otherwise_are_not_compared_and_the_field_is_named(tmp_path, cells, words):
    write_run(tmp_path / "1", "int4", 32)
    write_run(tmp_path / "2", "int4", 64, cells=cells)
    with pytest.raises(UserError, match=words):
        comparable(frame_of(tmp_path))


def test_runs_scored_alike_are_compared_whatever_their_settings(tmp_path):
    write_run(tmp_path / "1", "int4", 32)
    write_run(tmp_path / "2", "int3", 64, cells={"harness_version": "9"})
    comparable(frame_of(tmp_path))


def test_cohorts_number_ways_of_scoring_within_a_task():
    rows = [
        {"model": "m", "subset": "s", "task": t, "protocol": p} for t, p in (("a", 1), ("a", 2), ("b", 2), ("a", 1))
    ]
    assert cohorts(rows) == [0, 1, 0, 0]
    swept = swept_settings([])
    assert swept.empty
