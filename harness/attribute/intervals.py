"""Bootstrap intervals for means over items when documents, not items, are the independent draws.

An estimate is a ratio of sums over documents d: theta = sum_d n_d / sum_d w_d. With w_d = items (or tokens) of the
document and n_d = the document's sum of scores it is the mean over items; with w_d = the document's part of the total
loss it is a share. Documents are resampled whole and every column in the same draw, so arms stay paired.

- Standard error: linearized over residuals r_d = n_d - theta w_d (Cochran, Sampling Techniques, 1977, section 6.4):
  se^2 = D/(D-1) sum_d r_d^2 / (sum_d w_d)^2. In a resample with multiplicities m_d the sum is expanded into three
  matrix products, so that thousands of resamples cost a few matrix multiplications.
- Few documents: bootstrap-t (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5).
  Many: plain percentiles.

Letters: B resamples, D documents, E estimates (columns).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

FEW_DOCUMENTS = 60  # below: percentiles are too narrow, bootstrap-t is used
CHUNK_CELLS = 2_000_000  # multiplicities held at once: 16 MB as float64


@dataclass(frozen=True)
class Draws:
    """Estimates with their resampled copies. `delta_BE` is the resampled estimate minus the estimate."""

    documents: int
    estimate_E: Array
    stderr_E: Array
    delta_BE: Array
    stderr_BE: Array


def resample(numer_DE: Array, denom_DE: Array, resamples: int, rng: np.random.Generator) -> Draws:
    """Draws of sum(numer) / sum(denom) over resampled documents, `denom_DE` being [D, E] or [D, 1]."""
    documents = len(numer_DE)
    total_E = denom_DE.sum(0)
    estimate_E = numer_DE.sum(0) / total_E
    residual_DE = numer_DE - estimate_E * denom_DE  # centred: the expansion below then loses no digits
    products = residual_DE**2, residual_DE * denom_DE, denom_DE**2
    stderr_E = _stderr(documents, products[0].sum(0), total_E)
    delta_BE = np.empty((resamples, numer_DE.shape[1]))
    stderr_BE = np.empty_like(delta_BE)
    step = max(1, CHUNK_CELLS // documents)
    for start in range(0, resamples, step):
        chunk = slice(start, min(start + step, resamples))
        count_BD = _multiplicities(chunk.stop - start, documents, rng)
        sum_BE = count_BD @ denom_DE
        delta_BE[chunk] = delta = (count_BD @ residual_DE) / sum_BE
        square, cross, weight = (count_BD @ product for product in products)
        stderr_BE[chunk] = _stderr(documents, square - 2 * delta * cross + delta**2 * weight, sum_BE)
    return Draws(documents, estimate_E, stderr_E, delta_BE, stderr_BE)


def interval(draws: Draws, level: float = 0.95) -> tuple[Array, Array]:
    """Lower and upper bounds of every estimate. NaN where all documents agree, since nothing tells the spread then."""
    tail = (1 - level) / 2
    if draws.documents >= FEW_DOCUMENTS:
        low_E, high_E = draws.estimate_E + np.quantile(draws.delta_BE, [tail, 1 - tail], axis=0)
    else:
        low_E, high_E = _bootstrap_t(draws, tail)
    known_E = varies(draws)
    return np.where(known_E, low_E, np.nan), np.where(known_E, high_E, np.nan)


def varies(draws: Draws) -> NDArray[np.bool_]:
    """Whether documents differ at all in an estimate."""
    return draws.stderr_E > 1e-13 * np.maximum(np.abs(draws.estimate_E), 1e-30)


def studentized(draws: Draws) -> Array:
    """t of every resample; infinite where a resample happened to hold no spread."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(draws.delta_BE / draws.stderr_BE, nan=0.0, posinf=np.inf, neginf=-np.inf)


def _bootstrap_t(draws: Draws, tail: float) -> tuple[Array, Array]:
    """Studentized bounds; Student's t where spreadless resamples are common enough to make a bound infinite."""
    t_BE = np.sort(studentized(draws), axis=0)
    rank = int(np.floor(tail * len(t_BE)))
    below_E, above_E = t_BE[rank], t_BE[-1 - rank]
    student = stats.t.ppf(1 - tail, draws.documents - 1)
    above_E = np.where(np.isfinite(above_E), above_E, student)
    below_E = np.where(np.isfinite(below_E), below_E, -student)
    return draws.estimate_E - above_E * draws.stderr_E, draws.estimate_E - below_E * draws.stderr_E


def _stderr(documents: int, square_E: Array, total_E: Array) -> Array:
    return np.sqrt(np.maximum(square_E, 0) * documents / (documents - 1)) / np.abs(total_E)


def _multiplicities(rows: int, documents: int, rng: np.random.Generator) -> Array:
    """How often each document was drawn, [rows, D]. Drawing indices and counting is far faster than `multinomial`."""
    index_BD = rng.integers(0, documents, size=(rows, documents), dtype=np.int64)
    index_BD += np.arange(rows)[:, None] * documents
    return np.bincount(index_BD.ravel(), minlength=rows * documents).reshape(rows, documents).astype(np.float64)
