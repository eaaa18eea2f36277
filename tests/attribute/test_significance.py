import numpy as np
import pytest
from scipy import stats

from harness.attribute.intervals import estimate, studentized
from harness.attribute.significance import mcnemar, p_values, sign_flip, step_down


def test_mcnemar_by_hand():
    assert mcnemar(0, 0) == 1
    assert mcnemar(5, 0) == pytest.approx(2 / 32)
    assert mcnemar(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert mcnemar(2, 8) == mcnemar(8, 2)


def test_sign_flip_exact_by_hand():
    rng = np.random.default_rng(0)
    assert sign_flip(np.array([1.0, 2, 3]), 100, rng) == pytest.approx(2 / 8)
    assert sign_flip(np.array([3.0, -1]), 100, rng) == pytest.approx(1)
    assert sign_flip(np.zeros(5), 100, rng) == 1


def test_sign_flip_drawn_agrees_with_the_t_test():
    difference = np.random.default_rng(3).normal(0.3, 1, size=60)
    drawn = sign_flip(difference, 20_000, np.random.default_rng(0))
    assert drawn == pytest.approx(stats.ttest_1samp(difference, 0).pvalue, abs=0.01)


def family(effect_E, seed, documents=80):
    numer_DE = np.random.default_rng(seed).normal(size=(documents, len(effect_E))) + effect_E
    found = estimate(numer_DE, np.ones(documents), [str(d) for d in range(documents)], 500, seed)
    return found.estimate_E / found.stderr_E, studentized(found), found.freedom_E


def test_step_down_is_monotone_and_never_below_the_single_test():
    family_t = family(np.array([0, 0.2, 0.5, 1, 0]), 0)
    adjusted, single = step_down(*family_t), p_values(*family_t)
    order = np.argsort(-np.abs(family_t[0]))
    assert (np.diff(adjusted[order]) >= 0).all()
    assert (adjusted >= single).all()
    assert adjusted[3] < 0.01 and adjusted[0] > single[0]


def test_step_down_of_copies_costs_nothing():
    t_E, t_BE, freedom_E = family(np.array([0.3]), 1)
    copies = step_down(np.repeat(t_E, 5), np.repeat(t_BE, 5, axis=1), np.repeat(freedom_E, 5))
    assert copies == pytest.approx(np.repeat(step_down(t_E, t_BE, freedom_E), 5))


def test_a_family_of_one_is_not_corrected():
    t_E, t_BE, freedom_E = family(np.array([0, 0.05, 0.2, 0.5, 1]), 2)
    freedom_E = freedom_E * [1, 0.01, 1, 0.1, 1]  # few documents: Student's t decides
    t_E = np.array([*t_E[:3], 0.0, np.inf])  # no loss at all, and one without spread
    alone = [step_down(t_E[e : e + 1], t_BE[:, e : e + 1], freedom_E[e : e + 1])[0] for e in range(len(t_E))]
    np.testing.assert_array_equal(p_values(t_E, t_BE, freedom_E), alone)


def test_false_alarms_in_a_family_stay_near_the_level():
    alarms = [step_down(*family(np.zeros(8), seed)).min() <= 0.05 for seed in range(200)]
    uncorrected = [p_values(*family(np.zeros(8), seed)).min() <= 0.05 for seed in range(100)]
    assert 0.01 <= np.mean(alarms) <= 0.09
    assert np.mean(uncorrected) > 0.2
