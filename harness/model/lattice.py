"""Does a weight matrix already sit on a grid? Then a grid that nests in it loses nothing, which measures nothing.

Weights that were once quantized and stored as floats again (a GGUF file, a merged QLoRA or GPTQ model) keep their
grid: within each group of g weights along in_features only 2^b values occur. Two tests, on a sample of rows:

    up to 4 bits   no group of g >= 32 has more than 2^b different values. Groups of float weights have about g.
    5 to 8 bits    32 weights cannot show 2^b values, so it is asked whether rounding to nearest would be exact:
                   w / scale whole numbers for scale = max|w| / (2^(b-1) - 1) or max|w| / 2^(b-1), or
                   (w - min) / scale for scale = (max - min) / (2^b - 1). Float weights pass it once in 10^30.

A lattice is written as it stands in the column `base_lattice`: "int4 asymmetric groups of 32", "int8 symmetric rows",
or "4-bit codebook groups of 64" where the values are not evenly spaced (nf4). "" means none was found.

O out_features, I in_features, N groups, g weights in a group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import ceil, log2

import torch

GROUP_SIZES = (128, 64, 32)  # besides whole rows; the largest that fits is reported
SAMPLED_ROWS = 64
TOLERANCE = 0.05  # of a step: room for grids whose values were stored in 16 bits

_LATTICE = re.compile(r"(?:int(\d+) (symmetric|asymmetric)|(\d+)-bit codebook) (?:groups of (\d+)|rows)")


def find_lattice(w_OI: torch.Tensor) -> str:
    """The grid that the weights sit on, or "" for float weights.

    Of several descriptions that fit, an even spacing goes before a codebook (two int3 groups of 64 side by side look
    like 16 odd values in 128), and larger groups before smaller ones.
    """
    rows_OI = w_OI[:SAMPLED_ROWS].float()
    kinds = {groups: _kind(x_Ng) for groups, x_Ng in _groupings(rows_OI)}
    found = [f"{kind} {groups}" for groups, kind in kinds.items() if kind]
    return min(found, key=lambda lattice: "codebook" in lattice, default="")


def common_lattice(matrices: Iterable[torch.Tensor]) -> str:
    """The first lattice found among several matrices."""
    return next((found for w_OI in matrices if (found := find_lattice(w_OI))), "")


def nests(lattice: str, group_size: int, symmetric: bool, precision: str) -> bool:
    """Whether a scheme's groups each lie inside one group of `lattice` and its grid can hold the lattice's values.

    Then its error says nothing of float weights: it is 0 where both grids coincide, and one common shift of a group
    where only their zero points differ (Q4_1 keeps a real minimum, an integer zero point has to round it). Symmetric
    grids hold an asymmetric lattice only by chance; codebooks (nf4, fp4) are compared with codebooks only.
    """
    if not lattice:
        return False
    match = _LATTICE.fullmatch(lattice)
    assert match, lattice
    bits, kind, codebook_bits, size = match.groups()
    inside = size is None or (group_size > 0 and int(size) % group_size == 0)
    if codebook_bits:
        return inside and precision in ("nf4", "fp4")
    if not precision.startswith("int"):
        return False
    return inside and int(precision[3:]) >= int(bits) and (not symmetric or kind == "symmetric")


def _groupings(rows_OI: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The matrix cut into groups, coarse to fine: whole rows, then each group size that divides them."""
    yield "rows", rows_OI
    width = rows_OI.shape[1]
    for size in GROUP_SIZES:
        if width % size == 0 and width > size:
            yield f"groups of {size}", rows_OI.reshape(-1, size)


def _kind(x_Ng: torch.Tensor) -> str:
    """Name of the number format that all groups fit, or ""."""
    values = int(_distinct(x_Ng).max())
    if values <= 2:  # constant rows say nothing
        return ""
    if values <= 16 and 2 * values <= x_Ng.shape[1]:
        return _few_values(x_Ng, bits=ceil(log2(values)))
    largest_N1, least_N1 = x_Ng.abs().amax(1, keepdim=True), x_Ng.amin(1, keepdim=True)
    above_Ng = x_Ng - least_N1
    for bits in (5, 6, 8):
        half = 2 ** (bits - 1)
        if any(_whole(x_Ng * steps / largest_N1).all() for steps in (half - 1, half)):
            return f"int{bits} symmetric"
        if _whole(above_Ng * (2**bits - 1) / above_Ng.amax(1, keepdim=True)).all():
            return f"int{bits} asymmetric"
    return ""


def _few_values(x_Ng: torch.Tensor, bits: int) -> str:
    """Format of groups with at most 2^bits values: evenly spaced or not, within -2^(b-1)..2^(b-1) steps of 0 or not."""
    gaps_Ng = x_Ng.sort(dim=1).values.diff(dim=1)
    near = gaps_Ng.amax(1, keepdim=True) * 1e-3  # closer values are one value, rounded twice
    smallest_N1 = gaps_Ng.masked_fill(gaps_Ng <= near, torch.inf).amin(1, keepdim=True)
    steps_N1 = (gaps_Ng / smallest_N1).round().sum(1, keepdim=True)
    step_N1 = gaps_Ng.sum(1, keepdim=True) / steps_N1  # the mean step: rounding of single values cancels
    even_N = _whole((x_Ng - x_Ng.amin(1, keepdim=True)) / step_N1)
    if even_N.float().mean() < 0.5:  # a group that lacks neighbouring codes shows a step of two
        return f"{bits}-bit codebook"
    codes_Ng = (x_Ng / step_N1)[even_N]
    symmetric = _whole(codes_Ng) & (codes_Ng.abs().amax(1) < 2 ** (bits - 1) + 0.5)
    return f"int{bits} {'symmetric' if symmetric.float().mean() > 0.98 else 'asymmetric'}"


def _distinct(x_Ng: torch.Tensor) -> torch.Tensor:
    """Number of different values in each group."""
    return (x_Ng.sort(dim=1).values.diff(dim=1) != 0).sum(1) + 1


def _whole(ratio_Ng: torch.Tensor) -> torch.Tensor:
    """Groups in which every ratio is a whole number (0 / 0, from a constant group, counts as one)."""
    ratio_Ng = ratio_Ng.nan_to_num(0.0)
    return ((ratio_Ng - ratio_Ng.round()).abs() < TOLERANCE).all(1)
