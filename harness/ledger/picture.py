"""A stacked-bar picture by role: gigabytes of one model under the four plans, or shares of several models."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.colours import ROLES
from harness.ledger.config import LedgerOptions
from harness.ledger.params import totals
from harness.ledger.shape import Shape
from harness.ledger.storage import plan_schemes, stored_bits, tables_bytes

LATENT = {"q_a": "q", "q_b": "q", "kv_a": "k", "kv_b": "v"}  # latent attention's halves beside what they replace

WIDTH = 0.55  # of a bar
VISIBLE = 0.004  # of the tallest bar: what is thinner is left out

Bars = dict[str, dict[str, float]]


def _key(block: str, role: str) -> str:
    return f"{block} {LATENT.get(role, role)}"


def plan_bars(shape: Shape, options: LedgerOptions) -> Bars:
    """Gigabytes by role under each plan of the 2 x 2."""
    bars: Bars = {}
    for plan, schemes in plan_schemes(options).items():
        bar = dict.fromkeys(ROLES, 0.0)
        for m in shape.matrices:
            bits = m.count * stored_bits(m.out_features, m.in_features, schemes.get(m.block))
            bar[_key(m.block, m.role)] += bits / 8 / 1e9
        bar["embedding"] = tables_bytes(shape, None) / 1e9
        bar["other"] = 2 * totals(shape)["other"] / 1e9
        bars[_label(plan, options)] = bar
    return bars


def _label(plan: str, options: LedgerOptions) -> str:
    return "16 bit" if plan == "base" else f"{plan}\n{options.plan_precision} g{options.plan_group_size}"


def share_bars(shapes: list[Shape]) -> Bars:
    """Percent of all parameters by role, one bar a model."""
    bars: Bars = {}
    for shape in shapes:
        total, bar = totals(shape), dict.fromkeys(ROLES, 0.0)
        for m in shape.matrices:
            bar[_key(m.block, m.role)] += 100 * m.weights / total["all"]
        bar["embedding"], bar["other"] = (100 * total[name] / total["all"] for name in ("embedding", "other"))
        bars[shape.name] = bar
    return bars


def draw(bars: Bars, unit: str, title: str) -> Figure:
    """Stacked bars, FFN at the bottom, each block's sum beside them."""
    figure = Figure(figsize=(2.4 + 1.5 * len(bars), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    tallest = max(sum(bar.values()) for bar in bars.values())
    bottoms = [0.0] * len(bars)
    for role, colour in ROLES.items():
        heights = [bar[role] for bar in bars.values()]
        if max(heights) > VISIBLE * tallest:
            axes.bar(list(bars), heights, WIDTH, bottoms, color=colour, label=role, edgecolor="white", linewidth=0.3)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    for x, bar in enumerate(bars.values()):
        _write_sums(axes, x, bar, tallest)
    axes.set(ylabel=unit, title=title, xlim=(-0.5, len(bars) - 0.2))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0, labelsize=8)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
    return figure


def _write_sums(axes: Axes, x: int, bar: dict[str, float], tallest: float) -> None:
    bottom = 0.0
    for block, role in (("ffn", "ffn up"), ("attention", "attention k")):
        height = sum(value for name, value in bar.items() if name.startswith(block))
        if height > VISIBLE * tallest:
            place = {"ha": "left", "va": "center", "fontsize": 7.5, "color": ROLES[role]}
            axes.text(x + WIDTH / 2 + 0.03, bottom + height / 2, f"{block}\n{height:.3g}", **place)
        bottom += height


def save(figure: Figure, stem: str) -> list[Path]:
    """Write PNG and SVG beside each other."""
    folder = Path(stem).expanduser().parent
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{Path(stem).name}.{ending}" for ending in ("png", "svg")]
    figure.savefig(paths[0], dpi=160)
    figure.savefig(paths[1], metadata={"Date": None})
    return paths
