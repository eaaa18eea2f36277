import numpy as np
import pytest
from scipy import stats

from harness.attribute.power import PRIORS, TEXT_NLL, resolution, smallest_loss


def test_smallest_loss_is_found_four_times_in_five():
    drawn_SN = np.random.default_rng(0).normal(smallest_loss(1 / np.sqrt(40), 40, 0.95), 1, (4000, 40))
    assert np.mean(stats.ttest_1samp(drawn_SN, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.02)


def test_sixty_items_resolve_about_twelve_points_of_accuracy():
    found = resolution("knowledge", "quiz", "acc", np.arange(60), 0.95)
    assert found.smallest == pytest.approx(0.12, abs=0.01) and found.source == "prior"
    assert "60 documents resolve a loss of 0.13 in acc (80% power, from prior)" in found.warning


def test_more_items_resolve_less_and_alike_items_count_less():
    few, many = (resolution("a", "b", "nll", np.arange(n), 0.95).smallest for n in (60, 6000))
    assert many == pytest.approx(few / 10, rel=0.03)
    clustered = resolution("a", "b", "nll", np.repeat(np.arange(60), 100), 0.95).smallest
    assert few > clustered > 2 * many
    assert resolution("a", "b", "nll", np.arange(6000), 0.95).warning == ""
    text = resolution("a", "b", "nll", np.arange(20), 0.95, TEXT_NLL)
    assert text.smallest < few and text.warning == ""


def test_base_scores_replace_the_prior():
    base = np.random.default_rng(0).normal(3, 4 * PRIORS["nll"].spread, 200)
    known = resolution("a", "b", "nll", np.arange(200), 0.95, base_N=base)
    assert known.source == "base scores"
    assert known.smallest == pytest.approx(4 * resolution("a", "b", "nll", np.arange(200), 0.95).smallest, rel=0.1)


def test_nothing_is_said_where_nothing_is_known():
    assert resolution("a", "b", "exotic", np.arange(60), 0.95) is None
    assert resolution("a", "b", "nll", np.zeros(60), 0.95) is None
