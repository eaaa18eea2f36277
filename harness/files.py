"""Run folders and files that are either whole or absent.

One folder a run:

    outputs/<experiment>/<run_id>/
        .lock                one process at a time
        attempts/<n>/        configuration, overrides and log of each start
        report.csv ...       results
        result.json          written last: its presence means done
        failed.json ...      instead, where the last start failed (harness.failures)
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from harness.config import OnLocked
from harness.errors import UserError

FAILURE = ("failed.json", "failed.csv", "traceback.txt")


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary path beside `path`, flush it to disk, and rename it into place."""
    with _writable(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        try:
            write(Path(name))
            with Path(name).open("rb") as file:
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """What the system has against writing `path`, as the user's to solve."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{path}: cannot be written ({reason}). Free space, or set outputs to another folder."
        ) from error


def write_text(path: Path, text: str) -> None:
    """A whole UTF-8 text file, or none. Names of files that the locale cannot read keep their bytes."""
    write_atomic(path, lambda aside: aside.write_bytes(text.encode(errors="surrogateescape")))


def to_json(value: Any, indent: int | None = 1) -> str:
    """Strict JSON: numbers that are not finite become null, tensors and arrays become lists, enums their value."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty where there is none, or something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def key_of(value: Any) -> str:
    """Sixteen hex digits of a value's JSON form: a name for what was made from it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if hasattr(value, "tolist"):  # numpy and torch, scalars included
        return _plain(value.tolist())
    return str(value)


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def done(self) -> bool:
        """Whether a complete result is there."""
        return self.result() is not None

    def result(self) -> dict[str, Any] | None:
        """The stored result; nothing if it is absent or its files are not what it says they are."""
        try:
            result = json.loads((self.path / "result.json").read_text(encoding="utf-8"))
            sizes = {name: (self.path / name).stat().st_size for name in result["files"]}
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return result if sizes == result["files"] else None

    @contextmanager
    def locked(self, on_locked: OnLocked) -> Iterator[bool]:
        """Hold the folder; yields False where another process has it and this one is not to wait."""
        with _writable(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock", timeout=0 if on_locked is OnLocked.skip else -1)
            mine = _acquired(lock)
        try:
            yield mine
        finally:
            lock.release()

    def attempt(self) -> Path:
        """A new folder under attempts/. What an earlier start left is no result and no failure from here on."""
        attempts = self.path / "attempts"
        with _writable(attempts):
            cut_short = [path.name for path in self.path.glob(".*") if path.is_file() and path.name != ".lock"]
            for name in ("result.json", *FAILURE, *cut_short):
                (self.path / name).unlink(missing_ok=True)
            attempts.mkdir(exist_ok=True)
            path = attempts / str(1 + max((int(p.name) for p in attempts.iterdir() if p.name.isdigit()), default=-1))
            path.mkdir()
        return path

    def finish(self, result: dict[str, Any], names: list[str]) -> None:
        """Write result.json over the files named: the last act of a run."""
        sizes = {name: (self.path / name).stat().st_size for name in names}
        write_text(self.path / "result.json", to_json({**result, "files": sizes}) + "\n")


def _acquired(lock: FileLock) -> bool:
    try:
        lock.acquire()
    except Timeout:
        return False
    return True
