"""bitsandbytes' 4-bit formats: max|w| of a block is the scale, and codes come from a table (`formats.py`).

A block is our group: `group_size` weights of one row. bitsandbytes cuts the flattened matrix instead, so its blocks
run over row ends where the size does not divide in_features; there the results differ, everywhere else they are equal
to 1e-5 (with `scale_dtype: float32`, which it uses; the default here is float16 as for every method).

Double quantization stores a scale in 8 bits: the mean of all scales is taken off, the rest is cut into blocks of 256
(row after row), divided by the block's largest magnitude and rounded to the nearest entry of a table of dynamic
exponents (Dettmers 2016, "8-Bit Approximations for Parallelism in Deep Learning"):

    for i = 0 .. 6:  +-10^(i-6) * midpoints of 2^i equal steps from 0.1 to 1;  and 0 and 1

The second level is one float32 for 256 scales and one for the matrix. bitsandbytes' CPU library looks entries up on
65,536 even steps from -1 to 1, which moves about 0.2 % of the scales to a neighbouring entry; so do we.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.quantize import table
from harness.quantize.floats import largest
from harness.quantize.formats import FORMATS, Format
from harness.quantize.grid import chunks, rescale_, store
from harness.quantize.pack import packed_bits
from harness.quantize.result import Quantized, scale_bits
from harness.scheme import Scheme

SCALES_IN_BLOCK = 256
CPU_STEPS = 65535


def round_to_table(w_OI: Tensor, scheme: Scheme, group_size: int) -> Quantized:
    """Codes of nf4 or fp4. With `double_quant` codes fit the exact scale, which is rounded afterwards, as there."""
    form = FORMATS[scheme.precision]
    top_OG = largest(w_OI, group_size)
    facts = {"zero_groups": int((top_OG == 0).sum())}
    scale_OG, wide_OG = store(top_OG, torch.float32 if scheme.double_quant else getattr(torch, scheme.scale_dtype))
    codes_OI = table.encode(w_OI, scale_OG, group_size, form)
    storage = {"codes": packed_bits(w_OI.shape[0], w_OI.shape[1], form.bits)}
    if scheme.double_quant:
        scale_OG = round_scales(top_OG)
        storage |= {"scales": 8 * scale_OG.numel(), "second_level": 32 * (-(-scale_OG.numel() // SCALES_IN_BLOCK) + 1)}
    else:
        facts["float32_scales"] = int(wide_OG.sum())
        storage["scales"] = scale_bits(scale_OG, scheme, facts["float32_scales"])
    return Quantized(form, codes_OI, scale_OG, None, group_size, storage, facts)


def round_scales(scale_OG: Tensor) -> Tensor:
    """Scales after double quantization, float32."""
    flat_1N = scale_OG.reshape(1, -1)
    mean = flat_1N.mean()
    rest_1N = flat_1N - mean
    top_1B = torch.cat([part.abs().amax(-1) for part in chunks(rest_1N, SCALES_IN_BLOCK)], dim=1)
    top_1B = torch.where(top_1B == 0, 1.0, top_1B)
    unit_1N = rescale_(rest_1N, 1 / top_1B, None, SCALES_IN_BLOCK)
    unit_1N = ((unit_1N + 1) / 2 * CPU_STEPS + 0.5).floor() / CPU_STEPS * 2 - 1
    rounded_1N = table.values(table.nearest(unit_1N, DYNAMIC), DYNAMIC)
    return (rescale_(rounded_1N, top_1B, None, SCALES_IN_BLOCK) + mean).view_as(scale_OG)


def _dynamic_table() -> tuple[float, ...]:
    """The 256 entries of the table of dynamic exponents, rising; in float32, since near-ties hang on its last digit."""
    entries = {0.0, 1.0}
    for i in range(7):
        steps = torch.linspace(0.1, 1, 2**i + 1)
        middles = (10.0 ** (i - 6) * ((steps[:-1] + steps[1:]) / 2)).tolist()
        entries |= {sign * middle for middle in middles for sign in (1, -1)}
    return tuple(sorted(entries))


DYNAMIC = Format("dynamic8", 8, _dynamic_table(), ties_to_even=False)
