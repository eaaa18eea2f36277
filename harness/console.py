"""What a person sees while a run works and when it ends. Plain lines off a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from harness.attribute import Effect, between_subsets
from harness.attribute.power import BASE_SCORES, POWER, PRIORS, Resolution
from harness.attribute.reading import ALL_TASKS
from harness.attribute.shares import NO_SHARE
from harness.effects import READ_BY
from harness.model.sites import Site
from harness.plan import Arm
from harness.report.rows import records
from harness.report.spread import spreads
from harness.scheme import Scheme
from harness.words import is_noise

WIDTH = 190  # columns of a table off a terminal
ATTRIBUTED = ("nll", "kl")  # shown; attribution.csv has the others
MOST_ARMS = 4  # side by side
MOST_TASKS = 8  # of a subset, one by one
WITHHELD = "withheld"
LINE_EVERY = 10.0  # seconds between progress lines off a terminal


def console() -> Console:
    """Standard output that never fails on a character its encoding lacks."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore
    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH)


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
            left = (now - begun) * max(total - done, 0) / done
            print(f"{what}: {100 * done / total:.0f} %, {note}, about {left:.0f} s left", flush=True)

    return advance


def show_preflight(lines: Mapping[str, str]) -> None:
    """What is about to be run, and what it will take."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for row in lines.items():
        table.add_row(*row)
    console().print(table)


def show_resolutions(found: Sequence[Resolution], level: float, windowed: Sequence[str] = ()) -> None:
    """Before a run: the smallest loss that each task and subset tells from zero. `windowed`: texts without documents.

    Of many tasks in a subset only their mean.
    """
    rows: dict[tuple[str, str], dict[str, Resolution]] = {}
    for one in found:
        rows.setdefault((one.subset, one.task), {})[one.metric] = one
    sizes = Counter(subset for subset, task in rows if task != ALL_TASKS)
    title = f"smallest loss told from zero with {POWER:.0%} power at level {level:g}".replace("%", " %")
    known = [name for name in PRIORS if any(name in own for own in rows.values())]
    metrics = known + sorted({metric for own in rows.values() for metric in own} - set(known))
    wide = _table(title, ["subset", "task"], ["items", "documents", *metrics])
    brief = [metric for metric in metrics if metric in READ_BY]
    narrow = _table(title, ["task"], ["items", "docs", *brief])
    for (subset, task), own in rows.items():
        if task != ALL_TASKS and sizes[subset] > MOST_TASKS:
            continue
        size = max(own.values(), key=lambda one: one.n_items)
        name = f"all {sizes[subset]} tasks" if task == ALL_TASKS else task
        figures = str(size.n_items), str(size.n_documents)
        wide.add_row(subset, name, *figures, *(_resolved_cell(own.get(metric)) for metric in metrics))
        narrow.add_row(f"{subset} {name}", *figures, *(_resolved_cell(own.get(metric)) for metric in brief))
    if not rows:
        return
    shown = metrics if _print_first_that_fits(wide, narrow) is wide else brief
    for line in _resolution_notes([one for one in found if one.metric in shown], windowed):
        console().print(line, highlight=False, markup=False)


def _resolved_cell(one: Resolution | None) -> str:
    if one is None:
        return ""
    return f"{one.smallest:.2g}{'*' * (one.source == BASE_SCORES)}{'!' * one.warns}"


def _resolution_notes(found: Sequence[Resolution], windowed: Sequence[str]) -> Iterator[str]:
    """What the marks mean, and what to do about them."""
    starred = any(one.source == BASE_SCORES for one in found)
    yield "* from kept scores of base; others from a stated prior" if starred else "from stated priors, not from scores"
    if "kl" in {one.metric for one in found}:
        yield "kl: told from zero is a difference, as the FFN's part less the attention's"
    few: dict[str, set[str]] = {}
    for one in found:
        if one.warns:
            few.setdefault(one.metric, set()).add(f"{one.typical:.2g}")
    if few:
        said = ", ".join(f"{metric} {' or '.join(sorted(typical))}" for metric, typical in few.items())
        yield f"! WARNING: a typical int4 loss is smaller ({said}): score more items, or read a metric without !"
    if windowed:
        names = ", ".join(windowed)
        yield f"{names}: windows count as independent; eval.perplexity.document_regex says what a document is"


def show_plan(arms: Sequence[Arm], notes: Sequence[str]) -> None:
    """Arms, their players, and every site with its scheme; like sites of neighbouring layers in one row."""
    out = console()
    table = _table("arms", ["arm", "players"], ["sites", "weights"], fold=True)
    for arm in arms:
        weights = sum(site.weights for site in arm.plan)
        table.add_row(arm.name, " ".join(sorted(arm.players)) or "none", str(len(arm.plan)), f"{weights:,}")
    out.print(table)
    table = _table("sites", ["site", "shape", "method", "precision", "group", "symmetric", "range"], [])
    schemes = {s: c for arm in arms for s, c in arm.plan.items() if isinstance(c, Scheme)}
    for name, site, scheme in _alike(schemes):
        table.add_row(name, f"{site.out_features} x {site.in_features}", *_scheme_cells(scheme))
    if table.row_count:
        out.print(table)
    for note in notes:
        out.print(note, highlight=False)


def _alike(schemes: Mapping[Site, Scheme]) -> Iterator[tuple[str, Site, Scheme]]:
    """Sites of one role, shape and scheme in neighbouring layers as one: `layers.0-29.ffn.down`."""
    runs: list[list[Site]] = []
    last: dict[str, list[Site]] = {}
    for site, scheme in schemes.items():
        role = site.name.removeprefix(f"layers.{site.layer}.")
        run = last.get(role, [])
        before = run[-1] if run else None
        same = before and replace(before, name=site.name, layer=site.layer) == site and schemes[before] == scheme
        if before and same and site.layer == before.layer + 1:
            run.append(site)
        else:
            last[role] = [site]
            runs.append(last[role])
    for run in runs:
        first, layers = run[0], f"layers.{run[0].layer}-{run[-1].layer}."
        name = first.name.replace(f"layers.{first.layer}.", layers) if len(run) > 1 else first.name
        yield name, first, schemes[first]


def _scheme_cells(scheme: Scheme) -> tuple[str, ...]:
    symmetric = "symmetric" if scheme.symmetric else "asymmetric"
    return scheme.method, scheme.precision, str(scheme.group_size), symmetric, scheme.range_rule


def show_report(
    report: pd.DataFrame, title: str = "loss against base, interval in brackets (positive is worse)"
) -> None:
    """Every metric of every task over all its items: base, and how much worse each arm is.

    Arms stand side by side, or where that is too wide one below the other; with long names in lines of their own.
    """
    rows = report.loc[report["band"].isna()].to_dict("records")
    arms = [arm for arm in dict.fromkeys(r["arm"] for r in rows) if arm != "base" and not is_noise(arm)]
    shown = arms[:MOST_ARMS]
    cells: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["subset"], row["task"], row["metric"]), {})[row["arm"]] = row
    wide = _table(title, ["subset", "task", "metric"], ["items", "base", *shown])
    narrow = _table(title, ["task", "arm"], ["base", "loss", "verdict"], leading=1)
    lines = _table(title, ["task and arm"], ["loss", "verdict"], fold=True)
    for key, by_arm in cells.items():
        base = f"{by_arm['base']['value']:.4g}"
        losses = [_loss_cells(by_arm[arm]) for arm in shown]
        wide.add_row(*key, str(by_arm["base"]["n_items"]), base, *(" ".join(cells).strip() for cells in losses))
        narrow.add_row(*map("\n".join, (key, shown, [base], *zip(*losses, strict=True))))
        lines.add_row("{} {}\n{}, base {}".format(*key, base))
        for arm, figures in zip(shown, losses, strict=True):
            lines.add_row(f"  {arm}", *figures, end_section=arm == shown[-1])
    _print_first_that_fits(wide, narrow, lines)
    if len(arms) > MOST_ARMS:
        console().print(f"{len(arms) - MOST_ARMS} more arms are in report.csv")


def _table(title: str, words: Sequence[str], figures: Sequence[str], leading: int = 0, fold: bool = False) -> Table:
    """Columns of words to the left, of figures to the right; `leading` empty lines between rows.

    Where it gets narrow words wrap and figures do not; with `fold` the first column's names wrap as well.
    """
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD, "collapse_padding": True, "pad_edge": False, "show_edge": False}
    table = Table(title=title, leading=leading, **look)
    for n, name in enumerate(words):
        table.add_column(name, no_wrap=n == 0 and not fold, overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _print_first_that_fits(*tables: Table) -> Table:
    """The first table that needs no cell cut, else the last; returned as well."""
    out = console()
    endless = out.options.update(max_width=10_000)
    fits = (table for table in tables if out.measure(table, options=endless).maximum <= out.width)
    chosen = next(fits, tables[-1])
    out.print(chosen)
    return chosen


def _signed(value: float, decimals: int) -> str:
    """With a sign; fewer decimals where there are many digits; perplexities of broken models in powers of ten."""
    decimals -= len(f"{abs(value):.0f}") - 1
    return f"{value:+.{max(decimals, 1)}f}" if abs(value) < 1e5 else f"{value:+.2e}"


def _loss_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    """The loss with its interval, and the verdict."""
    text = _signed(row["loss"], 4)
    if pd.notna(row["loss_lo"]):
        text += f" [{_signed(row['loss_lo'], 3)}, {_signed(row['loss_hi'], 3)}]"
    return text, row["verdict"] if pd.notna(row["verdict"]) else ""


def show_spreads(report: pd.DataFrame) -> None:
    """How far the losses of calibrated arms lie apart between calibration draws, where there are several."""
    found = [spread for spread in spreads(records(report)) if spread.metric in ATTRIBUTED]
    words, figures = ["subset", "task", "metric", "arm"], ["draws", "deviation", "least", "most"]
    table = _table("loss over calibration draws", words, figures)
    for one in found:
        figures = (f"{one.deviation:.4f}", f"{min(one.losses):+.4f}", f"{max(one.losses):+.4f}")
        table.add_row(one.subset, one.task, one.metric, one.arm, str(len(one.losses)), *figures)
    if found:
        console().print(table)


def headline(report: pd.DataFrame) -> str:
    """The nll loss of the first arms in one line, of the first task that has one."""
    table = report.loc[report["band"].isna() & (report["metric"] == "nll") & report["loss"].notna()]
    rows = [row for row in table.to_dict("records") if not is_noise(row["arm"])]
    first = [row for row in rows if row["task"] == rows[0]["task"]]
    losses = ", ".join(f"{row['arm']} {row['loss']:+.4f}" for row in first[:MOST_ARMS])
    return f"nll of {first[0]['task']}: {losses}" if first else ""


def show_attribution(effects: pd.DataFrame) -> None:
    """Each player's part of the loss: alone, restored, their mean (Shapley) with interval, and its share."""
    chosen = effects.loc[effects["kind"].isin(["alone", "restored", "shapley"]) & effects["metric"].isin(ATTRIBUTED)]
    parts: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in chosen.to_dict("records"):
        parts.setdefault((row["subset"], row["task"], row["metric"], row["player"]), {})[row["kind"]] = row
    title, figures = "whose loss: alone and restored, their mean, its share of the total", ["mean", "share"]
    wide = _table(title, ["subset", "task", "metric", "player"], ["alone", "restored", *figures])
    narrow = _table(title, ["task", "player"], ["mean (alone, restored)", "share"], leading=1)
    lines = _table(title, ["task and player"], ["mean (alone, restored)", "share"], fold=True)
    cells: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    withheld: dict[str, list[str]] = {}
    for (*task, player), kinds in parts.items():
        if "shapley" not in kinds:
            continue
        mean, share = _part_cells(kinds["shapley"])
        both = [f"{kinds[kind]['loss']:+.4f}" if kind in kinds else "" for kind in ("alone", "restored")]
        wide.add_row(*task, player, *both, mean, share)
        pair = f"({', '.join(both)})" if any(both) else ""
        cells.setdefault(tuple(task), []).append((f"{player}\n", f"{mean}\n{pair}", f"{share}\n"))
        if share == WITHHELD:
            reason = str(kinds["shapley"]["reason"]).partition(NO_SHARE)[2]
            withheld.setdefault(reason, []).append(" ".join(task))
    for task, own in cells.items():
        narrow.add_row(*map("\n".join, (task, *zip(*own, strict=True))))
        lines.add_row("{} {}\n{}".format(*task))
        for player, *figures in own:
            lines.add_row(f"  {player.strip()}", *figures, end_section=player == own[-1][0])
    if wide.row_count:
        _print_first_that_fits(wide, narrow, lines)
    for reason, tasks in withheld.items():
        console().print(f"{WITHHELD}, {reason}: {', '.join(dict.fromkeys(tasks))}", highlight=False)


def show_between(effects: Sequence[Effect]) -> None:
    """How much more one part costs than the other in one subset than in another: the declared test between subsets."""
    title = "difference of differences: part less part, in subset less subset"
    table = _table(title, ["subsets", "metric", "parts"], ["difference", "verdict"], fold=True)
    for effect in between_subsets(effects)[0]:
        if effect.metric in ATTRIBUTED:
            difference, _ = _part_cells(vars(effect))
            table.add_row(effect.subset, effect.metric, effect.player, difference, effect.verdict or "")
    if table.row_count:
        console().print(table)


def _part_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    mean = f"{row['loss']:+.4f}"
    if pd.notna(row["lo"]):
        mean += f" [{row['lo']:+.3f}, {row['hi']:+.3f}]"
    if pd.isna(row["share"]):
        return mean, WITHHELD if NO_SHARE in str(row["reason"]) else ""
    share = f"{row['share']:.2f}"
    return mean, f"{share} [{row['share_lo']:.2f}, {row['share_hi']:.2f}]" if pd.notna(row["share_lo"]) else share
