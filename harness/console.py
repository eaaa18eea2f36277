"""What a person sees while a run works and when it ends. Plain lines off a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from harness.plan import Arm
from harness.scheme import Scheme

WIDTH = 150  # columns of a table off a terminal
LINE_EVERY = 10.0  # seconds between progress lines off a terminal


def console() -> Console:
    """Standard output that never fails on a character its encoding lacks."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore
    return Console(width=None if sys.stdout.isatty() else WIDTH)


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int, str], None]]:
    """A bar with time left on a terminal; a line every ten seconds elsewhere. `total` in token-layers."""
    out = console()
    if out.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=out, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda amount, note: bar.update(task, advance=amount, description=f"{what} {note}")
        return
    yield _lines(total, what)


def _lines(total: int, what: str) -> Callable[[int, str], None]:
    begun = said = time.monotonic()
    done = 0

    def advance(amount: int, note: str) -> None:
        nonlocal done, said
        done += amount
        now = time.monotonic()
        if now - said >= LINE_EVERY and done:
            said = now
            left = (now - begun) * (total - done) / done
            print(f"{what}: {100 * done / total:.0f} %, {note}, about {left:.0f} s left", flush=True)

    return advance


def show_plan(arms: Sequence[Arm], notes: Sequence[str]) -> None:
    """Arms, their players, and every site with its scheme."""
    out = console()
    table = Table(title="arms")
    for name in ("arm", "players", "sites", "weights"):
        table.add_column(name, justify="right" if name in ("sites", "weights") else "left")
    for arm in arms:
        weights = sum(site.weights for site in arm.plan)
        table.add_row(arm.name, " ".join(sorted(arm.players)) or "none", str(len(arm.plan)), f"{weights:,}")
    out.print(table)
    table = Table(title="sites")
    for name in ("site", "shape", "method", "precision", "group", "symmetric", "range"):
        table.add_column(name)
    for site, scheme in {s: c for arm in arms for s, c in arm.plan.items()}.items():
        table.add_row(site.name, f"{site.out_features} x {site.in_features}", *_scheme_cells(scheme))
    out.print(table)
    for note in notes:
        out.print(note, highlight=False)


def _scheme_cells(scheme: Scheme) -> tuple[str, ...]:
    symmetric = "symmetric" if scheme.symmetric else "asymmetric"
    return scheme.method, scheme.precision, str(scheme.group_size), symmetric, scheme.range_rule


def show_report(report: pd.DataFrame) -> None:
    """The main numbers of a run: every task over all its items, arms side by side."""
    table = Table(title="loss against base, with interval (positive is worse)")
    for name in ("subset", "task", "metric", "items", "arm", "base", "value", "loss", "interval", "verdict"):
        table.add_column(name, justify="right" if name in ("items", "base", "value", "loss") else "left")
    shown = report[report["band"].isin(["", None]) | report["band"].isna()]
    for _, row in shown[shown["arm"] != "base"].iterrows():
        known = pd.notna(row["loss_lo"])
        interval = f"{row['loss_lo']:+.4f} .. {row['loss_hi']:+.4f}" if known else ""
        table.add_row(
            row["subset"],
            row["task"],
            row["metric"],
            str(row["n_items"]),
            row["arm"],
            f"{row['base_value']:.4f}",
            f"{row['value']:.4f}",
            f"{row['loss']:+.4f}",
            interval,
            row["verdict"] if pd.notna(row["verdict"]) else "",
        )
    console().print(table)
