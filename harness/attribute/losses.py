"""Loss of one arm against base on the same items, with an interval and a p-value."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from harness.attribute.intervals import Array, interval, resample
from harness.attribute.significance import mcnemar, sign_flip
from harness.errors import UserError


def paired_loss(
    base_N: ArrayLike,
    arm_N: ArrayLike,
    documents_N: ArrayLike,
    *,
    higher_is_better: bool,
    resamples: int = 10_000,
    seed: int = 0,
    level: float = 0.95,
    weights_N: ArrayLike | None = None,
) -> tuple[float, float, float, float]:
    """(loss, lo, hi, p_value) of an arm; positive is worse. Item weights (tokens of a window) default to one.

    lo and hi are NaN where they cannot be known: one document, or every document with the same loss. The p-value is
    McNemar's where each document is one right-or-wrong item, else by sign flips of documents; NaN for one document.
    """
    base_N, arm_N = _scores("base", base_N), _scores("arm", arm_N)
    if base_N.shape != arm_N.shape:
        raise UserError(f"base scored {len(base_N)} items, the arm {len(arm_N)}: both must score the same items")
    loss_N = base_N - arm_N if higher_is_better else arm_N - base_N
    numer_D, denom_D = document_sums(loss_N, documents_N, weights_N)
    if len(numer_D) < 2:
        return float(numer_D.sum() / denom_D.sum()), np.nan, np.nan, np.nan
    rng = np.random.default_rng(seed)
    draws = resample(numer_D[:, None], denom_D[:, None], resamples, rng)
    low_E, high_E = interval(draws, level)
    if len(numer_D) == len(loss_N) and _is_binary(base_N) and _is_binary(arm_N):
        p_value = mcnemar(int((loss_N > 0).sum()), int((loss_N < 0).sum()))
    else:
        p_value = sign_flip(numer_D, resamples, rng)
    return float(draws.estimate_E[0]), float(low_E[0]), float(high_E[0]), p_value


def mean_stderr(values_N: ArrayLike, documents_N: ArrayLike, weights_N: ArrayLike | None = None) -> tuple[float, float]:
    """(mean over items, standard error clustered by document). NaN as the error of a single document."""
    numer_D, denom_D = document_sums(_scores("values", values_N), documents_N, weights_N)
    documents, mean = len(numer_D), numer_D.sum() / denom_D.sum()
    if documents < 2:
        return float(mean), np.nan
    square = ((numer_D - mean * denom_D) ** 2).sum() * documents / (documents - 1)
    return float(mean), float(np.sqrt(square) / denom_D.sum())


def document_sums(values_N: Array, documents_N: ArrayLike, weights_N: ArrayLike | None = None) -> tuple[Array, Array]:
    """Per document: weighted sum of values, sum of weights. Their ratio of totals is the mean over items."""
    label_N = np.asarray(documents_N)
    weight_N = np.ones(len(values_N)) if weights_N is None else np.asarray(weights_N, dtype=np.float64)
    if not len(label_N) == len(weight_N) == len(values_N):
        sizes = f"{len(values_N)} values, {len(label_N)} documents, {len(weight_N)} weights"
        raise UserError(f"scores: {sizes}; give one document id and one weight an item")
    if len(values_N) == 0:
        raise UserError("scores: no items, so there is nothing to average; check the task's limit and filters")
    index_N = np.unique(label_N, return_inverse=True)[1]
    return (
        np.bincount(index_N, values_N * weight_N).astype(np.float64),
        np.bincount(index_N, weight_N).astype(np.float64),
    )


def _scores(name: str, values_N: ArrayLike) -> Array:
    array_N = np.asarray(values_N, dtype=np.float64)
    if not np.isfinite(array_N).all():
        bad = int(np.flatnonzero(~np.isfinite(array_N))[0])
        raise UserError(f"{name}: item {bad} has score {array_N[bad]}; every arm must score every item with a number")
    return array_N


def _is_binary(values_N: Array) -> bool:
    return bool(np.isin(values_N, (0.0, 1.0)).all())
