"""Number formats as data: what a code of each width means.

An integer format is fully told by its width: a code is `0 .. 2^bits - 1` and stands for `(code - zero) * scale`
(`grid.py` states how scale and zero point are chosen).
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.scheme import Precision


@dataclass(frozen=True)
class Format:
    """One number format. Every code is an unsigned integer of `bits` bits."""

    name: str
    bits: int

    @property
    def levels(self) -> int:
        """Largest code."""
        return 2**self.bits - 1

    @property
    def middle(self) -> int:
        """Zero point of symmetric integer grids: codes below it are negative weights."""
        return 2 ** (self.bits - 1)


FORMATS: dict[Precision, Format] = {Precision(f"int{bits}"): Format(f"int{bits}", bits) for bits in (2, 3, 4, 5, 6, 8)}
