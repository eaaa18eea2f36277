"""Losses of two runs against each other."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from harness.errors import UserError
from harness.pipeline import run as run_of
from harness.report.paired import _scored, difference
from harness.report.rows import records
from harness.report.runs import NoItemsError, read_run
from tests.report.synthetic import write_run
from tests.runs import composed


def row_of(run, arm="both", task="moby_dick"):
    return next(row for row in records(run.report) if (row["arm"], row["task"]) == (arm, task))


@pytest.fixture
def pair(tmp_path):
    return [read_run(write_run(tmp_path / str(group), "int4", group)) for group in (128, 32)]


def test_difference_is_that_of_the_losses_and_its_interval_is_narrower(pair):
    first, second = pair
    row, other = row_of(first), row_of(second)
    found = difference(first, second, row, other)
    assert found.loss == pytest.approx(row["loss"] - other["loss"], abs=1e-9)
    assert found.word == "more" and difference(second, first, other, row).word == "less"
    assert found.high - found.low < 0.6 * (row["loss_hi"] - row["loss_lo"])


def test_a_setting_against_itself_is_undecided(pair):
    assert difference(pair[0], pair[0], row_of(pair[0]), row_of(pair[0])).word == "undecided"


def test_runs_scored_otherwise_are_refused(pair, tmp_path):
    other = read_run(write_run(tmp_path / "other", cells={"data_hash": "else"}))
    with pytest.raises(UserError, match=r"data_hash \(da7a and else\)"):
        difference(pair[0], other, row_of(pair[0]), row_of(other))


def rewrite(run, change):
    path = run.path / "items.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)


def with_controls(items):
    """A first pass beside every item, of quite other values."""
    first = items.assign(item_id="first " + items["item_id"], band="first_pass", control=True, value=100.0)
    return pd.concat([first, items])


def again(pair):
    """The same runs, of whose items nothing was read yet. A run whose files were rewritten is not done any more."""
    return [replace(run) for run in pair]


def test_controls_are_left_out(pair):
    rows = [row_of(run) for run in pair]
    plain = difference(*again(pair), *rows)
    for run in pair:
        rewrite(run, with_controls)
    assert difference(*pair, *rows) == plain


def test_files_of_before_controls_were_marked_are_read(pair):
    rows = [row_of(run) for run in pair]
    plain = difference(*again(pair), *rows)
    for run in pair:
        rewrite(run, lambda items: items.drop(columns="control"))
    assert difference(*again(pair), *rows) == plain
    for run in pair:
        rewrite(run, lambda items: with_controls(items).drop(columns="control"))
    with pytest.raises(NoItemsError, match="do not give the value"):
        difference(*again(pair), *rows)


def test_every_task_of_the_context_suite_can_be_paired(tmp_path):
    suite = ("eval=none", "eval.context_suite.lengths=[400]", "eval.context_suite.documents=3")
    few = ("model=tiny", "design.noise_draws=0", "attribute.resamples=100")
    folder = run_of(composed("+exp=int4_split", *few, *suite), tmp_path).folder
    assert folder is not None
    run = read_run(folder)
    rows = [row for row in records(run.report) if row["band"] is None and row["metric"] == "nll"]
    assert any(items["control"].any() for items in run.items.values())
    for row in (row for row in rows if row["arm"] == "both"):
        (other,) = (own for own in rows if (own["arm"], own["task"]) == ("ffn", row["task"]))
        assert difference(run, run, row, other).loss == pytest.approx(row["loss"] - other["loss"], abs=1e-9)
    assert any(row["task"].startswith("induction_copy") for row in rows)


def test_other_items_are_refused(pair):
    rewrite(pair[1], lambda items: items.assign(item_id="x" + items["item_id"]))
    with pytest.raises(NoItemsError, match="scored other items"):
        difference(*pair, row_of(pair[0]), row_of(pair[1]))


def test_items_that_do_not_give_the_reported_value_are_refused(pair):
    rewrite(pair[0], lambda items: items.assign(value=items["value"] + 1.0))
    with pytest.raises(UserError, match="do not give the value") as raised:
        difference(*pair, row_of(pair[0]), row_of(pair[1]))
    assert not isinstance(raised.value, NoItemsError), "that is a fault, not something that is not there"


def test_missing_arms_and_files_are_refused(pair):
    rewrite(pair[0], lambda items: items[items["arm"] != "both"])
    with pytest.raises(NoItemsError, match="arm both did not score"):
        difference(*pair, row_of(pair[0]), row_of(pair[1]))
    (pair[1].path / "items.parquet").unlink()
    with pytest.raises(NoItemsError, match="cannot be read"):
        difference(pair[1], pair[1], row_of(pair[1]), row_of(pair[1]))


def test_items_weigh_as_in_the_report(pair):
    """Windows of unequal length: the value is a mean over tokens, and so must the difference be."""
    tokens = np.arange(1, 61)

    def weigh(items):
        own = items["task"] == "moby_dick"
        return items.assign(n_tokens=np.where(own, np.tile(tokens, len(items) // 60 + 1)[: len(items)], 1))

    for run in pair:
        rewrite(run, lambda items: weigh(items[items["task"] == "moby_dick"]))
    rows = []
    for run in pair:
        base, both = (run.items["general", "moby_dick", "nll", arm]["value"].to_numpy() for arm in ("base", "both"))
        value, base_value = np.average(both, weights=tokens), np.average(base, weights=tokens)
        rows.append({**row_of(run), "value": value, "base_value": base_value, "loss": value - base_value})
    assert difference(*pair, *rows).loss == pytest.approx(rows[0]["loss"] - rows[1]["loss"], abs=1e-9)


def test_higher_is_better_turns_the_sign(pair):
    rows = [row_of(run) for run in pair]
    turned = [{**row, "loss": -row["loss"]} for row in rows]
    assert difference(*pair, *turned).loss == pytest.approx(-difference(*pair, *rows).loss)


def equal_on_average(run, metric):
    """Items of arm `both` in another metric, half of them up and half of them down; its row, and that of ffn."""
    own = run.items["general", "moby_dick", "nll", "base"]
    value = np.where(np.arange(len(own)) % 2, 1.0, 0.0)
    arms = {"base": value, "both": 1 - value, "ffn": np.zeros(len(own))}
    more = [
        own.assign(arm=a, subset="general", task="moby_dick", metric=metric, band="", value=v) for a, v in arms.items()
    ]
    rewrite(run, lambda items: pd.concat([items[items["metric"] != metric], *more], ignore_index=True))
    row = {**row_of(run), "metric": metric, "base_value": value.mean()}
    return row | {"value": value.mean(), "loss": 0.0}, row | {"arm": "ffn", "value": 0.0, "loss": value.mean()}


@pytest.mark.parametrize(
    ("metric", "told", "sign"),
    [("acc", False, -1), ("exact_match,strict", False, -1), ("nll", False, 1), ("lower", True, 1), ("acc", True, -1)],
)
def test_items_that_differ_by_nothing_on_average_have_the_metrics_direction(tmp_path, metric, told, sign):
    """The row itself does not tell it: another arm's does, or the metric's name."""
    run = read_run(write_run(tmp_path / "run"))
    row, other = equal_on_average(run, metric)
    run = read_run(run.path)
    if told:
        other["loss"] *= -sign
        run.__dict__["report"] = pd.DataFrame([*records(run.report), row, other])
    else:
        run.__dict__["report"] = pd.DataFrame([{**row, "arm": "base", "loss": None}, row])
    scored = _scored(run, row)
    base, both = (run.items["general", "moby_dick", metric, arm]["value"].to_numpy() for arm in ("base", "both"))
    np.testing.assert_array_equal(scored.loss_N, sign * (both - base))
