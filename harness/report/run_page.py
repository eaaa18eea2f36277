"""One run's page: what each sub-layer costs, how sure that is, and under which protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.attribute.shares import NO_SHARE
from harness.report.advice import block_sentences, loss_sentences, open_questions, size_sentence
from harness.report.attribution_plots import Panel, panels_of
from harness.report.base_tables import base_section, only_base
from harness.report.effect_tables import between_table, effect_table, part_table
from harness.report.loss_tables import arm_table, loss_scale
from harness.report.markup import Cell, Column, Section, Table, amount, write_page
from harness.report.numbers import number
from harness.report.points import METRICS, panels, points, whole_tasks
from harness.report.reading import READING
from harness.report.rows import Row, distinct, grouped, records
from harness.report.run_facts import facts_section, protocol_section, sites_section
from harness.report.run_plots import attribution_pictures
from harness.report.runs import DONE, Run, read_run
from harness.report.spread import spread_table, spreads
from harness.scheme import BLOCKS
from harness.words import is_control


def write_run_report(folder: Path) -> Path:
    """Write report.html, and figures/, into a run's folder. A failed or unfinished run gets a page that says so."""
    run = read_run(Path(folder))
    sections = [section for section in _sections(run) if not section.empty]
    return write_page(
        run.path / "report.html",
        kind=f"run {run.id}",
        title=run.experiment,
        subtitle=_subtitle(run),
        warning="" if run.status == DONE else f"{run.status}: {run.reason}",
        sections=sections,
        footer="All numbers: the CSV files beside this page and items.parquet." if run.status == DONE else "",
    )


def _subtitle(run: Run) -> str:
    schemes = {block: run.setting(f"quant.{block}") or {} for block in BLOCKS}
    parts = [str(run.setting("model.name", ""))]
    parts += [f"{block} {_scheme(scheme)}" for block, scheme in schemes.items() if scheme.get("method") != "keep"]
    return " \N{MIDDLE DOT} ".join(part for part in parts if part)


def _scheme(scheme: dict[str, Any]) -> str:
    group = scheme.get("group_size", 0)
    shape = "symmetric" if scheme.get("symmetric", True) else "asymmetric"
    return f"{scheme.get('method')} {scheme.get('precision')} {'per row' if group == -1 else f'g{group}'} {shape}"


def _sections(run: Run) -> Iterator[Section]:
    if run.status == DONE:
        primary, margin = run.setting("attribute.primary_metric", METRICS[0]), run.setting("attribute.margin", 0.01)
        rows = records(run.report)
        chosen = points(rows, primary)
        found = list(panels(chosen))
        lines = [*loss_sentences(found), *block_sentences([run], primary), *size_sentence([run])]
        yield Section("short", "In short", lines=[*lines, *open_questions(found, [run])])
        yield base_section(rows, groups=records(run.groups))
        speaking = list(grouped(chosen, "subset", "task", "metric"))
        yield _losses(rows, speaking, margin)
        yield _attribution(run, primary, margin)
        if not only_base(rows):
            yield _groups(run, primary, margin)
            yield _draws(rows)
            yield _more(rows, speaking, margin)
        yield _sensitivity(run)
        yield sites_section(run)
        yield protocol_section(whole_tasks(rows))
    yield facts_section(run)
    if run.status == DONE:
        yield Section("reading", "How to read this", lines=READING)


def _losses(rows: Sequence[Row], speaking: Sequence[tuple], margin: float) -> Section:
    """The main tables: each task in the metric that speaks for it, one scale a metric."""
    own = grouped(whole_tasks(rows), "subset", "task", "metric")
    tables = []
    for metric in dict.fromkeys(key[2] for key in speaking):
        tables += _tables([own[key] for key in speaking if key[2] == metric], margin)
    return Section("loss", "What each part costs", "Loss against the unquantized model; right is worse.", tables=tables)


def _groups(run: Run, primary: str, margin: float) -> Section:
    """Means over several tasks; the primary metric open, the others behind it."""
    intro = "Means over tasks: every item counts the same, or every task does."
    by_metric = grouped(records(run.groups), "metric")
    shown = {
        str(name): _tables(list(grouped(own, "subset", "task").values()), margin) for (name,), own in by_metric.items()
    }
    tables = shown.pop(primary, [])
    return Section("groups", "Groups of tasks", intro, tables=tables, folded=list(shown.items()))


