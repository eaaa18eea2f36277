"""`python -m harness.cache ls|verify|prune`: what the cache folder holds, whether it is whole, and making room.

Everything in it can be made again. Kinds: converted `models`, calibration `statistics`, `base` hidden states, `scores`
and `answers` of arms, `tokens` of large tasks, and `digests` of files already read. What has no note of how it was made
may be the user's own: it is never removed.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from rich import box
from rich.console import Console
from rich.table import Table

from harness.entries import Entry
from harness.files import read_object
from harness.model.cache import MAKING, NOTE, cache_folder, damage

ENTRIES = ("statistics", "base", "scores", "answers", "tokens")  # kinds with notes beside files (harness.entries)
DATA = (".safetensors", ".jsonl")
KINDS = ("models", *ENTRIES, "digests")
DAY = 86_400.0
WIDTH = 150  # columns of a table off a terminal


@dataclass(frozen=True)
class Item:
    """A folder of the cache: what was made from the same things. For `digests`, all of them."""

    kind: str
    path: Path

    @property
    def files(self) -> list[Path]:
        """All files in it."""
        return [path for path in self.path.rglob("*") if path.is_file()]

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(path.stat().st_size for path in self.files)

    @property
    def days(self) -> float:
        """Since something in it was last written or read; a model's note, which this command reads, tells nothing."""
        used = [max(path.stat().st_mtime, path.stat().st_atime) for path in self.files if path.name != NOTE]
        return max(0.0, time.time() - max(used, default=time.time())) / DAY

    @property
    def words(self) -> str:
        """What it was made from."""
        notes = sorted(self.path.glob("*.json" if self.kind in ENTRIES else NOTE))
        facts = read_object(notes[0]).get("made_from", {}) if notes else {}
        shown = ("model", "task", "dtype", "device", "attention", "tokenizer", "code_version")
        return " ".join(str(facts[name]).removeprefix("torch.") for name in shown if facts.get(name))

    def damaged(self, afresh: bool = True) -> list[str]:
        """What is not as it was written, read from the disk byte by byte; else only what changed since."""
        if self.kind == "models" and not self.path.name.startswith(MAKING):
            return damage(self.path, afresh)
        if self.kind not in ENTRIES:
            return []
        entries = [Entry(path) for path in self.files if path.suffix in DATA and path.name[0] != "."]
        found = {entry.path: entry.damage(afresh) for entry in entries}
        return [f"{path} {words or 'has no note beside it'}" for path, words in found.items() if words != ""]

    @property
    def useless(self) -> bool:
        """Whether it is a model that no run would take."""
        return self.kind == "models" and bool(self.damaged(afresh=False))

    @property
    def foreign(self) -> bool:
        """Whether nothing in it says that the harness made it: it may be the user's own, and is theirs to remove."""
        if self.kind == "models":
            return not self.path.name.startswith(MAKING) and not (self.path / NOTE).is_file()
        if self.kind not in ENTRIES or all(path.suffix == ".lock" for path in self.files):
            return False
        return not any(path.with_suffix(".safetensors").is_file() for path in self.path.glob("*.json"))


def items(kinds: Sequence[str] = KINDS) -> Iterator[Item]:
    """What the cache holds, by kind."""
    for kind in kinds:
        top = cache_folder() / kind
        if kind == "digests":
            yield from [Item(kind, top)] if top.is_dir() else []
        elif top.is_dir():
            yield from (Item(kind, path) for path in sorted(top.iterdir()) if path.is_dir())


def show(kinds: Sequence[str]) -> int:
    """Print a table of all items."""
    table = Table(title=str(cache_folder()), box=box.SIMPLE_HEAD)
    for name in ("kind", "key", "files", "MiB", "days unused", "made from"):
        table.add_column(name, justify="right" if name in ("files", "MiB", "days unused") else "left")
    total = 0
    for item in items(kinds):
        total += item.bytes
        size = f"{item.bytes / 2**20:.1f}"
        table.add_row(item.kind, item.path.name, str(len(item.files)), size, f"{item.days:.1f}", item.words)
    table.add_section()
    table.add_row("", "", "", f"{total / 2**20:.1f}", "", "in all")
    _console().print(table)
    return 0


