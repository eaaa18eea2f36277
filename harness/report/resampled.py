"""Intervals for what is no mean over items (calibration error, word perplexity): percentiles over resampled documents.

Arms are resampled together, so their losses are paired. Percentile intervals are a little narrow under 60 documents
(`experiments/coverage`), and a calibration error is biased upwards, more so in a resample: read them as a size, not as
a test. None under 20 documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.attribute.verdict import CONFIRMATORY
from harness.config import AttributeConfig
from harness.score.measure import Summary

RESAMPLES = 1000  # of percentiles for orientation; attribute.resamples is for tests
CHUNK = 100  # resamples at once


@dataclass(frozen=True)
class Resampled:
    """Loss against base, and its spread, by arm."""

    loss_A: np.ndarray
    low_A: np.ndarray
    high_A: np.ndarray
    stderr_A: np.ndarray


def resampled_loss(summary: Summary, options: AttributeConfig) -> Resampled | None:
    """None where it cannot be resampled, or there are too few documents."""
    labels, document_N = np.unique(summary.documents, return_inverse=True)
    if summary.weighted is None or len(labels) < CONFIRMATORY:
        return None
    rng = np.random.default_rng(options.seed)
    sign = -1 if summary.higher_is_better else 1
    parts = []
    for _ in range(0, RESAMPLES, CHUNK):
        count_RD = rng.multinomial(len(labels), np.full(len(labels), 1 / len(labels)), size=CHUNK)
        parts.append(summary.weighted(count_RD[:, document_N].astype(float)))
    value_RA = np.concatenate(parts)
    loss_RA = sign * (value_RA - value_RA[:, :1])
    tail = (1 - options.level) / 2
    low_A, high_A = np.quantile(loss_RA, [tail, 1 - tail], axis=0)
    return Resampled(sign * (summary.value_A - summary.value_A[0]), low_A, high_A, loss_RA.std(axis=0, ddof=1))
