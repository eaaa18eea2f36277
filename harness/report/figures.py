"""Pictures for pages and files: one look, from attribution's pictures, and SVG that takes the page's colours.

A picture goes into a page as inline SVG whose colours are the page's variables, so that it follows light and dark; its
text stays text. The same figure is written beside the page as PNG and SVG for papers and slides.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from harness.colours import ATTENTION, FFN, INK, INTERACTION, OTHER, PALE, SOFT
from harness.files import write_atomic, write_text
from harness.report.attribution_plots import STYLE

PAGE_COLOURS = {
    INK: "ink",
    SOFT: "soft",
    PALE: "line",
    FFN: "ffn",
    ATTENTION: "attention",
    INTERACTION: "interaction",
    OTHER: "other",
    "#000000": "ink",
}
LOOK: dict[Any, Any] = STYLE | {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.linewidth": 0.8,
    "savefig.dpi": 160,
    "text.parse_math": False,
}
FONT = re.compile(r"'DejaVu Sans'[^;\"]*sans-serif")
ID = re.compile(r' id="([^"]+)"')


@dataclass(frozen=True)
class Picture:
    """A figure in a page: its name (and file stem), what it shows in words, a caption, and the inline SVG."""

    name: str
    alt: str
    caption: str
    svg: Markup


def picture(
    draw: Callable[[], Figure | None], name: str, alt: str, caption: str = "", folder: Path | None = None
) -> Picture | None:
    """Draw for a page, and as PNG and SVG into a folder where one is given; nothing where there is nothing to draw."""
    with matplotlib.rc_context(LOOK):
        figure = draw()
        if figure is None:
            return None
        svg = _svg(figure)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / f"{name}.svg", svg)
            write_atomic(folder / f"{name}.png", lambda aside: figure.savefig(aside, format="png"))
        return Picture(name, alt, caption, inline(svg, name, alt))


def _svg(figure: Figure) -> str:
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return stream.getvalue()


def inline(svg: str, name: str, alt: str) -> Markup:
    """An SVG file as an element of a page: in the page's colours and font, with ids of its own."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for colour, variable in PAGE_COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    svg = FONT.sub("sans-serif", svg)
    width, height = (float(size) for size in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    opening = (
        f'<svg role="img" aria-label="{escape(alt)}" viewBox="0 0 {width:g} {height:g}" '
        f'style="max-width:{width * 4 / 3:.0f}px" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return Markup(_own_ids(opening + svg[svg.index(">") + 1 :], name))


def _own_ids(svg: str, name: str) -> str:
    """Ids that something refers to get the picture's name in front; all others go."""
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', svg))
    prefix = re.sub(r"\W+", "-", name)
    svg = ID.sub(lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", svg)
    return re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{prefix}-", svg)


def file_stem(*parts: str) -> str:
    """A name for a file from words of any kind."""
    return "_".join(re.sub(r"\W+", "-", part, flags=re.ASCII).strip("-").lower() or "x" for part in parts)
