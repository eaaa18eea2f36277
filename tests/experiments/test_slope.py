"""The slope of a loss on popularity: the fit itself against a library, its clusters against repeated items."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.long_tail.slope import mastered, slope, slopes


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_it_is_the_least_squares_slope_and_its_interval_covers(rng):
    hits = 0
    for _ in range(200):
        x = rng.uniform(2, 7, 120)
        y = 1 - 0.3 * x + rng.normal(size=120)
        b, low, high = slope(x, y, np.arange(120))
        assert b == pytest.approx(stats.linregress(x, y).slope)
        hits += low < -0.3 < high
    assert 180 <= hits <= 198


def test_items_of_one_entity_count_as_one(rng):
    x, y = rng.uniform(2, 7, 50), rng.normal(size=50)
    once = slope(x, y, np.arange(50))
    thrice = slope(np.tile(x, 3), np.tile(y, 3), np.tile(np.arange(50), 3))
    apart = slope(np.tile(x, 3), np.tile(y, 3), np.arange(150))
    assert thrice[0] == pytest.approx(once[0])
    assert thrice[2] - thrice[1] == pytest.approx(once[2] - once[1], rel=0.02)
    assert apart[2] - apart[1] < 0.7 * (once[2] - once[1])


def test_bands_that_base_does_not_master_and_items_without_popularity_are_left_out(rng):
    ids = [str(n) for n in range(90)]
    band = np.repeat(["large", "medium", "small"], 30)
    popularity = np.concatenate([10.0 ** rng.uniform(2, 6, 89), [0.0]])
    rows = []
    for arm in ("base", "ffn", "noise.0"):
        right = np.where(band == "small", np.arange(90) % 4 == 0, True).astype(float)
        nll = 2.0 + (0 if arm == "base" else 1.0 - 0.2 * np.log10(np.maximum(popularity, 1)))
        for metric, values in (("acc", right), ("nll", nll * np.ones(90)), ("kl", nll * 0), ("prob", right)):
            rows.append(pd.DataFrame({"arm": arm, "subset": "knowledge", "task": "t", "item_id": ids, "doc_id": ids,
                                      "band": band, "metric": metric, "value": values}))  # fmt: skip
    items = pd.concat(rows)
    questions = pd.DataFrame({"subset": "knowledge", "task": "t", "item_id": ids, "popularity": popularity})
    assert mastered(items, 0.25) == ["large", "medium"]
    found = slopes(items, questions, 0.25)
    (nll,) = found[found["metric"] == "nll"].to_dict("records")
    assert (nll["arm"], nll["n_items"], nll["bands"]) == ("ffn", 60, "large medium")
    assert nll["slope"] == pytest.approx(-0.2)
