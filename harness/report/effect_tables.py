"""Tables of attribution: how a loss splits, every effect behind that, and the FFN's share over settings."""

from __future__ import annotations

from collections.abc import Sequence

from harness.attribute import Effect, between_subsets
from harness.report.attribution_plots import Panel
from harness.report.loss_tables import verdict_words
from harness.report.markup import Cell, Column, Table, amount, drawn
from harness.report.numbers import Scale, decimals_for, interval, number, percent, percent_interval, scale_of, short
from harness.report.points import block_of
from harness.report.share_plots import ShareRow


def part_table(panel: Panel, caption: str, margin: float) -> Table:
    """How a subset's loss splits: a row a part, between what it costs alone and what restoring it saves."""
    kind = next((kind for kind in ("owen", "shapley", "alone") if any(at == kind for at, _ in panel)), "total")
    parts = [effect for (at, _), effect in panel.items() if at in (kind, "total")]
    parts.sort(key=lambda effect: effect.kind == "total")
    decimals = decimals_for([e.lo for e in parts], [e.hi for e in parts])
    scale = scale_of([n for e in parts for n in (e.loss, e.lo, e.hi)])
    columns = [Column("part"), Column("loss", "number"), Column("interval", "drawn", scale), Column("share", "number")]
    columns += [Column("verdict"), Column("interval"), Column("alone", "number"), Column("restored", "number")]
    columns += [Column("per 10⁹ weights", "number"), Column("per GiB saved", "number")]
    body = [
        [
            Cell("total" if effect.kind == "total" else effect.player),
            amount(effect.loss, number(effect.loss, decimals, signed=True)),
            drawn(scale, effect.loss, effect.lo, effect.hi, block_of(effect.player)),
            amount(effect.share, percent(effect.share)),
            Cell(verdict_words(effect.verdict, effect.below_noise)),
            Cell(interval(effect.lo, effect.hi, decimals)),
            *(_end(panel, end, effect.player, decimals) for end in ("alone", "restored")),
            amount(effect.loss_per_gweight, short(effect.loss_per_gweight, 3)),
            amount(effect.loss_per_gib_saved, short(effect.loss_per_gib_saved, 3)),
        ]
        for effect in parts
    ]
    return Table(caption, columns, body, PART_NOTES.get(kind, ""), margin)


PART_NOTES = {
    "owen": "Owen values",
    "shapley": "mean of what a part costs alone and what restoring it saves",
    "alone": "each part alone",
}


def _end(panel: Panel, kind: str, player: str, decimals: int) -> Cell:
    effect = panel.get((kind, player))
    return Cell() if effect is None else amount(effect.loss, number(effect.loss, decimals, signed=True))


def effect_table(effects: Sequence[Effect], caption: str, margin: float) -> Table:
    """Effects of one subset and metric with their shares."""
    scale = scale_of([n for e in effects for n in (e.loss, e.lo, e.hi)])
    decimals = decimals_for([e.lo for e in effects], [e.hi for e in effects])
    columns = [Column("player"), Column("effect"), Column("loss", "number"), Column("interval", "drawn", scale)]
    columns += [Column("interval"), Column("share", "number"), Column("of share"), Column("verdict")]
    columns += [Column("per 10⁹ weights", "number"), Column("per GiB saved", "number"), Column("note", "long")]
    body = [
        [
            Cell(effect.player),
            Cell(effect.kind),
            *_loss_cells(effect, scale, decimals),
            amount(effect.share, percent(effect.share)),
            Cell(percent_interval(effect.share_lo, effect.share_hi)),
            Cell(verdict_words(effect.verdict, effect.below_noise)),
            amount(effect.loss_per_gweight, short(effect.loss_per_gweight, 3)),
            amount(effect.loss_per_gib_saved, short(effect.loss_per_gib_saved, 3)),
            Cell(effect.reason or ""),
        ]
        for effect in effects
    ]
    return Table(caption, columns, body, margin=margin)


def between_table(effects: Sequence[Effect], margin: float) -> Table:
    """What one subset loses more than another in one metric: differences of differences first. No row without pairs."""
    twice, parts = between_subsets(effects)
    rows = [("difference of differences", effect) for effect in twice] + [(effect.kind, effect) for effect in parts]
    scale = scale_of([n for _, e in rows for n in (e.loss, e.lo, e.hi)])
    decimals = decimals_for([e.lo for _, e in rows], [e.hi for _, e in rows])
    columns = [Column("subsets"), Column("player"), Column("effect"), Column("loss", "number")]
    columns += [Column("interval", "drawn", scale), Column("interval"), Column("verdict"), Column("note", "long")]
    body = [
        [
            Cell(effect.subset),
            Cell(effect.player),
            Cell(kind),
            *_loss_cells(effect, scale, decimals),
            Cell(verdict_words(effect.verdict, effect.below_noise)),
            Cell(effect.reason or ""),
        ]
        for kind, effect in rows
    ]
    return Table("What one subset loses more than another", columns, body, BETWEEN_NOTE, margin)


BETWEEN_NOTE = (
    "the first subset less the second; difference of differences: the first part less the second, in the first subset "
    "less in the second"
)


def _loss_cells(effect: Effect, scale: Scale, decimals: int) -> list[Cell]:
    """Loss, its interval as marks, and in figures."""
    return [
        amount(effect.loss, number(effect.loss, decimals, signed=True)),
        drawn(scale, effect.loss, effect.lo, effect.hi, block_of(effect.player)),
        Cell(interval(effect.lo, effect.hi, decimals)),
    ]


def share_table(subset: str, shares: Sequence[ShareRow]) -> Table:
    """The FFN's share of the loss in every run that splits it."""
    columns = [Column("setting"), Column("share of the FFN", "number"), Column("interval")]
    columns += [Column("alone, restored"), Column("note", "long")]
    body = [
        [
            Cell(row.setting),
            amount(row.share, number(row.share, 2)),
            Cell(interval(row.low, row.high, 2)),
            Cell(", ".join(filter(None, (number(row.alone, 2), number(row.restored, 2))))),
            Cell(row.reason),
        ]
        for row in shares
    ]
    return Table(f"The FFN's share of the loss, {subset}", columns, body)
