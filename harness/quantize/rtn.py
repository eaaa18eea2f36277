"""Round to nearest: every weight on its own, on the grid that its group's range asks for (`grid.py`)."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.quantize import grid
from harness.quantize.formats import FORMATS
from harness.quantize.result import Quantized, assemble
from harness.scheme import Scheme


def round_to_nearest(w_OI: Tensor, scheme: Scheme, group_size: int) -> Quantized:
    """Codes by rounding. Rows are independent, so they are taken a few at a time."""
    form, stored = FORMATS[scheme.precision], getattr(torch, scheme.scale_dtype)
    codes, grids = [], []
    for rows_OI in w_OI.split(max(1, grid.WEIGHTS_AT_ONCE // w_OI.shape[1])):
        rows_OI = rows_OI.float()
        lattice = grid.fit(*grid.group_range(rows_OI, group_size), form, scheme.range_rule, stored)
        codes.append(grid.encode(rows_OI, lattice, group_size, form))
        grids.append(lattice)
    return assemble(torch.cat(codes), grid.join(grids, dim=0), scheme, form, group_size)
