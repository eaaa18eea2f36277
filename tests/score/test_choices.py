"""Measures of choices against formulas written out item by item."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.score.choices import BINS, MARGIN_CUT, Choices

LOGP = st.floats(-60, 0)


def made(rng, items=60, arms=3):
    logp = [rng.normal(-5, 3, size=(arms, rng.integers(2, 6))) for _ in range(items)]
    return Choices(logp, [[int(rng.integers(own.shape[1]))] for own in logp])


@given(st.lists(LOGP, min_size=2, max_size=5), st.data())
def test_one_question_by_its_formulas(logp, data):
    gold = data.draw(st.integers(0, len(logp) - 1))
    choices = Choices([np.array([logp])], [[gold]])
    wrong = [value for n, value in enumerate(logp) if n != gold]
    weights = np.exp(np.array(logp) - max(logp))
    assert choices.prob_AN[0, 0] == pytest.approx(weights[gold] / weights.sum())
    assert choices.margin_AN[0, 0] == pytest.approx(max(-MARGIN_CUT, min(MARGIN_CUT, logp[gold] - max(wrong))))
    assert choices.right_AN[0, 0] == (np.argmax(logp) == gold)


def test_several_right_choices_share_the_probability_and_the_best_has_the_margin():
    choices = Choices([np.log([[0.5, 0.2, 0.3]])], [[1, 2]])
    assert choices.prob_AN[0, 0] == pytest.approx(0.5)
    assert choices.margin_AN[0, 0] == pytest.approx(np.log(0.3 / 0.5))


def by_hand(confidence, right):
    """Calibration error, bin by bin."""
    total = 0.0
    for b in range(BINS):
        inside = (confidence >= b / BINS) & ((confidence < (b + 1) / BINS) | (b == BINS - 1))
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


def ece_of(choices, documents):
    (whole,) = choices.calibration(documents, [""] * len(documents), subset="s", task="t")
    return whole


def test_calibration_error_is_what_bins_say():
    choices = made(np.random.default_rng(0))
    ece = ece_of(choices, [str(n) for n in range(60)])
    share = [np.exp(own - own.max(1, keepdims=True)) for own in choices.logp]
    confidence = np.stack([(own / own.sum(1, keepdims=True)).max(1) for own in share], axis=1)
    for arm in range(3):
        assert ece.value_A[arm] == pytest.approx(by_hand(confidence[arm], choices.right_AN[arm]))
    assert not ece.higher_is_better and ece.n_items == 60


def test_weights_count_items_as_often_as_they_are_drawn():
    choices = made(np.random.default_rng(1), items=20)
    drawn = np.array([0, 0, 0, 3, 5, 5, 19, 7] * 2 + [1, 2, 3, 4])
    again = Choices([choices.logp[n] for n in drawn], [choices.gold[n] for n in drawn])
    whole = ece_of(choices, ["d"] * 20)
    repeated = ece_of(again, ["d"] * 20)
    assert whole.weighted is not None
    np.testing.assert_allclose(
        whole.weighted(np.bincount(drawn, minlength=20)[None].astype(float))[0], repeated.value_A
    )


def test_a_calibrated_model_has_a_small_error_and_a_sure_one_a_large():
    rng = np.random.default_rng(2)
    p = rng.uniform(0.5, 1, 4000)
    gold = (rng.random(4000) > p).astype(int)
    honest = [np.log([[value, 1 - value]]) for value in p]
    boastful = [np.log([[0.99, 0.01]])] * 4000
    errors = [ece_of(Choices(logp, [[g] for g in gold]), ["d"] * 4000).value_A[0] for logp in (honest, boastful)]
    assert errors[0] < 0.03 and errors[1] == pytest.approx(0.24, abs=0.03)


def test_every_band_has_a_calibration_error_of_its_own():
    choices = made(np.random.default_rng(3), items=40)
    bands, documents = ["large", "small", "", "large"] * 10, [str(n) for n in range(40)]
    whole, *parts = choices.calibration(documents, bands, subset="s", task="t")
    assert [whole.band, *(part.band for part in parts)] == ["", "large", "small"]
    assert np.array_equal(whole.value_A, ece_of(choices, documents).value_A)
    for part in parts:
        own = [n for n in range(40) if bands[n] == part.band]
        alone = Choices([choices.logp[n] for n in own], [choices.gold[n] for n in own])
        assert np.array_equal(part.value_A, ece_of(alone, ["d"] * len(own)).value_A)
        assert list(part.documents) == [documents[n] for n in own] and part.n_items == len(own)
