"""Whose loss is it? Effects of players on paired scores, with intervals, tests and verdicts. numpy and scipy only."""

from harness.attribute.losses import mean_stderr, paired_loss

__all__ = ["mean_stderr", "paired_loss"]
