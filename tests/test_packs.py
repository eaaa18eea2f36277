"""Packs: every token sees exactly its own past, at its own position, and nothing is computed twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.packs import Pack, TokenSequence, batches, pack_plain, pack_trees, slots

tokens = st.lists(st.integers(0, 3), min_size=2, max_size=12)
sequences = st.lists(
    tokens.flatmap(lambda t: st.integers(1, len(t) - 1).map(lambda s: TokenSequence(tuple(t), s))),
    min_size=1,
    max_size=12,
)


def seen(pack: Pack, index: int) -> tuple[list[int], list[int]]:
    """Tokens and positions that one token sees, itself included."""
    at = np.flatnonzero(pack.visible()[index])
    return [pack.tokens[i] for i in at], [pack.position[i] for i in at]


def check_against_sequences(packs: list[Pack], given_sequences: list[TokenSequence]) -> None:
    """What predicts each slot sees its sequence's own past, in order."""
    first = slots(given_sequences)
    want = {}
    for sequence, slot in zip(given_sequences, first, strict=False):
        for k in range(sequence.scored):
            stop = sequence.start + k
            want[int(slot) + k] = (list(sequence.tokens[:stop]), sequence.tokens[stop])
    got = {}
    for pack in packs:
        for at, target, slot in zip(pack.at, pack.target, pack.slot, strict=True):
            past, positions = seen(pack, at)
            assert positions == list(range(len(past)))
            got[slot] = (past, target)
    assert got == want


@given(sequences, st.integers(1, 20))
def test_trees_give_every_slot_its_own_past(given_sequences, size):
    check_against_sequences(pack_trees(given_sequences, size), given_sequences)


@given(sequences)
def test_plain_packs_give_every_slot_its_own_past(given_sequences):
    packs = pack_plain(given_sequences)
    check_against_sequences(packs, given_sequences)
    assert not any(pack.is_tree for pack in packs)


@given(sequences, st.integers(1, 20), st.integers(2, 30), st.integers(1, 12))
def test_limits_bound_trees(given_sequences, size, tokens, depth):
    packs = pack_trees(given_sequences, size, tokens=tokens, depth=depth)
    check_against_sequences(packs, given_sequences)
    trees = [pack for pack in packs if pack.is_tree]
    assert all(len(pack) <= tokens and max(pack.position) < depth for pack in trees)


@given(sequences, st.integers(1, 40), st.none() | st.integers(1, 8))
def test_batches_hold_every_pack_once_within_the_token_budget(given_sequences, budget, depth):
    packs = pack_trees(given_sequences, 8, depth=depth)
    made = list(batches(packs, budget, depth))
    assert sorted(id(p) for batch in made for p in batch) == sorted(id(p) for p in packs)
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(map(len, batch)) <= budget
        assert len({pack.is_tree for pack in batch}) == 1
        assert depth is None or len({max(pack.position) < depth for pack in batch}) == 1


def test_shared_tokens_are_computed_once():
    context = tuple(range(100))
    four = [TokenSequence((*context, 200 + c, 7, 8), 100) for c in range(4)]
    packs = pack_trees(four, 64)
    assert len(packs) == 1
    assert len(packs[0]) == 100 + 4 * 2  # the last token of a choice is only a target


def test_question_is_not_torn_from_its_choices():
    questions = [TokenSequence((q, *range(50), c, 1), 51) for q in range(10) for c in range(4)]
    packs = pack_trees(questions, 64)
    assert sum(map(len, packs)) == 10 * (51 + 4)


def test_long_shared_beginning_makes_room_for_as_much_again():
    shots = tuple(range(1000))
    questions = [TokenSequence((*shots, 2000 + q, *range(20), c), 1021) for q in range(50) for c in range(4)]
    total = sum(map(len, pack_trees(questions, 256)))
    assert total < 3 * (1000 + 50 * 22)
    assert total * 20 < sum(len(q.tokens) - 1 for q in questions)
