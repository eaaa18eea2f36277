"""Small float formats with a scale for every group: fp8, MXFP4, NVFP4. Elements are rounded to nearest, ties to even.

    fp8_e4m3   scale = max|w| / 448, in the scheme's scale type
    mxfp4      groups of 32, scale = 2^(floor(log2 max|w|) - 2) in 8 bits (E8M0); 2 is the exponent of the largest
               element, 6 = 1.5 * 2^2, so that weights between 6 and 8 scales saturate
               (OCP Microscaling Formats v1.0, section 6.3)
    nvfp4      groups of 16, scale = e4m3(max|w| / 6 / t) * t in 8 bits, with one float32 t = max|W| / (6 * 448) for
               the matrix, so that the largest scale is e4m3's largest value (NVIDIA, "Pretraining LLMs with NVFP4")

A group of zeros gets scale 1. An nvfp4 scale that e4m3 rounds to 0 (a group 2^18 below the largest weight) makes its
group 0; such groups are counted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.errors import UserError
from harness.quantize import table
from harness.quantize.formats import E2M1, FORMATS
from harness.quantize.grid import group_range, store
from harness.quantize.pack import packed_bits
from harness.quantize.result import Quantized, scale_bits
from harness.scheme import Precision, Scheme


def round_floats(w_OI: Tensor, scheme: Scheme, group_size: int) -> Quantized:
    """Codes of fp8_e4m3, mxfp4 or nvfp4 by rounding."""
    form = FORMATS[scheme.precision]
    top_OG = largest(w_OI, group_size)
    scale_OG, bits, facts = SCALES[scheme.precision](top_OG, scheme)
    vanished_OG = scale_OG == 0
    codes_OI = table.encode(w_OI, torch.where(vanished_OG, torch.inf, scale_OG), group_size, form)
    scale_OG = torch.where(vanished_OG, 1.0, scale_OG)
    storage = {"codes": packed_bits(w_OI.shape[0], w_OI.shape[1], form.bits), "scales": bits}
    facts = {"zero_groups": int((top_OG == 0).sum()), **facts}
    return Quantized(form, codes_OI, scale_OG, None, group_size, storage, facts)


def largest(w_OI: Tensor, group_size: int) -> Tensor:
    """max|w| of every group, [O, G]. UserError where it is not finite."""
    low_OG, high_OG = group_range(w_OI, group_size)
    top_OG = torch.maximum(low_OG.abs(), high_OG.abs())
    if not torch.isfinite(top_OG).all():
        raise UserError("The weight holds values that are not finite (NaN, infinity). Check the checkpoint.")
    return top_OG


def _stored_scale(top_OG: Tensor, scheme: Scheme) -> tuple[Tensor, int, dict[str, Any]]:
    scale_OG, wide_OG = store(top_OG / FORMATS[Precision.fp8_e4m3].top, getattr(torch, scheme.scale_dtype))
    wide = int(wide_OG.sum())
    return scale_OG, scale_bits(scale_OG, scheme, wide), {"float32_scales": wide}


def _power_of_two(top_OG: Tensor, scheme: Scheme) -> tuple[Tensor, int, dict[str, Any]]:
    exponent_OG = torch.frexp(top_OG).exponent - 1  # floor(log2)
    scale_OG = torch.ldexp(torch.ones_like(top_OG), (exponent_OG - 2).clamp(-127, 127))
    return torch.where(top_OG == 0, 1.0, scale_OG), 8 * scale_OG.numel(), {}


def _two_level(top_OG: Tensor, scheme: Scheme) -> tuple[Tensor, int, dict[str, Any]]:
    form = FORMATS[Precision.fp8_e4m3]
    whole = top_OG.max() / (E2M1.top * form.top)
    whole = torch.where(whole == 0, 1.0, whole)
    scale_OG = table.values(table.nearest(top_OG / E2M1.top / whole, form), form) * whole
    facts = {"vanished_groups": int(((scale_OG == 0) & (top_OG > 0)).sum())}
    return scale_OG, 8 * scale_OG.numel() + 32, facts


SCALES = {
    Precision.fp8_e4m3: _stored_scale,
    Precision.mxfp4: _power_of_two,
    Precision.nvfp4: _two_level,
}
