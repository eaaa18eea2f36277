"""What pages say to do, and what they leave open."""

import re
from itertools import pairwise

import pandas as pd
import pytest

from harness.errors import UserError
from harness.report.advice import (
    block_sentences,
    choice_sentences,
    choices,
    front_steps,
    group_sentences,
    loss_sentences,
    open_questions,
    perplexity_factor,
    placed,
    size_sentence,
)
from harness.report.points import Panel, panels, points
from harness.report.rows import records
from harness.report.runs import find_runs
from harness.report.sweep import in_order, sweep_frame, swept_settings
from tests.report.synthetic import write_failed, write_partial, write_run


def row(arm="both", setting="int4 g64", bits=4.25, high=0.1, **more):
    cells = {"loss": high - 0.02, "loss_lo": high - 0.04, "loss_hi": high, "verdict": "worse", "below_noise": None}
    return {"arm": arm, "setting": setting, "bits_per_weight": bits, "n_documents": 60, "task": "t", **cells, **more}


def panel(title, *rows):
    return Panel(title, "m", "s", title, "nll", "nats/token", list(rows))


def test_the_fewest_bits_are_chosen_by_the_upper_end():
    good = row(setting="int8 g64", bits=8.25, high=0.009)
    one = panel("t", row(high=0.101), row(setting="int4 g32", bits=4.5, high=0.099), good)
    found = {round(t.loss, 3): t.everywhere for t in choices([one], 0.01)}
    assert found[0.1].setting == "int4 g32" and found[0.01].bits == 8.25 and found[0.3].bits == 4.25


def test_a_choice_holds_on_all_tasks_and_repeats():
    easy = panel("easy", row(high=0.02), row(setting="int4 g32", bits=4.5, high=0.01))
    hard = panel("hard", row(high=0.5), row(setting="int4 g32", bits=4.5, high=0.05))
    tolerance = next(t for t in choices([easy, hard], 0.01) if t.loss == 0.1)
    assert tolerance.everywhere.setting == "int4 g32" and tolerance.everywhere.highest == 0.05
    assert [choice.setting for choice in tolerance.by_panel] == ["int4 g64", "int4 g32"]
    unlucky = panel("t", row(high=0.02), row(high=0.5))  # one setting, two seeds
    assert next(t for t in choices([unlucky], 0.01) if t.everywhere).loss == 1.0


@pytest.mark.parametrize("unsafe", [{"loss_hi": None}, {"verdict": "exploratory"}, {"bits_per_weight": None}])
def test_settings_without_interval_documents_or_bits_are_not_chosen(unsafe):
    assert choices([panel("t", row(high=0.02) | unsafe)], 0.01) == []


def test_sentences_say_when_nothing_is_good_enough():
    one = panel("t", row(high=0.2), row(setting="int3 g64", bits=3.25, high=0.9))
    said = " ".join(choice_sentences([one], choices([one], 0.01), 0.01))
    assert "No setting is shown to stay within 0.01 nats/token" in said
    assert "less than 0.3 nats/token on t: int4 g64 in FFN and attention, 4.25 bits" in said
    assert "Picked among 2 settings" in said
    hopeless = panel("t", row(high=5.0))
    assert len(list(choice_sentences([hopeless], choices([hopeless], 0.01), 0.01))) == 1


def test_words():
    assert placed("ffn int4 g32, attention int4 g64", "both") == "ffn int4 g32, attention int4 g64"
    assert placed("int4 g32", "ffn") == "int4 g32 in the FFN"
    assert perplexity_factor(0.1).endswith("1.11")


@pytest.fixture
def sweep(tmp_path):
    for precision in ("int3", "int4"):
        for group in (32, 64, 128):
            write_run(tmp_path / f"{precision}{group}", precision, group)
    write_failed(tmp_path / "f", "no memory", "int4", -1)
    write_partial(tmp_path / "p", "int3", -1)
    runs = in_order(find_runs([tmp_path]))
    swept = list(swept_settings(runs))
    return runs, list(panels(points(records(sweep_frame(runs)), "nll", swept))), swept


def test_steps_between_group_sizes_are_counted_by_paired_intervals(sweep):
    runs, found, swept = sweep
    said = " ".join(group_sentences(found, {run.id: run for run in runs}, swept))
    assert "moby_dick: 4 of 4 lower the loss" in said and "capitals: 4 of 4 lower the loss" in said


def test_front_steps_are_paired(sweep):
    runs, found, _ = sweep
    steps = front_steps(found[0], {run.id: run for run in runs})
    assert steps[0].gain is None and all(step.gain for step in steps[1:])
    for before, step in pairwise(steps):
        assert step.gain.loss == pytest.approx(before.row["loss"] - step.row["loss"], abs=1e-9)


def test_steps_without_items_are_left_open(sweep):
    runs, found, swept = sweep
    for run in runs:
        (run.path / "items.parquet").unlink(missing_ok=True)
    by_id = {run.id: run for run in runs}
    assert all(step.gain is None for step in front_steps(found[0], by_id))
    assert list(group_sentences(found, by_id, swept)) == []


def test_steps_whose_items_do_not_fit_are_not_passed_over(sweep):
    runs, found, _ = sweep
    for path in (run.path / "items.parquet" for run in runs if run.status == "done"):
        items = pd.read_parquet(path)
        items.assign(value=items["value"] + 1).to_parquet(path, index=False)
    with pytest.raises(UserError, match="do not give the value"):
        front_steps(found[0], {run.id: run for run in runs})


def test_blocks_are_compared_by_their_own_contrast(sweep):
    runs, _, _ = sweep
    said = list(block_sentences(runs, "nll"))
    assert [line.split(":")[0] for line in said] == ["general", "knowledge"]
    assert all("the FFN costs more than attention in 6 of 6 settings" in line for line in said)
    assert re.search(r"share of the loss: \d+", said[0])
    assert list(size_sentence(runs)) == ["The FFN holds 75\N{NARROW NO-BREAK SPACE}% of the weights of both blocks."]
    assert list(block_sentences(runs, "acc")) == []


def test_what_is_open_is_said(sweep):
    runs, found, _ = sweep
    said = list(open_questions(found, runs))
    assert "1 run failed: nothing is said of its settings." in said
    assert "1 run did not finish: nothing is said of its settings." in said
    few = panel("t", row(n_documents=12), row(verdict="undecided", below_noise=True))
    said = " ".join(open_questions([few], []))
    assert "Fewer than 20 documents in t" in said and "1 of 2 losses can neither" in said and "1 loss smaller" in said


def test_losses_of_one_run_are_said_with_interval_and_verdict(sweep):
    said = list(loss_sentences(sweep[1]))
    assert said[0].startswith("general") and "FFN and attention quantized: worse, told from zero." in said[0]
