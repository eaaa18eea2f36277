"""Where nothing was quantized: what base scores. Tables of losses would have no row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.report.markup import Cell, Column, Section, Table, amount, text
from harness.report.numbers import short
from harness.report.rows import Row, grouped
from harness.words import is_noise

MOST_ROWS = 1000  # of a table; report.csv and sweep.csv have all
DIGITS = 5  # papers give perplexities in three, and readers take differences


def only_base(rows: Sequence[Row]) -> bool:
    """Whether rows of report.csv hold base and no arm that is set against it. Not of no rows."""
    return bool(rows) and all(row["arm"] == "base" or is_noise(row["arm"]) for row in rows)


def base_section(rows: Sequence[Row], swept: Sequence[str] = (), groups: Sequence[Row] = ()) -> Section:
    """What base scores, empty unless there is nothing else.

    `rows`: of one run, or of many; `swept`: as columns; `groups`: of groups.csv, means over tasks.
    """
    section = Section("base", "What base scores", "The model as it is: nothing was quantized, so there is no loss.")
    if not only_base(rows):
        return section
    whole, banded = ([row for row in rows if (row["band"] is None) is is_whole] for is_whole in (True, False))
    section.tables = list(_tables("Base, by task and metric", whole, swept))
    section.tables += _tables("Base, means over tasks", groups, swept)
    section.folded = [("By band", [table]) for table in _tables("Base, by band", banded, swept)]
    return section


def _tables(caption: str, rows: Sequence[Row], swept: Sequence[str]) -> Iterator[Table]:
    """A row a task, metric and run; runs of one task and metric stand together. None of no rows."""
    own = [row for row in rows if row["arm"] == "base" and row["metric"] != "kl"]  # kl from itself: 0
    if not own:
        return
    titles = [Column(name) for name in ("task", "metric", *swept)]
    columns = [*titles, Column("value", "number"), Column("unit"), Column("items", "number")]
    together = [row for like in grouped(own, "subset", "task", "band", "metric").values() for row in like]
    note = f"the first {MOST_ROWS} of {len(together)}; all are in the CSV file" if len(together) > MOST_ROWS else ""
    yield Table(caption, columns, [_row(row, swept) for row in together[:MOST_ROWS]], note)


def _row(row: Row, swept: Sequence[str]) -> list[Cell]:
    task = " \N{MIDDLE DOT} ".join(str(row[name]) for name in ("subset", "task", "band") if row[name] is not None)
    settings = [text(row[name]) for name in swept]
    value = amount(row["value"], short(row["value"], DIGITS))
    return [Cell(task), Cell(row["metric"]), *settings, value, Cell(row["unit"] or ""), text(row["n_items"])]
