"""HQQ: a zero point that is no integer, found without data (Badri and Shaji 2023, "Half-Quadratic Quantization").

The scale is that of `minmax`. The zero point minimises ||w - dequantized||_p^p with p = 0.7, a norm that forgives few
large errors, by alternating two closed-form steps, with beta growing by 1 % a round from 10:

    e    = shrink(w - (q - zero) scale),   shrink(x) = sign(x) max(|x| - |x|^(p-1) / beta, 0)
    zero = mean over the group of q - (w - e) / scale

for 20 rounds, or until the mean |w - dequantized| of the whole matrix no longer falls (a matrix, not a row, is the unit
that results depend on). Zero points are stored in the type of the scales.

Groups are axis 1 of the library: successive weights of one row, one meaning of group for every method. Its axis 0 runs
over rows and is not offered; at equal weight error its perplexity is lower, so results of the two do not compare. Equal
to hqq 0.2.8 to 1e-5 where no group crosses a row. Left out: its floor of 1e-4 under max - min and its ceiling of 2e4
over 1 / scale, which turn small weights into zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.quantize import grid
from harness.quantize.formats import FORMATS, Format
from harness.quantize.grid import WEIGHTS_AT_ONCE, Grid, chunks, of_chunks
from harness.quantize.pack import packed_bits
from harness.quantize.result import Quantized, scale_bits
from harness.scheme import AXIS, RangeRule, Scheme

ROUNDS, NORM, BETA, GROWTH = 20, 0.7, 10.0, 1.01


def search(w_OI: Tensor, scheme: Scheme, group_size: int) -> Quantized:
    """Codes with the zero points that the search ends on."""
    form, stored, w_OI = FORMATS[scheme.precision], getattr(torch, scheme.scale_dtype), w_OI.float()
    low_OG, high_OG = grid.group_range(w_OI, group_size)
    exact = grid.fit(low_OG, high_OG, form, RangeRule.minmax, torch.float32)
    start_OG = torch.where(exact.constant_OG, exact.zero_OG, -low_OG / exact.scale_OG)
    zero_OG = find_zeros(w_OI, exact.scale_OG, start_OG, group_size, form)
    scale_OG, wide_OG = grid.store(exact.scale_OG, stored)
    rounded_OG = zero_OG.to(stored).float()
    wide_zero_OG = torch.isinf(rounded_OG)
    zero_OG = torch.where(wide_zero_OG, zero_OG, rounded_OG)
    lattice = Grid(scale_OG, zero_OG, exact.constant_OG, exact.empty_OG, wide_OG)
    codes_OI = encode(w_OI, lattice, group_size, form)
    facts = {"axis": AXIS, **lattice.facts(), "float32_zero_points": int(wide_zero_OG.sum())}
    storage = {
        "codes": packed_bits(codes_OI.shape[0], codes_OI.shape[1], form.bits),
        "scales": scale_bits(scale_OG, scheme, facts["float32_scales"]),
        "zero_points": scale_bits(zero_OG, scheme, facts["float32_zero_points"]),
    }
    return Quantized(form, codes_OI, scale_OG, zero_OG, group_size, storage, facts)


def find_zeros(w_OI: Tensor, scale_OG: Tensor, zero_OG: Tensor, size: int, form: Format) -> Tensor:
    """Zero points [O, G] by the half-quadratic search from these. Takes a few rows at a time, to stay in the cache."""
    rows = max(1, WEIGHTS_AT_ONCE // w_OI.shape[1])
    beta, best = BETA, torch.inf
    for _ in range(ROUNDS):
        parts = zip(w_OI.split(rows), scale_OG.split(rows), zero_OG.split(rows), strict=True)
        steps = [_step(*part, size, form, beta) for part in parts]
        zero_OG = torch.cat([zero_RG for zero_RG, _ in steps])
        error = sum(part for _, part in steps)
        if not error < best:
            break
        best, beta = error, beta * GROWTH
    return zero_OG


def _step(
    w_OI: Tensor, scale_OG: Tensor, zero_OG: Tensor, size: int, form: Format, beta: float
) -> tuple[Tensor, float]:
    """The next zero points, and the summed error before it."""
    zeros, total = [], 0.0
    parts = zip(chunks(w_OI, size), of_chunks(scale_OG, w_OI, size), of_chunks(zero_OG, w_OI, size), strict=True)
    for w_OGS, scale_OG1, zero_OG1 in parts:
        codes_OGS = (w_OGS / scale_OG1).add_(zero_OG1).round_().clamp_(0, form.levels)
        error_OGS = w_OGS - (codes_OGS - zero_OG1).mul_(scale_OG1)
        size_OGS = error_OGS.abs()
        shrunk_OGS = size_OGS.pow(NORM - 1).div_(-beta).add_(size_OGS).clamp_(min=0).mul_(error_OGS.sign_())
        zeros.append(codes_OGS.sub_(shrunk_OGS.neg_().add_(w_OGS).div_(scale_OG1)).mean(-1))
        total += float(size_OGS.sum())
    return torch.cat(zeros, dim=1), total


def encode(w_OI: Tensor, lattice: Grid, size: int, form: Format) -> Tensor:
    """Codes for zero points that are no integers: round(w / scale + zero)."""
    codes_OI = torch.empty(w_OI.shape, dtype=torch.uint8, device=w_OI.device)
    scales, zeros = of_chunks(lattice.scale_OG, w_OI, size), of_chunks(lattice.zero_OG, w_OI, size)
    for w_OGS, codes_OGS, scale_OG1, zero_OG1 in zip(
        chunks(w_OI, size), chunks(codes_OI, size), scales, zeros, strict=True
    ):
        codes_OGS.copy_((w_OGS / scale_OG1).add_(zero_OG1).round_().clamp_(0, form.levels))
    return codes_OI
