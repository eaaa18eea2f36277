"""What stands behind a run's numbers: matrices and their errors, protocol, data, machine, versions, settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.report.figures import picture
from harness.report.markup import Cell, Column, Section, Table, text
from harness.report.numbers import duration, number, percent, short, size
from harness.report.rows import Row, column, grouped, mean, records
from harness.report.run_plots import error_map
from harness.report.runs import Run, flat

SCHEME = ("requested_method", "requested_precision", "requested_group_size")
ERRORS = {"relative_weight_error": "weight error", "relative_output_error": "output error"}


def sites_section(run: Run) -> Section:
    """What was quantized and how well, by block and role."""
    if run.sites.empty:
        return Section("sites", "What was quantized")
    sites = records(run.sites.drop_duplicates([name for name in run.sites if name != "arm"]))
    errors = [name for name in ERRORS if any(row.get(name) is not None for row in sites)]
    columns = [Column("role"), Column("matrices", "number"), Column("scheme"), Column("bits a weight", "number")]
    for name in errors:
        columns += [Column(ERRORS[name], "number"), Column("largest", "number"), Column("at")]
    body = [_role_row(f"{key[0]} {key[1]}", own, errors) for key, own in grouped(sites, "block", "role").items()]
    note = "error: norm of the difference over the norm of the original"
    alt = "Heat map of relative weight error by role and layer; the table has the same by role."
    caption = "Weight error by role and layer."
    shown = picture(lambda: error_map(sites), "weight_error", alt, caption, run.path / "figures")
    pictures = [[shown]] if shown else []
    tables = [Table("By role", columns, body, note)]
    return Section("sites", "What was quantized", lines=_fallbacks(sites), pictures=pictures, tables=tables)


def _role_row(role: str, sites: Sequence[Row], errors: Sequence[str]) -> list[Cell]:
    schemes = dict.fromkeys(" ".join(short(site.get(name)) for name in SCHEME) for site in sites)
    row = [Cell(role), text(len(sites)), Cell("; ".join(schemes))]
    row.append(Cell(number(mean(column(sites, "bits_per_weight")), 2)))
    for name in errors:
        worst = max(sites, key=lambda site: site[name] or 0.0)
        row += [Cell(percent(mean(column(sites, name)), 1)), Cell(percent(worst[name], 1)), Cell(str(worst["site"]))]
    return row


def _fallbacks(sites: Sequence[Row]) -> list[str]:
    reasons = Counter((site["fallback"], site["fallback_reason"]) for site in sites if site.get("fallback"))
    of = f"of {len(sites)} matrices fell back to"
    return [f"{count} {of} {method}: {reason}" for (method, reason), count in reasons.items()]


def protocol_section(rows: Sequence[Row]) -> Section:
    """How each task was scored."""
    columns = [Column("task"), Column("items", "number"), Column("documents", "number"), Column("tokens", "number")]
    columns += [Column("data"), Column("template"), Column("protocol", "long")]
    body = []
    for (subset, task), own in grouped(rows, "subset", "task").items():
        row = max(own, key=lambda row: row["n_documents"] or 0)
        counts = [text(row[f"n_{name}"]) for name in ("items", "documents", "tokens")]
        hashes = [Cell(row["data_hash"] or ""), Cell(row["template_hash"] or "")]
        body.append([Cell(f"{subset} \N{MIDDLE DOT} {task}"), *counts, *hashes, Cell(_protocol(row["protocol"]))])
    return Section("protocol", "Protocol", tables=[Table("How each task was scored", columns, body)])


def _protocol(cell: str | None) -> str:
    try:
        settings = dict(flat(json.loads(cell or "{}")))
    except (ValueError, AttributeError):
        return cell or ""
    return ", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items() if value not in ("", None))


def facts_section(run: Run) -> Section:
    """Machine, versions and all settings."""
    facts: dict[str, Any] = {"run": run.id, "status": run.status}
    first = records(run.report.head(1))[0] if len(run.report) else {}
    facts |= {name: first.get(name) for name in ("model", "model_sha", "base_lattice", "dtype", "device")}
    facts["weights of base"] = size(first.get("weight_bytes"))
    facts["time"] = duration(run.result.get("seconds"))
    facts["peak memory"] = size(run.result.get("peak_bytes"))
    facts |= {name: run.result.get(name) for name in ("model_commit", "harness_version", "code_version")}
    for draw in run.result.get("calibration") or []:
        facts[f"calibration, seed {draw['seed']}"] = _calibration(draw)
    facts |= run.result.get("versions") or {}
    settings = dict(flat(run.config))
    folded = [("All settings", [_two_columns("Settings", settings)])] if settings else []
    return Section("facts", "Run", tables=[_two_columns("Run", facts)], folded=folded)


def _calibration(draw: dict[str, Any]) -> str:
    line, gram = (percent(draw[f"scored_with_{what}_in_common"], 1) for what in ("a_line", "13_tokens"))
    repeated = f" ({count:,} of them repeated)" if (count := draw.get("repeated_tokens")) else ""
    return (
        f"{draw['samples']} samples of {draw['usable_samples']} usable, {draw['dropped_short_texts']} texts too short, "
        f"{draw['tokens']:,} tokens{repeated}, hash {draw['sample_hash']}; in common with what is scored: a line "
        f"{line}, 13 tokens {gram} of the sequences"
    )


def _two_columns(caption: str, facts: dict[str, Any]) -> Table:
    rows = [[Cell(name), text(value)] for name, value in facts.items() if value not in ("", None)]
    return Table(caption, [Column("name"), Column("value", "long")], rows)
