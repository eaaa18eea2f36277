import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.items import (
    Item,
    at_most_each,
    by_terciles,
    count_mentions,
    draw_choices,
    gives_away,
    interleave,
    load_items,
    read_tsv,
    write_jsonl,
)


@given(seed=st.integers(0, 10**6), answers=st.lists(st.sampled_from("abcdefgh"), min_size=8, max_size=30))
def test_choices_hold_the_right_one_once_and_no_other_twice(seed, answers):
    answers = [*answers, *"abcd"]
    choices, gold = draw_choices(random.Random(seed), "a", answers, lambda _: True)
    assert choices[gold] == "a"
    assert len(choices) == len(set(choices)) == 4
    assert set(choices) <= set(answers)


def test_distractors_come_in_the_frequency_of_answers_and_only_wrong_ones():
    answers = ["common"] * 8 + ["rare", "x", "y", "right", "also right"]
    drawn = Counter()
    for seed in range(500):
        choices, gold = draw_choices(random.Random(seed), "right", answers, lambda a: a != "also right", n_choices=2)
        drawn[choices[1 - gold]] += 1
    assert drawn["also right"] == 0
    assert 300 < drawn["common"] < 425  # 8 of 11 are expected: 364


def test_too_few_wrong_answers_are_a_bug_of_the_source():
    with pytest.raises(AssertionError, match="only 1 wrong"):
        draw_choices(random.Random(0), "a", ["a", "b"], lambda _: True)


def test_interleave_takes_bands_in_turn():
    bands = [[Item("", (), 0, "", band)] * n for band, n in (("large", 3), ("small", 1))]
    assert [item.band for item in interleave(bands)] == ["large", "small", "large", "large"]


def test_at_most_each():
    rows = [{"k": value, "n": str(n)} for n, value in enumerate("aababa")]
    assert [row["n"] for row in at_most_each(rows, "k", 2)] == ["0", "1", "2", "4"]


@pytest.mark.parametrize(
    ("name", "answer", "given_away"),
    [
        ("Mexico City", "Mexico", True),
        ("Singapore", "Singapore", True),
        ("Tunis", "Tunisia", True),
        ("Lake Victoria", "a lake", True),
        ("Lima", "Peru", False),
        ("Guinea-Bissau", "Papua New Guinea", True),
    ],
)
def test_gives_away(name, answer, given_away):
    assert gives_away(name, answer) is given_away


def test_terciles_rank_by_number_not_by_text():
    rows = [{"n": str(n)} for n in (9, 100, 20, 3, 1000, 1)]
    bands = by_terciles(rows, "n", ("large", "medium", "small"))
    assert [[row["n"] for row in band] for band in bands.values()] == [["1000", "100"], ["20", "9"], ["3", "1"]]


def test_mentions_count_texts_not_words():
    count = count_mentions(["New York and New York", "a city near New York", "york"])
    assert count["New York"] == 2
    assert count["York"] == 2


def test_jsonl_round_trip(tmp_path):
    items = [Item("Où?", ("là", "ici"), 1, "d", "b"), Item("q", ("x", "y"), 0, "d", "b", 3.0, "p")]
    write_jsonl(items, tmp_path / "x.jsonl")
    assert load_items(tmp_path / "x.jsonl") == items
    assert "popularity" not in (tmp_path / "x.jsonl").read_text(encoding="utf-8").splitlines()[0]


def test_tsv_with_a_short_line_is_refused(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("a\tb\n1\t2\n3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="shorter"):
        read_tsv(path)
