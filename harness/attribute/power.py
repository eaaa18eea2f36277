"""Before a run: the smallest loss that a number of items can tell from zero.

A two-sided test at level 1 - alpha finds a loss of (t_alpha/2 + t_power) x se with the asked power, t with D - 1
degrees of freedom. The standard error of a paired loss is not known before. That of base's own mean is, where an
earlier run has scored base, and a stated prior links the two. With arm and base varying alike and correlated by rho,

    var(arm - base) = 2 (1 - rho) var(base)        hence se(loss) = ratio x se(base), ratio = sqrt(2 (1 - rho))

For right or wrong answers this is McNemar's discordance: of items answered with accuracy p the share ratio^2 p (1 - p)
flips; ratio 0.85 (rho 0.64) at p = 0.8 says 12 %. Base's own scores thus replace the prior of how much items differ,
never that of how far an arm goes along with base. Without them the spread of a single score is a prior too, and items
of one document count as alike to a stated degree: se(base) = spread x sqrt((1 + (items per document - 1) x alike) / n).

KL(base || arm) is 0 in base and never tested against zero. What can be told from zero there is a signed effect: the
interaction, or the FFN's part less the attention's; its spread and size are priors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from harness.attribute.losses import mean_stderr
from harness.attribute.reading import ALL_TASKS

POWER = 0.8
BASE_SCORES, PRIOR = "base scores", "prior"


@dataclass(frozen=True)
class Prior:
    """What is assumed of a metric before its losses are seen."""

    spread: float  # sd of one item's score in base
    ratio: float  # se of a paired loss over se of base's mean
    typical: float  # loss at int4, group 64, both blocks; in KL the FFN's part less the attention's
    alike: float = 0.1  # correlation of two items of one document
    of_effect: bool = False  # the spread is that of an effect itself, and base's scores say nothing of it


@dataclass(frozen=True)
class Resolution:
    """The smallest loss that one metric of one task, or of a subset's mean over tasks, can resolve."""

    subset: str
    task: str
    metric: str
    n_items: int
    n_documents: int
    smallest: float
    typical: float
    source: str  # BASE_SCORES or PRIOR
    stderr: float  # expected, of the loss
    freedom: float

    @property
    def warns(self) -> bool:
        """Whether a typical int4 loss is smaller: the run would not see what it looks for."""
        return self.smallest > self.typical


# SmolLM2-135M, round-to-nearest int4 at group 64 in both blocks: 60 adjective and 60 city questions, 20 windows of Moby
# Dick; KL by experiments/ffn_share and knowledge_vs_general. Other models and precisions differ: these tell whether a
# run is of the right order of size, not more.
RIGHT_OR_WRONG = Prior(spread=0.40, ratio=0.85, typical=0.02)
PRIORS: Mapping[str, Prior] = {
    "acc": RIGHT_OR_WRONG,
    "acc_norm": RIGHT_OR_WRONG,
    "exact_match": RIGHT_OR_WRONG,
    "nll": Prior(spread=1.8, ratio=0.55, typical=0.1),  # of an answer
    "kl": Prior(spread=0.5, ratio=1.0, typical=0.15, of_effect=True),
    "margin": Prior(spread=4.3, ratio=0.53, typical=0.4),
}
TEXT_PRIORS: Mapping[str, Prior] = {  # of a token, by windows of 384 tokens
    "nll": Prior(spread=0.26, ratio=0.3, typical=0.35),
    "kl": Prior(spread=0.06, ratio=1.0, typical=0.17, of_effect=True),
}


def smallest_loss(stderr: float, freedom: float, level: float, power: float = POWER) -> float:
    """The loss that a test at `level` finds with `power`, from the standard error of a paired loss."""
    return float((stats.t.ppf((1 + level) / 2, freedom) + stats.t.ppf(power, freedom)) * stderr)


def resolution(
    subset: str,
    task: str,
    metric: str,
    documents_N: ArrayLike,
    level: float,
    priors: Mapping[str, Prior] = PRIORS,
    base_N: ArrayLike | None = None,
    weights_N: ArrayLike | None = None,
) -> Resolution | None:
    """What a task's items can resolve, from kept scores of base where they exist. None: one document, or no prior.

    `priors`: `TEXT_PRIORS` for windows of text. Scores of base that do not differ (all right) tell nothing.
    """
    prior, items = priors.get(metric.partition(",")[0]), len(np.asarray(documents_N))
    documents = len(np.unique(np.asarray(documents_N)))
    if prior is None or documents < 2:
        return None
    design_effect = 1 + (items / documents - 1) * prior.alike
    stderr, source = float(prior.spread * np.sqrt(design_effect / items)), PRIOR
    if base_N is not None and not prior.of_effect:
        known = mean_stderr(base_N, documents_N, weights_N)[1]
        stderr, source = (known, BASE_SCORES) if known > 0 else (stderr, source)
    stderr, freedom = prior.ratio * stderr, documents - 1.0
    smallest = smallest_loss(stderr, freedom, level)
    return Resolution(subset, task, metric, items, documents, smallest, prior.typical, source, stderr, freedom)


def over_tasks(tasks: Sequence[Resolution], documents: Sequence[Collection[str]], level: float) -> Resolution:
    """What the mean over a subset's tasks resolves in one metric, each task counted once. `documents`: of each task.

    Tasks that share documents may err alike: their errors are then added as if they always did. Those of tasks without
    a document in common are independent. Degrees of freedom: Satterthwaite (Biometrics 2, 1946).
    """
    stderr_K = np.array([one.stderr for one in tasks]) / len(tasks)
    stderr = float(np.sqrt(sum(stderr_K[alike].sum() ** 2 for alike in _sharing(documents))))
    freedom = (stderr_K**2).sum() ** 2 / (stderr_K**4 / np.array([one.freedom for one in tasks])).sum()
    return replace(
        tasks[0],
        task=ALL_TASKS,
        n_items=sum(one.n_items for one in tasks),
        n_documents=len(set().union(*documents)),
        smallest=smallest_loss(stderr, float(freedom), level),
        typical=float(np.mean([one.typical for one in tasks])),
        source=BASE_SCORES if all(one.source == BASE_SCORES for one in tasks) else PRIOR,
        stderr=stderr,
        freedom=float(freedom),
    )


def _sharing(documents: Sequence[Collection[str]]) -> list[list[int]]:
    """Indices of tasks in groups: within a group each shares documents with another one, between groups none does."""
    groups: list[tuple[list[int], set[str]]] = []
    for n, own in enumerate(documents):
        tasks, labels = [n], set(own)
        for group in [group for group in groups if not labels.isdisjoint(group[1])]:
            groups.remove(group)
            tasks, labels = group[0] + tasks, group[1] | labels
        groups.append((tasks, labels))
    return [tasks for tasks, _ in groups]
