"""What may be said of an effect.

- worse / better (of losses), positive / negative (of contrasts): told from zero after correction for all tests of its
  family. equivalent: within the margin by two one-sided tests (Schuirmann 1987), that is with its interval at level
  1 - 2 alpha. Otherwise undecided.
- Under 20 documents everything is exploratory: intervals are shown, no verdict is given.
- Noise floor: 95th percentile of the absolute losses of arms whose weights moved by at most half a bfloat16 step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

CONFIRMATORY = 20  # documents
LOSS_WORDS, CONTRAST_WORDS = ("worse", "better"), ("positive", "negative")


def verdict(
    low: float, high: float, p_adjusted: float, margin: float, alpha: float, words: tuple[str, str] = LOSS_WORDS
) -> str:
    """`low`, `high`: the interval at level 1 - 2 alpha. NaN anywhere: undecided."""
    if -margin < low and high < margin:
        return "equivalent"
    if p_adjusted <= alpha:
        return words[0] if low > 0 else words[1]
    return "undecided"


def noise_floor(losses_K: ArrayLike) -> float:
    """95th percentile of the absolute losses of noise arms; NaN without any."""
    losses = np.abs(np.asarray(losses_K, dtype=np.float64))
    return float(np.percentile(losses, 95)) if losses.size else float("nan")
