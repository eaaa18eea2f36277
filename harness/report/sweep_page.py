"""Many runs on one page, and as one table: what to do, what it costs, and what differs between them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from harness.report.advice import (
    block_sentences,
    choice_sentences,
    choices,
    front_steps,
    group_sentences,
    open_questions,
    size_sentence,
)
from harness.report.attribution_plots import layers
from harness.report.figures import Picture, file_stem, picture
from harness.report.loss_tables import choice_table, front_table, runs_table, sweep_loss_tables
from harness.report.markup import Cell, Column, Section, Table, write_page
from harness.report.numbers import interval, missing, number, short
from harness.report.points import Panel, front_of, panels, points, primary_metric
from harness.report.run_page import READING
from harness.report.run_plots import subset_pictures
from harness.report.runs import DONE, FAILED, INCOMPLETE, Run, find_runs
from harness.report.stored import write_table
from harness.report.sweep import MADE_WITH, in_order, sweep_frame, swept_settings
from harness.report.sweep_plots import loss_against_bits, loss_against_group_size, share_bars, shares_of

MOST_LAYERED = 4  # runs whose heat maps are shown
SWEEP_READING = [
    "Bits a weight: mean over all matrices of both blocks, scales and zero points counted, untouched ones at 16. So a "
    "point where only the FFN is quantized sits further right than one where both are.",
    "The front holds every setting that no other beats in both bits and loss. It ends where a loss is no longer told "
    "from zero. Its order rests on estimates; whether a step is real is said beside it, from differences item by item.",
    "Hollow points lose less than rounding to bfloat16 does.",
]


def write_sweep_report(folders: Sequence[Path], out: Path) -> Path:
    """Write sweep.csv, report.html and figures/ into `out`, from all runs in and below some folders.

    UserError where there is no run.
    """
    runs = in_order(find_runs([Path(folder) for folder in folders]))
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    frame = sweep_frame(runs)
    write_table(frame, out / "sweep.csv")
    swept = swept_settings(runs)
    return write_page(
        out / "report.html",
        kind="sweep",
        title=", ".join(dict.fromkeys(run.experiment for run in runs)),
        subtitle=" \N{MIDDLE DOT} ".join(_subtitle(runs, swept)),
        warning=_warning(runs),
        sections=[section for section in _sections(runs, frame, swept, out) if not section.empty],
        footer="All numbers of all runs: sweep.csv beside this page; pictures as PNG and SVG in figures/.",
    )


def _subtitle(runs: Sequence[Run], swept: pd.DataFrame) -> Iterator[str]:
    models = dict.fromkeys(str(run.setting("model.name", "")) for run in runs)
    yield ", ".join(name for name in models if name) or "no model named"
    yield f"{len(runs)} runs"
    for name in swept:
        values = list(dict.fromkeys(short(value) for value in swept[name] if not missing(value)))
        shown = [*values[:6], f"... ({len(values)} values)"] if len(values) > 7 else values
        yield f"{name} {', '.join(shown)}"


def _warning(runs: Sequence[Run]) -> str:
    counts = {status: sum(run.status == status for run in runs) for status in (FAILED, INCOMPLETE)}
    said = [f"{count} {status}" for status, count in counts.items() if count]
    return f"{', '.join(said)} of {len(runs)} runs: listed below, and in no comparison." if said else ""


def _sections(runs: Sequence[Run], frame: pd.DataFrame, swept: pd.DataFrame, out: Path) -> Iterator[Section]:
    done, by_id = [run for run in runs if run.status == DONE], {run.id: run for run in runs}
    primary = primary_metric([run.config for run in done])
    margin = max((float(run.setting("attribute.margin", 0.01)) for run in done), default=0.01)
    found = list(panels(points(frame, primary, list(swept))))
    yield _advice(found, runs, by_id, list(swept), primary, margin)
    yield _bits(found, by_id, margin, out)
    yield _groups(found, margin, list(swept), out)
    yield _shares(done, _run_names(found), primary, out)
    yield Section(
        "losses",
        "All losses",
        folded=[("Every setting and arm", list(sweep_loss_tables(found, margin)))] if found else [],
    )
    links = {
        run.id: os.path.relpath(run.path / "report.html", out) for run in runs if (run.path / "report.html").exists()
    }
    yield Section("runs", "Runs", lines=list(_unlike(frame)), tables=[runs_table(runs, swept, links)])
    yield Section("reading", "How to read this", lines=[*SWEEP_READING, *READING])


def _run_names(found: Sequence[Panel]) -> dict[str, str]:
    """What a run quantizes with, read off its arm with the fewest bits."""
    rows = pd.concat([panel.rows for panel in found]) if found else pd.DataFrame({"bits_per_weight": [], "run_id": []})
    rows = rows.sort_values("bits_per_weight").drop_duplicates("run_id")
    return {row["run_id"]: row["setting"] for _, row in rows.iterrows()}


def _advice(
    found: Sequence[Panel],
    runs: Sequence[Run],
    by_id: Mapping[str, Run],
    swept: Sequence[str],
    primary: str,
    margin: float,
) -> Section:
    """What to do; by model and metric, since nothing is compared across those."""
    section = Section("do", "What to do")
    groups: dict[tuple[str, str], list[Panel]] = {}
    for panel in found:
        groups.setdefault((panel.model, panel.metric), []).append(panel)
    for (model, _), own in groups.items():
        tolerances = choices(own, margin)
        prefix = f"{model}: " if len({model for model, _ in groups}) > 1 else ""
        section.lead += " " + prefix + " ".join(choice_sentences(own, tolerances, margin))
        section.lines += [prefix + line for line in group_sentences(own, by_id, swept)]
        section.tables += [choice_table(own, tolerances)] if tolerances else []
    section.lines += [*block_sentences(runs, primary), *size_sentence(runs), *open_questions(found, runs)]
    return section


def _bits(found: Sequence[Panel], runs: Mapping[str, Run], margin: float, out: Path) -> Section:
    """Loss against stored bits, with the front."""
    pictures, tables = [], []
    for panel in found:
        alt = f"Loss against bits a weight on {panel.title}. Front, from the fewest bits: {_front_words(panel)}."
        draw = partial(loss_against_bits, panel, margin)
        pictures.append(picture(draw, _stem("loss_bits", panel), alt, folder=out / "figures"))
        tables.append(front_table(panel, front_steps(panel, runs), margin))
    intro = "Each point is one setting; lower and further left is better. Numbers name the settings of the front."
    return Section(
        "bits",
        "Loss against bits",
        intro,
        pictures=_row(pictures),
        folded=[("The front, setting by setting", tables)] if tables else [],
    )


def _front_words(panel: Panel) -> str:
    rows = [row for _, row in front_of(panel).iterrows()]
    return "; ".join(
        f"{number(row['bits_per_weight'], 2)} bits {row['setting']} in {row['arm']} {number(row['loss'])} "
        f"{interval(row['loss_lo'], row['loss_hi'])}"
        for row in rows[:12]
    )


def _groups(found: Sequence[Panel], margin: float, swept: Sequence[str], out: Path) -> Section:
    """Loss against group size."""
    pictures = []
    for panel in found:
        alt = f"Loss against group size on {panel.title}; the numbers are in the table of all losses."
        draw = partial(loss_against_group_size, panel, margin, swept)
        pictures.append(picture(draw, _stem("group_size", panel), alt, folder=out / "figures"))
    return Section("groups", "Group size", pictures=_row(pictures))


def _shares(done: Sequence[Run], names: Mapping[str, str], primary: str, out: Path) -> Section:
    """The blocks' shares of the loss in every run that has them, and heat maps of layers."""
    shares = shares_of(done, primary, names)
    pictures, folded = [], []
    for subset, rows in shares.items():
        words = "; ".join(
            f"{row.setting} {row.share:.2f} [{row.low:.2f}, {row.high:.2f}]"
            for row in rows[:12]
            if row.share is not None and row.low is not None
        )
        alt = f"The FFN's share of the loss on {subset} by setting: {words or 'all withheld'}."
        draw = partial(share_bars, subset, rows)
        pictures.append(picture(draw, file_stem("shares", subset), alt, folder=out / "figures"))
        columns = [
            Column("setting"),
            Column("share of the FFN", "number"),
            Column("interval"),
            Column("alone to restored"),
            Column("reason", "text long"),
        ]
        body = [
            [
                Cell(row.setting),
                Cell(number(row.share, 2)),
                Cell(interval(row.low, row.high, 2)),
                Cell(interval(row.alone, row.restored, 2)),
                Cell(row.reason),
            ]
            for row in rows
        ]
        folded.append((f"Shares on {subset}", [Table(f"The FFN's share, {subset}", columns, body)]))
    maps = [
        p
        for run in done
        if any("layers." in e.player for e in run.effects)
        for p in subset_pictures([e for e in run.effects if e.metric == primary], layers, run.id, f"run {run.id}")
    ]
    return Section(
        "whose",
        "Whose loss it is",
        pictures=[row for row in (*_row(pictures), maps[:MOST_LAYERED]) if row],
        folded=folded,
    )


def _unlike(frame: pd.DataFrame) -> Iterator[str]:
    """In what runs differ that bars or weakens a comparison."""
    done = frame[frame["status"] == DONE]
    for name in ("harness_version", "dtype", "device", "model_sha"):
        per = done.groupby("model")[name].nunique() if name == "model_sha" else pd.Series([done[name].nunique()])
        if len(per) and per.max() > 1:
            values = ", ".join(map(str, done[name].dropna().unique()[:6]))
            yield f"Runs differ in {name} ({values}): compare with care."
    for name in MADE_WITH:
        tasks = done.groupby(["subset", "task"])[name].nunique()
        unlike = [f"{subset} \N{MIDDLE DOT} {task}" for (subset, task), count in tasks.items() if count > 1]
        if unlike:
            yield f"Runs differ in {name} on {', '.join(unlike)}: they are shown apart and never subtracted."


def _stem(name: str, panel: Panel) -> str:
    return file_stem(name, panel.title)


def _row(pictures: Sequence[Picture | None]) -> list[list[Picture]]:
    found = [picture for picture in pictures if picture is not None]
    return [found] if found else []
