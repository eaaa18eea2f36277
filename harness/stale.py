"""Finished runs of the same settings that are not this run: made by other code, or from other weights or data.

A run_id holds the version of the code and the hashes of weights and data, so a changed one gives another folder, and
the old result stays. It is never taken in silence, and never overlooked in silence either: `harness.on_stale`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.config import OnStale, RunConfig
from harness.errors import UserError
from harness.files import RunFolder, to_json
from harness.identity import code_version

# Where these differ, it is another experiment, or the same on another machine.
SAME = ("dtype", "device", "attention")
CHANGED = {"model": "weights", "sequences": "scored data", "calibration": "calibration data", "libraries": "libraries"}
CODE = "code"


@dataclass(frozen=True)
class Stale:
    """An older result, and what is not as it was."""

    folder: RunFolder
    differs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.folder.path} (other {' and '.join(self.differs)})"


def finished(folder: RunFolder, config: RunConfig, facts: Mapping[str, Any]) -> RunFolder | None:
    """The run itself where it is done, or an older result that may stand in for it. UserError for one to be refused."""
    return folder if folder.done else _stand_in(folder, config, facts)


def _stand_in(folder: RunFolder, config: RunConfig, facts: Mapping[str, Any]) -> RunFolder | None:
    found = list(_older(folder, config, facts))
    if not found:
        return None
    listed = "\n".join(f"  {stale}" for stale in found)
    if config.harness.on_stale is OnStale.refuse:
        raise UserError(
            f"harness.on_stale=refuse: these settings have results that no longer hold:\n{listed}\n"
            "Move them away, or set harness.on_stale=recompute, or use for those where only the code differs."
        )
    usable = [stale.folder for stale in found if stale.differs == (CODE,)]
    if config.harness.on_stale is OnStale.use and usable:
        newest = max(usable, key=lambda old: (old.path / "result.json").stat().st_mtime)
        print(f"harness.on_stale=use: {newest.path} stands in, though other code made it", flush=True)
        return newest
    print(f"results of these settings that no longer hold, kept and made anew:\n{listed}", flush=True)
    return None


def _older(folder: RunFolder, config: RunConfig, facts: Mapping[str, Any]) -> Iterator[Stale]:
    now = json.loads(to_json({**facts, "code_version": code_version()}))
    settings = _settings(asdict(config))
    for path in sorted(folder.path.parent.glob("*/result.json")):
        old = RunFolder(path.parent)
        result = old.result() if old.path != folder.path else None
        if result is None or not isinstance(then := result.get("facts"), dict):
            continue
        then = {**then, "code_version": result.get("code_version")}
        if any(then.get(name) != now[name] for name in SAME) or _settings(result.get("config")) != settings:
            continue
        differs = [word for name, word in CHANGED.items() if then.get(name) != now[name]]
        code = [CODE] if then["code_version"] != now["code_version"] else []
        yield Stale(old, tuple(code + differs))


def _settings(config: Any) -> dict[str, Any]:
    """What was asked for, path of data included; what an older version did not know yet is at its default."""
    known = json.loads(to_json(config)) if isinstance(config, dict) else {}
    filled = _filled(known, json.loads(to_json(asdict(RunConfig()))))
    for name in ("harness", "outputs"):
        del filled[name]
    for name in ("memory_gib", "head_tokens"):
        del filled["engine"][name]
    del filled["calib"]["keep"]
    return filled


def _filled(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    nested = {k: _filled(values[k], v) for k, v in defaults.items() if isinstance(v, dict) and k in values}
    return {**defaults, **values, **nested}
