"""How often intervals hold the truth: simulated scores with a known loss, through the same code as real ones.

    python -m harness.attribute.simulate --out experiments/coverage/coverage.csv

Documents have log-normal sizes, losses of items in one document are correlated, and the four arms share both. Worlds:

    skewed       sizes of log-sd 0.7 (the largest of 60 about five times the median), normal document effects
    very_skewed  sizes of log-sd 1.0 and exponential document effects
    flips        right-or-wrong items: a loss is 1, 0 or -1, and documents differ in how fragile they are

Beside the harness's interval (`documents`) stand the one that takes every item for independent (`items`, a plain
+-1.96 s / sqrt(n)) and three other bootstraps over documents.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from harness.attribute.effects import Contrast, Game, contrasts
from harness.attribute.intervals import Array, Estimates, interval, share_interval, studentized
from harness.attribute.reading import read
from harness.attribute.scores import Scores
from harness.attribute.values import Coalition
from harness.config import AttributeConfig

Bounds = tuple[Array, Array]

ARMS = {
    "base": frozenset(),
    "ffn": frozenset({"ffn"}),
    "attention": frozenset({"attention"}),
    "both": frozenset({"ffn", "attention"}),
}
GAME = Game(ARMS)
EFFECTS = (("total", "all"), ("shapley", "ffn"), ("interaction", "ffn+attention"), ("contrast", "ffn"))
LOSS_A = np.array([0.0, 0.22, 0.11, 0.36])
SPREAD_A = np.array([0.0, 0.6, 0.4, 0.8])
MIX_AA = np.linalg.cholesky(np.array([[1, 0, 0, 0], [0, 1, 0.5, 0.8], [0, 0.5, 1, 0.7], [0, 0.8, 0.7, 1]]))
COLUMNS = [
    "world",
    "documents",
    "interval",
    "effect",
    "truth",
    "simulations",
    "shown",
    "coverage",
    "below",
    "above",
    "width",
]
ALIKE = 0.3  # correlation of two items of one document
HARMED_A, HELPED_A = np.array([0, 0.10, 0.05, 0.17]), np.array([0, 0.03, 0.02, 0.04])


@dataclass(frozen=True)
class World:
    """Where scores come from."""

    name: str
    size_spread: float  # sd of log document size
    skewed_effects: bool = False
    flips: bool = False

    @property
    def truth(self) -> dict[Coalition, float]:
        """Each arm's expected loss."""
        return dict(zip(ARMS.values(), HARMED_A - HELPED_A if self.flips else LOSS_A, strict=True))

    def draw(self, documents: int, rng: np.random.Generator) -> Scores:
        """Scores of all arms on a new draw of documents."""
        size_D = 1 + np.floor(rng.lognormal(1.8, self.size_spread, documents)).astype(np.int64)
        document_N = np.repeat(np.arange(documents), size_D)
        loss_NA = self._flips(document_N, rng) if self.flips else self._losses(document_N, rng)
        return Scores("simulated", self.name, "nll", list(ARMS), loss_NA.T, document_N, higher_is_better=False)

    def _losses(self, document_N: NDArray[np.int64], rng: np.random.Generator) -> Array:
        shape = document_N.max() + 1, len(LOSS_A)
        of_document = rng.exponential(size=shape) - 1 if self.skewed_effects else rng.normal(size=shape)
        of_item = rng.exponential(size=(len(document_N), len(LOSS_A))) - 1
        mixed = np.sqrt(ALIKE) * of_document[document_N] + np.sqrt(1 - ALIKE) * of_item
        return LOSS_A + SPREAD_A * (mixed @ MIX_AA.T)

    def _flips(self, document_N: NDArray[np.int64], rng: np.random.Generator) -> Array:
        fragile_N1 = rng.choice([0.5, 1.5], size=document_N.max() + 1)[document_N][:, None]
        draw_N1 = rng.random((len(document_N), 1))
        return 1.0 * (draw_N1 < HARMED_A * fragile_N1) - (draw_N1 > 1 - HELPED_A)


WORLDS = (World("skewed", 0.7), World("very_skewed", 1.0, skewed_effects=True), World("flips", 0.7, flips=True))


