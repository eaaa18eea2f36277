"""Tables of losses: intervals drawn on one scale, the number and the words beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.attribute import Effect
from harness.report.advice import Step, Tolerance, perplexity_factor, placed, short_loss
from harness.report.markup import Cell, Column, Table, amount, drawn, text
from harness.report.numbers import (
    Scale,
    decimals_for,
    duration,
    interval,
    missing,
    number,
    p_value,
    percent,
    percent_interval,
    scale_of,
)
from harness.report.points import Panel, block_of, is_control
from harness.report.runs import DONE, Run

MOST_CELLS = 2400  # drawn cells in a sweep's table of losses


def loss_scale(rows: pd.DataFrame, margin: float) -> Scale:
    """One scale for all losses in some rows."""
    values = pd.concat([rows["loss"], rows["loss_lo"], rows["loss_hi"]])
    return scale_of(values, (0.0, -margin, margin))


def arm_table(rows: pd.DataFrame, caption: str, scale: Scale, margin: float) -> Table:
    """One task, one metric: a row an arm. `rows`: of report.csv, base among them."""
    base = rows[rows["arm"] == "base"]
    rows = rows[rows["arm"] != "base"]
    decimals = decimals_for(rows["loss_lo"], rows["loss_hi"])
    columns = [Column("arm"), Column("loss", "number"), Column("interval", "drawn", scale)]
    columns += [Column("verdict"), Column("interval"), Column("value", "number"), Column("bits a weight", "number")]
    extra = [name for name in ("p_adjusted", "top1_agreement", "flips_to_wrong") if rows[name].notna().any()]
    columns += [Column(EXTRA[name], "number") for name in extra]
    body = [_arm_row(row, scale, decimals, extra) for _, row in rows.iterrows()]
    return Table(caption, columns, body, _about(base if len(base) else rows, decimals), margin)


EXTRA = {"p_adjusted": "p, adjusted", "top1_agreement": "same first choice", "flips_to_wrong": "flips to wrong, right"}


def _arm_row(row: Any, scale: Scale, decimals: int, extra: Sequence[str]) -> list[Cell]:
    cells = {
        "p_adjusted": amount(row["p_adjusted"], p_value(row["p_adjusted"])),
        "top1_agreement": amount(row["top1_agreement"], percent(row["top1_agreement"], 1)),
        "flips_to_wrong": amount(row["flips_to_wrong"], _flips(row)),
    }
    return [
        Cell(row["arm"]),
        amount(row["loss"], number(row["loss"], decimals, signed=True)),
        drawn(scale, row["loss"], row["loss_lo"], row["loss_hi"], block_of(row["arm"])),
        Cell(verdict_words(row)),
        Cell(interval(row["loss_lo"], row["loss_hi"], decimals)),
        amount(row["value"], number(row["value"], decimals)),
        amount(row["bits_per_weight"], number(row["bits_per_weight"], 2)),
        *(cells[name] for name in extra),
    ]


def _flips(row: Any) -> str:
    return "" if missing(row["flips_to_wrong"]) else f"{row['flips_to_wrong']}, {row['flips_to_right']}"


def verdict_words(row: Any) -> str:
    """The verdict, and whether the loss is smaller than the noise of rounding."""
    words = [] if missing(row["verdict"]) else [str(row["verdict"])]
    noisy = not missing(row["below_noise"]) and bool(row["below_noise"])
    return ", ".join(words + ["below noise"] * noisy)


def _about(rows: pd.DataFrame, decimals: int) -> str:
    row = rows.iloc[0]
    parts = [f"base {number(row['base_value'], decimals)} {row['unit']}" if not missing(row["base_value"]) else ""]
    parts += [f"{row['n_items']} items" if not missing(row["n_items"]) else ""]
    parts += [f"{row['n_documents']} documents" if not missing(row["n_documents"]) else ""]
    return ", ".join(part for part in parts if part)


def effect_table(effects: Sequence[Effect], caption: str, margin: float) -> Table:
    """Effects of one subset and metric with their shares."""
    scale = scale_of([n for e in effects for n in (e.loss, e.lo, e.hi)])
    decimals = decimals_for([e.lo for e in effects], [e.hi for e in effects])
    columns = [Column("player"), Column("effect"), Column("loss", "number"), Column("interval", "drawn", scale)]
    columns += [Column("interval"), Column("share", "number"), Column("of share"), Column("verdict")]
    columns += [Column("per 10⁹ weights", "number"), Column("per GiB saved", "number"), Column("note", "text long")]
    body = [
        [
            Cell(effect.player),
            Cell(effect.kind),
            amount(effect.loss, number(effect.loss, decimals, signed=True)),
            drawn(scale, effect.loss, effect.lo, effect.hi, block_of(effect.player)),
            Cell(interval(effect.lo, effect.hi, decimals)),
            amount(effect.share, percent(effect.share)),
            Cell(percent_interval(effect.share_lo, effect.share_hi)),
            Cell(verdict_words({"verdict": effect.verdict, "below_noise": effect.below_noise})),
            text(effect.loss_per_gweight),
            text(effect.loss_per_gib_saved),
            Cell(effect.reason or ""),
        ]
        for effect in effects
    ]
    return Table(caption, columns, body, margin=margin)


def choice_table(panels: Sequence[Panel], tolerances: Sequence[Tolerance]) -> Table:
    """What to choose for each loss that can be borne."""
    metric, unit = panels[0].metric, panels[0].unit or panels[0].metric
    columns = [Column(f"loss under ({unit})", "number")]
    columns += [Column("perplexity", "number")] if metric == "nll" else []
    columns += [Column("on all tasks", "text long")] if len(panels) > 1 else []
    columns += [Column(panel.title, "text long") for panel in panels]
    rows = []
    for one in tolerances:
        row = [Cell(short_loss(one.loss), one.loss)]
        row += [amount(one.loss, perplexity_factor(one.loss))] if metric == "nll" else []
        chosen = [one.everywhere] * (len(panels) > 1) + one.by_panel
        row += [
            Cell(f"{placed(pick.setting, pick.arm)}, {number(pick.bits, 2)} bits" if pick else "none shown")
            for pick in chosen
        ]
        rows.append(row)
    return Table("Fewest bits shown to stay under a loss", columns, rows, "by the upper end of the interval")


def front_table(panel: Panel, steps: Sequence[Step], margin: float) -> Table:
    """The Pareto front, each step against the one before it."""
    rows = pd.DataFrame([step.row for step in steps])
    scale, decimals = loss_scale(rows, margin), decimals_for(rows["loss_lo"], rows["loss_hi"])
    columns = [Column("", "number"), Column("setting"), Column("in"), Column("bits a weight", "number")]
    columns += [Column("loss", "number"), Column("interval", "drawn", scale), Column("less than the one above")]
    body = [
        [
            Cell(str(n), n),
            Cell(step.row["setting"]),
            Cell(step.row["arm"]),
            amount(step.row["bits_per_weight"], number(step.row["bits_per_weight"], 2)),
            amount(step.row["loss"], number(step.row["loss"], decimals, signed=True)),
            drawn(scale, step.row["loss"], step.row["loss_lo"], step.row["loss_hi"], block_of(step.row["arm"])),
            Cell(_gain(step, decimals)),
        ]
        for n, step in enumerate(steps, start=1)
    ]
    return Table(f"Front, {panel.title}", columns, body, "differences paired by item", margin)


def _gain(step: Step, decimals: int) -> str:
    if step.gain is None:
        return ""
    shown = f"{number(step.gain.loss, decimals)} {interval(step.gain.low, step.gain.high, decimals)}"
    return shown if step.gain.word == "more" else f"{shown} undecided"


def sweep_loss_tables(panels: Sequence[Panel], margin: float) -> Iterator[Table]:
    """One table a task: every run and arm, or only arms of whole blocks where that would be too long."""
    for panel in panels:
        rows, note = panel.rows, ""
        if len(rows) * len(panels) > MOST_CELLS:
            rows, note = rows[rows["arm"].isin(["ffn", "attention", "both", "all"])], "other arms are in sweep.csv"
        if len(rows) * len(panels) > MOST_CELLS:
            keep = MOST_CELLS // len(panels)
            rows, note = rows.nsmallest(keep, "bits_per_weight"), f"the {keep} with the fewest bits; all in sweep.csv"
        scale, decimals = loss_scale(rows, margin), decimals_for(rows["loss_lo"], rows["loss_hi"])
        columns = [Column("setting"), Column("in"), Column("bits a weight", "number"), Column("loss", "number")]
        columns += [Column("interval", "drawn", scale), Column("verdict"), Column("interval")]
        body = [
            [
                Cell(row["setting"]),
                Cell(row["arm"]),
                amount(row["bits_per_weight"], number(row["bits_per_weight"], 2)),
                amount(row["loss"], number(row["loss"], decimals, signed=True)),
                drawn(scale, row["loss"], row["loss_lo"], row["loss_hi"], row["block"]),
                Cell(verdict_words(row)),
                Cell(interval(row["loss_lo"], row["loss_hi"], decimals)),
            ]
            for _, row in rows.iterrows()
        ]
        yield Table(f"{panel.title}, {panel.metric}", columns, body, note, margin)


def runs_table(runs: Sequence[Run], swept: pd.DataFrame, links: Mapping[str, str]) -> Table:
    """Every run with its settings and what became of it."""
    columns = [Column("run"), Column("status"), *(Column(name) for name in swept)]
    columns += [Column("time", "number"), Column("version"), Column("reason", "text long")]
    body = []
    for n, run in enumerate(runs):
        version = "/".join(str(run.result[key]) for key in ("harness_version", "code_version") if key in run.result)
        seconds = run.result.get("seconds")
        body.append(
            [
                Cell(run.id, link=links.get(run.id, "")),
                Cell(run.status),
                *(text(value) for value in swept.iloc[n]),
                amount(seconds, duration(seconds)),
                Cell(version),
                Cell("" if run.status == DONE else run.reason),
            ]
        )
    return Table("All runs", columns, body)


def without_controls(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of settings, not of noise draws and other controls."""
    return rows[~rows["arm"].map(is_control)]
