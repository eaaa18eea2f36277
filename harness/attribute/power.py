"""Before a run: the smallest loss that a number of items can tell from zero.

A two-sided test at level 1 - alpha finds a loss of (t_alpha/2 + t_power) x se with the asked power, t with D - 1
degrees of freedom. The standard error of a paired loss is not known before; that of base's own mean is, where base has
been scored, and the two are proportional: se(loss) = ratio x se(base), because a loss varies less than the score
itself. Without base scores the spread of a single score is a prior too, and items of one document count as alike to a
stated degree: se(base) = spread x sqrt((1 + (items per document - 1) x alike) / items).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from harness.attribute.losses import mean_stderr

POWER = 0.8


@dataclass(frozen=True)
class Prior:
    """What is assumed of a metric before its losses are seen."""

    spread: float  # sd of one item's score in base
    ratio: float  # se of a paired loss over se of base's mean
    alike: float  # correlation of two items of one document
    typical: float  # loss at int4, group 64, both blocks


@dataclass(frozen=True)
class Resolution:
    """The smallest loss that one metric of one task can resolve."""

    subset: str
    task: str
    metric: str
    n_items: int
    n_documents: int
    smallest: float
    typical: float
    source: str  # `base scores` or `prior`

    @property
    def warning(self) -> str:
        """Said before a run that would not see what it looks for; empty otherwise."""
        if self.smallest <= self.typical:
            return ""
        return (
            f"{self.subset}/{self.task}: {self.n_documents} documents resolve a loss of {self.smallest:.2g} in "
            f"{self.metric} ({POWER:.0%} power, from {self.source}); a typical int4 loss is {self.typical:.2g}. "
            "Score more items, or a metric that varies less (nll)."
        )


# SmolLM2-135M, round-to-nearest int4 at group 64 in both blocks: 60 adjective and 60 city questions, 20 windows of Moby
# Dick. Other models and precisions differ: these tell whether a run is of the right order of size, not more.
PRIORS: Mapping[str, Prior] = {
    "acc": Prior(spread=0.40, ratio=0.85, alike=0.1, typical=0.02),
    "acc_norm": Prior(spread=0.40, ratio=0.85, alike=0.1, typical=0.02),
    "nll": Prior(spread=1.8, ratio=0.55, alike=0.1, typical=0.1),  # of an answer
    "margin": Prior(spread=4.3, ratio=0.53, alike=0.1, typical=0.4),
}
TEXT_NLL = Prior(spread=0.26, ratio=0.3, alike=0.1, typical=0.35)  # of a token, by windows of 384 tokens


def smallest_loss(stderr: float, documents: int, level: float, power: float = POWER) -> float:
    """The loss that a test at `level` finds with `power`, from the standard error of a paired loss."""
    freedom = documents - 1
    return float((stats.t.ppf((1 + level) / 2, freedom) + stats.t.ppf(power, freedom)) * stderr)


def resolution(
    subset: str,
    task: str,
    metric: str,
    documents_N: ArrayLike,
    level: float,
    prior: Prior | None = None,
    base_N: ArrayLike | None = None,
    weights_N: ArrayLike | None = None,
) -> Resolution | None:
    """What a task's items can resolve, from kept scores of base where they exist. None: one document, or no prior.

    `prior`: the metric's own by default; `TEXT_NLL` for windows of text.
    """
    prior, items = prior or PRIORS.get(metric), len(np.asarray(documents_N))
    documents = len(np.unique(np.asarray(documents_N)))
    if prior is None or documents < 2:
        return None
    if base_N is None:
        design_effect = 1 + (items / documents - 1) * prior.alike
        stderr, source = prior.spread * np.sqrt(design_effect / items), "prior"
    else:
        stderr, source = mean_stderr(base_N, documents_N, weights_N)[1], "base scores"
    smallest = smallest_loss(prior.ratio * float(stderr), documents, level)
    return Resolution(subset, task, metric, items, documents, smallest, prior.typical, source)
