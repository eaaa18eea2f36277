"""attribution.csv: whose loss it is, one row an effect, with the reason wherever a number is withheld."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from harness.attribute.effects import Game, contrasts
from harness.attribute.headroom import near_chance, of_mastered_bands, withheld
from harness.attribute.lines import Line, corrected, lines_of
from harness.attribute.reading import Reading, difference_of_subsets, read, speaking_for, subset_pairs
from harness.attribute.scores import Scores
from harness.attribute.shares import Share, shares
from harness.config import AttributeConfig
from harness.errors import UserError


@dataclass(frozen=True)
class Effect:
    """A row of attribution.csv. None is an empty cell."""

    subset: str
    task: str
    metric: str
    player: str
    kind: str
    loss: float
    lo: float | None
    hi: float | None
    share: float | None
    share_lo: float | None
    share_hi: float | None
    p_adjusted: float | None
    verdict: str | None
    below_noise: bool | None
    weights: int | None
    loss_per_gweight: float | None
    bytes_saved: int | None
    loss_per_gib_saved: float | None
    n_items: int
    n_documents: int
    reason: str


def attribute(
    scores: Sequence[Scores],
    game: Game,
    options: AttributeConfig,
    noise: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> list[Effect]:
    """Every effect that the game's arms allow, by task, subset and pair of subsets. `noise`: names of noise arms.

    `metrics`: those to attribute, all by default. What the others say of headroom and chance counts all the same.

    None of base alone. UserError: a design without an arm that an asked effect needs, or an arm without scores.
    """
    if game.is_base and not options.effects:
        return []
    found = contrasts(game, options.claims, options.effects)
    for one in scores:
        if absent := sorted({*game.coalitions, *noise} - set(one.arms)):
            raise UserError(f"{one.task}: no scores of arms {', '.join(absent)} of the design; score all arms together")
    mastered = of_mastered_bands(scores)
    scores, notes = [one for one, _ in mastered], [note for _, note in mastered]
    reasons = withheld(scores, [arm for arm, players in game.coalitions.items() if players])
    single = [
        replace(read(one, game, found, noise, options), withheld=why, near_chance=bool(near), note=note)
        for one, why, near, note in zip(scores, reasons, near_chance(scores), notes, strict=True)
        if not metrics or one.metric in metrics
    ]
    readings = _with_subsets(single)
    groups = [lines_of(reading, found, options.level) for reading in readings]
    p_values = iter(corrected([line for lines in groups for line in lines], options.primary_metric))
    return [
        _effect(line, share, next(p_values), game, options)
        for lines in groups
        for line, share in zip(lines, shares(lines, options.level), strict=True)
    ]


def to_frame(effects: Sequence[Effect]) -> pd.DataFrame:
    """Rows as a table with the columns of attribution.csv; whole numbers stay whole beside empty cells."""
    frame = pd.DataFrame([vars(effect) for effect in effects], columns=[f.name for f in fields(Effect)])
    return frame.astype({"weights": "Int64", "bytes_saved": "Int64", "below_noise": "boolean"})


def read_effects(path: Path) -> list[Effect]:
    """attribution.csv as it was written: only empty cells are missing. UserError: not such a file."""
    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""], encoding="utf-8")
        frame["reason"] = frame["reason"].fillna("")
        cells = frame.astype(object).where(frame.notna(), None)
        return [Effect(*row) for row in cells[[f.name for f in fields(Effect)]].itertuples(index=False)]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: not an attribution table ({error})") from error


def between_subsets(effects: Sequence[Effect]) -> tuple[list[Effect], list[Effect]]:
    """What one subset loses more than another: differences of differences, then those of single parts and totals.

    A difference of differences is that between two parts (FFN - attention) in one subset less the same in the other.
    """
    pairs = subset_pairs(effect.subset for effect in effects)
    apart = {effect.player for effect in effects if effect.kind == "difference" and effect.subset not in pairs}
    between = [effect for effect in effects if effect.subset in pairs]
    return [e for e in between if e.player in apart], [e for e in between if e.player not in apart]


def _with_subsets(single: Sequence[Reading]) -> list[Reading]:
    """By metric: tasks, subsets of several tasks, pairs of subsets."""
    found: list[Reading] = []
    for metric in dict.fromkeys(r.metric for r in single):
        subsets: dict[str, list[Reading]] = {}
        for reading in single:
            if reading.metric == metric:
                subsets.setdefault(reading.subset, []).append(reading)
        several = [replace(r, whole=False) for tasks in subsets.values() if len(tasks) > 1 for r in tasks]
        whole = [speaking_for(tasks) for tasks in subsets.values()]
        found += [*several, *whole, *(difference_of_subsets(a, b) for a, b in combinations(whole, 2))]
    return found


def _effect(line: Line, share: Share, p_adjusted: float, game: Game, options: AttributeConfig) -> Effect:
    reading, contrast = line.reading, line.contrast
    sized = frozenset() if reading.across else contrast.players
    weights, saved = (sum(sizes.get(p, 0) for p in sized) or None for sizes in (game.weights, game.bytes_saved))
    return Effect(
        subset=reading.subset,
        task=reading.task,
        metric=reading.metric,
        player=contrast.player,
        kind="difference" if reading.across else contrast.kind,
        loss=line.value,
        lo=known(line.bounds[0]),
        hi=known(line.bounds[1]),
        share=share.value,
        share_lo=share.low,
        share_hi=share.high,
        p_adjusted=known(p_adjusted),
        verdict=line.verdict(p_adjusted, options.margin, options.level),
        below_noise=line.below_noise,
        weights=weights,
        loss_per_gweight=line.value / (weights / 1e9) if weights else None,
        bytes_saved=saved,
        loss_per_gib_saved=line.value / (saved / 2**30) if saved else None,
        n_items=reading.items,
        n_documents=len(reading.documents),
        reason="; ".join(filter(None, [contrast.note, line.sampling, reading.note, line.unknown, share.reason])),
    )


def known(number: float) -> float | None:
    """A number, or None for an empty cell."""
    return None if np.isnan(number) else float(number)
