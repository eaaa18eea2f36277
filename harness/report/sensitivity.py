"""Which metric sees an arm's loss best, measured: sensitivity.csv.

    sensitivity = loss / its standard error, documents paired with base

Metrics of one task and arm are compared on the same items, so the largest |sensitivity| is the metric that resolves
this loss with the fewest items (twice the sensitivity: a quarter of them). `kl` is a deviation, never negative: its
figure says how precisely it is known, not that something got worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.attribute import Scores, mean_stderr
from harness.report.resampled import Resampled
from harness.score.measure import Summary

COLUMNS = ["subset", "task", "metric", "arm", "n_items", "n_documents", "loss", "stderr", "sensitivity", "rank"]


def sensitivity(
    scores: Sequence[Scores], summaries: Sequence[tuple[Summary, Resampled | None]], arms: Sequence[str]
) -> pd.DataFrame:
    """A row for every arm but base, task and metric; `rank` 1 is the task's most sensitive metric in that arm."""
    rows = [row for one in scores for row in _of_scores(one)]
    rows += [row for one, found in summaries for row in _of_summary(one, found, arms)]
    frame = pd.DataFrame(rows, columns=COLUMNS[:-1])
    size = frame["sensitivity"].abs().where(frame["metric"] != "kl")
    keys = [frame[name] for name in ("subset", "task", "arm")]
    return frame.assign(rank=size.groupby(keys).rank(ascending=False, method="min").astype("Int64"))


def _of_scores(scores: Scores) -> Iterator[dict[str, Any]]:
    named = {"subset": scores.subset, "task": scores.task, "metric": scores.metric}
    documents = np.asarray(scores.documents_N)
    for arm, loss_N in zip(scores.arms, scores.losses_AN, strict=True):
        if arm != "base":
            loss, stderr = mean_stderr(loss_N, documents, scores.weights_N)
            yield {**named, **_cells(arm, len(documents), len(set(documents)), loss, stderr)}


def _of_summary(summary: Summary, found: Resampled | None, arms: Sequence[str]) -> Iterator[dict[str, Any]]:
    named = {"subset": summary.subset, "task": summary.task, "metric": summary.metric}
    for n, arm in enumerate(arms):
        if found and arm != "base":
            cells = _cells(arm, summary.n_items, len(set(summary.documents)), found.loss_A[n], found.stderr_A[n])
            yield {**named, **cells}


def _cells(arm: str, items: int, documents: int, loss: float, stderr: float) -> dict[str, Any]:
    known = np.isfinite(stderr) and stderr > 0
    return {
        "arm": arm,
        "n_items": items,
        "n_documents": documents,
        "loss": loss,
        "stderr": stderr,
        "sensitivity": loss / stderr if known else np.nan,
    }
