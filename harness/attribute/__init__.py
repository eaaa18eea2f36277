"""Whose loss is it? Effects of players on paired scores, with intervals, tests and verdicts. numpy and scipy only."""

from harness.attribute.arms import ArmLoss, arm_losses, group_losses
from harness.attribute.effects import Contrast, Game, contrasts
from harness.attribute.losses import mean_stderr, paired_loss
from harness.attribute.scores import Scores
from harness.attribute.table import Effect, attribute, between_subsets, read_effects, to_frame
from harness.attribute.verdict import noise_floor

__all__ = [
    "ArmLoss",
    "Contrast",
    "Effect",
    "Game",
    "Scores",
    "arm_losses",
    "attribute",
    "between_subsets",
    "contrasts",
    "group_losses",
    "mean_stderr",
    "noise_floor",
    "paired_loss",
    "read_effects",
    "to_frame",
]
