"""Files of the cache folder that several runs use: each under a hash of what it was made from, whole or not there.

    <cache>/<kind>/<key>/<name>.safetensors
    <cache>/<kind>/<key>/<name>.json          written second: size and digest of the file, and what it was made from
    <cache>/<kind>/<key>/<name>.lock          held by whoever is making it

A file that is not what its .json says was damaged or cut short: it is thrown away and made again. What cannot be
written is no reason to stop a run, which has in memory what it made.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock
from safetensors import SafetensorError

from harness.errors import UserError
from harness.files import key_of, to_json, write_atomic, write_text
from harness.model.cache import cache_folder, file_digest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """One file. `made_from` is all that its content depends on, in words that can be read back."""

    path: Path
    made_from: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def note(self) -> Path:
        """The .json beside it."""
        return self.path.with_suffix(".json")

    def lock(self) -> FileLock:
        """To be held while it is made. OSError where the folder cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.path.with_suffix(".lock"))

    def whole(self) -> bool:
        """Whether it is there and is what was written. What is not is thrown away."""
        damage = self.damage()
        if damage:
            log.warning("%s %s: it will be made again", self.path, damage)
            self.drop()
        return damage == ""

    def damage(self, afresh: bool = False) -> str | None:
        """What is wrong with it: "" for nothing, None where there is no such file or no note.

        It is read only where it changed since it was last read, unless `afresh`; what is then found holds for later.
        """
        try:
            size, digest = self.path.stat().st_size, file_digest(self.path, afresh)
            text = self.note.read_text(encoding="utf-8")
        except OSError:
            return None
        try:
            note = json.loads(text)
        except ValueError:
            note = None
        if not isinstance(note, dict):
            return "has an unreadable note beside it"
        if size != note.get("bytes"):
            return f"has {size} bytes, not {note.get('bytes')}"
        return "" if digest == note.get("xxh3_128") else "is not what was written"

    def write(self, write: Callable[[Path], object]) -> None:
        """Make the file by `write`, and its note. A full or read-only disk is logged, not raised."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, write)
            facts = {"bytes": self.path.stat().st_size, "xxh3_128": file_digest(self.path)}
            write_text(self.note, to_json({**facts, "made_from": self.made_from}) + "\n")
        except (OSError, UserError, SafetensorError) as error:  # safetensors has its own word for a full disk
            log.warning("%s is not kept for later runs (%s)", self.path, error)
            self.drop()

    def drop(self) -> None:
        """Remove it; the note last, so that nothing is left that no note tells of."""
        for path in (self.path, self.note):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s cannot be removed (%s)", path, error)


def folder_of(kind: str, made_from: Mapping[str, Any]) -> Path:
    """Where entries made from the same things live."""
    return cache_folder() / kind / key_of(made_from)


def usable(folder: Path) -> bool:
    """Whether entries can be locked in `folder`, which is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "try.lock", timeout=60):
            return True
    except OSError as error:
        log.warning("%s cannot be written (%s): nothing is taken from it or kept in it", folder, error)
        return False
