"""Lines: one effect of one reading, with its interval and its place in a family of tests.

Families: the primary one is declared before a run (each subset's F, A and interaction, and F - A between subsets, in
one metric); everything else is secondary, metric by metric, and lines of few documents are exploratory. Each family is
corrected by itself, by max-T step-down. A family a metric, because t strays far in resamples of accuracy, where few
items flip: its maximum would hide what nll tells at ten standard errors. A divergence is never negative, so its losses
are no candidates for a test against zero; its signed effects are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.attribute.effects import Contrast
from harness.attribute.intervals import Array, critical, share_interval, studentized
from harness.attribute.reading import Reading
from harness.attribute.significance import p_values, step_down
from harness.attribute.values import RESIDUAL
from harness.attribute.verdict import CONFIRMATORY, CONTRAST_WORDS, LOSS_WORDS, noise_floor, verdict

SIGNED_KINDS = ("interaction", "contrast", "difference")  # of either sign even in a divergence
COMPARED_KINDS = ("shapley", "owen", "total", "difference")  # between subsets
NAN = float("nan")


@dataclass(frozen=True)
class Line:
    """One effect of one reading. `q`, `q_within`: quantiles of |t| at the level, and at that of two one-sided tests."""

    reading: Reading
    contrast: Contrast
    column: int
    q: float
    q_within: float

    @property
    def value(self) -> float:
        """The effect."""
        return float(self.reading.value_E[self.column])

    @property
    def stderr(self) -> float:
        """Its standard error; NaN where nothing tells it: one document, or none that differs."""
        estimates = self.reading.estimates
        if estimates is None or not estimates.varies_E[self.column]:
            return NAN
        return float(estimates.stderr_E[self.column])

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval."""
        return self.value - self.q * self.stderr, self.value + self.q * self.stderr

    @property
    def bounds_within(self) -> tuple[float, float]:
        """The interval that two one-sided tests read."""
        return self.value - self.q_within * self.stderr, self.value + self.q_within * self.stderr

    @property
    def documents(self) -> float:
        """Independent documents behind it, as far as they count."""
        estimates = self.reading.estimates
        return 1.0 if estimates is None else round(float(estimates.freedom_E[self.column]) + 1, 6)

    @property
    def tested(self) -> bool:
        """Whether a test against zero makes sense."""
        signed = not self.reading.divergence or self.reading.across or self.contrast.kind in SIGNED_KINDS
        return signed and not np.isnan(self.stderr)

    @property
    def below_noise(self) -> bool | None:
        """Whether it is smaller than what rounding to bfloat16 does; None without noise arms."""
        floor = noise_floor(self.reading.noise_K)
        return None if np.isnan(floor) else abs(self.value) < floor

    @property
    def sampling(self) -> str:
        """Of a mean over sampled orders, its standard error over pairs of orders, which no interval sees."""
        pairs_P = self.reading.by_pair.get(self.column)
        if pairs_P is None or len(pairs_P) < 2:
            return ""
        return f"orders' standard error {pairs_P.std(ddof=1) / np.sqrt(len(pairs_P)):.2g}"

    @property
    def unknown(self) -> str:
        """Why there is no interval; empty where there is one."""
        if self.reading.estimates is None:
            return "one document: no interval"
        return "documents do not differ: no interval" if np.isnan(self.stderr) else ""

    def verdict(self, p_adjusted: float, margin: float, level: float) -> str | None:
        """What may be said; None for a divergence, which measures deviation and not harm."""
        if not self.tested and not self.unknown:
            return None
        if self.documents < CONFIRMATORY:
            return "exploratory"
        signed = self.reading.across or self.contrast.kind in SIGNED_KINDS
        words = CONTRAST_WORDS if signed else LOSS_WORDS
        return verdict(*self.bounds_within, p_adjusted, margin, 1 - level, words)

    def family(self, primary_metric: str) -> str:
        """Whose tests it is corrected together with."""
        if self.documents < CONFIRMATORY:
            return "exploratory"
        between = (self.contrast.kind == "difference") == self.reading.across
        primary = self.contrast.primary and self.reading.whole and between and self.reading.metric == primary_metric
        return "primary" if primary else f"secondary {self.reading.metric}"

    def share_of(self, total: Line, level: float) -> tuple[float, float]:
        """Interval of the share of a total of the same reading."""
        estimates = self.reading.estimates
        assert estimates is not None and self.reading is total.reading
        return share_interval(estimates, self.column, total.column, level)


def lines_of(reading: Reading, contrasts: Sequence[Contrast], level: float) -> list[Line]:
    """All effects of a reading, or those that can be set between subsets."""
    q_E = q_within_E = np.full(len(contrasts), NAN)
    if reading.estimates is not None:
        q_E, q_within_E = (critical(reading.estimates, at) for at in (level, 2 * level - 1))
    return [
        Line(reading, contrast, column, float(q_E[column]), float(q_within_E[column]))
        for column, contrast in enumerate(contrasts)
        if not reading.across or (contrast.kind in COMPARED_KINDS and contrast.player != RESIDUAL)
    ]


def corrected(lines: Sequence[Line], primary_metric: str) -> list[float]:
    """p-value of each line, corrected within its family; NaN where nothing is tested."""
    found = [NAN] * len(lines)
    tested = [n for n, line in enumerate(lines) if line.tested]
    families: dict[str, list[int]] = defaultdict(list)
    for n in tested:
        families[lines[n].family(primary_metric)].append(n)
    for members in families.values():
        p_H = step_down(*_tests([lines[n] for n in members]))
        for n, p in zip(members, p_H, strict=True):
            found[n] = float(p)
    return found


def uncorrected(lines: Sequence[Line]) -> list[float]:
    """p-value of each line by itself; NaN where nothing is tested."""
    tested = [n for n, line in enumerate(lines) if line.tested]
    found = [NAN] * len(lines)
    if tested:
        for n, p in zip(tested, p_values(*_tests([lines[n] for n in tested])), strict=True):
            found[n] = float(p)
    return found


def _tests(lines: Sequence[Line]) -> tuple[Array, Array, Array]:
    """What lines are tested by: t, t of every resample, degrees of freedom."""
    t_H = np.array([line.value / line.stderr for line in lines])
    return t_H, _resampled_t(lines), np.array([line.documents - 1 for line in lines])


def _resampled_t(lines: Sequence[Line]) -> Array:
    """t of every resample, [B, lines]."""
    t_of: dict[int, Array] = {}
    for line in lines:
        if line.reading.estimates is not None and id(line.reading) not in t_of:
            t_of[id(line.reading)] = studentized(line.reading.estimates)
    return np.stack([t_of[id(line.reading)][:, line.column] for line in lines], axis=1)
