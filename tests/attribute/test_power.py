import numpy as np
import pytest
from scipy import stats

from harness.attribute.power import BASE_SCORES, PRIORS, TEXT_PRIORS, over_tasks, resolution, smallest_loss


def test_smallest_loss_is_found_four_times_in_five():
    drawn_SN = np.random.default_rng(0).normal(smallest_loss(1 / np.sqrt(40), 39, 0.95), 1, (4000, 40))
    assert np.mean(stats.ttest_1samp(drawn_SN, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.02)


def test_sixty_items_resolve_about_twelve_points_of_accuracy():
    found = resolution("knowledge", "quiz", "acc", np.arange(60), 0.95)
    assert found.smallest == pytest.approx(0.12, abs=0.01) and found.source == "prior"
    assert found.warns and (found.n_items, found.n_documents) == (60, 60)


def test_more_items_resolve_less_and_alike_items_count_less():
    few, many = (resolution("a", "b", "nll", np.arange(n), 0.95).smallest for n in (60, 6000))
    assert many == pytest.approx(few / 10, rel=0.03)
    clustered = resolution("a", "b", "nll", np.repeat(np.arange(60), 100), 0.95).smallest
    assert few > clustered > 2 * many
    assert resolution("a", "b", "nll", np.arange(6000), 0.95).warns is False
    text = resolution("a", "b", "nll", np.arange(20), 0.95, TEXT_PRIORS)
    assert text.smallest < few and not text.warns


def test_base_scores_replace_the_prior():
    base = np.random.default_rng(0).normal(3, 4 * PRIORS["nll"].spread, 200)
    known = resolution("a", "b", "nll", np.arange(200), 0.95, base_N=base)
    assert known.source == "base scores"
    assert known.smallest == pytest.approx(4 * resolution("a", "b", "nll", np.arange(200), 0.95).smallest, rel=0.1)


def test_the_ratio_to_base_is_mcnemars_discordance():
    """Items flip as often as the prior says: the loss that is found four times in five is the one stated."""
    rng, prior, accuracy, n = np.random.default_rng(1), PRIORS["acc"], 0.8, 400
    base_N = (np.arange(n) < accuracy * n).astype(float)
    found = resolution("a", "b", "acc", np.arange(n), 0.95, base_N=base_N)
    discordant = prior.ratio**2 * accuracy * (1 - accuracy)
    assert found.stderr == pytest.approx(np.sqrt(discordant / n), rel=2e-3)
    worse, better = (discordant + found.smallest) / 2, (discordant - found.smallest) / 2
    drawn_SN = rng.choice([1.0, -1.0, 0.0], p=[worse, better, 1 - discordant], size=(2000, n))
    assert np.mean(stats.ttest_1samp(drawn_SN, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.04)


def test_base_scores_say_nothing_of_kl_nor_where_base_is_always_right():
    for metric, base in (("kl", np.zeros(60)), ("kl", np.arange(60.0)), ("acc", np.ones(60))):
        found = resolution("a", "b", metric, np.arange(60), 0.95, base_N=base)
        assert found == resolution("a", "b", metric, np.arange(60), 0.95) and found.source == "prior"


def test_a_subset_resolves_less_than_its_tasks_unless_they_share_documents():
    rng = np.random.default_rng(0)
    tasks = [
        resolution("a", name, "acc", np.arange(100), 0.95, base_N=rng.integers(0, 2, 100).astype(float))
        for name in "bcd"
    ]
    labels = [{f"{name}{n}" for n in range(100)} for name in "bcd"]
    apart, shared = (over_tasks(tasks, documents, 0.95) for documents in (labels, [labels[0]] * 3))
    assert apart.smallest == pytest.approx(np.mean([one.smallest for one in tasks]) / np.sqrt(3), rel=0.03)
    assert shared.smallest == pytest.approx(np.mean([one.smallest for one in tasks]), rel=0.03)
    assert (apart.task, apart.n_items, apart.n_documents, apart.source) == ("all", 300, 300, BASE_SCORES)
    mixed = over_tasks([*tasks, resolution("a", "e", "acc", np.arange(9), 0.95)], [*labels, set("efghijklm")], 0.95)
    assert mixed.source == "prior" and mixed.freedom < 4 * 99


def test_only_tasks_that_share_documents_are_taken_to_err_alike():
    """Capitals and currencies of the same countries, cities of their own: as far as one document is common to two."""
    tasks = [resolution("a", name, "acc", np.arange(100), 0.95) for name in "bcde"]
    labels = [{f"{name}{n}" for n in range(100)} for name in "bcde"]
    labels[2] = {"b0", *sorted(labels[2])[1:]}
    found = over_tasks(tasks, labels, 0.95)
    own = tasks[0].stderr / 4
    assert found.stderr == pytest.approx(np.sqrt((2 * own) ** 2 + own**2 + own**2))
    assert found.n_documents == 399
    chain = [{"x"}, {"x", "y"}, {"y"}, {"z"}]  # the first and the third err alike by way of the second
    assert over_tasks(tasks, chain, 0.95).stderr == pytest.approx(np.sqrt((3 * own) ** 2 + own**2))


def test_filters_of_a_metric_have_its_prior():
    own, filtered = (resolution("a", "b", m, np.arange(60), 0.95) for m in ("exact_match", "exact_match,strict"))
    assert own.smallest == filtered.smallest and filtered.metric == "exact_match,strict"


def test_nothing_is_said_where_nothing_is_known():
    assert resolution("a", "b", "exotic", np.arange(60), 0.95) is None
    assert resolution("a", "b", "nll", np.zeros(60), 0.95) is None
