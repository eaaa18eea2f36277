"""Rows of result tables as plain dictionaries: what pages, pictures and advice are made from. None is an empty cell."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pandas as pd

Row = dict[str, Any]


def records(frame: pd.DataFrame) -> list[Row]:
    """Rows of a table; whole numbers stay whole, empty cells become None."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [{str(name): cell for name, cell in row.items()} for row in plain.to_dict("records")]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Hashable, ...], list[Row]]:
    """Rows by the cells of some columns, in order of appearance."""
    found: dict[tuple[Hashable, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) for name in names), []).append(row)
    return found


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    """The cells of a column, each once, without empty ones."""
    return list(dict.fromkeys(row[name] for row in rows if row.get(name) is not None))


def column(rows: Iterable[Row], name: str) -> list[Any]:
    """A column's cells."""
    return [row.get(name) for row in rows]


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what is known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
