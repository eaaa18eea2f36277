"""Pages from templates: tables of typed cells, intervals drawn in them, everything in one file.

A page needs no network: style, script and pictures are inside. Whatever comes from results is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.files import write_text
from harness.report import numbers
from harness.report.figures import Picture
from harness.report.numbers import Scale, missing


@dataclass(frozen=True)
class Drawn:
    """An interval as marks in a cell, in percent of its width. No ends: a dot alone."""

    at: float
    low: float | None
    high: float | None
    block: str


@dataclass(frozen=True)
class Cell:
    """What a cell says; `sort` where its text does not sort by itself; `link` is relative to the page."""

    text: str = ""
    sort: float | None = None
    drawn: Drawn | None = None
    link: str = ""


@dataclass(frozen=True)
class Column:
    """A column's title and kind: `text`, `number` or `drawn`, which takes a scale."""

    title: str
    kind: str = "text"
    scale: Scale | None = None


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first cell of a row is its header. `margin`: the band of equivalence in drawn cells."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    margin: float = 0.0


@dataclass
class Section:
    """A part of a page. Folded ones open on demand."""

    id: str
    title: str
    intro: str = ""
    lead: str = ""
    lines: list[str] = field(default_factory=list)
    pictures: list[list[Picture]] = field(default_factory=list)  # in rows
    tables: list[Table] = field(default_factory=list)
    folded: list[tuple[str, list[Table]]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.lead or self.lines or self.pictures or self.tables or self.folded)


def text(value: Any) -> Cell:
    """Words, or a number in short."""
    return Cell(numbers.short(value), None if isinstance(value, str) or missing(value) else float(value))


def amount(value: Any, shown: str) -> Cell:
    """A number shown in its own way, sorted by its value."""
    return Cell(shown, None if missing(value) else float(value))


def drawn(scale: Scale, value: Any, low: Any, high: Any, block: str) -> Cell:
    """An interval on a scale; nothing where the value is missing."""
    if missing(value):
        return Cell()
    first, last = (None if missing(end) else scale.place(end) for end in (low, high))
    return Cell(sort=float(value), drawn=Drawn(scale.place(value), first, last, block))


@cache
def environment() -> Environment:
    """Templates of the package; an undefined name is an error."""
    loader = PackageLoader("harness.report", "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["number"] = numbers.number
    return made


def write_page(path: Path, **context: Any) -> Path:
    """Render `page.html` into a file, whole or not at all."""
    write_text(path, environment().get_template("page.html").render(**context))
    return path
