"""A quantized matrix: codes, what they mean, and what they cost to store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from harness.quantize import grid
from harness.quantize.formats import Format
from harness.quantize.grid import SYMMETRIC, Grid
from harness.quantize.pack import packed_bits
from harness.scheme import Scheme


@dataclass(frozen=True)
class Quantized:
    """Codes [O, I] with scale and zero point of every group [O, G].

    Where groups were made of reordered columns, codes are in that order and `order_I[k]` is the input that column k
    belongs to; as GPTQ's file format does, this is counted as an int32 group index for every input.
    `storage` is in bits, by part (codes, scales, zero_points, group_index, kept_columns). `facts` is what a report
    should tell of this matrix: special groups, damping, fallbacks.
    """

    form: Format
    codes_OI: Tensor
    scale_OG: Tensor
    zero_OG: Tensor
    group_size: int  # in effect, never -1
    storage: dict[str, int]
    facts: dict[str, Any] = field(default_factory=dict)
    order_I: Tensor | None = None

    def dequantize(self) -> Tensor:
        """The matrix that these codes stand for, float32 [O, I]."""
        w_OI = grid.decode(self.codes_OI, self.scale_OG, self.zero_OG, self.group_size)
        return w_OI if self.order_I is None else w_OI[:, torch.argsort(self.order_I)]

    @property
    def bits_per_weight(self) -> float:
        """Stored bits over number of weights: packed codes and everything needed to read them."""
        return sum(self.storage.values()) / self.codes_OI.numel()

    def with_facts(self, **facts: Any) -> Quantized:
        """The same matrix with more to tell."""
        return replace(self, facts={**self.facts, **facts})


def assemble(
    codes_OI: Tensor, lattice: Grid, scheme: Scheme, form: Format, group_size: int, order_I: Tensor | None = None
) -> Quantized:
    """An integer matrix with its storage: packed codes, scales in their stored type, zero points of `bits` bits."""
    facts = {"group_size": group_size, **lattice.facts()}
    groups, scale_bits = lattice.scale_OG.numel(), torch.finfo(getattr(torch, scheme.scale_dtype)).bits
    storage = {
        "codes": packed_bits(codes_OI.shape[0], codes_OI.shape[1], form.bits),
        "scales": groups * scale_bits + facts["float32_scales"] * (32 - scale_bits),
        "zero_points": 0 if scheme.range_rule in SYMMETRIC else groups * form.bits,
        "group_index": 0 if order_I is None else 32 * len(order_I),
    }
    return Quantized(form, codes_OI, lattice.scale_OG, lattice.zero_OG, group_size, storage, facts, order_I)
