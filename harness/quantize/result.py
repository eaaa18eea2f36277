"""A quantized matrix: codes, what they mean, and what they cost to store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from harness.quantize import grid, table
from harness.quantize.formats import Format
from harness.quantize.grid import SYMMETRIC, Grid
from harness.quantize.pack import packed_bits
from harness.scheme import Scheme


@dataclass(frozen=True)
class Quantized:
    """Codes [O, I] with the scale of every group [O, G], and for integers its zero point.

    `storage` is in bits, by part (codes, scales, zero_points, group_index, kept_columns). `facts` is what a report
    should tell of this matrix: special groups, damping, fallbacks.
    """

    form: Format
    codes_OI: Tensor
    scale_OG: Tensor
    zero_OG: Tensor | None
    group_size: int  # in effect, never -1
    storage: dict[str, int]
    facts: dict[str, Any] = field(default_factory=dict)
    # Groups of reordered columns: codes are in that order, column k is input order_I[k]. Counted as GPTQ's file format
    # stores it, an int32 group index for every input.
    order_I: Tensor | None = None
    # AWQ: the codes stand for w * input_scale. Not counted: in an exported model it is folded into the layer before.
    input_scale_I: Tensor | None = None
    # Input channels that stay in 16 bits, and their columns.
    kept_K: Tensor | None = None
    kept_OK: Tensor | None = None

    def dequantize(self) -> Tensor:
        """The matrix that is really used, float32 [O, I]."""
        w_OI = table.values(self.codes_OI, self.form) if self.form.values else self.codes_OI.float()
        grid.rescale_(w_OI, self.scale_OG, self.zero_OG, self.group_size)
        if self.order_I is not None:
            w_OI = w_OI[:, torch.argsort(self.order_I)]
        if self.input_scale_I is not None:
            w_OI /= self.input_scale_I
        if self.kept_K is not None and self.kept_OK is not None:
            w_OI[:, self.kept_K] = self.kept_OK.float()
        return w_OI

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
    facts = lattice.facts()
    storage = {
        "codes": packed_bits(codes_OI.shape[0], codes_OI.shape[1], form.bits),
        "scales": scale_bits(lattice.scale_OG, scheme, facts["float32_scales"]),
        "zero_points": 0 if scheme.range_rule in SYMMETRIC else lattice.zero_OG.numel() * form.bits,
        "group_index": 0 if order_I is None else 32 * len(order_I),
    }
    return Quantized(form, codes_OI, lattice.scale_OG, lattice.zero_OG, group_size, storage, facts, order_I)


def scale_bits(scale_OG: Tensor, scheme: Scheme, in_float32: int) -> int:
    """Bits of scales in their stored type, but for those that had to stay in float32."""
    bits = torch.finfo(getattr(torch, scheme.scale_dtype)).bits
    return scale_OG.numel() * bits + in_float32 * (32 - bits)
