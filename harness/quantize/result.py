"""A quantized matrix: codes, what they mean, and what they cost to store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from harness.quantize import grid
from harness.quantize.formats import Format


@dataclass(frozen=True)
class Quantized:
    """Codes [O, I] with scale and zero point of every group [O, G].

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

    def dequantize(self) -> Tensor:
        """The matrix that these codes stand for, float32 [O, I]."""
        return grid.decode(self.codes_OI, self.scale_OG, self.zero_OG, self.group_size)

    @property
    def bits_per_weight(self) -> float:
        """Stored bits over number of weights: packed codes and everything needed to read them."""
        return sum(self.storage.values()) / self.codes_OI.numel()

    def with_facts(self, **facts: Any) -> Quantized:
        """The same matrix with more to tell."""
        return replace(self, facts={**self.facts, **facts})
