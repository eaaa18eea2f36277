"""Tables of losses: intervals drawn on one scale, the number and the words beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.attribute import noise_floor
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
    scale_of,
    short,
)
from harness.report.points import Panel, block_of, sized
from harness.report.rows import Row, column, distinct
from harness.report.runs import DONE, Run, flat

LOSS = ("loss", "loss_lo", "loss_hi")
WHOLE_BLOCKS = ("ffn", "attention", "both", "all")
MOST_CELLS = 2400  # drawn cells in a sweep's table of losses


def loss_scale(rows: Sequence[Row], margin: float) -> Scale:
    """One scale for all losses in some rows."""
    return scale_of([row[name] for row in rows for name in LOSS], (0.0, -margin, margin))


def _decimals(rows: Sequence[Row]) -> int:
    return decimals_for(column(rows, "loss_lo"), column(rows, "loss_hi"))


def arm_table(rows: Sequence[Row], caption: str, scale: Scale, margin: float) -> Table:
    """One task, one metric: a row an arm. `rows`: of report.csv, base among them."""
    arms = [row for row in rows if row["arm"] != "base" and not row["arm"].startswith("noise")]
    decimals, extra = _decimals(arms), [name for name in EXTRA if distinct(arms, name)]
    columns = [Column("arm"), Column("loss", "number"), Column("interval", "drawn", scale)]
    columns += [Column("verdict"), Column("interval"), Column("value", "number"), Column("bits", "number")]
    columns += [Column(EXTRA[name], "number") for name in extra]
    return Table(
        caption, columns, [_arm_row(row, scale, decimals, extra) for row in arms], _about(rows, decimals), margin
    )


EXTRA = {"p_adjusted": "adjusted p", "top1_agreement": "agreement", "flips_to_wrong": "flips"}


def _arm_row(row: Row, scale: Scale, decimals: int, extra: Sequence[str]) -> list[Cell]:
    cells = {
        "p_adjusted": amount(row["p_adjusted"], p_value(row["p_adjusted"])),
        "top1_agreement": amount(row["top1_agreement"], percent(row["top1_agreement"], 1)),
        "flips_to_wrong": amount(row["flips_to_wrong"], _flips(row)),
    }
    return [
        Cell(row["arm"]),
        amount(row["loss"], number(row["loss"], decimals, signed=True)),
        drawn(scale, row["loss"], row["loss_lo"], row["loss_hi"], block_of(row["arm"])),
        Cell(verdict_words(row["verdict"], row["below_noise"])),
        Cell(interval(row["loss_lo"], row["loss_hi"], decimals)),
        amount(row["value"], number(row["value"], decimals)),
        amount(row["bits_per_weight"], number(row["bits_per_weight"], 2)),
        *(cells[name] for name in extra),
    ]


def _flips(row: Row) -> str:
    return "" if row["flips_to_wrong"] is None else f"{row['flips_to_wrong']}, {row['flips_to_right']}"


def verdict_words(verdict: str | None, below_noise: bool | None) -> str:
    """The verdict, and whether the loss is smaller than the noise of rounding."""
    return ", ".join([verdict or ""] * bool(verdict) + ["below noise"] * bool(below_noise))


def _about(rows: Sequence[Row], decimals: int) -> str:
    row = rows[0]
    base = f"base {number(row['base_value'], decimals)} {row['unit'] or ''}".strip()
    counts = [f"{row[f'n_{name}']} {name}" for name in ("items", "documents") if row[f"n_{name}"] is not None]
    floor = noise_floor([row["loss"] for row in rows if row["arm"].startswith("noise") and row["loss"] is not None])
    return ", ".join([base, *counts, *([] if missing(floor) else [f"noise floor {short(floor, 2)}"])])


def choice_table(panels: Sequence[Panel], tolerances: Sequence[Tolerance]) -> Table:
    """What to choose for each loss that can be borne."""
    metric, unit = panels[0].metric, panels[0].unit or panels[0].metric
    columns = [Column(f"loss under ({unit})", "number")]
    columns += [Column("perplexity", "number")] if metric == "nll" else []
    columns += [Column("on all tasks", "long")] if len(panels) > 1 else []
    columns += [Column(panel.title, "long") for panel in panels]
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
    rows = [step.row for step in steps]
    scale, decimals = loss_scale(rows, margin), _decimals(rows)
    columns = [Column("", "number"), Column("setting"), Column("in"), Column("bits", "number")]
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
            rows, note = [row for row in rows if row["arm"] in WHOLE_BLOCKS], "other arms are in sweep.csv"
        if len(rows) * len(panels) > MOST_CELLS:
            rows = sorted(sized(rows), key=lambda row: row["bits_per_weight"])[: MOST_CELLS // len(panels)]
            note = f"the {len(rows)} with the fewest bits; all are in sweep.csv"
        scale, decimals = loss_scale(rows, margin), _decimals(rows)
        columns = [Column("setting"), Column("in"), Column("bits", "number"), Column("loss", "number")]
        columns += [Column("interval", "drawn", scale), Column("verdict"), Column("interval")]
        body = [
            [
                Cell(row["setting"]),
                Cell(row["arm"]),
                amount(row["bits_per_weight"], number(row["bits_per_weight"], 2)),
                amount(row["loss"], number(row["loss"], decimals, signed=True)),
                drawn(scale, row["loss"], row["loss_lo"], row["loss_hi"], row["block"]),
                Cell(verdict_words(row["verdict"], row["below_noise"])),
                Cell(interval(row["loss_lo"], row["loss_hi"], decimals)),
            ]
            for row in rows
        ]
        yield Table(f"{panel.title}, {panel.metric}", columns, body, note, margin)


def runs_table(runs: Sequence[Run], swept: Sequence[str], links: Mapping[str, str]) -> Table:
    """Every run with its settings and what became of it."""
    columns = [Column("run"), Column("status"), *(Column(name) for name in swept)]
    columns += [Column("time", "number"), Column("version"), Column("reason", "long")]
    body = []
    for run in runs:
        version = "/".join(str(run.result[key]) for key in ("harness_version", "code_version") if key in run.result)
        seconds = run.result.get("seconds")
        settings = dict(flat(run.config))
        body.append(
            [
                Cell(run.id, link=links.get(run.id, "")),
                Cell(run.status),
                *(text(settings.get(name)) for name in swept),
                amount(seconds, duration(seconds)),
                Cell(version),
                Cell("" if run.status == DONE else run.reason),
            ]
        )
    return Table("All runs", columns, body)
