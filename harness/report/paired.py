"""The loss of one setting against another's, from two runs that scored the same items.

Each is a distance from the unquantized model; their difference, item by item, has a far narrower interval than the two
losses side by side suggest, because documents that are hard for one setting are hard for the other. Runs that were
scored otherwise are refused, not subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.attribute import paired_loss
from harness.errors import UserError
from harness.report.rows import Row, records
from harness.report.runs import NoItemsError, Run
from harness.report.sweep import refuse_unlike
from harness.words import LOWER_IS_BETTER

RESAMPLES = 2000


@dataclass(frozen=True)
class Difference:
    """How much more the first setting loses than the second. NaN bounds: one document, or none that differ."""

    loss: float
    low: float
    high: float

    @property
    def word(self) -> str:
        """What the interval says of the first against the second."""
        if np.isnan(self.low) or self.low <= 0 <= self.high:
            return "undecided"
        return "more" if self.low > 0 else "less"


def difference(first: Run, second: Run, row: Row, other: Row) -> Difference:
    """Loss of `row` (of the first run) less that of `other` (of the second), paired by item; rows of report.csv.

    NoItemsError where their items are not there or not the same; UserError where the runs were scored otherwise, or
    items do not give what is reported.
    """
    refuse_unlike(row, other)
    own, theirs = _scored(first, row), _scored(second, other)
    if own.labels != theirs.labels:
        raise NoItemsError(f"{row['subset']}/{row['task']}: runs {first.id} and {second.id} scored other items")
    loss, low, high, _ = paired_loss(
        theirs.loss_N,
        own.loss_N,
        [document for document, _ in own.labels],
        higher_is_better=False,
        resamples=RESAMPLES,
        seed=0,
        level=first.setting("attribute.level", 0.95),
        weights_N=own.weight_N,
    )
    return Difference(loss, low, high)


@dataclass(frozen=True)
class _Scored:
    """Losses of one arm by item."""

    labels: list[tuple[str, str]]  # document, item
    loss_N: np.ndarray
    weight_N: np.ndarray


def _scored(run: Run, row: Row) -> _Scored:
    """Loss and weight of each item of a row of report.csv: of the whole task, whose mean is without controls."""
    base, arm = (run.items.get((row["subset"], row["task"], row["metric"], name)) for name in ("base", row["arm"]))
    if base is None or arm is None or _labels(base) != _labels(arm):
        raise NoItemsError(f"{run.path / 'items.parquet'}: arm {row['arm']} did not score the items of base")
    base, arm = _of_task(base), _of_task(arm)
    change_N = arm["value"].to_numpy(dtype=float) - base["value"].to_numpy(dtype=float)
    return _Scored(_labels(arm), _sign(run, row) * change_N, _weights(run, row, arm))


def _of_task(items: pd.DataFrame) -> pd.DataFrame:
    """All items but controls, as far as they are marked."""
    return items.loc[~items["control"]] if "control" in items else items


def _labels(items: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(items["doc_id"], items["item_id"], strict=True))


def _sign(run: Run, row: Row) -> int:
    """-1 where higher is better: the report's loss then has the other sign than its change of value.

    A row whose value is base's does not tell; then another row of the same metric does, or else the metric's name.
    """
    report = run.report
    same = report.loc[(report["task"] == row["task"]) & (report["metric"] == row["metric"])]
    for own in (row, *records(same)):
        if own["loss"] and (change := own["value"] - own["base_value"]):
            return -1 if abs(own["loss"] + change) < abs(own["loss"] - change) else 1
    return 1 if row["metric"] in LOWER_IS_BETTER else -1


def _weights(run: Run, row: Row, arm: pd.DataFrame) -> np.ndarray:
    """Items weigh the same, or by their tokens: whichever gives the value that the report has.

    Where a file does not mark controls neither may: then its task's own items are not known.
    """
    values = arm["value"].to_numpy(dtype=float)
    for weight in (np.ones(len(arm)), arm["n_tokens"].to_numpy(dtype=float)):
        if weight.sum() > 0 and np.isclose(np.average(values, weights=weight), row["value"], rtol=1e-6, atol=1e-9):
            return weight
    error = UserError if "control" in arm else NoItemsError
    raise error(f"{run.path / 'items.parquet'}: its items do not give the value in report.csv")
