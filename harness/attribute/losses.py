"""Loss of one arm against base on the same items, with an interval and a p-value."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from harness.attribute.intervals import Array, estimate, interval
from harness.attribute.significance import mcnemar, sign_flip
from harness.errors import UserError


def paired_loss(
    base_N: ArrayLike,
    arm_N: ArrayLike,
    documents_N: ArrayLike,
    *,
    higher_is_better: bool,
    resamples: int,
    seed: int,
    level: float,
    weights_N: ArrayLike | None = None,
) -> tuple[float, float, float, float]:
    """(loss, lo, hi, p_value) of an arm; positive is worse. Item weights (tokens of a window) default to one.

    lo and hi are NaN where they cannot be known: one document, or every document with the same loss. The p-value is
    McNemar's where each document is one right-or-wrong item, else by sign flips of documents; NaN for one document.
    """
    base_N, arm_N = finite("base", base_N), finite("arm", arm_N)
    if base_N.shape != arm_N.shape:
        raise UserError(f"base scored {len(base_N)} items, the arm {len(arm_N)}: both must score the same items")
    loss_N = base_N - arm_N if higher_is_better else arm_N - base_N
    labels, numer_D, denom_D = document_sums(loss_N, documents_N, weights_N)
    if len(labels) < 2:
        return float(numer_D.sum() / denom_D.sum()), np.nan, np.nan, np.nan
    estimates = estimate(numer_D[:, None], denom_D, labels, resamples, seed)
    low_E, high_E = interval(estimates, level)
    p_value = difference_test(base_N, arm_N, numer_D, resamples, seed)
    return float(estimates.estimate_E[0]), float(low_E[0]), float(high_E[0]), p_value


def difference_test(base_N: Array, arm_N: Array, loss_D: Array, resamples: int, seed: int) -> float:
    """p-value of no loss: McNemar where every document is one right-or-wrong item, else sign flips of documents."""
    if len(loss_D) == len(base_N) and np.isin([base_N, arm_N], (0.0, 1.0)).all():
        return mcnemar(int((arm_N < base_N).sum()), int((arm_N > base_N).sum()))
    return sign_flip(loss_D, resamples, np.random.default_rng(seed))


def mean_stderr(values_N: ArrayLike, documents_N: ArrayLike, weights_N: ArrayLike | None = None) -> tuple[float, float]:
    """(mean over items, standard error clustered by document). NaN as the error of a single document."""
    _, numer_D, denom_D = document_sums(finite("values", values_N), documents_N, weights_N)
    mean = numer_D.sum() / denom_D.sum()
    if len(numer_D) < 2:
        return float(mean), np.nan
    square = ((numer_D - mean * denom_D) ** 2).sum() * len(numer_D) / (len(numer_D) - 1)
    return float(mean), float(np.sqrt(square) / denom_D.sum())


def document_sums(
    values_N: Array, documents_N: ArrayLike, weights_N: ArrayLike | None = None
) -> tuple[list[str], Array, Array]:
    """Per document, in order of its label: label, weighted sum of values, sum of weights."""
    label_N = np.asarray(documents_N)
    weight_N = np.ones(len(values_N)) if weights_N is None else finite("weights", weights_N)
    if not len(label_N) == len(weight_N) == len(values_N):
        sizes = f"{len(values_N)} values, {len(label_N)} documents, {len(weight_N)} weights"
        raise UserError(f"scores: {sizes}; give one document id and one weight an item")
    if len(values_N) == 0:
        raise UserError("scores: no items, so there is nothing to average; check the task's limit and filters")
    label_D, index_N = np.unique(label_N, return_inverse=True)
    sum_D, weight_D = (np.bincount(index_N, w).astype(np.float64) for w in (values_N * weight_N, weight_N))
    return [str(label) for label in label_D], sum_D, weight_D


def finite(name: str, values_N: ArrayLike) -> Array:
    """Scores as float64. UserError where one is missing or not a number."""
    array_N = np.asarray(values_N, dtype=np.float64)
    if not np.isfinite(array_N).all():
        bad = int(np.flatnonzero(~np.isfinite(array_N))[0])
        raise UserError(f"{name}: item {bad} has score {array_N[bad]}; every arm must score every item with a number")
    return array_N
