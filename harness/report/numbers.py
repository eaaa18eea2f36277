"""Numbers as a reader wants them: as many digits as their intervals carry, a true minus sign, nothing where unknown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

MINUS, THIN = "\N{MINUS SIGN}", "\N{NARROW NO-BREAK SPACE}"
MOST_DECIMALS = 5
TICK_ROOM = 22  # percent of a cell between zero and another tick


def missing(value: Any) -> bool:
    """Whether a cell is empty. Words never are."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def number(value: Any, decimals: int = 3, signed: bool = False) -> str:
    """`-0.0123` with a true minus sign; `signed` shows a plus; empty where missing."""
    if missing(value):
        return ""
    text = f"{float(value):{'+' if signed else ''},.{decimals}f}"
    zero = not any(digit in text for digit in "123456789")
    return text.lstrip("+-") if zero else text.replace("-", MINUS).replace(",", THIN)


def short(value: Any, digits: int = 4) -> str:
    """Some significant digits without trailing zeros; whole numbers and words as they are."""
    if missing(value):
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}g}".replace("-", MINUS)
    return f"{value:,}".replace(",", THIN) if isinstance(value, int | np.integer) and abs(value) > 9999 else str(value)


def interval(low: Any, high: Any, decimals: int = 3) -> str:
    """`[-0.01, 0.02]`; empty where unknown."""
    return "" if missing(low) or missing(high) else f"[{number(low, decimals)}, {number(high, decimals)}]"


def percent(value: Any, decimals: int = 0) -> str:
    """A share as a percentage."""
    return "" if missing(value) else f"{number(100 * float(value), decimals)}{THIN}%"


def percent_interval(low: Any, high: Any) -> str:
    """Both ends of a share's interval."""
    return "" if missing(low) or missing(high) else f"[{number(100 * low, 0)}, {number(100 * high, 0)}]{THIN}%"


def p_value(value: Any) -> str:
    """Three decimals, and no more precision than resamples have."""
    return "" if missing(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def size(value: Any) -> str:
    """Bytes in the largest unit that leaves a number of at least 1."""
    if missing(value):
        return ""
    amount, units = float(value), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(amount) >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.3g} {units[0]}"


def duration(seconds: Any) -> str:
    """`5.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if missing(seconds):
        return ""
    total = float(seconds)
    if total < 60:
        return f"{total:.3g} s"
    minutes, rest = divmod(round(total), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def decimals_for(lows: Iterable[Any], highs: Iterable[Any]) -> int:
    """Decimals that show two digits of a typical interval's half-width; 3 where there is no interval."""
    halves = [(high - low) / 2 for low, high in zip(lows, highs, strict=True) if not (missing(low) or missing(high))]
    halves = [half for half in halves if half > 0]
    if not halves:
        return 3
    return int(np.clip(1 - math.floor(math.log10(float(np.median(halves)))), 0, MOST_DECIMALS))


@dataclass(frozen=True)
class Scale:
    """A common axis for intervals drawn in table cells, in percent of the cell's width.

    `bend` 0: linear. Else losses far beyond `bend` are drawn closer together (asinh), so that a table may hold both
    a broken int2 model and a nearly lossless one.
    """

    low: float
    high: float
    bend: float = 0.0

    def place(self, value: float) -> float:
        """Position in percent, kept inside the cell."""
        low, high, at = (self._bent(v) for v in (self.low, self.high, value))
        return round(float(np.clip(3 + 94 * (at - low) / (high - low), 0, 100)), 1)

    def _bent(self, value: float) -> float:
        return math.asinh(value / self.bend) if self.bend else value

    @property
    def ticks(self) -> list[float]:
        """Zero, and the ends rounded to one digit inside the axis."""
        ends = [_rounded(end) for end in (self.low, self.high) if abs(self.place(end) - self.place(0)) > TICK_ROOM]
        return sorted({0.0, *ends})


def _rounded(value: float) -> float:
    if value == 0:
        return 0.0
    unit = 10 ** math.floor(math.log10(abs(value)))
    return math.copysign(math.floor(abs(value) / unit) * unit, value)


def scale_of(values: Iterable[Any], include: Iterable[float] = (0.0,)) -> Scale:
    """The axis that holds all values and `include`."""
    known = np.array([float(v) for v in values if not missing(v)] + list(include))
    low, high = float(known.min()), float(known.max())
    if low == high:
        return Scale(low - 1, high + 1)
    sizes = np.abs(known[known != 0])
    typical = float(np.median(sizes)) if sizes.size else 0.0
    return Scale(low, high, typical / 2 if typical and sizes.max() > 12 * typical else 0.0)