def percentile(estimates: Estimates, level: float) -> Bounds:
    """Plain quantiles of the resampled estimates."""
    low_E, high_E = np.quantile(estimates.delta_BE, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return estimates.estimate_E + low_E, estimates.estimate_E + high_E


def equal_tails(estimates: Estimates, level: float) -> Bounds:
    """Bootstrap-t with a quantile of its own for each side."""
    low_E, high_E = np.quantile(studentized(estimates), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return estimates.estimate_E - high_E * estimates.stderr_E, estimates.estimate_E - low_E * estimates.stderr_E


def bca(estimates: Estimates, level: float) -> Bounds:
    """Quantiles corrected for bias and acceleration (Efron 1987)."""
    (influence_DE,) = estimates.influence.values()
    acceleration_E = (influence_DE**3).sum(0) / (6 * (influence_DE**2).sum(0) ** 1.5)
    bias_E = stats.norm.ppf((1 + (estimates.delta_BE < 0).sum(0)) / (2 + len(estimates.delta_BE)))
    bounds = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        z_E = bias_E + stats.norm.ppf(tail)
        at_E = stats.norm.cdf(bias_E + z_E / (1 - acceleration_E * z_E))
        delta_E = [np.quantile(delta_B, at) for delta_B, at in zip(estimates.delta_BE.T, at_E, strict=True)]
        bounds.append(estimates.estimate_E + np.array(delta_E))
    return bounds[0], bounds[1]


OURS, ITEMS = "documents", "items"
RIVALS: dict[str, Callable[[Estimates, float], Bounds]] = {
    "percentile": percentile,
    "equal_tails": equal_tails,
    "bca": bca,
}


def coverage(
    world: World, documents: int, simulations: int, options: AttributeConfig, rivals: Sequence[str] = ()
) -> pd.DataFrame:
    """One row an effect and kind of interval: how often the truth lay inside, below, above; median width.

    `shown`: how many intervals there were (shares are withheld where the total is not told from zero).
    """
    rng = np.random.default_rng([options.seed, documents])
    found = contrasts(GAME, options.claims)
    chosen = [next(c for c in found if (c.kind, c.player) == effect) for effect in EFFECTS]
    truth = {c.kind: sum(weight * world.truth[players] for players, weight in c.form.items()) for c in chosen}
    truth["share"] = truth["shapley"] / truth["total"]
    tally: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for seed in range(simulations):
        drawn = world.draw(documents, rng)
        for way, effect, low, high in _intervals(drawn, chosen, replace(options, seed=seed), rivals):
            tally.setdefault((way, effect), []).append((low, high))
    same = {"world": world.name, "documents": documents, "simulations": simulations}
    rows = [same | _row(way, effect, truth[effect], np.array(bounds)) for (way, effect), bounds in tally.items()]
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(way: str, effect: str, truth: float, bounds_S2: Array) -> dict[str, float | str]:
    below, above = (truth < bounds_S2[:, 0]).mean(), (truth > bounds_S2[:, 1]).mean()
    return {
        "interval": way,
        "effect": effect,
        "truth": truth,
        "shown": len(bounds_S2),
        "coverage": 1 - below - above,
        "below": below,
        "above": above,
        "width": np.median(bounds_S2[:, 1] - bounds_S2[:, 0]),
    }


def _intervals(
    scores: Scores, chosen: Sequence[Contrast], options: AttributeConfig, rivals: Sequence[str]
) -> Iterator[tuple[str, str, float, float]]:
    estimates = read(scores, GAME, chosen, (), options).estimates
    assert estimates is not None
    kinds = [contrast.kind for contrast in chosen]
    bounds = {OURS: interval(estimates, options.level), ITEMS: _of_items(scores, chosen)}
    bounds |= {name: RIVALS[name](estimates, options.level) for name in rivals}
    for way, (low_E, high_E) in bounds.items():
        for kind, low, high in zip(kinds, low_E, high_E, strict=True):
            yield way, kind, low, high
    if bounds[OURS][0][kinds.index("total")] > 0:
        part, total = kinds.index("shapley"), kinds.index("total")
        yield OURS, "share", *share_interval(estimates, part, total, options.level)


def _of_items(scores: Scores, chosen: Sequence[Contrast]) -> Bounds:
    """What follows from taking every item for independent."""
    loss = dict(zip(ARMS.values(), scores.losses_AN, strict=True))
    effect_EN = np.array([sum(weight * loss[players] for players, weight in c.form.items()) for c in chosen])
    half_E = 1.96 * effect_EN.std(axis=1, ddof=1) / np.sqrt(effect_EN.shape[1])
    return effect_EN.mean(1) - half_E, effect_EN.mean(1) + half_E


def main() -> None:
    """Simulate every world at every number of documents and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[10, 30, 60, 200])
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    options = AttributeConfig(resamples=asked.resamples)
    tables = [
        coverage(world, documents, asked.simulations, options, list(RIVALS))
        for world in WORLDS
        for documents in asked.documents
    ]
    pd.concat(tables).to_csv(asked.out, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
