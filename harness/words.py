"""Words that results carry and reports read again, where no model is at hand.

Names of arms that are no coalition of a design, as harness.controls and harness.design give them; and of our metrics.
"""

from __future__ import annotations

NOISE, MATCHED, RANDOM, SPLICED, CAST = "noise", "matched", "random", "spliced", "fp16_cast"
CONTROLS = (NOISE, MATCHED, RANDOM, SPLICED, CAST)
DRAW = "@"  # and a number: the same arm with other calibration tokens

LOWER_IS_BETTER = ("nll", "kl")  # of our own metrics; a task says it of its own, and may leave it out where higher is


def is_control(arm: str) -> bool:
    """Arms that measure an error, not a setting: noise, random sites, casts, repeated calibration."""
    return DRAW in arm or arm.split(".")[0] in CONTROLS


def is_noise(arm: str) -> bool:
    """Draws of the noise floor."""
    return arm.split(".")[0] == NOISE
