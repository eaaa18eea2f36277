"""The cache folder: models made once, and digests of files that have not changed since they were last read.

`HARNESS_CACHE`, by default ~/.cache/quant-harness, with

    models/   one folder per converted model, named by what it was made from and by what code; a note in it says what
              its files must be, so that one that was damaged or cut short is made again
    digests/  one file per (resolved path, size, mtime_ns): the file's xxh3_128
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import xxhash
from filelock import FileLock

from harness.errors import UserError
from harness.makers import maker_version

log = logging.getLogger(__name__)

NOTE = "made.json"  # in a converted model's folder: size and digest of all other files, and what made it
MAKING = ".making-"  # before the name of a folder that is not whole yet
CHUNK = 1 << 22  # bytes read at a time; nothing of the file stays in this process


def cache_folder() -> Path:
    """`HARNESS_CACHE`, by default ~/.cache/quant-harness."""
    return Path(os.environ.get("HARNESS_CACHE") or "~/.cache/quant-harness").expanduser()


def made_once(name: str, write: Callable[[Path], None]) -> Path:
    """The cached model folder `name`. If there is no whole one, `write` fills an empty folder, which takes its place.

    Other processes wait at the lock, and see the folder whole or not at all.
    """
    final = cache_folder() / "models" / f"{name}-{maker_version('models')}"
    if final.is_dir() and not damage(final):
        return final
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{final}.lock"):
            wrong = damage(final) if final.is_dir() else []
            if wrong:
                log.warning("%s: the model is made again", "; ".join(wrong))
            if wrong or not final.is_dir():
                print(f"preparing {name} in {final.parent}, once", file=sys.stderr, flush=True)
                _make(final, write)
    except OSError as error:
        raise UserError(
            f"{final} could not be written ({error}). Free some disk space, or set HARNESS_CACHE to another folder."
        ) from error
    return final


def _make(final: Path, write: Callable[[Path], None]) -> None:
    """Make the folder aside, its note last, and put it in the place of a damaged one."""
    aside = final.with_name(f"{MAKING}{final.name}")
    shutil.rmtree(aside, ignore_errors=True)  # of a start that was killed: its lock is ours
    part = aside / "model"
    try:
        part.mkdir(parents=True)
        write(part)
        files = sorted(path for path in part.rglob("*") if path.is_file())
        facts = {f.relative_to(part).as_posix(): {"bytes": f.stat().st_size, "xxh3_128": read_digest(f)} for f in files}
        note = {"files": facts, "made_from": {"code_version": maker_version("models")}}
        (part / NOTE).write_text(json.dumps(note, indent=1), "utf-8")
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def damage(folder: Path, afresh: bool = False) -> list[str]:
    """What of a converted model is not as it was made. Files that did not change are not read again unless `afresh`."""
    try:
        files = json.loads((folder / NOTE).read_text("utf-8"))["files"]
        return [f"{folder / name} {words}" for name in files if (words := _odd(folder / name, files[name], afresh))]
    except OSError:
        return [f"{folder} has no note of what its files must be"]
    except (ValueError, LookupError, TypeError, AttributeError):
        return [f"{folder / NOTE} cannot be read"]


def _odd(file: Path, fact: dict[str, object], afresh: bool) -> str:
    """How a file differs from what was noted of it."""
    try:
        if (size := file.stat().st_size) != fact["bytes"]:
            return f"has {size} bytes, not {fact['bytes']}"
        return "" if file_digest(file, afresh) == fact["xxh3_128"] else "is not what was written"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def file_digest(file: Path, afresh: bool = False) -> str:
    """The file's xxh3_128 in hex; read again only where its path, size or time of change differ, or `afresh`."""
    state = file.stat()
    key = xxhash.xxh3_128_hexdigest(f"{file.resolve()}\n{state.st_size}\n{state.st_mtime_ns}".encode())
    known = cache_folder() / "digests" / key
    if not afresh and (kept := _kept_digest(known)):
        return kept
    digest = read_digest(file)
    try:
        known.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=known.parent, delete=False, encoding="ascii") as aside:
            aside.write(digest)
        Path(aside.name).replace(known)
    except OSError as error:
        log.warning("%s cannot be written (%s): %s will be read again", known, error, file)
    return digest


def _kept_digest(known: Path) -> str:
    """What was noted of a file; "" where nothing was, or what a damaged disk made of it."""
    try:
        text = known.read_bytes().decode("ascii", errors="replace")
    except OSError:
        return ""
    return text if re.fullmatch("[0-9a-f]{32}", text) else ""


def read_digest(file: Path) -> str:
    """The file's xxh3_128 in hex, read from the disk."""
    digest = xxhash.xxh3_128()
    with file.open("rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()
