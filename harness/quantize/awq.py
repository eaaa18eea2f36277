"""AWQ (Lin et al. 2023, "Activation-aware Weight Quantization"): scale up the inputs' weights that matter, then round.

    Q(W s) / s   with   s = mean|x|^a / sqrt(max * min),   a = 0, 1/20, .. 19/20

The exponent a with the smallest output error wins; a = 0 is plain rounding, so nothing is scaled where that is best.
s is one vector for all matrices that read the same input (q, k, v; gate, up). Here it is emulated: the division stays
inside the matrix, so that no other weight changes, and folding it into the layer before belongs to export.

Then, per group, the range is cut to 1, 19/20, .. 11/20 of the largest magnitude, whichever leaves the smallest error of
that group's part of the output (llm-awq, `auto_clip_layer`; never for what makes queries and keys: set `awq_clip`
accordingly).

Output error is exact over the calibration tokens: sum over rows of e H e^T with H = sum x x^T. Not matched: llm-awq
measures it after the whole attention or FFN block, here it is measured at the matrices themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from harness.quantize.grid import chunks, group_range, of_chunks
from harness.quantize.outliers import unkept
from harness.quantize.result import Quantized
from harness.quantize.rtn import round_to_nearest
from harness.quantize.stats import InputStats
from harness.scheme import Scheme, effective_group

EXPONENTS = [i / 20 for i in range(20)]
CUTS = [1 - i / 20 for i in range(10)]
SMALLEST = 1e-4  # floor under mean|x|^a


def pair_scale(weights: Sequence[Tensor], scheme: Scheme, stats: InputStats, *, indivisible: str = "error") -> Tensor:
    """The scale s [I] of matrices w_OI that share their input; all ones where plain rounding is best or asked for."""
    stats.require_finite()
    if not scheme.awq_scale:
        return torch.ones_like(stats.mean_abs_I)
    stats = unkept(stats, scheme.keep_columns)
    size = effective_group(stats.in_features, scheme.group_size, indivisible)
    hessian_II = stats.hessian_II.float()
    best_I, least = torch.ones_like(stats.mean_abs_I), torch.inf
    for exponent in EXPONENTS:
        scale_I = stats.mean_abs_I.pow(exponent).clamp(min=SMALLEST)
        scale_I /= (scale_I.max() * scale_I.min()).sqrt()
        loss = sum(_loss_of_scaling(w_OI.float(), scale_I, scheme, size, hessian_II) for w_OI in weights)
        if loss < least:
            best_I, least = scale_I, loss
    return best_I


def scale_and_clip(
    w_OI: Tensor, scheme: Scheme, group_size: int, stats: InputStats, input_scale_I: Tensor | None
) -> Quantized:
    """Codes of W s, clipped where asked. `input_scale_I`: s of the pair group; none: this matrix is its own group."""
    stats.require_finite()
    if input_scale_I is None:
        input_scale_I = pair_scale([w_OI], scheme, stats, indivisible="tail")
    scaled = not bool((input_scale_I == 1).all())
    w_OI, hessian_II = w_OI.float(), unkept(stats, scheme.keep_columns).hessian_II.float()
    facts: dict[str, object] = {"awq_scaled": scaled}
    if scaled:
        w_OI = w_OI * input_scale_I
        hessian_II = hessian_II / torch.outer(input_scale_I, input_scale_I)
    if scheme.awq_clip:
        limit_OG, facts["awq_clipped_groups"] = clip_limits(w_OI, scheme, group_size, hessian_II)
        w_OI = _clip(w_OI, limit_OG, group_size)
    if not hessian_II.any():
        facts |= {"fallback": "rtn", "fallback_reason": stats.emptiness()}
    q = round_to_nearest(w_OI, scheme, group_size).with_facts(**facts)
    return replace(q, input_scale_I=input_scale_I if scaled else None)


def clip_limits(w_OI: Tensor, scheme: Scheme, group_size: int, hessian_II: Tensor) -> tuple[Tensor, int]:
    """The magnitude [O, G] that each group is cut to, and how many are cut at all."""
    low_OG, high_OG = group_range(w_OI, group_size)
    top_OG = torch.maximum(low_OG.abs(), high_OG.abs())
    limit_OG, least_OG = top_OG, torch.full_like(top_OG, torch.inf)
    for cut in CUTS:
        clipped_OI = _clip(w_OI, top_OG * cut, group_size)
        error_OI = round_to_nearest(clipped_OI, scheme, group_size).dequantize().sub_(w_OI)
        loss_OG = _group_losses(error_OI, group_size, hessian_II)
        limit_OG = torch.where(loss_OG < least_OG, top_OG * cut, limit_OG)
        least_OG = torch.minimum(loss_OG, least_OG)
    return limit_OG, int((limit_OG < top_OG).sum())


def _loss_of_scaling(w_OI: Tensor, scale_I: Tensor, scheme: Scheme, size: int, hessian_II: Tensor) -> float:
    error_OI = round_to_nearest(w_OI * scale_I, scheme, size).dequantize().div_(scale_I).sub_(w_OI)
    return float(((error_OI @ hessian_II) * error_OI).sum())


def _clip(w_OI: Tensor, limit_OG: Tensor, size: int) -> Tensor:
    parts = zip(chunks(w_OI, size), of_chunks(limit_OG, w_OI, size), strict=True)
    return torch.cat([w_OGS.clamp(-limit_OG1, limit_OG1).flatten(1) for w_OGS, limit_OG1 in parts], dim=1)


def _group_losses(error_OI: Tensor, size: int, hessian_II: Tensor) -> Tensor:
    """Output error [O, G] of every group on its own: its errors against its block of H."""
    losses, start = [], 0
    for error_OGS in chunks(error_OI, size):
        groups, width = error_OGS.shape[1:]
        block = slice(start, start + groups * width)
        start += groups * width
        split_GSGS = hessian_II[block, block].unflatten(1, (groups, width)).unflatten(0, (groups, width))
        hessian_GSS = split_GSGS.diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        error_GOS = error_OGS.transpose(0, 1)
        losses.append(((error_GOS @ hessian_GSS) * error_GOS).sum(-1).T)
    return torch.cat(losses, dim=1)
