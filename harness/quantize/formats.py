"""Number formats as data: what a code of each width means.

An integer code is `0 .. 2^bits - 1` and stands for `(code - zero) * scale` (`grid.py` says how both are chosen). Every
other format is a table: `values[code] * scale`. The sources of the tables:

    nf4        quantiles of a normal distribution, 0 and both ends exact (Dettmers et al. 2023, "QLoRA", appendix E)
    fp4        bitsandbytes' own 4-bit float: sign and 0, 1/192, 1/6, 1/4, 1/3, 1/2, 2/3, 1 (not E2M1)
    e2m1       sign, 2 exponent bits (bias 1), 1 mantissa bit: 0 to 6 (OCP Microscaling Formats v1.0, section 5.3.3);
               the elements of mxfp4 and nvfp4
    fp8_e4m3   sign, 4 exponent bits (bias 7), 3 mantissa bits, no infinity, NaN where all bits are set: up to 448 (OCP
               8-bit Floating Point Specification v1.0)

A value half way between two table entries goes to the even code, as IEEE 754 and OCP ask for; in bitsandbytes' tables
to the smaller value.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from harness.scheme import Precision


@dataclass(frozen=True)
class Format:
    """One number format. Every code is an unsigned integer of `bits` bits."""

    name: str
    bits: int
    values: tuple[float, ...] = ()  # by code; none for integers
    ties_to_even: bool = True

    @property
    def levels(self) -> int:
        """Largest code."""
        return 2**self.bits - 1

    @property
    def middle(self) -> int:
        """Zero point of symmetric integer grids: codes below it are negative weights."""
        return 2 ** (self.bits - 1)

    @property
    def top(self) -> float:
        """Largest value of the table."""
        return max(value for value in self.values if value == value)


def minifloat(exponent_bits: int, mantissa_bits: int) -> tuple[float, ...]:
    """Values of sign | exponent | mantissa, by code, with gradual underflow and every exponent a finite number."""
    bias, ones = 2 ** (exponent_bits - 1) - 1, 2**mantissa_bits
    half = []
    for code in range(2**exponent_bits * ones):
        exponent, mantissa = divmod(code, ones)
        half.append(2.0 ** (max(exponent, 1) - bias) * (mantissa / ones + (exponent > 0)))
    return (*half, *(-value for value in half))


NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
FP4 = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
E4M3 = tuple(nan if code % 128 == 127 else value for code, value in enumerate(minifloat(4, 3)))
E2M1 = Format("e2m1", 4, minifloat(2, 1))

FORMATS: dict[Precision, Format] = {
    **{Precision(f"int{bits}"): Format(f"int{bits}", bits) for bits in (2, 3, 4, 5, 6, 8)},
    Precision.nf4: Format("nf4", 4, NF4, ties_to_even=False),
    Precision.fp4: Format("fp4", 4, (*FP4, *(-value for value in FP4)), ties_to_even=False),
    Precision.fp8_e4m3: Format("fp8_e4m3", 8, E4M3),
    Precision.mxfp4: E2M1,
    Precision.nvfp4: E2M1,
}
