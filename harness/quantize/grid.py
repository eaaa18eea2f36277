"""Uniform grids: groups, scales and zero points. The conventions of every integer method are stated here, once.

Letters: O out_features, I in_features, G groups in a row, S weights in a group.

A group is `group_size` consecutive weights of one row along in_features; it never crosses a row. Where the size does
not divide in_features and a tail is allowed, the last group of every row is shorter.

    w ~ (code - zero) * scale,   code = clamp(round(w / scale) + zero, 0, 2^b - 1),   round half to even

    qmax       scale = max|w| / (2^(b-1) - 1)    zero = 2^(b-1): signed codes -2^(b-1) .. 2^(b-1) - 1; both ends of
                                                 the range are exact, the lowest code is hardly used
    half       scale = 2 max|w| / (2^b - 1)      zero = 2^(b-1): 0 is exact, and a weight at +max|w| sits half a step
                                                 above the largest code (its error is scale / 2)
    minmax     scale = (max - min) / (2^b - 1)   zero = clamp(round(-min / scale), 0, 2^b - 1). Where 0 is outside
                                                 [min, max] the zero point is clamped and the group is off: this is
                                                 llm-awq's rule, without its floor of 1e-5 under max - min
    with_zero  as minmax, after min = min(min, 0), max = max(max, 0)

Special groups, in all four rules:
    all zero   scale 1, every code at the zero point: exactly 0
    constant   |w| becomes a power-of-two code (scale = |w| / 2^k), since code * scale is then exact in floating point
Scales are rounded to their stored type before codes are chosen, so that codes fit the scale that is really used. One
that its stored type turns into 0 or infinity stays in float32 and is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from harness.errors import UserError
from harness.quantize.formats import Format
from harness.scheme import RangeRule

WEIGHTS_AT_ONCE = 2**22  # float32 temporaries of 16 MB stay near the cache, whatever the matrix
SYMMETRIC = (RangeRule.qmax, RangeRule.half)


@dataclass(frozen=True)
class Grid:
    """Scale and zero point of every group, in float32 whatever the stored type, and which of them are special."""

    scale_OG: Tensor
    zero_OG: Tensor
    constant_OG: Tensor  # bool: every weight the same, not 0
    empty_OG: Tensor  # bool: every weight 0
    wide_OG: Tensor  # bool: the scale stays in float32

    def facts(self) -> dict[str, int]:
        """Counts of special groups, for the report."""
        named = {"constant_groups": self.constant_OG, "zero_groups": self.empty_OG, "float32_scales": self.wide_OG}
        return {name: int(mask_OG.sum()) for name, mask_OG in named.items()}


def join(grids: list[Grid], dim: int) -> Grid:
    """Grids of successive rows (dim 0) or groups (dim 1) as one."""
    return Grid(*(torch.cat([getattr(grid, field.name) for grid in grids], dim) for field in fields(Grid)))


def chunks(x_OI: Tensor, size: int) -> list[Tensor]:
    """Views [O, G, S] of the full groups and, where a shorter one is left over, [O, 1, rest] of it."""
    full = x_OI.shape[1] // size
    views = [x_OI[:, : full * size].unflatten(1, (full, size))] if full else []
    rest_OI = x_OI[:, full * size :]
    return [*views, rest_OI.unsqueeze(1)] if rest_OI.shape[1] else views


def group_range(w_OI: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Smallest and largest weight of every group, both [O, G]."""
    ends = [torch.aminmax(w_OGS, dim=-1) for w_OGS in chunks(w_OI, size)]
    return torch.cat([end.min for end in ends], dim=1).float(), torch.cat([end.max for end in ends], dim=1).float()


