"""A reading: every effect of one metric in one task, in a subset (mean over its tasks), or between two subsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np

from harness.attribute.effects import Contrast, Game
from harness.attribute.intervals import Array, Estimates, combine, estimate
from harness.attribute.scores import Scores
from harness.attribute.values import Form
from harness.config import AttributeConfig

ALL_TASKS = "all"


@dataclass(frozen=True)
class Reading:
    """Values of all contrasts [E]; `estimates` is None where there is one document, so that nothing tells the spread.

    `noise_K`: losses of the noise arms. `withheld`: why no shares are given, whatever their intervals. `whole`: speaks
    for its subset (or a pair of subsets), not for one task of several.
    """

    subset: str
    task: str
    metric: str
    value_E: Array
    estimates: Estimates | None
    noise_K: Array
    items: int
    documents: frozenset[str]
    divergence: bool
    withheld: str = ""
    whole: bool = True
    across: bool = False  # between two subsets
    near_chance: bool = False  # of a task that base hardly masters
    note: str = ""
    by_pair: Mapping[int, Array] = field(default_factory=dict)  # of columns that are means over orders: of each pair


def read(
    scores: Scores, game: Game, contrasts: Sequence[Contrast], noise: Sequence[str], options: AttributeConfig
) -> Reading:
    """All contrasts of one task's metric, with their resamples."""
    labels, loss_DA, weight_D = scores.losses_by_document()
    effect_DE = loss_DA @ _coefficients(scores.arms, game, [contrast.form for contrast in contrasts])
    loss_A = loss_DA.sum(0) / weight_D.sum()
    several = len(labels) > 1
    return Reading(
        scores.subset,
        scores.task,
        scores.metric,
        effect_DE.sum(0) / weight_D.sum(),
        estimate(effect_DE, weight_D, labels, options.resamples, options.seed) if several else None,
        loss_A[[list(scores.arms).index(arm) for arm in noise]],
        np.asarray(scores.values_AN).shape[1],
        frozenset(labels),
        scores.divergence,
        by_pair={
            column: loss_A @ _coefficients(scores.arms, game, contrast.by_pair)
            for column, contrast in enumerate(contrasts)
            if contrast.by_pair
        },
    )


def _coefficients(arms: Sequence[str], game: Game, forms: Sequence[Form]) -> Array:
    row = {game.coalitions[arm]: n for n, arm in enumerate(arms) if arm in game.coalitions}
    matrix_AE = np.zeros((len(arms), len(forms)))
    for column, form in enumerate(forms):
        for coalition, weight in form.items():
            matrix_AE[row[coalition], column] = weight
    return matrix_AE


def mean_of_tasks(readings: Sequence[Reading], weights: Sequence[float] = ()) -> Reading:
    """The mean over tasks of a subset, each counted once, or by weights that sum to 1."""
    reasons = [f"{r.task}: {r.withheld}" for r in readings if r.withheld]
    notes = [f"{r.task}: {r.note}" for r in readings if r.note]
    mean = replace(_combined(readings, weights or [1 / len(readings)] * len(readings)), near_chance=False)
    return replace(mean, subset=readings[0].subset, withheld="; ".join(reasons), note="; ".join(notes))


def speaking_for(tasks: Sequence[Reading]) -> Reading:
    """A subset's reading: of its only task, or the mean of those that base masters; the note names the others."""
    if len(tasks) == 1:
        return tasks[0]
    known = [reading for reading in tasks if not reading.near_chance]
    left_out = ", ".join(reading.task for reading in tasks if reading.near_chance)
    if not known or not left_out:
        return mean_of_tasks(tasks)
    mean = mean_of_tasks(known)
    notes = [f"without {left_out}: base is too near chance", mean.note]
    return replace(mean, note="; ".join(filter(None, notes)))


def difference_of_subsets(first: Reading, second: Reading) -> Reading:
    """What the first subset loses more than the second: of losses, themselves differences from base."""
    notes = "; ".join(filter(None, [first.note, second.note]))
    difference = _combined([first, second], [1, -1])
    return replace(difference, subset=_pair(first.subset, second.subset), across=True, note=notes)


def subset_pairs(subsets: Iterable[str]) -> set[str]:
    """Which names stand for a pair of subsets: those made of two others that are there as well."""
    names = set(subsets)
    return names & {_pair(first, second) for first, second in permutations(names, 2)}


def _pair(first: str, second: str) -> str:
    return f"{first}-{second}"


def _combined(readings: Sequence[Reading], weights: Sequence[float]) -> Reading:
    parts = [r.estimates for r in readings if r.estimates is not None]
    return replace(
        readings[0],
        task=ALL_TASKS,
        value_E=np.sum([w * r.value_E for w, r in zip(weights, readings, strict=True)], axis=0),
        estimates=combine(parts, weights) if len(parts) == len(readings) else None,
        noise_K=np.sum([w * r.noise_K for w, r in zip(weights, readings, strict=True)], axis=0),
        items=sum(r.items for r in readings),
        documents=frozenset().union(*(r.documents for r in readings)),
        whole=True,
        by_pair={
            column: np.sum([w * r.by_pair[column] for w, r in zip(weights, readings, strict=True)], axis=0)
            for column in readings[0].by_pair
        },
    )
