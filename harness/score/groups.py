"""Means over several tasks of a subset: over those that one name stands for (mmlu and its subjects), and over all.

There are two of them, which differ where tasks differ in size: every item counts the same, or every task does (for
mmlu, every subject). Only metrics that all tasks of a group have; running text is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness.score.measure import Measure, Results, Scorable, digest

BY_ITEM, BY_TASK = "by item", "by task"
ALL = "all"


def group_results(work: Sequence[Scorable], results: Sequence[Results]) -> list[Results]:
    """For each group of tasks its mean by item and by task, under the names `mmlu, by item` and `mmlu, by task`."""
    groups: dict[tuple[str, str], list[Results]] = {}
    for task, own in zip(work, results, strict=True):
        for name in () if task.is_text else dict.fromkeys([task.group, ALL]):
            if name:
                groups.setdefault((task.subset, name), []).append(own)
    return [
        Results(
            measures,
            protocol=_protocol(way, members),
            data_hash=digest([own.data_hash for own in members]),
            template_hash=digest([own.template_hash for own in members]),
        )
        for (_, name), members in groups.items()
        for way in (BY_ITEM, BY_TASK)
        if len(members) > 1 and (measures := list(_means(f"{name}, {way}", way, members)))
    ]


def _means(name: str, way: str, members: Sequence[Results]) -> Iterator[Measure]:
    by_metric = [{measure.metric: measure for measure in own.measures} for own in members]
    for metric in by_metric[0]:
        parts = [own[metric] for own in by_metric if metric in own]
        if len(parts) == len(members):
            yield _joined(name, way, parts)


def _joined(name: str, way: str, parts: Sequence[Measure]) -> Measure:
    weights = [part.weights_N / (part.weights_N.sum() if way == BY_TASK else 1) for part in parts]
    first = parts[0]
    return Measure(
        subset=first.subset,
        task=name,
        metric=first.metric,
        unit=first.unit,
        higher_is_better=first.higher_is_better,
        values_AN=_beside([part.values_AN for part in parts]),
        items=[f"{part.task} {item}" for part in parts for item in part.items],
        documents=[document for part in parts for document in part.documents],
        bands=[""] * sum(len(part.items) for part in parts),
        n_tokens=np.concatenate([part.n_tokens for part in parts]),
        weights_N=np.concatenate(weights),
        worst=float(np.average([part.worst for part in parts], weights=[own.sum() for own in weights])),
        kl_AN=_beside([part.kl_AN for part in parts]),
        agree_AN=_beside([part.agree_AN for part in parts]),
    )


def _beside(parts: Sequence[np.ndarray | None]) -> Any:
    known = [part for part in parts if part is not None]
    return np.concatenate(known, axis=1) if len(known) == len(parts) else None


def _protocol(way: str, members: Sequence[Results]) -> dict[str, Any]:
    return {"mean": way, "tasks": {own.measures[0].task: own.protocol for own in members}}
