"""Sites: every block matrix of a decoder, named the same way in every architecture."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Site:
    """One weight matrix `w_OI`, or the row slices of a fused one.

    `module` is a path inside the decoder layer (inside the whole model for `embedding` and `head`), `parameter` the
    attribute there. `rows` are [start, stop) ranges of output rows in the [O, I] view; empty means all rows.
    `transposed` means stored as [I, O]. `expert` indexes the first axis of a 3-D parameter.
    """

    name: str  # layers.{i}.{block}.{role}[.expert{e}|.shared], or embedding / head
    layer: int  # -1 outside the decoder layers
    block: str  # ffn, attention, embedding, head
    role: str
    module: str
    parameter: str
    out_features: int
    in_features: int
    rows: tuple[tuple[int, int], ...] = ()
    transposed: bool = False
    expert: int | None = None

    @property
    def weights(self) -> int:
        """Number of weights."""
        return self.out_features * self.in_features
