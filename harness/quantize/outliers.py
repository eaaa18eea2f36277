"""Input channels kept in 16 bits (the idea of LLM.int8, SpQR and OWQ): those of the largest magnitude.

With input statistics magnitude is the largest |x| of the input, without them the largest |w| of its column. What is
left is quantized as if the kept columns were 0: zeros do not stretch a range that has 0 in it, and calibrated methods
see those inputs as dead. All codes stay in place, so a kept column costs its 16-bit values and an int32 index on top.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from harness.errors import UserError
from harness.quantize.result import Quantized
from harness.quantize.stats import InputStats


def largest_columns(magnitude_I: Tensor, keep_columns: float) -> Tensor:
    """Indices of the kept columns: a share of all below 1 (at least one column), else a count."""
    columns = len(magnitude_I)
    count = round(keep_columns) if keep_columns >= 1 else max(1, round(keep_columns * columns))
    if count > columns:
        raise UserError(f"keep_columns={keep_columns:g} is more than the {columns} inputs of this matrix.")
    return torch.topk(magnitude_I, count).indices.sort().values


def unkept(stats: InputStats, keep_columns: float) -> InputStats:
    """Statistics in which the kept inputs are dead."""
    if not keep_columns:
        return stats
    kept_K = largest_columns(stats.max_abs_I, keep_columns)
    stats = replace(
        stats,
        hessian_II=stats.hessian_II.index_fill(0, kept_K, 0).index_fill_(1, kept_K, 0),
        sum_abs_I=stats.sum_abs_I.index_fill(0, kept_K, 0),
        max_abs_I=stats.max_abs_I.index_fill(0, kept_K, 0),
    )
    return stats


def with_kept(q: Quantized, w_OI: Tensor, kept_K: Tensor) -> Quantized:
    """The quantized rest together with these columns of w, in its own type if that has 16 bits, else float16."""
    dtype = w_OI.dtype if w_OI.dtype.itemsize == 2 else torch.float16
    storage = {**q.storage, "kept_columns": len(kept_K) * (16 * len(w_OI) + 32)}
    kept = replace(q, kept_K=kept_K, kept_OK=w_OI[:, kept_K].to(dtype), storage=storage)
    return kept.with_facts(kept_columns=len(kept_K))
