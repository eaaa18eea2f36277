"""Intervals hold the truth as often as they say, over simulated documents of very unequal size with alike items."""

import pytest

from harness.attribute.simulate import ITEMS, OURS, WORLDS, coverage
from harness.config import AttributeConfig

OPTIONS = AttributeConfig(resamples=400)
SKEWED, _, FLIPS = WORLDS


def covered(world, documents, simulations):
    table = coverage(world, documents, simulations, OPTIONS)
    return {way: table[table["interval"] == way].set_index("effect")["coverage"] for way in (OURS, ITEMS)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("documents", "least", "most"), [(10, 0.91, 1), (30, 0.91, 1), (60, 0.93, 0.97), (200, 0.93, 0.97)]
)
def test_intervals_cover_and_those_of_independent_items_do_not(documents, least, most):
    found = covered(SKEWED, documents, 1000)
    assert found[OURS].min() >= least and found[OURS].max() <= most
    assert set(found[OURS].index) == {"total", "shapley", "interaction", "contrast", "share"}
    assert found[ITEMS].max() < 0.75


@pytest.mark.slow
def test_intervals_cover_right_or_wrong_items():
    assert covered(FLIPS, 60, 300)[OURS].between(0.92, 0.98).all()
