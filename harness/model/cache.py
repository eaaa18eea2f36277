"""The cache folder: models made once, and digests of files that have not changed since they were last read.

`HARNESS_CACHE`, by default ~/.cache/quant-harness, with

    models/   one folder per converted model, named by what it was made from
    digests/  one file per (resolved path, size, mtime_ns): the file's xxh3_128
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import xxhash
from filelock import FileLock

from harness.errors import UserError

log = logging.getLogger(__name__)

CHUNK = 1 << 22  # bytes read at a time; nothing of the file stays in this process


def cache_folder() -> Path:
    """`HARNESS_CACHE`, by default ~/.cache/quant-harness."""
    return Path(os.environ.get("HARNESS_CACHE") or "~/.cache/quant-harness").expanduser()


def made_once(name: str, write: Callable[[Path], None]) -> Path:
    """The cached model folder `name`. If there is none, `write` fills an empty folder, which is then renamed to it.

    Other processes wait at the lock, and see the folder whole or not at all.
    """
    final = cache_folder() / "models" / name
    if final.is_dir():
        return final
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{final}.lock"), tempfile.TemporaryDirectory(dir=final.parent, prefix=".making-") as aside:
            if not final.is_dir():
                print(f"preparing {name} in {final.parent}, once", file=sys.stderr, flush=True)
                part = Path(aside) / "model"
                part.mkdir()
                write(part)
                part.rename(final)
    except OSError as error:
        raise UserError(
            f"{final} could not be written ({error}). Free some disk space, or set HARNESS_CACHE to another folder."
        ) from error
    return final


def file_digest(file: Path) -> str:
    """The file's xxh3_128 in hex; read again only where its path, size or time of change differ."""
    state = file.stat()
    key = xxhash.xxh3_128_hexdigest(f"{file.resolve()}\n{state.st_size}\n{state.st_mtime_ns}".encode())
    known = cache_folder() / "digests" / key
    if known.is_file():
        return known.read_text("ascii")
    digest = read_digest(file)
    try:
        known.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=known.parent, delete=False, encoding="ascii") as aside:
            aside.write(digest)
        Path(aside.name).replace(known)
    except OSError as error:
        log.warning("%s cannot be written (%s): %s will be read again", known, error, file)
    return digest


def read_digest(file: Path) -> str:
    """The file's xxh3_128 in hex, read from the disk."""
    digest = xxhash.xxh3_128()
    with file.open("rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()
