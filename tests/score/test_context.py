"""The generated context suite as sequences: where a BOS stands, and what is refused."""

import pytest

from harness.config import BosUse, ContextSuiteConfig
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.score.context import context_tasks
from harness.score.encode import Encoder

SUITE = ContextSuiteConfig(lengths=[400], documents=2)


def tasks(add_bos, bos=BosUse.auto, positions=1000):
    return context_tasks(SUITE, Encoder(byte_tokenizer(add_bos), bos, positions), 258)


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
