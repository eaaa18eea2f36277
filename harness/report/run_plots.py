"""Pictures of one run: attribution by subset, and the error of its weights by role and layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.attribute import Effect
from harness.report.attribution_plots import Panel, draw_all, layers, panels_of, shares, waterfall
from harness.report.figures import Picture, file_stem, picture
from harness.report.numbers import interval, number, percent
from harness.report.rows import Row, column, grouped, mean

Drawing = Callable[[Sequence[Panel]], Figure | None]
ERROR = "relative_weight_error"
MOST_TICKS = 16


def attribution_pictures(effects: Sequence[Effect], folder: Path) -> list[list[Picture]]:
    """What the effects of one metric allow: for the page one panel a subset, into the folder all subsets together."""
    if effects:
        draw_all(effects, folder)
    told = {effect.subset for effect in effects if effect.share is not None}
    by_draw = {waterfall: effects, shares: [e for e in effects if e.subset in told], layers: effects}
    return [row for row in (subset_pictures(own, draw) for draw, own in by_draw.items()) if row]


def subset_pictures(
    effects: Sequence[Effect], draw: Drawing, name: str = "", caption: str = "", folder: Path | None = None
) -> list[Picture]:
    """One kind of picture for each subset, as far as the design has it."""
    found = []
    for panel in panels_of(effects):
        subset = next(iter(panel.values())).subset
        stem = file_stem(draw.__name__, name, subset)
        found.append(picture(partial(draw, [panel]), stem, f"{subset}: {in_words(panel)}", caption, folder))
    return [one for one in found if one is not None]


def in_words(panel: Panel) -> str:
    """Total and parts, for those who do not see the picture."""
    words = []
    for (kind, player), effect in panel.items():
        if kind in ("total", "shapley", "interaction"):
            share = f", {percent(effect.share)} of the total" if effect.share is not None else ""
            bounds = interval(effect.lo, effect.hi)
            words.append(f"{kind} {player} {number(effect.loss, signed=True)} {bounds}".rstrip() + share)
    return "; ".join(words[:12]) or "loss by player"


def error_map(sites: Sequence[Row]) -> Figure:
    """Relative weight error as a heat map, roles by layers; the mean where a role has several matrices in a layer."""
    cells = {key: mean(column(own, ERROR)) for key, own in grouped(sites, "block", "role", "layer").items()}
    roles = list(dict.fromkeys(key[:2] for key in cells))
    depths = sorted({int(site["layer"]) for site in sites})
    grid = np.array([[cells.get((*role, layer)) for layer in depths] for role in roles], dtype=float)
    figure = Figure(figsize=(4.6, 1.3 + 0.3 * len(roles)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    least, most = np.nanmin(grid), np.nanmax(grid)
    image = axes.imshow(grid, cmap="Blues", aspect="auto", vmin=min(least, most / 2))
    axes.set_yticks(range(len(roles)), [f"{block} {role}" for block, role in roles])
    step = -(-len(depths) // MOST_TICKS)
    axes.set_xticks(range(0, len(depths), step), [str(layer) for layer in depths[::step]])
    axes.set_xlabel("layer")
    figure.colorbar(image, ax=axes, label="relative weight error")
    return figure
