"""Shares of a total, or the reason why there are none.

A share divides by the total loss: where that is not told from zero, is negative (quantizing helped), or where an arm
has lost so much that losses no longer add up, any number would mislead, and none is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.attribute.lines import Line
from harness.attribute.verdict import noise_floor

NO_SHARE = "no share: "  # and then why
SHARED_KINDS = ("alone", "restored", "interaction", "shapley", "owen")


@dataclass(frozen=True)
class Share:
    """A share with its interval, or the reason why there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def shares(lines: Sequence[Line], level: float) -> list[Share]:
    """One for each line of one reading; empty for effects that are no part of a total."""
    total = next((line for line in lines if line.contrast.kind == "total"), None)
    reason = _withheld(total)
    return [_share(line, total, reason, level) for line in lines]


def _share(line: Line, total: Line | None, reason: str, level: float) -> Share:
    if line.contrast.kind not in SHARED_KINDS or line.reading.across:
        return Share()
    if total is None or reason:
        return Share(reason=f"{NO_SHARE}{reason}")
    if np.isnan(line.stderr):
        return Share(line.value / total.value)
    return Share(line.value / total.value, *line.share_of(total, level))


def _withheld(total: Line | None) -> str:
    if total is None:
        return "no arm quantizes everything"
    if np.isnan(total.stderr):
        return "the total has no interval"
    if total.reading.withheld:
        return total.reading.withheld
    low, high = total.bounds
    if high < 0:
        return "total is negative, quantizing helped"
    if low <= 0:
        return "total not told from zero"
    if total.reading.divergence and low <= noise_floor(total.reading.noise_K):
        return "total not told from noise"
    return ""
