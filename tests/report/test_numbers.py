"""Numbers as shown."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report import numbers
from harness.report.numbers import Scale, scale_of

LOSSES = st.lists(st.floats(-20, 20), min_size=1, max_size=30)


def test_numbers_have_a_true_minus_and_no_signed_zero():
    assert numbers.number(-0.0123, 3) == "\N{MINUS SIGN}0.012"
    assert numbers.number(0.0123, 3, signed=True) == "+0.012"
    assert numbers.number(-0.0001, 3, signed=True) == "0.000"
    assert numbers.number(1234567.0, 0) == "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"


@pytest.mark.parametrize("empty", [None, pd.NA, float("nan")])
def test_missing_cells_are_empty(empty):
    assert numbers.number(empty) == numbers.percent(empty) == numbers.p_value(empty) == numbers.size(empty) == ""
    assert numbers.interval(empty, 1.0) == numbers.short(empty) == numbers.duration(empty) == ""


@pytest.mark.case("H14")
@pytest.mark.parametrize("word", ["None", "null", "NA", "nan", ""])
def test_words_are_never_missing(word):
    assert not numbers.missing(word) and numbers.short(word) == word


def test_units():
    assert numbers.size(3 * 2**30) == "3 GiB" and numbers.size(512) == "512 B"
    assert numbers.duration(5.24) == "5.24 s" and numbers.duration(200) == "3 min 20 s"
    assert numbers.duration(7500) == "2 h 5 min" and numbers.p_value(0.0004) == "<0.001"
    assert numbers.short(32) == "32" and numbers.short(0.123456) == "0.1235" and numbers.short(True) == "True"


def test_decimals_follow_the_width_of_intervals():
    assert numbers.decimals_for([0.10], [0.13]) == 3
    assert numbers.decimals_for([1.0], [7.0]) == 1
    assert numbers.decimals_for([None], [None]) == 3


@given(LOSSES)
def test_a_scale_keeps_order_and_stays_in_its_cell(losses):
    scale = scale_of(losses, (0.0, -0.01, 0.01))
    places = [scale.place(loss) for loss in sorted(losses)]
    assert places == sorted(places) and all(0 <= place <= 100 for place in places)
    assert 0.0 in scale.ticks and all(math.isfinite(scale.place(tick)) for tick in scale.ticks)


def test_a_broken_model_does_not_hide_the_others():
    losses = [0.01, 0.02, 0.03, 0.02, 12.0]
    scale = scale_of(losses)
    assert scale.bend and scale.place(0.03) - scale.place(0.01) > 5
    assert not Scale(0, 1).bend
