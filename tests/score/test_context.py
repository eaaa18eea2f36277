"""The generated context suite as sequences: where a BOS stands, and what is refused."""

import pytest

from harness.config import BosUse, ContextSuiteConfig, TooLong
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.score.context import context_tasks
from harness.score.encode import Encoder
from tests.runs import ran

SUITE = ContextSuiteConfig(lengths=[400], documents=2)


def tasks(add_bos, bos=BosUse.auto, positions=1000, too_long=TooLong.error, suite=SUITE):
    return context_tasks(suite, too_long, Encoder(byte_tokenizer(add_bos), bos, positions), 258)


@pytest.mark.case("F2")
@pytest.mark.parametrize(
    ("add_bos", "bos", "begins"),
    [(True, BosUse.auto, True), (False, BosUse.auto, False), (True, BosUse.never, False), (False, BosUse.always, True)],
)
def test_items_begin_with_the_bos_that_texts_begin_with(add_bos, bos, begins):
    plain = [s for task in tasks(False) for s in task.sequences]
    for task in tasks(add_bos, bos):
        assert task.settings["bos"] == begins
        for sequence in task.sequences:
            bare = plain.pop(0)
            first_pass = bare.start == 1  # nothing but the prefix before it, whatever the rule
            assert sequence.tokens == ((0,) if begins and not first_pass else ()) + bare.tokens
            assert 0 not in sequence.tokens[sequence.start :]


def test_a_length_that_leaves_no_position_for_the_bos_is_refused():
    assert tasks(add_bos=False, positions=400)
    with pytest.raises(
        UserError, match=r"lengths=\[400\]: the model has 400 positions and each item begins with a BOS"
    ):
        tasks(add_bos=True, positions=400)


@pytest.mark.parametrize("add_bos", [False, True])
def test_a_length_without_positions_may_be_left_out_and_is_said(caplog, add_bos):
    long = ContextSuiteConfig(lengths=[400, 600], documents=2)
    left = tasks(add_bos, positions=599, too_long=TooLong.drop, suite=long)
    assert [task.name for task in left] == [task.name for task in tasks(add_bos)]
    assert [task.sequences for task in left] == [task.sequences for task in tasks(add_bos)]
    (said,) = [record.message for record in caplog.records]
    assert "leaves lengths out: eval.context_suite.lengths=[600]: the model has 599 positions" in said
    with pytest.raises(UserError, match=r"lengths=\[600\]"):
        tasks(add_bos, positions=599, suite=long)


def test_when_no_length_is_left_that_is_an_error():
    with pytest.raises(UserError, match=r"lengths=\[400\]: the model has 300 positions"):
        tasks(add_bos=False, positions=300, too_long=TooLong.drop)


def test_a_pass_without_context_is_a_row_of_its_own_and_no_part_of_the_task(tmp_path):
    """Copying is what the second pass shows; the first would halve it and, near chance, withhold it."""
    suite = ("eval=none", "eval.context_suite.lengths=[400]", "eval.context_suite.documents=3")
    options = ("model=tiny", "design.noise_draws=0", "attribute.resamples=100")
    report, items = ran(tmp_path, "+exp=int4_split", *suite, *options)
    rows = report[report["task"] == "induction_copy_400"].fillna({"band": ""}).set_index(["arm", "metric", "band"])
    assert set(rows["n_items"]) == {3}
    for arm in ("base", "both"):
        task, second, first = (rows.loc[(arm, "nll", band), "value"] for band in ("", "second_pass", "first_pass"))
        assert task == second != first
    kept = items.query("task == 'induction_copy_400' and metric == 'nll' and arm == 'base'")["band"]
    assert sorted(kept) == ["first_pass"] * 3 + ["second_pass"] * 3
    for task in tasks(add_bos=False):
        assert task.controls == ({"first_pass"} if task.name.startswith("induction_copy") else set())
