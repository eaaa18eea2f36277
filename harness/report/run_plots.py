"""Pictures of one run: attribution by subset, and the error of its weights by role and layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.attribute import Effect
from harness.report.attribution_plots import Panel, draw_all, layers, panels_of, shares, waterfall
from harness.report.figures import Picture, file_stem, picture
from harness.report.numbers import interval, number, percent

Drawing = Callable[[Sequence[Panel]], Figure | None]
MOST_TICKS = 16


def attribution_pictures(effects: Sequence[Effect], folder: Path) -> list[list[Picture]]:
    """What the effects of one metric allow: for the page one panel a subset, into the folder all subsets together."""
    if effects:
        draw_all(effects, folder)
    return [row for row in (subset_pictures(effects, draw) for draw in (waterfall, shares, layers)) if row]


def subset_pictures(effects: Sequence[Effect], draw: Drawing, name: str = "", caption: str = "") -> list[Picture]:
    """One kind of picture for each subset, as far as the design has it."""
    found = []
    for panel in panels_of(effects):
        subset = next(iter(panel.values())).subset
        stem = file_stem(draw.__name__, name, subset)
        found.append(picture(partial(draw, [panel]), stem, f"{subset}: {in_words(panel)}", caption))
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


def error_map(sites: pd.DataFrame) -> Figure:
    """Relative weight error as a heat map, roles by layers; the mean where a role has several matrices in a layer."""
    named = sites.assign(name=sites["block"] + " " + sites["role"])
    grid = named.pivot_table(index="name", columns="layer", values="relative_weight_error", sort=False)
    grid = grid[sorted(grid.columns)]
    figure = Figure(figsize=(4.6, 1.3 + 0.3 * len(grid)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(grid.to_numpy(dtype=float), cmap="Blues", aspect="auto", vmin=0)
    axes.set_yticks(range(len(grid)), [str(name) for name in grid.index])
    step = -(-len(grid.columns) // MOST_TICKS)
    axes.set_xticks(range(0, len(grid.columns), step), [str(layer) for layer in grid.columns[::step]])
    axes.set_xlabel("layer")
    figure.colorbar(image, ax=axes, label="relative weight error")
    return figure
