"""Pictures of a sweep, one panel a task: loss against stored bits, and loss against group size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from harness.report.attribution_plots import BLUE, INK, MOST_BARS, ORANGE, PALE, SOFT, panels_of
from harness.report.numbers import missing
from harness.report.points import BLOCKS, Panel, front_of, group_of
from harness.report.runs import Run

COLOURS = {"ffn": BLUE, "attention": ORANGE, "both": INK}
LEGEND: dict[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0, 1),
    "ncols": 4,
    "frameon": False,
    "fontsize": 9,
    "handletextpad": 0.3,
    "columnspacing": 1.0,
    "borderaxespad": 0.1,
}
BESIDE: dict[str, Any] = {"va": "center", "fontsize": 9, "annotation_clip": False}
LABEL_ROOM = 11  # points between numbers
MARKERS = "osD^vPX"
SIZE = (4.6, 3.4)  # inches; a panel fills a phone's width
WIDE = 12.0  # largest over smallest loss, from where the axis becomes logarithmic
MOST_SERIES = 12  # lines that an eye can tell apart, three blocks in four styles
MOST_LINES = 150


def loss_against_bits(panel: Panel, margin: float) -> Figure:
    """Every setting's loss with its interval over bits a weight; the Pareto front as a line with numbered points."""
    figure, axes = _axes()
    rows = panel.rows[panel.rows["bits_per_weight"].notna()]
    many = len(rows) > 40
    for block in COLOURS:
        own = rows[rows["block"] == block]
        if len(own):
            _whiskers(axes, own["bits_per_weight"], own, COLOURS[block], "o", block, small=many)
    front = front_of(panel)
    axes.step(front["bits_per_weight"], front["loss"], where="post", color=SOFT, lw=1.2, zorder=1, label="front")
    _loss_axis(axes, rows, panel, margin)
    _number_points(axes, front)
    axes.set_xlabel("bits per weight of the block matrices")
    axes.legend(**LEGEND)
    return figure


def _number_points(axes: Axes, front: pd.DataFrame) -> None:
    """Numbers beside the front's points, as in the table; where they would overlap, the later one is left out."""
    taken: list[np.ndarray] = []
    for n, (_, row) in enumerate(front.iterrows(), start=1):
        at = axes.transData.transform((row["bits_per_weight"], row["loss"]))
        if all(np.abs(at - other).max() > LABEL_ROOM for other in taken):
            taken.append(at)
            place = {"xytext": (5, 4), "textcoords": "offset points", "fontsize": 9, "fontweight": "bold"}
            axes.annotate(str(n), (row["bits_per_weight"], row["loss"]), **place)


def loss_against_group_size(panel: Panel, margin: float, swept: Sequence[str]) -> Figure | None:
    """A line for each arm and whatever else is set; None where no line has two group sizes."""
    lines = group_lines(panel.rows, swept)[:MOST_LINES]
    if not lines:
        return None
    figure, axes = _axes()
    sizes = sorted({point["group"] for line in lines for point in line.points}, key=_span)
    crowded = len(lines) > MOST_SERIES  # then lines alone, named by precision
    names = list(dict.fromkeys(line.name(crowded) for line in lines))
    blocks = list(dict.fromkeys(line.block for line in lines))
    for line in lines:
        at = [sizes.index(point["group"]) + _nudge(line.block) for point in line.points]
        style = {"color": COLOURS[line.block], "lw": 0.6 if crowded else 1.2, "alpha": 0.7, "zorder": 2}
        axes.plot(at, [point["loss"] for point in line.points], **style)
        if not crowded:
            marker = MARKERS[names.index(line.name(crowded)) % len(MARKERS)]
            _whiskers(axes, at, pd.DataFrame(line.points), COLOURS[line.block], marker, "", small=False)
    for name in names:
        ends = [line.points[-1] for line in lines if line.name(crowded) == name]
        height = float(np.median([end["loss"] for end in ends]))
        axes.annotate(name, (sizes.index(ends[0]["group"]) + 0.12, height), **BESIDE)
    for block in blocks:
        axes.plot([], [], color=COLOURS[block], marker="" if crowded else "o", lw=1.2, label=block)
    axes.set_xticks(range(len(sizes)), ["row" if size == -1 else str(size) for size in sizes])
    axes.set_xlabel("weights that share a scale")
    _loss_axis(axes, pd.DataFrame([point for line in lines for point in line.points]), panel, margin)
    axes.margins(x=0.12)
    axes.legend(**LEGEND)
    return figure


@dataclass(frozen=True)
class Line:
    """Losses of one arm over group sizes, all else equal. Points are rows of report.csv with a `group`."""

    arm: str
    block: str
    other: str
    points: list[dict[str, Any]]

    def name(self, short: bool) -> str:
        """What else is set, or only its precision."""
        own = self.other if self.block == self.arm else f"{self.arm} {self.other}".strip()
        return own.split(",")[0] if short else own


