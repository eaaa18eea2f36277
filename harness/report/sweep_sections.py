"""The parts of a sweep's page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from harness.report.base_tables import base_section
from harness.report.effect_tables import share_table
from harness.report.figures import Picture, file_stem, picture
from harness.report.loss_tables import choice_table, front_table, runs_table, sweep_loss_tables
from harness.report.markup import Section
from harness.report.numbers import interval, number
from harness.report.points import Panel, front_of, panels, points, primary_metric
from harness.report.reading import READING, SWEEP_READING
from harness.report.rows import Row, distinct, grouped, records
from harness.report.run_plots import subset_pictures
from harness.report.runs import DONE, Run
from harness.report.share_plots import ShareRow, share_bars, shares_of, shown_shares
from harness.report.sweep import MADE_WITH, swept_settings
from harness.report.sweep_plots import loss_against_bits, loss_against_group_size

MOST_LAYERED = 4  # heat maps on the page
WEAKENS = ("harness_version", "dtype", "device")  # differing in these, runs can still be compared, with care


@dataclass(frozen=True)
class Sweep:
    """Runs in their order, with what may be compared in panels. `rows`: whole tasks of finished runs."""

    runs: Sequence[Run]
    swept: list[str]
    rows: list[Row]
    panels: list[Panel]
    primary: str
    margin: float
    out: Path

    @classmethod
    def of(cls, runs: Sequence[Run], frame: pd.DataFrame, out: Path) -> Sweep:
        """From all rows of all runs."""
        done = [run for run in runs if run.status == DONE]
        primary = primary_metric([run.config for run in done])
        margin = max((float(run.setting("attribute.margin", 0.01)) for run in done), default=0.01)
        swept = [str(name) for name in swept_settings(runs)]
        rows = records(frame.loc[(frame["status"] == DONE) & frame["band"].isna()])
        return cls(runs, swept, rows, list(panels(points(rows, primary, swept))), primary, margin, out)

    @property
    def by_id(self) -> dict[str, Run]:
        """Runs by run_id."""
        return {run.id: run for run in self.runs}

    @property
    def figures(self) -> Path:
        """Where pictures go."""
        return self.out / "figures"


def sections(sweep: Sweep) -> Iterator[Section]:
    """Top to bottom."""
    yield _advice(sweep)
    yield base_section(sweep.rows, sweep.swept)
    yield _bits(sweep)
    yield _groups(sweep)
    yield _shares(sweep)
    tables = list(sweep_loss_tables(sweep.panels, sweep.margin))
    yield Section("losses", "All losses", folded=[("Every setting and arm", tables)] if tables else [])
    pages = {run.id: run.path / "report.html" for run in sweep.runs}
    links = {name: os.path.relpath(page, sweep.out) for name, page in pages.items() if page.exists()}
    yield Section("runs", "Runs", lines=list(_unlike(sweep)), tables=[runs_table(sweep.runs, sweep.swept, links)])
    yield Section("reading", "How to read this", lines=[*SWEEP_READING, *READING])


def _advice(sweep: Sweep) -> Section:
    """What to do; apart for each model, metric and way of scoring, since nothing is compared across those."""
    section = Section("do", "What to do")
    groups: dict[tuple[str, str, int], list[Panel]] = {}
    for panel in sweep.panels:
        groups.setdefault((panel.model, panel.metric, panel.rows[0]["cohort"]), []).append(panel)
    several = len({model for model, _, _ in groups}) > 1
    for (model, _, _), own in groups.items():
        tolerances, prefix = choices(own, sweep.margin), f"{model}: " if several else ""
        section.lead += f" {prefix}{' '.join(choice_sentences(own, tolerances, sweep.margin))}"
        section.lines += [prefix + line for line in group_sentences(own, sweep.by_id, sweep.swept)]
        section.tables += [choice_table(own, tolerances)] if tolerances else []
    section.lines += [*block_sentences(sweep.runs, sweep.primary), *size_sentence(sweep.runs)]
    section.lines += open_questions(sweep.panels, sweep.runs)
    return section


def _bits(sweep: Sweep) -> Section:
    """Loss against stored bits, with the front."""
    pictures, tables = [], []
    for panel in sweep.panels:
        alt = f"Loss against bits a weight on {panel.title}. Front, from the fewest bits: {_front_words(panel)}."
        draw = partial(loss_against_bits, panel, sweep.margin)
        pictures.append(picture(draw, file_stem("loss_bits", panel.title), alt, folder=sweep.figures))
        tables.append(front_table(panel, front_steps(panel, sweep.by_id), sweep.margin))
    intro = "Each point is one setting; lower and further left is better. Numbers name the settings of the front."
    folded = [("The front, setting by setting", tables)] if tables else []
    return Section("bits", "Loss against bits", intro, pictures=_row(pictures), folded=folded)


def _front_words(panel: Panel) -> str:
    return "; ".join(
        f"{number(row['bits_per_weight'], 2)} bits {row['setting']} in {row['arm']} {number(row['loss'])} "
        f"{interval(row['loss_lo'], row['loss_hi'])}"
        for row in front_of(panel)[:12]
    )


def _groups(sweep: Sweep) -> Section:
    """Loss against group size."""
    pictures = []
    for panel in sweep.panels:
        alt = f"Loss against group size on {panel.title}; the numbers are in the table of all losses."
        draw = partial(loss_against_group_size, panel, sweep.margin, sweep.swept)
        pictures.append(picture(draw, file_stem("group_size", panel.title), alt, folder=sweep.figures))
    return Section("groups", "Group size", pictures=_row(pictures))


def _shares(sweep: Sweep) -> Section:
    """The FFN's share of the loss in every run that splits it, and heat maps of layers."""
    found = shares_of(sweep.runs, sweep.primary, _run_names(sweep.panels))
    pictures = [_share_picture(subset, rows, sweep.figures) for subset, rows in found.items()]
    folded = [(f"Shares on {subset}", [share_table(subset, rows)]) for subset, rows in found.items()]
    maps: list[Picture] = []
    for run in sweep.runs:
        effects = [e for e in run.effects if e.metric == sweep.primary and "layers." in e.player]
        if effects and len(maps) < MOST_LAYERED:
            maps += subset_pictures(effects, layers, run.id, f"run {run.id}", sweep.figures)
    return Section("whose", "Whose loss it is", pictures=[*_row(pictures), *_row(maps)], folded=folded)


