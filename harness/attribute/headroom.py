"""Where shares would mislead although the total is clear.

Headroom is the way from base to a model that knows nothing (uniform nll, chance accuracy, 0 without choices). Past half
of it losses saturate: an int2 FFN alone scored worse than uniform, and the interaction came out at -73 % of the total.
And a task that base itself hardly masters has nothing to lose, in any metric: it is left out of its subset's mean as
well. So are the items of a band that base hardly masters, out of their task's effects: without them its loss is that of
what base knows. A band of few documents is not judged, for base may be near chance there by bad luck.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from harness.attribute.scores import Scores
from harness.attribute.verdict import CONFIRMATORY

LEAST_ACCURACY = 0.1  # above chance, in the best of a task's accuracies
ROUNDING = 1e-9  # 0.35 is 0.1 above 0.25, whatever floats say


def withheld(scores: Sequence[Scores], arms: Iterable[str]) -> list[str]:
    """Why no shares are given, for each of the scores; empty where they may be.

    A metric that knows no worst value (KL, margin) takes the word of the task's other metrics.
    """
    arms = list(arms)
    own = [_passed(one, arms) if np.isfinite(one.worst) else "" for one in scores]
    of_task: dict[tuple[str, str], str] = {}
    for one, reason in zip(scores, own, strict=True):
        of_task.setdefault((one.subset, one.task), reason)
        of_task[one.subset, one.task] = of_task[one.subset, one.task] or reason
    return [
        near or (reason if np.isfinite(one.worst) else of_task[one.subset, one.task])
        for one, reason, near in zip(scores, own, near_chance(scores), strict=True)
    ]


def near_chance(scores: Sequence[Scores]) -> list[str]:
    """For each of the scores, in what its task's base is near chance; empty where it is not."""
    tasks = dict.fromkeys((one.subset, one.task) for one in scores)
    found = {task: _near_chance([one for one in scores if (one.subset, one.task) == task]) for task in tasks}
    return [found[one.subset, one.task] for one in scores]


def of_mastered_bands(scores: Sequence[Scores]) -> list[tuple[Scores, str]]:
    """Each of the scores without the bands that base hardly masters, and which these are; empty for none.

    All scores of a task have the same items, hence the same bands. A task that base hardly masters stays whole.
    """
    tasks: dict[tuple[str, str], list[Scores]] = {}
    for one in scores:
        tasks.setdefault((one.subset, one.task), []).append(one)
    out = {task: [] if _near_chance(own) else _weak_bands(own) for task, own in tasks.items()}
    found = []
    for one in scores:
        weak = out[one.subset, one.task]
        note = f"without band {', '.join(weak)}: base is too near chance"
        found.append((one.only(~np.isin(one.bands_N, weak)), note) if weak else (one, ""))
    return found


def _weak_bands(scores: Sequence[Scores]) -> list[str]:
    """Of one task's scores: bands of enough documents where base is near chance in all of the accuracies."""
    weak = []
    for band in sorted(set(scores[0].bands_N) - {""}):
        own = [one.only(np.isin(one.bands_N, [band])) for one in scores]
        if len(np.unique(np.asarray(own[0].documents_N))) >= CONFIRMATORY and _near_chance(own):
            weak.append(band)
    return weak


def _near_chance(scores: Sequence[Scores]) -> str:
    """Of one task's scores: whether base is near chance in all of its accuracies."""
    accuracies = [one for one in scores if one.higher_is_better and np.isfinite(one.worst)]
    if not accuracies:
        return ""
    best = max(accuracies, key=lambda one: one.means()["base"] - one.worst)
    if best.means()["base"] - best.worst >= LEAST_ACCURACY - ROUNDING:
        return ""
    return f"base {best.metric} {best.means()['base']:.3g} is too near chance, {best.worst:.3g}"


def _passed(scores: Scores, arms: Sequence[str]) -> str:
    """The first arm past half its headroom."""
    means = scores.means()
    headroom = abs(means["base"] - scores.worst)
    for arm in arms:
        loss = means["base"] - means[arm] if scores.higher_is_better else means[arm] - means["base"]
        if loss > headroom / 2:
            return f"arm {arm} ({scores.metric} {means[arm]:.3g}) passed half the way from base to {scores.worst:.3g}"
    return ""
