"""The FFN's share of the loss over the settings of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.colours import FFN, PALE, SOFT
from harness.report.attribution_plots import MOST_BARS, panels_of
from harness.report.runs import Run

SPLIT = {("shapley", "ffn"), ("alone", "ffn"), ("restored", "ffn")}
WIDTH = 4.6  # inches


@dataclass(frozen=True)
class ShareRow:
    """The FFN's share of the loss in one run. None: withheld, with the reason."""

    setting: str
    share: float | None
    low: float | None
    high: float | None
    alone: float | None
    restored: float | None
    reason: str


def shares_of(runs: Sequence[Run], metric: str, names: Mapping[str, str]) -> dict[str, list[ShareRow]]:
    """By subset, a row for every run whose design splits the loss between FFN and attention. `names`: by run_id."""
    found: dict[str, list[ShareRow]] = {}
    for run in runs:
        for panel in panels_of([effect for effect in run.effects if effect.metric == metric]):
            if panel.keys() >= SPLIT:
                part = panel["shapley", "ffn"]
                alone, restored = (panel[kind, "ffn"].share for kind in ("alone", "restored"))
                name, bounds = names.get(run.id, run.id), (part.share_lo, part.share_hi)
                row = ShareRow(name, part.share, *bounds, alone, restored, part.reason)
                found.setdefault(part.subset, []).append(row)
    return found


def shown_shares(rows: Sequence[ShareRow]) -> list[ShareRow]:
    """The rows to draw: all, or of very many an even choice of those with a share."""
    if len(rows) > MOST_BARS:
        known = [row for row in rows if row.share is not None]
        rows = known[:: -(-len(known) // MOST_BARS)] if known else rows[:MOST_BARS]
    return list(rows)


def share_bars(subset: str, rows: Sequence[ShareRow]) -> Figure:
    """A row a setting: the share with its interval, and behind it the span from alone to restored."""
    figure = Figure(figsize=(WIDTH, 1.3 + 0.28 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for n, row in enumerate(rows):
        if row.share is None:
            axes.text(0.02, n, "withheld", va="center", color=SOFT, fontsize=9)
            continue
        if row.alone is not None and row.restored is not None:
            axes.plot([row.alone, row.restored], [n, n], color=FFN, lw=7, alpha=0.3, solid_capstyle="butt")
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [n, n], color=FFN, lw=1.4)
        axes.plot(row.share, n, "o", color=FFN, ms=5)
    axes.set_yticks(range(len(rows)), [row.setting for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(min(0, axes.get_xlim()[0]), max(1, axes.get_xlim()[1]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("FFN's share of the loss")
    axes.set_title(subset, loc="left", fontweight="bold")
    axes.grid(axis="x", color=PALE, lw=0.6)
    axes.set_axisbelow(True)
    return figure
