"""Round to nearest: every weight on its own, on the grid that its group's range asks for (`grid.py`)."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.quantize import grid
from harness.quantize.formats import FORMATS, Format
from harness.quantize.grid import SYMMETRIC, Grid
from harness.quantize.pack import packed_bits
from harness.quantize.result import Quantized
from harness.scheme import Scheme

WEIGHTS_AT_ONCE = 2**22  # float32 temporaries of 16 MB stay near the cache, whatever the matrix


def rtn(w_OI: Tensor, scheme: Scheme, group_size: int) -> Quantized:
    """Integer codes by rounding. Rows are independent, so they are taken a few at a time."""
    form, stored = FORMATS[scheme.precision], getattr(torch, scheme.scale_dtype)
    codes, grids = [], []
    for rows_OI in w_OI.split(max(1, WEIGHTS_AT_ONCE // w_OI.shape[1])):
        rows_OI = rows_OI.float()
        lattice = grid.fit(*grid.group_range(rows_OI, group_size), form, scheme.range_rule, stored)
        codes.append(grid.encode(rows_OI, lattice, group_size, form))
        grids.append(lattice)
    return assemble(torch.cat(codes), grid.stack(grids), scheme, form, group_size)


def assemble(codes_OI: Tensor, lattice: Grid, scheme: Scheme, form: Format, group_size: int) -> Quantized:
    """An integer matrix with its storage: packed codes, scales in their stored type, zero points of `bits` bits."""
    facts = {"group_size": group_size, **lattice.facts()}
    groups, scale_bits = lattice.scale_OG.numel(), torch.finfo(getattr(torch, scheme.scale_dtype)).bits
    storage = {
        "codes": packed_bits(codes_OI.shape[0], codes_OI.shape[1], form.bits),
        "scales": groups * scale_bits + facts["float32_scales"] * (32 - scale_bits),
        "zero_points": 0 if scheme.range_rule in SYMMETRIC else groups * form.bits,
    }
    return Quantized(form, codes_OI, lattice.scale_OG, lattice.zero_OG, group_size, storage, facts)
