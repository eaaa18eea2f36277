import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.attribute.intervals import combine, critical, estimate, interval, share_interval
from harness.attribute.losses import document_sums


def draws(numer_DE, weight_D=None, labels=None, resamples=2000, seed=0):
    weight_D = np.ones(len(numer_DE)) if weight_D is None else weight_D
    return estimate(numer_DE, weight_D, labels or [str(d) for d in range(len(numer_DE))], resamples, seed)


def jackknife(numer_D, weight_D):
    left_out = [np.delete(numer_D, d).sum() / np.delete(weight_D, d).sum() for d in range(len(numer_D))]
    centre = numer_D.sum() / weight_D.sum()
    return np.sqrt((len(numer_D) - 1) / len(numer_D) * np.sum((np.array(left_out) - centre) ** 2))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40))
def test_standard_error_is_the_delete_one_document_jackknife(seed, documents):
    rng = np.random.default_rng(seed)
    numer_D, weight_D = rng.normal(size=documents), rng.integers(1, 30, documents).astype(float)
    found = draws(numer_D[:, None], weight_D, resamples=10)
    assert found.stderr_E[0] == pytest.approx(jackknife(numer_D, weight_D), rel=1e-9)


def test_resampled_copies_equal_resampling_the_slow_way():
    rng = np.random.default_rng(1)
    numer_DE, weight_D = rng.normal(size=(30, 2)), rng.integers(1, 5, 30).astype(float)
    found = draws(numer_DE, weight_D, resamples=100_000)
    index_BD = rng.integers(0, 30, size=(100_000, 30))
    slow_BE = numer_DE[index_BD].sum(1) / weight_D[index_BD].sum(1)[:, None] - found.estimate_E
    assert np.allclose(found.delta_BE.std(0), slow_BE.std(0), rtol=0.02)
    assert np.allclose(
        np.quantile(found.delta_BE, [0.05, 0.9], axis=0), np.quantile(slow_BE, [0.05, 0.9], axis=0), atol=0.005
    )
    equal = draws(numer_DE, resamples=20_000)
    assert equal.stderr_BE.mean(0) == pytest.approx(equal.stderr_E, rel=0.05)


def test_copies_pair_the_columns():
    numer_D = np.random.default_rng(0).normal(size=50)
    found = draws(np.stack([numer_D, 2 * numer_D, -numer_D], axis=1))
    assert np.allclose(found.delta_BE[:, 1], 2 * found.delta_BE[:, 0])
    assert np.allclose(found.stderr_BE[:, 2], found.stderr_BE[:, 0])


def test_many_equal_documents_give_the_normal_interval():
    numer_D = np.random.default_rng(0).normal(1, 1, size=4000)
    low_E, high_E = interval(draws(numer_D[:, None], resamples=10_000), 0.95)
    half = stats.norm.ppf(0.975) * numer_D.std(ddof=1) / np.sqrt(4000)
    assert (high_E - low_E)[0] / 2 == pytest.approx(half, rel=0.03)


def test_few_documents_are_never_narrower_than_student():
    for seed in range(5):
        numer_D = np.random.default_rng(seed).exponential(size=6)
        assert critical(draws(numer_D[:, None]), 0.95)[0] >= stats.t.ppf(0.975, 5)


def test_interval_scales_and_shifts_with_the_scores():
    numer_D = np.random.default_rng(0).exponential(size=(25, 1))
    low, high = (bound[0] for bound in interval(draws(numer_D), 0.95))
    moved = [bound[0] for bound in interval(draws(3 * numer_D + 2), 0.95)]
    assert moved == pytest.approx([3 * low + 2, 3 * high + 2])


def test_resamples_of_one_document_count_as_spreadless():
    low_E, high_E = interval(draws(np.eye(1, 30).T), 0.95)  # one flip among 30 documents
    assert np.isfinite([low_E[0], high_E[0]]).all()
    assert low_E[0] < 0 < high_E[0] < 0.2


def test_documents_that_agree_have_no_interval():
    assert np.isnan(interval(draws(np.full((30, 1), 0.1)), 0.95)).all()


def test_chunks_do_not_change_the_draws(monkeypatch):
    numer_DE = np.random.default_rng(0).normal(size=(40, 3))
    whole = draws(numer_DE)
    monkeypatch.setattr("harness.attribute.intervals.CHUNK_CELLS", 40 * 7)
    assert np.allclose(draws(numer_DE).delta_BE, whole.delta_BE, atol=1e-12)


def test_shares_of_proportional_parts_are_exact():
    total_D = np.random.default_rng(0).exponential(size=30)
    found = draws(np.stack([0.3 * total_D, total_D], axis=1))
    assert share_interval(found, 0, 1, 0.95) == pytest.approx((0.3, 0.3))


