"""Pictures of a sweep, one panel a task: loss against stored bits, and loss against group size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from harness.colours import ATTENTION, FFN, INK, PALE, SOFT
from harness.report.points import CHOSEN, Panel, front_of, group_of, is_seed, sized
from harness.report.rows import Row, column
from harness.scheme import BLOCKS

COLOURS = {"ffn": FFN, "attention": ATTENTION, "both": INK}
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
IN_LABEL = (".group_size", ".precision")
MARKERS = "osD^vPX"
SIZE = (4.6, 3.4)  # inches; a panel fills a phone's width
WIDE = 12.0  # largest over smallest loss, from where the axis becomes logarithmic
MOST_SERIES = 12  # lines that an eye can tell apart, three blocks in four styles
MOST_LINES = 150
MANY_POINTS, MOST_POINTS = 40, 400  # from where points get small, and how many are drawn


def loss_against_bits(panel: Panel, margin: float) -> Figure:
    """Every setting's loss with its interval over bits a weight; the Pareto front as a line with numbered points.

    Of very many settings the front and an even choice of the others are drawn.
    """
    figure, axes = _axes()
    front, rows = front_of(panel), sized(panel.rows)
    rows = [*front, *[row for row in rows if row not in front][:: 1 + len(rows) // MOST_POINTS]]
    for block in COLOURS:
        own = [row for row in rows if row["block"] == block]
        if own:
            at = column(own, "bits_per_weight")
            _whiskers(axes, at, own, COLOURS[block], "o", block, small=len(rows) > MANY_POINTS)
    axes.step(
        column(front, "bits_per_weight"),
        column(front, "loss"),
        where="post",
        color=SOFT,
        lw=1.2,
        zorder=1,
        label="front",
    )
    _loss_axis(axes, rows, panel, margin)
    _number_points(axes, front)
    axes.set_xlabel("bits per weight of the block matrices")
    axes.legend(**LEGEND)
    return figure


def _number_points(axes: Axes, front: Sequence[Row]) -> None:
    """Numbers beside the front's points, as in the table; where they would overlap, the later one is left out."""
    taken: list[np.ndarray] = []
    for n, row in enumerate(front, start=1):
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
        axes.plot(at, column(line.points, "loss"), **style)
        if not crowded:
            marker = MARKERS[names.index(line.name(crowded)) % len(MARKERS)]
            _whiskers(axes, at, line.points, COLOURS[line.block], marker, "", small=False)
    for name in names:
        ends = [line.points[-1] for line in lines if line.name(crowded) == name]
        height = float(np.median([end["loss"] for end in ends]))
        axes.annotate(name, (sizes.index(ends[0]["group"]) + 0.12, height), **BESIDE)
    for block in blocks:
        axes.plot([], [], color=COLOURS[block], marker="" if crowded else "o", lw=1.2, label=block)
    axes.set_xticks(range(len(sizes)), ["row" if size == -1 else str(size) for size in sizes])
    axes.set_xlabel("weights that share a scale")
    _loss_axis(axes, [point for line in lines for point in line.points], panel, margin)
    axes.margins(x=0.12)
    axes.legend(**LEGEND)
    return figure


@dataclass(frozen=True)
class Line:
    """Losses of one arm over group sizes, all else equal. Points are rows of report.csv with a `group`."""

    arm: str
    block: str
    other: str
    points: list[Row]

    def name(self, short: bool) -> str:
        """What else is set, or only its precision."""
        own = self.other if self.block == self.arm else f"{self.arm} {self.other}".strip()
        return own.split(",")[0] if short else own


def group_lines(rows: Sequence[Row], swept: Sequence[str]) -> list[Line]:
    """Every arm and setting that has two group sizes or more, sizes ascending."""
    found: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in rows:
        group = group_of(row, swept)
        if group is not None:
            points = found.setdefault((row["arm"], row["block"], _other(row, swept)), {})
            points.setdefault(group, {**row, "group": group})
    return [
        Line(*key, [points[group] for group in sorted(points, key=_span)])
        for key, points in found.items()
        if len(points) > 1
    ]


def _other(row: Row, swept: Sequence[str]) -> str:
    """What is set besides group sizes: `int4`."""
    precisions = [row[f"{block}_precision"] for block in BLOCKS if row[f"{block}_precision"] is not None]
    fields = [name for name in swept if name.startswith(CHOSEN) and not name.endswith(IN_LABEL) and not is_seed(name)]
    more = [f"{name.split('.')[-1]} {row[name]}" for name in fields if row[name] is not None]
    return ", ".join([*dict.fromkeys(precisions), *more])


def _span(size: float) -> float:
    return np.inf if size == -1 else size  # one group a row is the longest


def _nudge(block: str) -> float:
    return {"ffn": -0.05, "attention": 0.05}.get(block, 0.0)


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _whiskers(
    axes: Axes, at: Sequence[float], rows: Sequence[Row], colour: str, marker: str, label: str, small: bool
) -> None:
    loss, low, high = (np.array(column(rows, name), dtype=float) for name in ("loss", "loss_lo", "loss_hi"))
    arms = np.abs(np.stack([low, high]) - loss)
    axes.errorbar(at, loss, arms, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.5 if small else 0.9)
    face = ["none" if row["below_noise"] else colour for row in rows]
    axes.scatter(at, loss, s=10 if small else 28, marker=marker, c=face, edgecolors=colour, label=label, zorder=3)


def _loss_axis(axes: Axes, rows: Sequence[Row], panel: Panel, margin: float) -> None:
    """Zero, the margin of equivalence, and a logarithmic axis where losses span orders of magnitude."""
    sizes = [abs(row["loss"]) for row in rows if row["loss"]]
    if sizes and max(sizes) > WIDE * max(min(sizes), margin / 2):
        axes.set_yscale("symlog", linthresh=max(margin, min(sizes)), linscale=0.5)
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_locator(NullLocator())
    if axes.get_ylim()[0] < 3 * margin:
        axes.axhspan(-margin, margin, color=PALE, lw=0, zorder=0)
        axes.axhline(0, color=SOFT, lw=0.8, zorder=0)
    axes.set_ylabel(f"loss in {panel.metric}" + (f" ({panel.unit})" if panel.unit else ""))
    axes.set_title(panel.title, loc="left", fontweight="bold", pad=24)
    axes.grid(axis="y", color=PALE, lw=0.6, zorder=0)
    axes.set_axisbelow(True)
