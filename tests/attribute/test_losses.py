import numpy as np
import pytest

from harness.attribute import mean_stderr, paired_loss
from harness.errors import UserError

OPTIONS = {"resamples": 2000, "seed": 0, "level": 0.95}


def test_loss_is_positive_when_worse():
    base, arm, documents = np.array([1.0, 1, 0, 1]), np.array([0.0, 1, 0, 0]), np.arange(4)
    assert paired_loss(base, arm, documents, **OPTIONS, higher_is_better=True)[0] == 0.5
    assert paired_loss(base, arm, documents, **OPTIONS, higher_is_better=False)[0] == -0.5


def test_loss_is_the_mean_over_items_not_over_documents():
    arm, documents = np.array([3.0, 0, 0, 1]), np.array(["a", "b", "b", "b"])
    assert paired_loss(np.zeros(4), arm, documents, **OPTIONS, higher_is_better=False)[0] == 1.0
    weighted = paired_loss(np.zeros(4), arm, documents, **OPTIONS, higher_is_better=False, weights_N=[7, 1, 1, 1])
    assert weighted[0] == pytest.approx(2.2)


def test_stderr_of_singletons_is_the_textbook_one():
    values = np.random.default_rng(1).normal(size=50)
    mean, stderr = mean_stderr(values, np.arange(50))
    assert (mean, stderr) == (pytest.approx(values.mean()), pytest.approx(values.std(ddof=1) / np.sqrt(50)))


def test_repeating_items_within_documents_does_not_shrink_the_error():
    values = np.random.default_rng(1).normal(size=20)
    once = mean_stderr(values, np.arange(20))
    repeated = mean_stderr(np.repeat(values, 10), np.repeat(np.arange(20), 10))
    assert repeated == pytest.approx(once)


def test_same_seed_same_interval_other_seed_nearly():
    rng = np.random.default_rng(3)
    base, documents = rng.normal(size=200), np.repeat(np.arange(40), 5)
    arm = base + rng.exponential(size=200)
    seeds = [{**OPTIONS, "seed": s} for s in (0, 0, 1)]
    first, again, other = (paired_loss(base, arm, documents, **o, higher_is_better=False) for o in seeds)
    assert first == again != other
    assert first[1] < first[0] < first[2]
    assert np.allclose(first, other, atol=0.05)


def test_mcnemar_where_documents_are_items_and_sign_flips_where_not():
    base, arm = np.ones(12), np.r_[np.zeros(6), np.ones(6)]
    single = paired_loss(base, arm, np.arange(12), **OPTIONS, higher_is_better=True)[3]
    assert single == pytest.approx(2 / 2**6)
    paired = paired_loss(base, arm, np.repeat(np.arange(6), 2), **OPTIONS, higher_is_better=True)[3]
    assert paired == pytest.approx(2 / 2**3)  # three documents with flips, their signs alone count


def test_one_document_has_a_loss_but_no_interval():
    loss, low, high, p_value = paired_loss([1.0, 1], [0.0, 1], ["a", "a"], **OPTIONS, higher_is_better=True)
    assert loss == 0.5 and np.isnan([low, high, p_value]).all()


def test_constant_loss_has_no_interval():
    loss, low, high, p_value = paired_loss(np.ones(30), np.ones(30), np.arange(30), **OPTIONS, higher_is_better=True)
    assert loss == 0 and np.isnan([low, high]).all() and p_value == 1.0


def test_rare_flips_give_finite_bounds():
    arm = np.ones(30)
    arm[0] = 0
    loss, low, high, _ = paired_loss(np.ones(30), arm, np.arange(30), **OPTIONS, higher_is_better=True)
    assert low < 0 < loss < high < 0.2


def test_clear_words_for_other_items():
    with pytest.raises(UserError, match="base scored 2 items, the arm 3"):
        paired_loss([1.0, 2], [1.0, 2, 3], [0, 1], **OPTIONS, higher_is_better=True)
    with pytest.raises(UserError, match="arm: item 1 has score nan"):
        paired_loss([1.0, 2], [1.0, np.nan], [0, 1], **OPTIONS, higher_is_better=True)
    with pytest.raises(UserError, match="one document id"):
        paired_loss([1.0, 2], [1.0, 2], [0], **OPTIONS, higher_is_better=True)
    with pytest.raises(UserError, match="no items"):
        mean_stderr([], [])
