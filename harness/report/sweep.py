"""Many runs as one table: all rows of all runs, a column per swept setting, and the rule of what may be subtracted.

Losses of two runs may be set against each other only where they were scored alike. `comparable` refuses where
protocol, data or template differ and names the field; `cohorts` numbers the groups within which it would not refuse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.errors import UserError
from harness.report.rows import Row, grouped, records
from harness.report.runs import Run, flat, settings_of
from harness.report.stored import COLUMNS, WHOLE_NUMBERS

MADE_WITH = ("protocol", "data_hash", "template_hash")
ABSENT = object()


def swept_fields(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings with several values, in the order of the configuration.

    A setting that an older version does not know is not swept by that alone. What follows from the model's name (path,
    shape) is left out beside it.
    """
    settings = [settings_of(config) for config in configs]
    names = dict.fromkeys(name for own in settings for name in own)
    swept = [name for name in names if _values(settings, name) > 1 and name != "experiment"]
    return [name for name in swept if not _follows(settings, name, "model.name")]


def _values(settings: Sequence[Mapping[str, Any]], name: str) -> int:
    return len({_key(s[name]) for s in settings if s.get(name, ABSENT) is not ABSENT})


def _key(value: Any) -> tuple[str, str]:
    return type(value).__name__ if isinstance(value, bool) else "", str(value)


def _follows(settings: Sequence[Mapping[str, Any]], name: str, other: str) -> bool:
    """Whether `other` tells the value of `name`, as a model's name tells its path."""
    if name == other or name.split(".")[0] != other.split(".")[0]:
        return False
    pairs = {(_key(s.get(other)), _key(s[name])) for s in settings if name in s}
    return len(pairs) == len({first for first, _ in pairs})


def swept_settings(runs: Sequence[Run]) -> pd.DataFrame:
    """A row per run, in their order, and a column per swept setting; whole numbers stay whole beside empty cells."""
    fields = swept_fields([run.config for run in runs])
    settings = [settings_of(run.config) for run in runs]
    columns = {name: pd.Series([s.get(name) for s in settings], dtype=object) for name in fields}
    return pd.DataFrame(columns, index=range(len(runs)))


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Runs by their swept settings, then by run_id: the same order whatever became of them first."""
    swept = swept_settings(runs)

    def rank(n: int) -> list[tuple[int, float, str]]:
        return [_rank(value) for value in swept.iloc[n]] + [(0, 0.0, runs[n].id)]

    return [runs[n] for n in sorted(range(len(runs)), key=rank)]


def _rank(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float("inf") if value == -1 else float(value), ""  # -1: one group a row, the longest of all
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


def sweep_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """Rows of all runs in the columns of report.csv, then one column per swept setting.

    A failed or incomplete run is one row with its status, reason and settings.
    """
    swept = swept_settings(runs)
    parts = []
    for n, run in enumerate(runs):
        part = run.report if len(run.report) else _no_result(run)
        parts.append(part.assign(**{name: [value] * len(part) for name, value in swept.iloc[n].items()}))
    frame = pd.concat([part.dropna(axis=1, how="all") for part in parts], ignore_index=True)
    more = [name for name in frame if name not in COLUMNS and name not in swept]
    frame = frame.reindex(columns=[*COLUMNS, *more, *swept.columns])
    return frame.astype({name: "Int64" for name in WHOLE_NUMBERS if name in frame})


def _no_result(run: Run) -> pd.DataFrame:
    cells = {
        "experiment": run.experiment,
        "run_id": run.id,
        "model": run.setting("model.name"),
        "config": json.dumps(run.config, sort_keys=True) if run.config else None,
        "status": run.status,
        "reason": " ".join(run.reason.split()),
    }
    return pd.DataFrame([cells])


def comparable(rows: pd.DataFrame | Sequence[Row]) -> None:
    """UserError where rows of one task were not scored alike: their losses must not be subtracted."""
    plain = records(rows) if isinstance(rows, pd.DataFrame) else rows
    for own in grouped(plain, "subset", "task").values():
        for row in own[1:]:
            refuse_unlike(own[0], row)


def refuse_unlike(first: Row, second: Row) -> None:
    """UserError where two rows of one task were not scored alike; it names what differs."""
    for name in MADE_WITH:
        a, b = (_cell(row, name) for row in (first, second))
        if a != b:
            raise UserError(
                f"{first['subset']}/{first['task']}: runs {first['run_id']} and {second['run_id']} differ in "
                f"{_difference(name, a, b)}. Their losses are not compared; score both alike, or report them apart."
            )


def _difference(name: str, first: str, second: str) -> str:
    """`protocol.window (1024 and 2048)`."""
    try:
        a, b = dict(flat(json.loads(first))), dict(flat(json.loads(second)))
    except (ValueError, AttributeError):
        return f"{name} ({first or 'none'} and {second or 'none'})"
    keys = [key for key in {**a, **b} if a.get(key, ABSENT) != b.get(key, ABSENT)]
    return ", ".join(f"{name}.{key} ({a.get(key, 'absent')} and {b.get(key, 'absent')})" for key in keys)


def _cell(row: Row, name: str) -> str:
    return "" if row.get(name) is None else str(row[name])


def cohorts(rows: Sequence[Row]) -> list[int]:
    """For each row the number of its group among rows of the same model, subset and task scored alike: 0, 1, ..."""
    seen: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
    numbers = []
    for row in rows:
        groups = seen.setdefault(tuple(_cell(row, name) for name in ("model", "subset", "task")), {})
        numbers.append(groups.setdefault(tuple(_cell(row, name) for name in MADE_WITH), len(groups)))
    return numbers
