"""Tests of one paired loss against zero.

- McNemar, exact (McNemar 1947): only flips speak; of n flips the harmful ones are Binomial(n, 1/2) under no loss. Valid
  only where items are independent, that is where every document is one item.
- Sign flips by document (Fisher 1935, section 21; clustered as in Canay, Romano & Shaikh 2017): under no loss a
  document's summed difference is as likely as its negative. All 2^D sign patterns up to 12 documents, else random ones.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy import stats

from harness.attribute.intervals import CHUNK_CELLS, Array

EXACT_DOCUMENTS = 12  # 4,096 sign patterns


def mcnemar(harmed: int, helped: int) -> float:
    """Exact two-sided p-value from the number of items that flipped to wrong and to right."""
    flips = harmed + helped
    return 1.0 if flips == 0 else float(stats.binomtest(harmed, flips, 0.5).pvalue)


def sign_flip(difference_D: Array, resamples: int, rng: np.random.Generator) -> float:
    """Two-sided p-value of the sum of per-document differences."""
    documents = len(difference_D)
    if documents <= EXACT_DOCUMENTS:
        sign_BD = np.array(list(itertools.product((1.0, -1.0), repeat=documents)))
        return float(_as_extreme(sign_BD, difference_D).mean())
    step = max(1, CHUNK_CELLS // documents)
    hits = 0
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        sign_BD = rng.integers(0, 2, size=(rows, documents), dtype=np.int8).astype(np.float64) * 2 - 1
        hits += int(_as_extreme(sign_BD, difference_D).sum())
    return (1 + hits) / (1 + resamples)


def _as_extreme(sign_BD: Array, difference_D: Array) -> np.ndarray:
    tolerance = 1e-12 * np.abs(difference_D).sum()  # equal sums in another order of addition
    return np.abs(sign_BD @ difference_D) >= abs(difference_D.sum()) - tolerance


def p_values(t_E: Array, t_BE: Array, freedom_E: Array) -> Array:
    """Each estimate against zero by itself: share of resamples as extreme, and never below Student's t."""
    extreme_E = (np.abs(t_BE) >= np.abs(t_E)).sum(0)
    return np.maximum((1 + extreme_E) / (1 + len(t_BE)), 2 * stats.t.sf(np.abs(t_E), freedom_E))


def step_down(t_E: Array, t_BE: Array, freedom_E: Array) -> Array:
    """p-values corrected for having tested all: max-T step-down (Westfall & Young 1993, algorithm 2.8).

    The largest |t| is held against the resamples' largest |t| of all, the next against the largest of the rest, and so
    on; resampling jointly keeps the dependence between tests, which makes this far less severe than Bonferroni.
    """
    order = np.argsort(-np.abs(t_E), kind="stable")
    rest_BE = np.maximum.accumulate(np.abs(t_BE)[:, order[::-1]], axis=1)[:, ::-1]
    adjusted = (1 + (rest_BE >= np.abs(t_E)[order]).sum(0)) / (1 + len(t_BE))
    adjusted_E = np.empty_like(t_E)
    adjusted_E[order] = np.maximum.accumulate(adjusted)
    return np.maximum(adjusted_E, p_values(t_E, t_BE, freedom_E))
