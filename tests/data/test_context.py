import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.context import DEPTHS, MAKERS, make_suite
from harness.data.filler import hide, sentences
from harness.errors import UserError


class Words:
    """A tokenizer of words and signs, each with the space before it."""

    def __init__(self):
        self.ids = {}

    def encode(self, text):
        return [self.ids.setdefault(piece, len(self.ids)) for piece in re.findall(r" ?\w+| ?[^\w\s]|\s", text)]

    def decode(self, ids):
        pieces = list(self.ids)
        return "".join(pieces[i] for i in ids)


@pytest.fixture(scope="module")
def words():
    return Words()


@pytest.fixture(scope="module")
def suite(words):
    return make_suite(words.encode, [160, 600], n_documents=6)


def of(suite, task, length=600):
    return [item for item in suite if item.task == task and item.length == length]


def test_no_item_is_longer_than_asked_and_few_are_much_shorter(suite):
    for item in suite:
        size = len(item.context) + max(len(choice) for choice in item.choices)
        assert size <= item.length
        if item.band != "first_pass" and item.length == 600:
            assert size > 500


def test_same_arguments_same_items_and_short_lists_begin_long_ones(words, suite):
    assert make_suite(words.encode, [160, 600], n_documents=6) == suite
    shorter = make_suite(words.encode, [600], n_documents=2)
    for task in MAKERS:
        assert of(shorter, task) == of(suite, task)[: len(of(shorter, task))]
    assert make_suite(words.encode, [600], n_documents=2, seed=1) != shorter


def test_passkey_stands_once_at_its_depth(words, suite):
    for item in of(suite, "passkey"):
        text = words.decode(item.context)
        key = words.decode(item.choices[item.gold]).strip()
        assert text.count(key) == 1
        depth = int(item.band.removeprefix("depth_")) / 100
        assert abs(text.index(key) / len(text) - depth) < 0.15
        others = {words.decode(choice).strip() for choice in item.choices} - {key}
        assert len(others) == 3 and not any(other in text for other in others)
    assert {item.band for item in of(suite, "passkey")} == {f"depth_{round(100 * depth)}" for depth in DEPTHS}


def test_key_value_asks_for_a_pair_in_the_text_and_distracts_with_other_values(words, suite):
    for item in of(suite, "key_value"):
        text = words.decode(item.context)
        asked = text[text.rindex(". ") + 2 :]
        assert text.count(asked) == 2
        pairs = [pair.rpartition(": ") for pair in text.removesuffix(f" {asked}").removesuffix(".").split(". ")]
        values = [words.decode(choice).strip() for choice in item.choices]
        assert f"{asked} {values[item.gold]}." in text
        assert len(set(values)) == 4 and set(values) <= {value for _, _, value in pairs}


def test_induction_copy_repeats_its_tokens(suite):
    first, second = of(suite, "induction_copy")[:2]
    assert first.context == () and second.context == first.choices[0] == second.choices[0]
    assert len(second.context) == 300
    assert first.document == second.document


def test_two_hops_lead_to_the_home(words, suite):
    for two, one in zip(of(suite, "two_hop")[::2], of(suite, "two_hop")[1::2], strict=True):
        text = words.decode(two.context)
        pupil = re.search(r"The teacher of (\w+) lives in$", text).group(1)
        teacher = re.search(rf"The teacher of {pupil} is (\w+)\.", text).group(1)
        home = words.decode(two.choices[two.gold]).strip()
        assert f"{teacher} lives in {home}." in text
        assert words.decode(one.context) == text.replace(f"The teacher of {pupil} lives in", f"{teacher} lives in")
        assert (two.choices, two.gold, two.document) == (one.choices, one.gold, one.document)


def test_conflict_says_a_lie_and_its_control_the_truth(words, suite):
    for lie, truth in zip(of(suite, "conflict")[::2], of(suite, "conflict")[1::2], strict=True):
        told = [words.decode(item.choices[item.gold]) for item in (lie, truth)]
        assert told[0] != told[1] and set(lie.choices) == set(truth.choices)
        for item, answer in zip((lie, truth), told, strict=True):
            text = words.decode(item.context)
            assert text.count(f"The city of {item.document} is in the country of{answer}.") == 1
            assert text.endswith(f"The city of {item.document} is in the country of")


@settings(max_examples=30, deadline=None)
@given(length=st.integers(40, 300), depth=st.floats(0, 1), seed=st.integers(0, 100))
def test_hide_keeps_needle_and_length(words, length, depth, seed):
    text = hide(words.encode, random.Random(seed), [(depth, "A needle!")], length)
    assert text.count("A needle!") == 1
    assert len(words.encode(text)) <= length


def test_a_length_that_holds_no_question_is_refused(words):
    with pytest.raises(UserError, match="a question takes 2 tokens more than allowed"):
        hide(words.encode, random.Random(0), [(0.5, "A needle lies here.")], 3)
    with pytest.raises(UserError, match="allow more"):
        make_suite(words.encode, [30], n_documents=1)


def test_sentences_are_whole_and_on_one_line():
    assert len(sentences()) > 1000
    assert all("\n" not in sentence and sentence[-1] in ".!?" for sentence in sentences()[:500])
