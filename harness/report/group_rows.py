"""groups.csv: losses over several tasks of a subset, in the columns of report.csv.

A group is what one name stands for (`mmlu` and its subjects), and all tasks of a subset. It has two means, which differ
where tasks differ in size: `by item`, every item counts the same, and `by task`, every task does (for mmlu, every
subject). The tasks are taken as they are and not as a sample of tasks: documents are resampled within each, and a
group's error is that of its tasks together. Only metrics that all tasks of a group have in one unit and direction;
running text is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.attribute import ArmLoss, group_losses
from harness.attribute.reading import ALL_TASKS
from harness.effects import scores_of
from harness.report.tables import Sheet, as_report, loss_cells
from harness.score.measure import Measure, Results, Scorable, digest, of_task

BY_ITEM, BY_TASK = "by item", "by task"


@dataclass(frozen=True)
class Group:
    """One metric of a group's tasks, and what a task counts in its mean."""

    name: str
    way: str
    members: Sequence[Results]
    measures: Sequence[Measure]

    @property
    def weights(self) -> np.ndarray:
        """One a task; they sum to 1."""
        size_K = np.array([len(m.items) if self.way == BY_ITEM else 1 for m in self.measures], dtype=float)
        return size_K / size_K.sum()

    def mean(self, values_by_task: Sequence[Any]) -> Any:
        """The group's mean of what its tasks have."""
        return np.tensordot(self.weights, np.array(values_by_task, dtype=float), axes=1)


def group_report(sheet: Sheet, work: Sequence[Scorable]) -> pd.DataFrame:
    """A row per arm, group, mean and metric; no row where no tasks make a group."""
    groups = list(_groups(sheet.results, work))
    noise = [arm.name for arm in sheet.arms if arm.is_noise]
    scored = [([scores_of(m, sheet.arms) for m in group.measures], list(group.weights)) for group in groups]
    losses = group_losses(scored, sheet.attribute, noise)
    return as_report(
        {**sheet.run, **sheet.arm_cells[a], **_cells(group, a, found.get(arm.name)), "status": "done"}
        for group, found in zip(groups, losses, strict=True)
        for a, arm in enumerate(sheet.arms)
    )


def _groups(results: Sequence[Results], work: Sequence[Scorable]) -> Iterator[Group]:
    named: dict[tuple[str, str], list[Results]] = {}
    for task, own in zip(work, results, strict=True):
        for name in () if task.is_text else filter(None, (task.group, ALL_TASKS)):
            named.setdefault((task.subset, name), []).append(own)
    for (subset, name), members in named.items():
        others = [own for (where, other), own in named.items() if where == subset and other != name]
        twice = name == ALL_TASKS and any(len(own) == len(members) for own in others)  # one name stands for all
        if len(members) > 1 and not twice:
            for measures in _shared(members):
                yield from (Group(name, way, members, measures) for way in (BY_ITEM, BY_TASK))


def _shared(members: Sequence[Results]) -> Iterator[list[Measure]]:
    """The measures of each metric that all have, and mean the same by."""
    for first in members[0].measures:
        found = [of_task(measure) for own in members for measure in own.measures if measure.metric == first.metric]
        if len(found) == len(members) and len({(m.unit, m.higher_is_better) for m in found}) == 1:
            yield found


def _cells(group: Group, arm: int, found: ArmLoss | None) -> dict[str, Any]:
    measures = group.measures
    value_A = group.mean([np.average(m.values_AN, axis=1, weights=m.weights_N) for m in measures])
    worse = value_A[0] - value_A[arm] if measures[0].higher_is_better else value_A[arm] - value_A[0]
    return {
        "subset": measures[0].subset,
        "task": f"{group.name}, {group.way}",
        "metric": measures[0].metric,
        "unit": measures[0].unit,
        "n_items": sum(len(m.items) for m in measures),
        "n_documents": len({document for m in measures for document in m.documents}),
        "n_tokens": sum(m.n_tokens.sum() for m in measures),
        "value": value_A[arm],
        "base_value": value_A[0],
        "kl_mean": _mean_of(group, [m.kl_AN for m in measures], arm),
        "top1_agreement": _mean_of(group, [m.agree_AN for m in measures], arm),
        "protocol": {
            "mean": group.way,
            "tasks": [m.task for m in measures],
            "protocols": digest([own.protocol for own in group.members]),
        },
        "data_hash": digest([own.data_hash for own in group.members]),
        "template_hash": digest([own.template_hash for own in group.members]),
        **({} if arm == 0 else loss_cells(found) if found else {"loss": worse}),
    }


def _mean_of(group: Group, values: Sequence[np.ndarray | None], arm: int) -> float | None:
    known = [own[arm].mean() for own in values if own is not None]
    return float(group.mean(known)) if len(known) == len(values) else None