def fit(low_OG: Tensor, high_OG: Tensor, form: Format, rule: RangeRule, stored: torch.dtype) -> Grid:
    """The grid of groups that span [low, high]. UserError where a bound is not finite."""
    empty_OG = (low_OG == 0) & (high_OG == 0)
    constant_OG = (low_OG == high_OG) & ~empty_OG
    exact_OG = high_OG.abs() / _exact_code(form, rule)
    scale_OG = torch.where(constant_OG, exact_OG, _scale(low_OG, high_OG, form, rule))
    if not torch.isfinite(scale_OG).all():
        raise UserError("The weight holds values that are not finite (NaN, infinity). Check the checkpoint.")
    scale_OG, wide_OG = store(scale_OG, stored)
    return Grid(scale_OG, _zero(low_OG, scale_OG, constant_OG, form, rule), constant_OG, empty_OG, wide_OG)


def encode(w_OI: Tensor, grid: Grid, size: int, form: Format) -> Tensor:
    """Codes, uint8 [O, I]."""
    codes_OI = torch.empty(w_OI.shape, dtype=torch.uint8, device=w_OI.device)
    parts = zip(
        chunks(w_OI, size),
        chunks(codes_OI, size),
        of_chunks(grid.scale_OG, w_OI, size),
        of_chunks(grid.zero_OG, w_OI, size),
        strict=True,
    )
    for w_OGS, codes_OGS, scale_OG1, zero_OG1 in parts:
        codes_OGS.copy_((w_OGS / scale_OG1).round_().add_(zero_OG1).clamp_(0, form.levels))
    return codes_OI


def rescale_(w_OI: Tensor, scale_OG: Tensor, zero_OG: Tensor | None, size: int) -> Tensor:
    """(w - zero) * scale, in place."""
    if zero_OG is not None:
        for w_OGS, zero_OG1 in zip(chunks(w_OI, size), of_chunks(zero_OG, w_OI, size), strict=True):
            w_OGS.sub_(zero_OG1)
    for w_OGS, scale_OG1 in zip(chunks(w_OI, size), of_chunks(scale_OG, w_OI, size), strict=True):
        w_OGS.mul_(scale_OG1)
    return w_OI


def store(scale_OG: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scales rounded to their stored type, and which of them stay in float32. Scale 0 (nothing to tell) becomes 1."""
    scale_OG = torch.where(scale_OG == 0, 1.0, scale_OG)
    rounded_OG = scale_OG.to(dtype).float()
    wide_OG = (rounded_OG == 0) | torch.isinf(rounded_OG)
    return torch.where(wide_OG, scale_OG, rounded_OG), wide_OG


def of_chunks(x_OG: Tensor, w_OI: Tensor, size: int) -> list[Tensor]:
    """Group values [O, G, 1], cut as `chunks` cuts the weights."""
    full = w_OI.shape[1] // size
    return [part.unsqueeze(-1) for part in (x_OG[:, :full], x_OG[:, full:]) if part.shape[1]]


def _scale(low_OG: Tensor, high_OG: Tensor, form: Format, rule: RangeRule) -> Tensor:
    if rule in SYMMETRIC:
        top_OG = torch.maximum(low_OG.abs(), high_OG.abs())
        return top_OG / (form.middle - 1) if rule is RangeRule.qmax else 2 * top_OG / form.levels
    if rule is RangeRule.with_zero:
        low_OG, high_OG = low_OG.clamp(max=0), high_OG.clamp(min=0)
    return (high_OG - low_OG) / form.levels


def _zero(low_OG: Tensor, scale_OG: Tensor, constant_OG: Tensor, form: Format, rule: RangeRule) -> Tensor:
    if rule in SYMMETRIC:
        return torch.full_like(scale_OG, form.middle)
    if rule is RangeRule.with_zero:
        low_OG = low_OG.clamp(max=0)
    zero_OG = (-low_OG / scale_OG).round_().clamp_(0, form.levels)
    end_OG = torch.where(low_OG < 0, float(_exact_code(form, rule)), 0.0)  # a constant group uses codes 0 and 2^k
    return torch.where(constant_OG, end_OG, zero_OG)


def _exact_code(form: Format, rule: RangeRule) -> int:
    """Power of two that |w| of a constant group becomes."""
    return form.middle // 2 if rule in SYMMETRIC else form.middle