def _sensitivity(run: Run) -> Section:
    """Which metric sees a loss best: a row a task and arm, a column a metric."""
    rows = [row for row in records(run.sensitivity) if not is_control(row["arm"])]
    metrics = distinct(rows, "metric")
    columns = [Column("task"), Column("arm"), *(Column(metric, "number") for metric in metrics)]
    body = []
    for (subset, task, arm), own in grouped(rows, "subset", "task", "arm").items():
        found = {row["metric"]: row["sensitivity"] for row in own}
        cells = [amount(found.get(metric), number(found.get(metric), 1, signed=True)) for metric in metrics]
        body.append([Cell(f"{subset} \N{MIDDLE DOT} {task}"), Cell(str(arm)), *cells])
    note = "loss in standard errors, documents paired with base; kl is never negative: how precisely it is known"
    table = Table("How many standard errors each metric sees a loss with", columns, body, note)
    return Section("sensitivity", "Which metric sees it", folded=[("By task and arm", [table])] if body else [])


def _tables(groups: Sequence[Sequence[Row]], margin: float) -> list[Table]:
    scale = loss_scale([row for rows in groups for row in rows], margin)
    return [arm_table(rows, _caption(rows[0]), scale, margin) for rows in groups]


def _caption(row: Row) -> str:
    unit = f" ({row['unit']})" if row["unit"] else ""
    band = f", {row['band']}" if row["band"] else ""
    return f"{row['subset']} \N{MIDDLE DOT} {row['task']}{band}, {row['metric']}{unit}"


def _attribution(run: Run, primary: str, margin: float) -> Section:
    """Whose loss it is: pictures and parts in the primary metric, all effects in all metrics behind them."""
    effects = run.effects
    own = [effect for effect in effects if effect.metric == primary]
    found = panels_of(own)
    folded = []
    for metric in sorted(dict.fromkeys(e.metric for e in effects), key=lambda m: m != primary):
        shown = panels_of([e for e in effects if e.metric == metric])
        folded.append((f"All effects in {metric}", [effect_table(list(p.values()), _named(p), margin) for p in shown]))
    between = between_table(own, margin)
    if between.rows:
        folded.append((f"Differences between subsets in {primary}", [between]))
    section = Section("whose", "Whose loss it is", lines=list(_withheld(found)), folded=folded)
    section.pictures = attribution_pictures(own, run.path / "figures")
    section.tables = [part_table(panel, _named(panel), margin) for panel in found]
    return section


def _withheld(found: Sequence[Panel]) -> Iterator[str]:
    """Why a subset has no shares, each reason once."""
    for panel in found:
        reasons = dict.fromkeys(effect.reason.partition(NO_SHARE)[2] for effect in panel.values())
        for reason in filter(None, reasons):
            yield f"{next(iter(panel.values())).subset}: shares are withheld; {reason}."


def _named(panel: Panel) -> str:
    effect = next(iter(panel.values()))
    return f"{effect.subset}, {effect.n_items} items, {effect.n_documents} documents"


def _draws(rows: Sequence[Row]) -> Section:
    """Where there were several calibration draws, what they differ by."""
    found = spreads(rows)
    intro = "The same arms calibrated on other text: a spread that no interval over scored items sees."
    return Section("draws", "Other calibration text", intro, tables=[spread_table(found)] if found else [])


def _more(rows: Sequence[Row], speaking: Sequence[tuple], margin: float) -> Section:
    """All other metrics, and every metric by band."""
    whole = grouped(whole_tasks(rows), "metric", "subset", "task")
    folded = []
    for metric in dict.fromkeys(key[0] for key in whole):
        tasks = [own for key, own in whole.items() if key[0] == metric and (*key[1:], metric) not in speaking]
        folded += [(str(metric), _tables(tasks, margin))] if tasks else []
    banded = [row for row in rows if row["band"] is not None]
    for (task,), own in grouped(banded, "task").items():
        by_metric = grouped(own, "metric").values()
        tables = [table for rows in by_metric for table in _tables(list(grouped(rows, "band").values()), margin)]
        folded.append((f"{task} by band", tables))
    return Section("more", "Other metrics and bands", folded=folded)
