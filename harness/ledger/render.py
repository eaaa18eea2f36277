"""A ledger on paper: rich tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import io
import json
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from harness.ledger.build import Ledger, Rows

TITLES = {
    "roles": "Parameters by block and role",
    "layers": "Layers, where they differ",
    "bytes": "Bytes by precision and group size; model: with only the blocks, or everything quantized",
    "decode": "Decode bound by public bandwidths (sources in JSON): weights read once a step, cache of every sequence",
    "training_state": "Training state",
    "activations": "FFN activations of one layer",
    "share_by_ratio": "FFN share of a layer by d_ff / d_model and query heads per KV head",
    "group_fit": "Group sizes that divide in_features, by tensor-parallel degree",
    "family": "Scaling family",
}
KEYS = {  # columns that tell a table's rows apart
    "roles": ("block", "role", "out_features", "in_features"),
    "layers": ("first", "last"),
    "bytes": ("precision", "group_size"),
    "decode": ("accelerator", "batch", "plan"),
    "training_state": ("optimizer",),
    "activations": ("batch",),
    "share_by_ratio": ("ratio",),
    "group_fit": ("role", "in_features"),
    "family": ("layers", "d_model"),
}
HIDDEN = ("tables_bytes", "source", "compute_ms", "active")  # in JSON and CSV only
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def as_json(ledger: Ledger) -> str:
    """One JSON object: `model`, the summary's parts, every table as a list of objects, `notes`."""
    content = {"model": ledger.model, **ledger.summary, **ledger.tables, "notes": ledger.notes}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def as_csv(ledger: Ledger) -> str:
    """One value a line: table, row, field, value."""
    lines = [("table", "row", "field", "value")]
    for part, content in ledger.summary.items():
        for name, value in content.items():
            fields = value if isinstance(value, dict) else {"": value}
            lines += [(part, name, field, v) for field, v in fields.items()]
    for table, rows in ledger.tables.items():
        for row in rows:
            label = " ".join(str(row[key]) for key in KEYS[table] if row[key] is not None)
            lines += [(table, label, field, value) for field, value in row.items() if field not in KEYS[table]]
    lines += [("notes", str(i), "", note) for i, note in enumerate(ledger.notes)]
    out = io.StringIO(newline="")
    csv.writer(out).writerows(lines)
    return out.getvalue()


def print_tables(ledger: Ledger) -> None:
    """Tables and notes on the terminal."""
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(f"[bold]{ledger.model}[/bold]" + _headline(ledger))
    for name, rows in ledger.tables.items():
        if len(rows) > (name == "layers"):  # a single run of equal layers says nothing new
            console.print(_table(TITLES[name], rows))
    for note in ledger.notes:
        console.print(f"- {note}")


def _headline(ledger: Ledger) -> str:
    if not ledger.summary:
        return ""
    total, share = ledger.summary["params"]["total"], ledger.summary["share"]
    cache, flops = ledger.summary["kv_cache"], ledger.summary["flops"]
    active = ledger.summary["params"]["active"]["all"]
    return (
        f": {total['all']:,} parameters"
        + (f", {active:,} of them used by a token" if active < total["all"] else "")
        + f". FFN: {share['layer_ffn']:.1%} of a layer, {share['total_ffn']:.1%} of the model.\n"
        f"KV cache {_bytes(cache['bytes_a_token'])} a token, {_bytes(cache['bytes'])} at {cache['length']:,}. "
        f"Forward {flops['forward'] / 1e9:,.4g} GFLOP a token and {flops['attention_scores'] / 1e9:,.3g} for attention "
        f"scores at {flops['length']:,}.\nTraining on {flops['training_tokens']:.3g} tokens: {flops['training']:.3g} "
        f"FLOPs, {flops['training_gpu_days']:,.0f} GPU days."
    )


def _table(title: str, rows: Rows) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = [name for name in rows[0] if name not in HIDDEN]
    for name in columns:
        justify = "left" if all(isinstance(row[name], str) for row in rows) else "right"
        header = name.removesuffix("_bytes").removesuffix("_features").replace("_", "\n")
        table.add_column(header, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(shown(name, row[name]) for name in columns))
    return table


def shown(name: str, value: Any) -> str:
    """A cell as a person reads it; the column's name tells the unit."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if (name, value) == ("group_size", -1):
        return "row"
    if name == "bytes" or name.endswith("_bytes"):
        return _bytes(value)
    if "share" in name or name == "rounding":
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _bytes(value: float) -> str:
    for size, unit in UNITS:
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.0f} B"
