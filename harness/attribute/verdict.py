"""What may be said of an effect, and when shares are withheld.

- worse / better: told from zero after correction for all tests of its family. equivalent: within the margin by two
  one-sided tests (Schuirmann 1987), that is with its interval at level 1 - 2 alpha. Otherwise undecided.
- Under 20 documents everything is exploratory: intervals are shown, no verdict is given.
- Noise floor: 95th percentile of the absolute losses of arms whose weights moved by at most half a bfloat16 step.
- Headroom: from base to the value of a model that knows nothing. Past half of it losses saturate and stop adding up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from harness.attribute.scores import Scores

CONFIRMATORY = 20  # documents
LEAST_HEADROOM = 0.1  # of accuracy: a base nearer to chance has little to lose


def verdict(low: float, high: float, p_adjusted: float, margin: float, alpha: float) -> str:
    """`low`, `high`: the interval at level 1 - 2 alpha. NaN anywhere: undecided."""
    if -margin < low and high < margin:
        return "equivalent"
    if p_adjusted <= alpha:
        return "worse" if low > 0 else "better"
    return "undecided"


def noise_floor(losses_K: ArrayLike) -> float:
    """95th percentile of the absolute losses of noise arms; NaN without any."""
    losses = np.abs(np.asarray(losses_K, dtype=np.float64))
    return float(np.percentile(losses, 95)) if losses.size else float("nan")


def exhausted(scores: Scores, arms: list[str]) -> str:
    """Why shares would mislead although the total is clear: the first arm past half its headroom. Empty: none is."""
    means, sign = scores.means(), 1 if scores.higher_is_better else -1
    headroom = sign * (means["base"] - scores.worst)
    named = f"{scores.metric} {means['base']:.3g}"
    if headroom <= (LEAST_HEADROOM if scores.higher_is_better else 0):
        return f"base {named} is too near {scores.worst:.3g}, that of a model that knows nothing"
    for arm in arms:
        if sign * (means["base"] - means[arm]) > headroom / 2:
            return f"arm {arm} ({scores.metric} {means[arm]:.3g}) passed half the way from base to {scores.worst:.3g}"
    return ""
