"""Measured sensitivity against formulas, and intervals of what is no mean over items against closed forms."""

import numpy as np
import pytest

from harness.attribute import Scores
from harness.config import AttributeConfig
from harness.report.resampled import resampled_loss
from harness.report.sensitivity import sensitivity
from harness.score.measure import Summary
from tests.runs import ran

OPTIONS = AttributeConfig()
N = 80


def scores(metric, values, up, documents=None):
    documents = [str(n) for n in range(N)] if documents is None else documents
    return Scores("general", "t", metric, ["base", "ffn"], values, documents, higher_is_better=up)


def averaged(values_AN, documents):
    """A summary that is in truth a mean, so that its spread is known."""

    def mean(weight_RN):
        return weight_RN @ values_AN.T / weight_RN.sum(1, keepdims=True)  # fmt: skip

    return Summary("general", "t", "ece", "", False, values_AN.mean(1), len(documents), documents, mean)


def test_it_is_the_paired_loss_over_its_standard_error_and_ranks_metrics():
    rng = np.random.default_rng(0)
    loss = rng.normal(0.5, 1, N)
    base = rng.normal(0, 5, N)  # what pairing takes out
    nll, margin = scores("nll", [base, base + loss], False), scores("margin", [base, base - 0.1 * loss - 0.2], True)
    kl = scores("kl", [0 * base, 1 + 0.01 * np.abs(loss)], False)
    frame = sensitivity([nll, margin, kl], [], ["base", "ffn"]).set_index("metric")
    z = loss.mean() / (loss.std(ddof=1) / np.sqrt(N))
    assert frame.loc["nll", "sensitivity"] == pytest.approx(z) and frame.loc["nll", "loss"] == pytest.approx(
        loss.mean()
    )
    other = (0.1 * loss + 0.2).mean() / (0.1 * loss.std(ddof=1) / np.sqrt(N))
    assert frame.loc["margin", "sensitivity"] == pytest.approx(other)
    assert dict(frame["rank"].dropna()) == {"margin": 1, "nll": 2}  # kl is no harm: not ranked


def test_items_of_one_document_count_as_one_and_no_spread_has_no_sensitivity():
    rng = np.random.default_rng(1)
    loss = np.repeat(rng.normal(0.5, 1, N // 4), 4)
    apart, together = (
        sensitivity([scores("nll", [0 * loss, loss], False, documents)], [], ["base", "ffn"])
        for documents in (None, [str(n // 4) for n in range(N)])
    )
    assert apart["sensitivity"].item() == pytest.approx(2 * together["sensitivity"].item(), rel=0.03)
    same = sensitivity([scores("nll", [0 * loss, 0 * loss + 1], False)], [], ["base", "ffn"])
    assert np.isnan(same["sensitivity"].item())


def test_resampled_losses_are_paired_and_have_the_spread_of_a_mean():
    rng = np.random.default_rng(2)
    base, loss = rng.normal(0, 5, N), rng.normal(0.3, 1, N)
    found = resampled_loss(averaged(np.array([base, base + loss]), [str(n) for n in range(N)]), OPTIONS)
    assert found is not None
    stderr = loss.std() / np.sqrt(N)
    assert found.loss_A[1] == pytest.approx(loss.mean()) and found.stderr_A[1] == pytest.approx(stderr, rel=0.1)
    assert found.high_A[1] - found.low_A[1] == pytest.approx(2 * 1.96 * stderr, rel=0.1)
    assert found.loss_A[0] == found.stderr_A[0] == 0


def test_few_documents_or_no_way_to_weigh_give_none():
    values = np.ones((2, 30))
    assert resampled_loss(averaged(values, [str(n % 19) for n in range(30)]), OPTIONS) is None
    assert resampled_loss(Summary("s", "t", "f1", "", True, np.ones(2), 30), OPTIONS) is None


def test_a_run_writes_it_for_every_metric_and_the_report_has_the_intervals(tmp_path):
    small = ("model=tiny", "eval.context_suite.lengths=[]", "eval.limit=24", "eval.perplexity.max_windows=24",
             "eval.perplexity.window=48", "attribute.resamples=200")  # fmt: skip
    report, _ = ran(tmp_path, "+exp=int4_ffn_only", *small)
    for metric in ("ece", "word_perplexity"):
        rows = report[(report["metric"] == metric) & (report["arm"] == "ffn") & report["band"].isna()]
        assert len(rows) and (rows["loss_lo"] <= rows["loss_hi"]).all() and rows["p_value"].isna().all()
        assert rows["reason"].str.contains("percentiles").all()
    bands = report[(report["metric"] == "ece") & report["band"].notna() & (report["arm"] == "ffn")]
    assert len(bands) and bands["loss_lo"].isna().all()  # 8 documents each
    text = report[(report["task"] == "moby_dick") & (report["arm"] == "base")].set_index("metric")["value"]
    assert text["word_perplexity"] > text["perplexity"]
    assert len(list(tmp_path.glob("outputs/*/*/sensitivity.csv"))) == 1
