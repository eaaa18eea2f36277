"""Run folders as reports see them: done, failed or incomplete. Reads files, computes nothing, needs no model.

    result.json   done. Written last; the sizes of the files it names must be those on disk
    failed.json   failed: {"reason": ..., "config": {...}}, in the folder or in its newest attempt
    neither       incomplete: begun, and killed or still at work. Its tables are never read

A done run speaks for its configuration: a failure or a killed start with the same settings is not listed beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from harness.attribute import Effect, read_effects
from harness.errors import UserError
from harness.files import RunFolder, read_object
from harness.report.stored import read_report

DONE, FAILED, INCOMPLETE = "done", "failed", "incomplete"
# How a run behaves and what it may take, not what it computes.
NOT_SETTINGS = ("harness", "outputs", "engine.memory_gib", "engine.head_tokens", "calib.keep")


class NoItemsError(UserError):
    """What was scored item by item is not there, or not of the same items: there is nothing to pair."""


@dataclass(frozen=True)
class Run:
    """One run folder. `result` is empty unless the run is done."""

    path: Path
    status: str
    reason: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """run_id."""
        return self.path.name

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return str(self.config.get("experiment") or self.path.parent.name)

    @cached_property
    def report(self) -> pd.DataFrame:
        """report.csv; empty unless the run is done."""
        return self._table("report.csv")

    @cached_property
    def effects(self) -> list[Effect]:
        """attribution.csv; empty where there is none."""
        path = self.path / "attribution.csv"
        return read_effects(path) if self.status == DONE and path.is_file() else []

    @cached_property
    def sites(self) -> pd.DataFrame:
        """sites.csv; empty where there is none."""
        return self._table("sites.csv")

    @cached_property
    def groups(self) -> pd.DataFrame:
        """groups.csv, in the columns of report.csv; empty where no tasks make a group."""
        return self._table("groups.csv")

    @cached_property
    def sensitivity(self) -> pd.DataFrame:
        """sensitivity.csv; empty where there is none."""
        return self._table("sensitivity.csv")

    @cached_property
    def items(self) -> dict[tuple[str, str, str, str], pd.DataFrame]:
        """items.parquet: doc_id, item_id, value, n_tokens, control of every item, by (subset, task, metric, arm).

        Files of before controls were marked lack that column. NoItemsError where it cannot be read.
        """
        path, keys = self.path / "items.parquet", ["subset", "task", "metric", "arm"]
        try:
            table = pd.read_parquet(path)
            marks = [name for name in table if name == "control"]
            groups: Any = table[[*keys, "doc_id", "item_id", "value", "n_tokens", *marks]].groupby(keys, sort=False)
        except (OSError, ValueError, KeyError) as error:
            raise NoItemsError(f"{path}: cannot be read ({error})") from error
        return {(a, b, c, d): own for (a, b, c, d), own in groups}

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting by its dotted name."""
        value: Any = self.config
        for key in name.split("."):
            if not isinstance(value, dict) or key not in value:
                return default
            value = value[key]
        return value

    def _table(self, name: str) -> pd.DataFrame:
        path = self.path / name
        return read_report(path) if self.status == DONE and path.is_file() else pd.DataFrame()


def is_run_folder(folder: Path) -> bool:
    """Whether a run left something here."""
    return any((folder / name).exists() for name in ("result.json", "failed.json", "attempts"))


def read_run(folder: Path) -> Run:
    """What became of one run."""
    result = RunFolder(folder).result()
    if result is not None and result.get("status") == DONE:
        return _checked(Run(folder, DONE, config=result.get("config") or {}, result=result))
    newest = _newest_attempt(folder)
    failure = result or read_object(folder / "failed.json") or (read_object(newest / "failed.json") if newest else {})
    config = failure.get("config") or (read_object(newest / "config.json") if newest else {})
    if failure:
        return Run(folder, FAILED, str(failure.get("reason") or "no reason was kept"), config)
    return Run(folder, INCOMPLETE, _unfinished(folder), config)


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """All runs in and below some folders. UserError where there is none."""
    found = {folder.resolve(): read_run(folder) for top in folders for folder in _run_folders(Path(top))}
    if not found:
        names = ", ".join(map(str, folders))
        raise UserError(f"{names}: no run here. Give a run's folder, or one that holds some: outputs/<experiment>.")
    runs = list(found.values())
    done = {_settings(run) for run in runs if run.status == DONE}
    return [run for run in runs if run.status == DONE or not run.config or _settings(run) not in done]


def _run_folders(top: Path) -> Iterator[Path]:
    if not top.is_dir():
        raise UserError(f"{top}: no such folder. Give a run's folder, or one that holds some: outputs/<experiment>.")
    if is_run_folder(top):
        yield top
        return
    for folder in sorted(top.iterdir()):
        if folder.is_dir() and not folder.name.startswith("."):
            yield from _run_folders(folder)


def _checked(run: Run) -> Run:
    """A done run whose tables can be read; else the reason why they cannot."""
    try:
        columns, _ = set(run.report.columns), run.effects
    except UserError as error:
        return Run(run.path, FAILED, str(error), run.config)
    missing = {"arm", "subset", "task", "metric", "loss"} - columns
    return run if not missing else Run(run.path, FAILED, f"report.csv lacks {', '.join(sorted(missing))}", run.config)


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values; a list is one value, in JSON."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, json.dumps(value) if isinstance(value, list | dict) else value


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What can change a result, by dotted name."""
    return {k: v for k, v in flat(config) if not any(k == n or k.startswith(f"{n}.") for n in NOT_SETTINGS)}


def _settings(run: Run) -> str:
    return json.dumps(settings_of(run.config), sort_keys=True, default=str)


def _newest_attempt(folder: Path) -> Path | None:
    attempts = [path for path in (folder / "attempts").glob("*") if path.name.isdigit()]
    return max(attempts, key=lambda path: int(path.name), default=None)


def _unfinished(folder: Path) -> str:
    if (folder / "result.json").exists():
        return "result.json does not fit the files beside it: run it again"
    return "no result.json: killed, or still at work"