def verify(kinds: Sequence[str]) -> int:
    """Read everything and print what is damaged; a run makes it again by itself. Status 1 where something is."""
    there = list(items(kinds))
    damaged = [line for item in there for line in item.damaged()]
    for line in damaged:
        print(line)
    if not there:
        print(f"nothing is there: {cache_folder()} holds no {', '.join(kinds)}")
        return 0
    print(f"{len(damaged)} damaged. A run that wants one of them makes it again." if damaged else "everything is whole")
    return 1 if damaged else 0


def prune(kinds: Sequence[str], days: float, keep_gib: float, dry: bool) -> int:
    """Remove what was not used for `days`, then the longest unused until `keep_gib` are left. What is in use stays.

    A converted model that no run would take goes first, however new. What the harness did not make is never removed.
    """
    print(f"in {cache_folder()}")
    left = sorted(_ours(kinds), key=lambda item: (item.useless, item.days), reverse=True)
    size, freed = sum(item.bytes for item in left), 0
    for item in left:
        if not item.useless and item.days < days and size - freed <= keep_gib * 2**30:
            continue
        if _in_use(item):
            print(f"in use: {item.path}")
            continue
        freed += item.bytes
        why = "damaged" if item.useless else f"{item.days:.1f} days"
        print(f"{'would remove' if dry else 'removed'} {item.path}: {item.bytes / 2**20:.1f} MiB, {why}")
        if not dry:
            shutil.rmtree(item.path)
    print(f"{freed / 2**20:.1f} MiB {'would be ' if dry else ''}freed")
    return 0


def _ours(kinds: Sequence[str]) -> Iterator[Item]:
    """What the harness made. The rest is named, with the way to remove it."""
    for item in items(kinds):
        if not item.foreign:
            yield item
            continue
        missing = NOTE if item.kind == "models" else "note"
        print(f"left alone: {item.path} has no {missing}. It is not the harness's, or from before it kept notes.")
        print(f"  If nobody needs it: rm -r {shlex.quote(str(item.path))}")


def _in_use(item: Item) -> bool:
    """Whether a run is at work in it."""
    locks = [*item.path.glob("*.lock"), *item.path.parent.glob(f"{item.path.name.removeprefix(MAKING)}.lock")]
    for path in locks:
        try:
            with FileLock(path, timeout=0):
                pass
        except Timeout:
            return True
    return False


def amount(text: str) -> float:
    """A number from 0 up: a slip must not empty the cache."""
    if not float(text) >= 0:
        raise ValueError(text)
    return float(text)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else WIDTH)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m harness.cache", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("ls", show), ("verify", verify), ("prune", prune)):
        command = commands.add_parser(name, help=(what.__doc__ or "").splitlines()[0])
        command.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} (default: all)")
        if name == "prune":
            command.add_argument("--days", type=amount, default=30.0, help="remove what was not used for so long (30)")
            command.add_argument("--keep-gib", type=amount, default=float("inf"), help="and more, down to this size")
            command.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.kinds) - set(KINDS)):
        parser.error(f"no such kind: {', '.join(unknown)}. There are {', '.join(KINDS)}.")
    if cache_folder().exists() and not cache_folder().is_dir():
        parser.error(f"{cache_folder()} is no folder. Set HARNESS_CACHE to one, or unset it for the default.")
    if not cache_folder().is_dir():
        print(f"nothing is there: {cache_folder()} does not exist. A run makes it; HARNESS_CACHE sets another place.")
        return 1 if options.command == "verify" else 0
    kinds = options.kinds or list(KINDS)
    if options.command == "prune":
        return prune(kinds, options.days, options.keep_gib, options.dry_run)
    return show(kinds) if options.command == "ls" else verify(kinds)


if __name__ == "__main__":
    sys.exit(main())