def group_lines(rows: pd.DataFrame, swept: Sequence[str]) -> list[Line]:
    """Every arm and setting that has two group sizes or more, sizes ascending."""
    found: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for row in rows.to_dict("records"):
        group = group_of(row, swept)
        if group is not None:
            points = found.setdefault((row["arm"], row["block"], _other(row, swept)), {})
            points.setdefault(group, {**row, "group": group})
    return [
        Line(*key, [points[group] for group in sorted(points, key=_span)])
        for key, points in found.items()
        if len(points) > 1
    ]


def _other(row: Any, swept: Sequence[str]) -> str:
    """What is set besides group sizes: `int4`."""
    precisions = [row[f"{block}_precision"] for block in BLOCKS if not missing(row[f"{block}_precision"])]
    fields = [name for name in swept if name.split(".")[-1] not in ("group_size", "precision", "name")]
    more = [f"{name.split('.')[-1]} {row[name]}" for name in fields if not missing(row[name])]
    return ", ".join([*dict.fromkeys(precisions), *more])


def _span(size: float) -> float:
    return np.inf if size == -1 else size  # one group a row is the longest


def _nudge(block: str) -> float:
    return {"ffn": -0.05, "attention": 0.05}.get(block, 0.0)


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _whiskers(axes: Axes, at: Any, rows: pd.DataFrame, colour: str, marker: str, label: str, small: bool) -> None:
    loss = rows["loss"].to_numpy(dtype=float)
    low, high = (np.abs(rows[side].to_numpy(dtype=float) - loss) for side in ("loss_lo", "loss_hi"))
    noisy = (rows["below_noise"] == True).to_numpy(dtype=bool)  # noqa: E712  cells may be empty
    axes.errorbar(at, loss, [low, high], fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.5 if small else 0.9)
    face = np.where(noisy, "none", colour)
    axes.scatter(at, loss, s=10 if small else 28, marker=marker, c=face, edgecolors=colour, label=label, zorder=3)


def _loss_axis(axes: Axes, rows: pd.DataFrame, panel: Panel, margin: float) -> None:
    """Zero, the margin of equivalence, and a logarithmic axis where losses span orders of magnitude."""
    sizes = rows["loss"].abs()
    sizes = sizes[sizes > 0]
    if len(sizes) and sizes.max() > WIDE * max(sizes.min(), margin / 2):
        axes.set_yscale("symlog", linthresh=max(margin, float(sizes.min())), linscale=0.5)
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_locator(NullLocator())
    if axes.get_ylim()[0] < 3 * margin:
        axes.axhspan(-margin, margin, color=PALE, lw=0, zorder=0)
        axes.axhline(0, color=SOFT, lw=0.8, zorder=0)
    axes.set_ylabel(f"loss in {panel.metric}" + (f" ({panel.unit})" if panel.unit else ""))
    axes.set_title(panel.title, loc="left", fontweight="bold", pad=24)
    axes.grid(axis="y", color=PALE, lw=0.6, zorder=0)
    axes.set_axisbelow(True)


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
            if ("shapley", "ffn") in panel:
                part = panel["shapley", "ffn"]
                ends = [panel[kind, "ffn"].share if (kind, "ffn") in panel else None for kind in ("alone", "restored")]
                row = ShareRow(names.get(run.id, run.id), part.share, part.share_lo, part.share_hi, *ends, part.reason)
                found.setdefault(part.subset, []).append(row)
    return found


def share_bars(subset: str, rows: Sequence[ShareRow]) -> Figure:
    """A row a setting: the share with its interval, and behind it the span from alone to restored."""
    rows = rows[:MOST_BARS]
    figure = Figure(figsize=(SIZE[0], 1.3 + 0.28 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for n, row in enumerate(rows):
        if row.share is None:
            axes.text(0.02, n, "withheld", va="center", color=SOFT, fontsize=9)
            continue
        if row.alone is not None and row.restored is not None:
            axes.plot([row.alone, row.restored], [n, n], color=BLUE, lw=7, alpha=0.3, solid_capstyle="butt")
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [n, n], color=BLUE, lw=1.4)
        axes.plot(row.share, n, "o", color=BLUE, ms=5)
    axes.set_yticks(range(len(rows)), [row.setting for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(min(0, axes.get_xlim()[0]), max(1, axes.get_xlim()[1]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("FFN's share of the loss; band: alone to restored")
    axes.set_title(subset, loc="left", fontweight="bold")
    axes.grid(axis="x", color=PALE, lw=0.6)
    axes.set_axisbelow(True)
    return figure
