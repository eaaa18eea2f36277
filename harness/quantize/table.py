"""Codes of table formats: the nearest value, and back.

Values sorted, with the midpoint between neighbours as border. A border belongs to the smaller value, unless the larger
one has the even code and ties go there: then the border is moved down by one float32 step.
"""

from __future__ import annotations

from functools import cache
from math import inf

import torch
from torch import Tensor

from harness.quantize.formats import Format
from harness.quantize.grid import WEIGHTS_AT_ONCE, chunks, of_chunks


def nearest(x: Tensor, form: Format) -> Tensor:
    """Codes (uint8) of the values nearest to x; beyond the ends, the ends."""
    borders, codes = _lookup(form, x.device)
    return codes[torch.bucketize(x, borders, out_int32=True)]


def encode(w_OI: Tensor, scale_OG: Tensor, size: int, form: Format) -> Tensor:
    """Codes (uint8 [O, I]) of weights in groups of `size` with these scales. Takes a few rows at a time."""
    codes_OI = torch.empty(w_OI.shape, dtype=torch.uint8, device=w_OI.device)
    rows = max(1, WEIGHTS_AT_ONCE // w_OI.shape[1])
    for some_OI, some_codes_OI, some_OG in zip(
        w_OI.split(rows), codes_OI.split(rows), scale_OG.split(rows), strict=True
    ):
        parts = zip(chunks(some_OI, size), chunks(some_codes_OI, size), of_chunks(some_OG, some_OI, size), strict=True)
        for w_OGS, codes_OGS, scale_OG1 in parts:
            codes_OGS.copy_(nearest(w_OGS.float() / scale_OG1, form))
    return codes_OI


def values(codes: Tensor, form: Format) -> Tensor:
    """What codes stand for, float32."""
    return _values(form, codes.device)[codes.int()]


@cache
def _values(form: Format, device: torch.device) -> Tensor:
    return torch.tensor(form.values, dtype=torch.float32, device=device)


@cache
def _lookup(form: Format, device: torch.device) -> tuple[Tensor, Tensor]:
    """Borders between neighbouring values, and the code of each value. Of two zeros the first is used."""
    code_of = {value: code for code, value in reversed(list(enumerate(form.values))) if value == value}
    ordered = sorted(code_of)
    points = torch.tensor(ordered, dtype=torch.float32)
    codes = torch.tensor([code_of[value] for value in ordered], dtype=torch.uint8)
    borders = (points[:-1] + points[1:]) / 2
    if form.ties_to_even:
        borders = torch.where(codes[1:] % 2 == 0, torch.nextafter(borders, torch.tensor(-inf)), borders)
    return borders.to(device), codes.to(device)
