"""Pictures of attribution.csv: where a loss comes from, how sure that is, and where in the model it sits.

    waterfall   base -> ffn -> attention -> interaction -> both, one panel a subset, for two-block designs
    shares      share of each player, between what it costs alone and what restoring it saves
    layers      loss by role (or block) and layer as a heat map; a profile with intervals where there is one row only

Whiskers are the table's intervals. What the table withholds the pictures withhold too, with its reason.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.attribute import Effect
from harness.attribute.shares import NO_SHARE
from harness.attribute.verdict import CONFIRMATORY
from harness.colours import ATTENTION, FFN, INK, INTERACTION, OTHER, PALE, SOFT

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, readable aloud
    "svg.hashsalt": "harness",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
STEPS = [("alone", "ffn"), ("alone", "attention"), ("interaction", "ffn+attention"), ("total", "all")]
LAYER = re.compile(r"(?:(?P<role>.+)\.)?layers\.(?P<layer>\d+(?:-\d+)?)")
MOST_BARS = 24

Panel = dict[tuple[str, str], Effect]  # one subset's effects by kind and player


def draw_all(effects: Sequence[Effect], folder: Path) -> list[Path]:
    """Every picture that the table allows, as PNG and SVG. Returns the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for metric in dict.fromkeys(effect.metric for effect in effects):
        panels = panels_of([effect for effect in effects if effect.metric == metric])
        for name, draw in DRAWINGS.items():
            with matplotlib.rc_context(STYLE):
                figure = draw(panels)
                written += [] if figure is None else _save(figure, folder / f"{name}_{metric}")
    return written


def panels_of(effects: Sequence[Effect]) -> list[Panel]:
    """A panel a subset, the mean over its tasks where there are several; no differences between subsets."""
    pooled = {effect.subset for effect in effects if effect.task == "all"}
    panels: dict[str, Panel] = {}
    for effect in effects:
        if effect.task == "all" or effect.subset not in pooled:
            panels.setdefault(effect.subset, {})[effect.kind, effect.player] = effect
    return [panel for panel in panels.values() if any(kind != "difference" for kind, _ in panel)]


def waterfall(panels: Sequence[Panel]) -> Figure | None:
    """Steps from base to both; None where the design is not of two blocks."""
    chosen = [[panel[step] for step in STEPS] for panel in panels if all(step in panel for step in STEPS)]
    if not chosen:
        return None
    figure, all_axes = _figure(len(chosen), 2.9, 3.6, "Whiskers: interval of the step itself.")
    for axes, steps in zip(all_axes, chosen, strict=True):
        _title(axes, steps[0])
        _draw_steps(axes, steps)
    all_axes[0].set_ylabel(_loss_label(chosen[0][0]))
    return figure


def _draw_steps(axes: Axes, steps: Sequence[Effect]) -> None:
    loss, at = _numbers(steps, "loss"), np.arange(1, 5)
    start = np.array([0, loss[0], loss[0] + loss[1], 0])
    top = start + loss
    axes.axhline(0, color=SOFT, lw=0.8, zorder=1)
    for left, level in enumerate([0, *top[:3]]):
        axes.plot([left - 0.3, left + 1.3], [level, level], color=SOFT, lw=0.8, zorder=1)
    axes.bar(at, loss, bottom=start, width=0.6, color=[FFN, ATTENTION, INTERACTION, SOFT], zorder=2)
    arms = _arms(steps, "loss", "lo", "hi")
    axes.errorbar(at, top, yerr=arms, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3, zorder=3)
    above = np.maximum(top + np.nan_to_num(arms[1]), start)
    for x, y, value in zip(at, above, loss, strict=True):
        axes.annotate(_signed(value), (x, y), (0, 3), textcoords="offset points", ha="center")
    axes.set_xticks(range(5), ["base", "ffn", "attention", "inter-\naction", "both"])
    axes.set_xlim(-0.5, 4.5)
    axes.margins(y=0.12)


