"""One run's page: what each sub-layer costs, how sure that is, and under which protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.report.advice import block_sentences, loss_sentences, open_questions, size_sentence
from harness.report.attribution_plots import panels_of
from harness.report.figures import picture
from harness.report.loss_tables import arm_table, effect_table, loss_scale
from harness.report.markup import Cell, Column, Section, Table, text, write_page
from harness.report.numbers import duration, missing, number, percent, size
from harness.report.points import METRICS, panels, points, whole_tasks
from harness.report.run_plots import attribution_pictures, error_map
from harness.report.runs import DONE, Run, read_run
from harness.report.sweep import MADE_WITH, flat

READING = [
    "A loss is how much worse an arm is than the unquantized model on the same items; positive is worse. "
    "Accuracy: base less arm. nll and kl: arm less base, in nats a token.",
    "The dot is the loss, the line its interval. Whole documents are resampled, all arms together, because items of "
    "one document are not independent. The band around zero is the margin within which a loss counts as none.",
    "worse, better: told from zero after correction for all tests. equivalent: inside the margin by two one-sided "
    "tests. undecided: neither; more items may decide it. exploratory: under 20 documents, so no verdict.",
    "alone: the loss with only that part quantized. restored: what keeping that part in 16 bits would save. Their mean "
    "halves the interaction between parts by convention (Shapley), so the two stand beside it.",
    "kl measures how far predictions moved, not harm: it is never negative and is not tested against zero.",
    "An interval covers the draw of items. It does not cover another model, another text, or another calibration draw.",
]


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
        footer="All numbers: report.csv, attribution.csv, sites.csv and items.parquet beside this page.",
    )


def _subtitle(run: Run) -> str:
    schemes = {block: run.setting(f"quant.{block}") or {} for block in ("ffn", "attention")}
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
        shown = whole_tasks(run.report)
        chosen = points(run.report, primary)
        found = list(panels(chosen))
        lines = [*loss_sentences(found), *block_sentences([run], primary), *size_sentence([run])]
        yield Section("short", "In short", lines=[*lines, *open_questions(found, [run])])
        speaking = chosen[["subset", "task", "metric"]].drop_duplicates().apply(tuple, axis=1).tolist()
        yield _losses(shown, speaking, margin)
        yield _attribution(run, primary, margin)
        yield _more(run.report, speaking, margin)
        yield _sites(run)
        yield _protocol(shown)
    yield _facts(run)
    yield Section("reading", "How to read this", lines=READING)


def _losses(shown: pd.DataFrame, speaking: Sequence[tuple], margin: float) -> Section:
    """The main tables: each task in the metric that speaks for it."""
    keyed = shown.set_index(["subset", "task", "metric"], drop=False)
    tables = []
    for metric in dict.fromkeys(key[2] for key in speaking):
        own = [keyed.loc[[key]] for key in speaking if key[2] == metric]
        scale = loss_scale(pd.concat(own), margin)
        tables += [arm_table(rows, _caption(rows), scale, margin) for rows in own]
    return Section(
        "loss", "What each part costs", "Loss against the unquantized model; to the right is worse.", tables=tables
    )


def _caption(rows: pd.DataFrame) -> str:
    row = rows.iloc[0]
    unit = f" ({row['unit']})" if not missing(row["unit"]) else ""
    return f"{row['subset']} \N{MIDDLE DOT} {row['task']}, {row['metric']}{unit}"


def _attribution(run: Run, primary: str, margin: float) -> Section:
    """Whose loss it is: pictures in the primary metric, tables in all."""
    effects = run.effects
    pictures = attribution_pictures([e for e in effects if e.metric == primary], run.path / "figures")
    folded = []
    for metric in sorted(dict.fromkeys(e.metric for e in effects), key=lambda m: m != primary):
        own = panels_of([e for e in effects if e.metric == metric])
        tables = [effect_table(list(p.values()), _effects_caption(p), margin) for p in own]
        folded.append((f"Effects in {metric}", tables))
    across = [e for e in effects if e.kind == "difference" and e.metric == primary and "-" in e.subset]
    if across:
        folded.append(
            (f"Differences between subsets in {primary}", [effect_table(across, "Subset less subset", margin)])
        )
    return Section("whose", "Whose loss it is", pictures=pictures, folded=folded)


def _effects_caption(panel: dict) -> str:
    effect = next(iter(panel.values()))
    return f"{effect.subset}, {effect.n_items} items, {effect.n_documents} documents"


def _more(report: pd.DataFrame, speaking: Sequence[tuple], margin: float) -> Section:
    """All other metrics, and every metric by band."""
    done = report[report["status"] == DONE]
    whole = done["band"].isna()
    folded = []
    for metric, rows in done[whole].groupby("metric", sort=False):
        tasks = [own for key, own in rows.groupby(["subset", "task"], sort=False) if (*key, metric) not in speaking]
        folded.append((f"{metric}", _tables(tasks, margin)))
    for (task, metric), rows in done[~whole].groupby(["task", "metric"], sort=False):
        bands = [own for _, own in rows.groupby("band", sort=False)]
        folded.append((f"{task}, {metric} by band", _tables(bands, margin)))
    return Section("more", "Other metrics and bands", folded=[(name, tables) for name, tables in folded if tables])


def _tables(groups: Sequence[pd.DataFrame], margin: float) -> list[Table]:
    if not groups:
        return []
    scale = loss_scale(pd.concat(groups), margin)
    return [arm_table(rows, _caption(rows) + _band(rows), scale, margin) for rows in groups]


def _band(rows: pd.DataFrame) -> str:
    band = rows["band"].iloc[0]
    return "" if missing(band) else f", {band}"


def _sites(run: Run) -> Section:
    """What was quantized and how well, by block and role."""
    sites = run.sites
    if sites.empty:
        return Section("sites", "What was quantized")
    sites = sites.drop_duplicates([name for name in sites if name != "arm"])
    columns = [Column("role"), Column("matrices", "number"), Column("scheme"), Column("bits a weight", "number")]
    columns += [Column("weight error", "number"), Column("largest", "number"), Column("at")]
    extra = "relative_output_error" in sites and sites["relative_output_error"].notna().any()
    columns += [Column("output error", "number")] if extra else []
    body = []
    for (block, role), own in sites.groupby(["block", "role"], sort=False):
        worst = own.loc[own["relative_weight_error"].idxmax()]
        row = [
            Cell(f"{block} {role}"),
            text(len(own)),
            Cell(_schemes(own)),
            Cell(number(own["bits_per_weight"].mean(), 2)),
        ]
        row += [Cell(percent(own["relative_weight_error"].mean(), 1)), Cell(percent(worst["relative_weight_error"], 1))]
        row += [Cell(str(worst["site"]))]
        row += [Cell(percent(own["relative_output_error"].mean(), 1))] if extra else []
        body.append(row)
    note = "weight error: |W - Q(W)| over |W|, Frobenius norm"
    alt = "Heat map of relative weight error by role and layer; the table has the same by role."
    shown = picture(
        lambda: error_map(sites), "weight_error", alt, "Weight error by role and layer.", run.path / "figures"
    )
    fallbacks = _fallbacks(sites)
    return Section(
        "sites",
        "What was quantized",
        lines=fallbacks,
        pictures=[[shown]] if shown else [],
        tables=[Table("By role", columns, body, note)],
    )


def _schemes(sites: pd.DataFrame) -> str:
    names = [f"requested_{name}" for name in ("method", "precision", "group_size")]
    found = sites[[name for name in names if name in sites]].drop_duplicates()
    return "; ".join(" ".join(text(cell).text for cell in row) for row in found.itertuples(index=False))


def _fallbacks(sites: pd.DataFrame) -> list[str]:
    column = next((name for name in ("fallback_reason", "fallback") if name in sites), None)
    if column is None:
        return []
    counts = sites[column].dropna().astype(str).value_counts()
    return [f"{count} matrices fell back: {reason}" for reason, count in counts.items()]


def _protocol(shown: pd.DataFrame) -> Section:
    """How each task was scored."""
    columns = [Column("task"), Column("items", "number"), Column("documents", "number"), Column("tokens", "number")]
    columns += [Column("data"), Column("template"), Column("protocol", "text long")]
    body = []
    for (subset, task), own in shown.groupby(["subset", "task"], sort=False):
        row = own.loc[own["n_documents"].astype("Float64").fillna(0).idxmax()]
        protocol = ", ".join(f"{key} {value}" for key, value in _protocol_of(row) if value not in ("", None))
        counts = [text(row[name]) for name in ("n_items", "n_documents", "n_tokens")]
        hashes = [text(row[name]) for name in MADE_WITH[:0:-1]][::-1]
        body.append([Cell(f"{subset} \N{MIDDLE DOT} {task}"), *counts, *hashes, Cell(protocol)])
    return Section("protocol", "Protocol", tables=[Table("How each task was scored", columns, body)])


def _protocol_of(row: Any) -> list[tuple[str, Any]]:
    try:
        return list(flat(json.loads(row["protocol"])))
    except (TypeError, ValueError, AttributeError):
        return []


def _facts(run: Run) -> Section:
    """Machine, versions and all settings."""
    rows = [[Cell("folder"), Cell(run.path.name)], [Cell("status"), Cell(run.status)]]
    first = run.report.iloc[0] if len(run.report) else {}
    for name in ("model", "model_sha", "base_lattice", "dtype", "device", "weight_bytes"):
        if name in first and not missing(first[name]):
            rows.append([Cell(name), Cell(size(first[name]) if name.endswith("bytes") else str(first[name]))])
    if run.result:
        rows.append([Cell("time"), Cell(duration(run.result.get("seconds")))])
        rows.append([Cell("peak memory"), Cell(size(run.result.get("peak_bytes")))])
        versions = {k: run.result[k] for k in ("harness_version", "code_version") if k in run.result}
        rows += [[Cell(k), Cell(str(v))] for k, v in {**versions, **(run.result.get("versions") or {})}.items()]
    settings = [[Cell(name), text(value)] for name, value in flat(run.config) if value not in ("", None)]
    two = [Column("name"), Column("value", "text long")]
    folded = [("All settings", [Table("Settings", two, settings)])] if settings else []
    return Section("facts", "Run", tables=[Table("Run", two, rows)], folded=folded)
