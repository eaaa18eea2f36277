"""What another draw of calibration text would have given: the spread of a loss over `calib.seeds`.

The interval of a row resamples what was scored; the calibration text stays fixed in it. With several draws every
calibrated arm comes once a draw (`ffn`, `ffn@1`, `ffn@2`), and the spread between them is the part no interval sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from harness.report.markup import Cell, Column, Table, amount
from harness.report.numbers import number
from harness.report.rows import Row, grouped
from harness.words import DRAW


@dataclass(frozen=True)
class Spread:
    """An arm's loss over its calibration draws."""

    subset: str
    task: str
    metric: str
    arm: str
    losses: tuple[float, ...]

    @property
    def deviation(self) -> float:
        """Standard deviation between draws."""
        return stdev(self.losses)


def spreads(rows: Sequence[Row]) -> list[Spread]:
    """Of every arm with more than one draw. `rows`: of report.csv; bands are left out."""
    found = []
    whole = [row | {"name": row["arm"].partition(DRAW)[0]} for row in rows if row["band"] is None]
    for own in grouped(whole, "subset", "task", "metric", "name").values():
        first, losses = own[0], tuple(row["loss"] for row in own if row["loss"] is not None)
        if len(losses) > 1:
            found.append(Spread(first["subset"], first["task"], first["metric"], first["name"], losses))
    return found


def spread_table(found: Sequence[Spread]) -> Table:
    """One row an arm and metric."""
    columns = [Column("task"), Column("metric"), Column("arm")]
    columns += [Column(name, "number") for name in ("draws", "mean", "deviation", "least", "most")]
    return Table("Loss over calibration draws", columns, [_row(one) for one in found])


def _row(one: Spread) -> list[Cell]:
    figures = (fmean(one.losses), one.deviation, min(one.losses), max(one.losses))
    cells = [amount(figure, number(figure, 4, signed=n != 1)) for n, figure in enumerate(figures)]
    return [Cell(f"{one.subset} {one.task}"), Cell(one.metric), Cell(one.arm), Cell(str(len(one.losses))), *cells]