def _share_picture(subset: str, rows: Sequence[ShareRow], folder: Path) -> Picture | None:
    words = [f"{row.setting} {number(row.share, 2)} {interval(row.low, row.high, 2)}" for row in rows if row.share]
    alt = f"The FFN's share of the loss on {subset} by setting: {'; '.join(words[:12]) or 'all withheld'}."
    shown = shown_shares(rows)
    caption = "Dot and line: share with its interval. Band: from alone to restored."
    caption += f" {len(shown)} of {len(rows)} settings; all are in the table." if len(shown) < len(rows) else ""
    return picture(partial(share_bars, subset, shown), file_stem("shares", subset), alt, caption, folder)


def _run_names(found: Sequence[Panel]) -> dict[str, str]:
    """What a run quantizes with, read off its arm with the fewest bits."""
    rows = [row for panel in found for row in panel.rows]
    rows.sort(key=lambda row: row["bits_per_weight"] or 16, reverse=True)
    return {row["run_id"]: row["setting"] for row in rows}


def _unlike(sweep: Sweep) -> Iterator[str]:
    """In what runs differ that bars or weakens a comparison."""
    for name in WEAKENS:
        values = distinct(sweep.rows, name)
        if len(values) > 1:
            yield f"Runs differ in {name} ({', '.join(map(str, values[:6]))}): compare with care."
    codes = {run.result.get("code_version") for run in sweep.runs if run.status == DONE}
    if len(codes) > 1:
        yield f"Runs were computed by {len(codes)} versions of the code: compare with care."
    for (model,), own in grouped(sweep.rows, "model").items():
        if len(distinct(own, "model_sha")) > 1:
            yield f"Runs call different weights {model}: compare with care."
    for name in MADE_WITH:
        tasks = grouped(sweep.rows, "subset", "task").items()
        unlike = [f"{subset} \N{MIDDLE DOT} {task}" for (subset, task), own in tasks if len(distinct(own, name)) > 1]
        if unlike:
            yield f"Runs differ in {name} on {', '.join(unlike)}: they are shown apart and never subtracted."


def _row(pictures: Sequence[Picture | None]) -> list[list[Picture]]:
    found = [picture for picture in pictures if picture is not None]
    return [found] if found else []