def shares(panels: Sequence[Panel]) -> Figure | None:
    """A bar a player: its share with its interval, and below it the span from alone to restored."""
    kind = "owen" if any(kind == "owen" for panel in panels for kind, _ in panel) else "shapley"
    found = dict.fromkeys(player for panel in panels for at, player in panel if at == kind and player != "residual")
    players = [player for player in found if all((kind, player) in panel for panel in panels)]
    if not 1 < len(players) <= MOST_BARS:
        return None
    caption = (
        "Dot and line: share with its interval. Grey band: from what a player costs alone to what restoring it saves."
    )
    figure, all_axes = _figure(len(panels), 3.0, 1.8 + 0.36 * len(players), caption)
    for axes, panel in zip(all_axes, panels, strict=True):
        _title(axes, panel[kind, players[0]])
        _draw_shares(axes, panel, kind, players)
    all_axes[0].set_yticks(range(len(players)), players)
    all_axes[0].invert_yaxis()
    all_axes[0].set_xlabel(f"share of the total loss in {panels[0][kind, players[0]].metric}")
    return figure


def _draw_shares(axes: Axes, panel: Panel, kind: str, players: Sequence[str]) -> None:
    parts = [panel[kind, player] for player in players]
    share, at = _numbers(parts, "share"), np.arange(len(players))
    if np.isnan(share).all():
        axes.text(0.5, 0.5, _why(parts[0].reason), transform=axes.transAxes, ha="center", va="center")
        return
    axes.barh(at, share, height=0.62, color=[_colour(player) for player in players], alpha=0.55, zorder=2)
    arms = _arms(parts, "share", "share_lo", "share_hi")
    axes.errorbar(share, at - 0.12, xerr=arms, fmt="o", color=INK, ms=3, elinewidth=1.2, capsize=2.5, zorder=4)
    for n, player in enumerate(players):
        ends = [panel[end, player] for end in ("alone", "restored") if (end, player) in panel]
        level = [n + 0.18] * len(ends)
        axes.plot(_numbers(ends, "share"), level, color=INK, lw=5, alpha=0.35, solid_capstyle="butt", zorder=3)
    axes.axvline(0, color=SOFT, lw=0.8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(axis="x", color=PALE, lw=0.6, zorder=0)


def layers(panels: Sequence[Panel]) -> Figure | None:
    """Loss by role and layer; None where players are no layers."""
    kind = "shapley" if any(kind == "shapley" for panel in panels for kind, _ in panel) else "alone"
    cells = [
        {_cell(player): effect for (at, player), effect in panel.items() if at == kind and LAYER.fullmatch(player)}
        for panel in panels
    ]
    if not cells or not all(cells):
        return None
    return (_profile if len({role for role, _ in cells[0]}) == 1 else _heat_map)(cells)


def _cell(player: str) -> tuple[str, str]:
    match = LAYER.fullmatch(player)
    assert match is not None
    return match["role"] or "all", match["layer"]


def _profile(panels: Sequence[dict[tuple[str, str], Effect]]) -> Figure:
    """Loss of each layer with its interval."""
    shown = list(panels[0].values())
    figure, all_axes = _figure(len(panels), 4.2, 3.0, f"Effect: {shown[0].kind}. Whiskers: interval.")
    for axes, panel in zip(all_axes, panels, strict=True):
        own, at = list(panel.values()), np.arange(len(panel))
        _title(axes, own[0])
        axes.axhline(0, color=SOFT, lw=0.8)
        arms = _arms(own, "loss", "lo", "hi")
        look = {"fmt": "o", "color": _colour(own[0].player), "ecolor": INK, "ms": 4, "elinewidth": 1, "capsize": 2}
        axes.errorbar(at, _numbers(own, "loss"), arms, **look)
        step = max(1, len(own) // 10)
        axes.set_xticks(at[::step], [layer for _, layer in panel][::step])
        axes.set_xlabel("layer")
    all_axes[0].set_ylabel(_loss_label(shown[0]))
    return figure


def _heat_map(panels: Sequence[dict[tuple[str, str], Effect]]) -> Figure:
    """Loss of each role (or block) in each layer; crossed where its interval includes zero."""
    rows = list(dict.fromkeys(role for role, _ in panels[0]))
    columns = sorted({layer for _, layer in panels[0]}, key=lambda layer: int(layer.partition("-")[0]))
    shown = [effect for panel in panels for effect in panel.values()]
    caption = f"Effect: {shown[0].kind}. Crossed: its interval includes zero."
    figure, all_axes = _figure(len(panels), max(3.0, 1.6 + 0.3 * len(columns)), 1.7 + 0.34 * len(rows), caption)
    loss = _numbers(shown, "loss")
    reach = float(np.abs(loss).max()) or 1.0
    colours, least = ("PuOr_r", -reach) if loss.min() < -0.1 * reach else ("Blues", 0.0)
    for axes, panel in zip(all_axes, panels, strict=True):
        at = {cell: effect.loss for cell, effect in panel.items()}
        grid = np.array([[at.get((row, column), np.nan) for column in columns] for row in rows])  # not in all layers
        image = axes.imshow(grid, cmap=colours, vmin=least, vmax=reach, aspect="auto")
        unsure = [cell for cell, e in panel.items() if e.lo is not None and e.hi is not None and e.lo <= 0 <= e.hi]
        axes.plot([columns.index(c) for _, c in unsure], [rows.index(r) for r, _ in unsure], "x", color=SOFT, ms=4)
        axes.set_xticks(range(len(columns)), columns, rotation=90 if len(columns) > 8 else 0)
        axes.set_xlabel("layer")
        _title(axes, next(iter(panel.values())))
        if axes is all_axes[-1]:
            figure.colorbar(image, ax=all_axes, label=_loss_label(shown[0]), shrink=0.9)
    all_axes[0].set_yticks(range(len(rows)), rows)
    return figure


DRAWINGS: dict[str, Callable[[Sequence[Panel]], Figure | None]] = {
    "waterfall": waterfall,
    "shares": shares,
    "layers": layers,
}


def _figure(count: int, width: float, height: float, caption: str) -> tuple[Figure, list[Axes]]:
    """Axes side by side on common scales, so that subsets can be compared by eye."""
    size = 1.0 + width * count, height
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    figure.supxlabel(_wrapped(caption, int(17 * size[0])), x=0.01, ha="left", fontsize=8, color=SOFT)
    return figure, list(figure.subplots(1, count, sharex=True, sharey=True, squeeze=False)[0])


def _title(axes: Axes, effect: Effect) -> None:
    size = f"{effect.n_items} items, {effect.n_documents} documents"
    size += ", exploratory" if effect.n_documents < CONFIRMATORY else ""
    axes.set_title(effect.subset, loc="left", fontsize=10, fontweight="bold", pad=16)
    axes.text(0, 1.02, size, transform=axes.transAxes, fontsize=8, color=SOFT, va="bottom")


def _numbers(effects: Sequence[Effect], name: str) -> np.ndarray:
    return np.array([getattr(effect, name) for effect in effects], dtype=float)  # None becomes NaN


def _arms(effects: Sequence[Effect], middle: str, low: str, high: str) -> np.ndarray:
    """Lengths of the whiskers below and above, [2, effects]."""
    return np.abs(np.stack([_numbers(effects, low), _numbers(effects, high)]) - _numbers(effects, middle))


def _loss_label(effect: Effect) -> str:
    return "KL(base || arm)" if effect.metric == "kl" else f"loss in {effect.metric} against base"


def _colour(player: str) -> str:
    return FFN if player.startswith("ffn") else ATTENTION if player.startswith("attention") else OTHER


def _signed(value: float) -> str:
    return (f"{value:+.2g}" if abs(value) < 0.1 else f"{value:+.2f}").replace("-", "\N{MINUS SIGN}")


def _why(reason: str) -> str:
    """Why there is no share, in no more words than a small picture holds."""
    said = reason[max(reason.find(NO_SHARE), 0) :]
    return _wrapped(textwrap.shorten(said, 100, placeholder=" ... (all: attribution.csv)"), 28)


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width))


def _save(figure: Figure, stem: Path) -> list[Path]:
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in ("png", "svg")]
    figure.savefig(paths[0], dpi=160)
    figure.savefig(paths[1], metadata={"Date": None})
    return paths
