"""Every arm's loss against base, with verdicts: the inference columns of report.csv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.attribute.effects import Contrast, Game
from harness.attribute.intervals import Array
from harness.attribute.lines import Line, corrected, lines_of, uncorrected
from harness.attribute.losses import difference_test
from harness.attribute.reading import mean_of_tasks, read
from harness.attribute.scores import Scores
from harness.attribute.table import known
from harness.attribute.values import loss
from harness.config import AttributeConfig


@dataclass(frozen=True)
class ArmLoss:
    """One arm's loss in one metric. `p_value`: McNemar or sign flips; `p_adjusted`: for all arms and scores tested."""

    arm: str
    loss: float
    lo: float | None
    hi: float | None
    p_value: float | None
    p_adjusted: float | None
    verdict: str | None
    below_noise: bool | None
    reason: str


def arm_losses(
    scores: Sequence[Scores], options: AttributeConfig, noise: Sequence[str] = ()
) -> list[dict[str, ArmLoss]]:
    """For each of the scores: arm -> its loss. Noise arms set the floor and are not tested; base is left out."""
    groups = [_lines(one, noise, options) for one in scores]
    p_values = iter(corrected([line for lines in groups for line in lines], primary_metric=""))
    found = []
    for one, lines in zip(scores, groups, strict=True):
        _, loss_DA, _ = one.losses_by_document()
        loss_of = dict(zip(one.arms, loss_DA.T, strict=True))
        rows = [_arm_loss(one, line, loss_of[line.contrast.player], next(p_values), options) for line in lines]
        found.append({row.arm: row for row in rows})
    return found


def group_losses(
    groups: Sequence[tuple[Sequence[Scores], Sequence[float]]], options: AttributeConfig, noise: Sequence[str] = ()
) -> list[dict[str, ArmLoss]]:
    """For each group of tasks, with their weights in its mean: arm -> its loss.

    `p_value` is that of the resampled t, as tests of single items know no weights.
    """
    lines_by_group = [_group_lines(tasks, weights, noise, options) for tasks, weights in groups]
    adjusted = iter(corrected([line for lines in lines_by_group for line in lines], primary_metric=""))
    return [
        {
            line.contrast.player: _line_loss(line, p_value, next(adjusted), options)
            for line, p_value in zip(lines, uncorrected(lines), strict=True)
        }
        for lines in lines_by_group
    ]


def _group_lines(
    tasks: Sequence[Scores], weights: Sequence[float], noise: Sequence[str], options: AttributeConfig
) -> list[Line]:
    game, contrasts = _game(tasks[0], noise)
    reading = mean_of_tasks([read(one, game, contrasts, noise, options) for one in tasks], weights)
    return lines_of(reading, contrasts, options.level)


def _game(scores: Scores, noise: Sequence[str]) -> tuple[Game, list[Contrast]]:
    """Every arm but base and noise by itself."""
    game = Game({arm: frozenset({arm}) for arm in scores.arms if arm != "base" and arm not in noise})
    return game, [Contrast("alone", arm, loss(players)) for arm, players in game.coalitions.items()]


def _lines(scores: Scores, noise: Sequence[str], options: AttributeConfig) -> list[Line]:
    game, contrasts = _game(scores, noise)
    return lines_of(read(scores, game, contrasts, noise, options), contrasts, options.level)


def _arm_loss(scores: Scores, line: Line, loss_D: Array, p_adjusted: float, options: AttributeConfig) -> ArmLoss:
    p_value = _p_value(scores, line, loss_D, options)
    return _line_loss(line, p_value, max(p_adjusted, p_value) if line.tested else np.nan, options)


def _line_loss(line: Line, p_value: float, p_adjusted: float, options: AttributeConfig) -> ArmLoss:
    low, high = line.bounds
    return ArmLoss(
        line.contrast.player,
        line.value,
        known(low),
        known(high),
        known(p_value),
        known(p_adjusted),
        line.verdict(p_adjusted, options.margin, options.level),
        line.below_noise,
        line.unknown,
    )


def _p_value(scores: Scores, line: Line, loss_D: Array, options: AttributeConfig) -> float:
    if scores.divergence or len(loss_D) < 2:
        return np.nan
    row = {arm: np.asarray(scores.values_AN)[n] for n, arm in enumerate(scores.arms)}
    return difference_test(row["base"], row[line.contrast.player], loss_D, options.resamples, options.seed)