def test_share_interval_holds_exactly_the_shares_that_a_test_does_not_reject():
    rng = np.random.default_rng(2)
    total_D = rng.exponential(size=20) + 0.5
    part_D = 0.6 * total_D + 0.2 * rng.normal(size=20)
    found = draws(np.stack([part_D, total_D], axis=1))
    for share in share_interval(found, 0, 1, 0.95):
        edge = draws((part_D - share * total_D)[:, None])
        assert abs(edge.estimate_E[0] / edge.stderr_E[0]) == pytest.approx(stats.t.ppf(0.975, 19))


def test_combination_of_independent_tasks():
    rng = np.random.default_rng(0)
    first, second = (
        draws(rng.normal(size=(30, 1))),
        draws(rng.normal(size=(30, 1)), labels=[f"b{n}" for n in range(30)]),
    )
    found = combine([first, second], [1, -1])
    assert found.stderr_E[0] == pytest.approx(np.hypot(first.stderr_E[0], second.stderr_E[0]))
    assert found.delta_BE.std() == pytest.approx(found.stderr_E[0], rel=0.1)
    assert found.freedom_E[0] == pytest.approx(58, rel=0.1)


def test_combination_over_the_same_documents_knows_that_they_are_the_same():
    numer_DE = np.random.default_rng(0).normal(size=(30, 1))
    other_DE = numer_DE + 0.1 * np.random.default_rng(1).normal(size=(30, 1))
    apart = combine([draws(other_DE), draws(numer_DE)], [1, -1])
    direct = draws(other_DE - numer_DE)
    assert apart.stderr_E == pytest.approx(direct.stderr_E)
    assert np.allclose(apart.delta_BE, direct.delta_BE)
    assert interval(apart, 0.95)[1] == pytest.approx(interval(direct, 0.95)[1], abs=0.01)


def test_combination_over_documents_shared_in_part_knows_which_they_are():
    """By brute force: the jackknife leaves a document out of both tasks; the truth is the spread over new worlds."""
    rng = np.random.default_rng(0)
    names = [f"d{n:03}" for n in range(200)]
    first, second = names[:150], names[20:]

    def world():
        world_D = 0.8 * rng.normal(size=200)
        return [world_D[n : n + len(own)] + 0.6 * rng.normal(size=len(own)) for n, own in ((0, first), (20, second))]

    true = {sign: np.std([a.mean() + sign * b.mean() for a, b in (world() for _ in range(4000))]) for sign in (1, -1)}
    one, two = world()
    parts = [draws(one[:, None], labels=first), draws(two[:, None], labels=second)]
    for sign in (1, -1):
        found = combine(parts, [1, sign])
        without = [
            np.mean([x for x, n in zip(one, first, strict=True) if n != name])
            + sign * np.mean([x for x, n in zip(two, second, strict=True) if n != name])
            for name in names
        ]
        jackknife = np.sqrt(199 / 200 * ((np.array(without) - found.estimate_E[0]) ** 2).sum())
        assert found.stderr_E[0] == pytest.approx(jackknife, rel=0.005)
        assert found.stderr_E[0] == pytest.approx(true[sign], rel=0.15)
        assert found.delta_BE.std() == pytest.approx(found.stderr_E[0], rel=0.05)
        assert critical(found, 0.95)[0] == pytest.approx(1.97, rel=0.05)
        assert found.freedom_E[0] <= 198
    assert combine(parts, [1, 1]).stderr_E[0] > 1.15 * np.hypot(*(part.stderr_E[0] for part in parts))


def test_differences_of_combinations_keep_what_is_shared():
    rng = np.random.default_rng(1)
    names = [f"d{n:02}" for n in range(60)]
    sets = (names[:40], names[20:], names[10:50])
    parts = [draws(rng.normal(size=(len(own), 1)), labels=own) for own in sets]
    nested = combine([combine(parts[:2], [0.5, 0.5]), parts[2]], [1, -1])
    flat = combine(parts, [0.5, 0.5, -1])
    assert nested.stderr_E == pytest.approx(flat.stderr_E)
    assert nested.delta_BE.std() == pytest.approx(nested.stderr_E[0], rel=0.05)


def test_combination_of_equal_estimates_leaves_nothing_to_tell():
    part = draws(np.random.default_rng(0).normal(size=(30, 2)) * [1, 0])
    nothing = combine([part, part], [1, -1])
    assert nothing.freedom_E.tolist() == [29, 29] and np.isnan(interval(nothing, 0.95)).all()


def test_document_sums_follow_labels_not_positions():
    labels, sum_D, weight_D = document_sums(np.array([1.0, 2, 3]), ["b", "a", "b"], [1, 1, 2])
    assert labels == ["a", "b"] and sum_D.tolist() == [2, 7] and weight_D.tolist() == [1, 3]
