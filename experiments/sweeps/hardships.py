"""A sweep where the disk fills up, the folder is read-only, two or five start at once, or the clock runs backwards.

python experiments/sweeps/hardships.py --csv experiments/sweeps/hardships.csv      (mounts small disks: needs root)
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.sweeps.commands import SMALL, done, finish, start, table, write_rows

FOUR = (*SMALL, "quant.ffn.group_size=16,32,64,128")
Row = dict[str, object]

# A clock that is a minute earlier at every look. Python runs this file at its start where it is on the path.
BACKWARDS = """
import itertools, time
now, steps = time.time(), itertools.count()
time.time = lambda: now - 60 * next(steps)
time.strftime = lambda form, *rest: "1999-12-31_23-59-59"
"""


def told(said: str) -> str:
    """The summary, the first reason in it and any error, in one line."""
    lines = [re.sub(r"/[^ :]*/(outputs|out)/", "FOLDER/", line.strip()) for line in said.splitlines()]
    summary = [line for line in lines if line.startswith("sweep of")]
    reasons = [line for line in lines if re.match(r"job \d+ failed", line)]
    return " | ".join([*summary, *reasons[:1], *(line for line in lines if line.startswith("error:"))])


@contextmanager
def disk(size: str, options: str = "") -> Iterator[Path]:
    """A small disk of its own."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}{options}", "tmpfs", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", name], check=True)


def disk_full() -> Row:
    """Results on a disk that is too small for them; then it grows, and the same command goes on."""
    with disk("150k") as folder, tempfile.TemporaryDirectory() as cache:
        status, said = finish(start(folder, *FOUR, HARNESS_CACHE=cache))
        first = done(folder)
        subprocess.run(["mount", "-o", "remount,size=100m", str(folder)], check=True)
        again = finish(start(folder, *FOUR, HARNESS_CACHE=cache))[0]
        return {"status": status, "told": told(said), "done": first, "then": f"status {again}, {done(folder)} done"}


def cache_full() -> Row:
    """The cache folder on a disk of 20 kB: nothing is kept there, nothing else is lost."""
    with disk("20k") as cache, tempfile.TemporaryDirectory() as name:
        status, said = finish(start(Path(name), *FOUR, HARNESS_CACHE=str(cache)))
        return {"status": status, "told": told(said), "done": done(Path(name)), "then": ""}


def read_only() -> Row:
    """Outputs in a folder that nobody may write."""
    with disk("1m", ",ro") as folder, tempfile.TemporaryDirectory() as name:
        status, said = finish(start(Path(name), *FOUR, f"outputs={folder}/out"))
        return {"status": status, "told": told(said), "done": done(Path(name)), "then": ""}


def at_once(count: int) -> Row:
    """The same sweep started `count` times in the same second in one folder."""
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as alone:
        ended = [finish(process) for process in [start(Path(name), *FOUR) for _ in range(count)]]
        finish(start(Path(alone), *FOUR))
        sweeps = len(list(Path(name).glob("outputs/sweeps/*")))
        same = table(Path(name)) == table(Path(alone))
        return {
            "status": " ".join(str(status) for status, _ in ended),
            "told": " / ".join(told(said) for _, said in ended),
            "done": done(Path(name)),
            "then": f"{sweeps} sweep folders, sweep.csv as of one: {same}",
        }


def clock_backwards() -> Row:
    """Every look at the clock is a minute earlier than the last, and every second has the same name."""
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as path:
        (Path(path) / "sitecustomize.py").write_text(BACKWARDS, encoding="utf-8")
        root = str(Path(__file__).parents[2])
        status, said = finish(start(Path(name), *FOUR, PYTHONPATH=f"{path}:{root}"))
        again, then = finish(start(Path(name), *FOUR, PYTHONPATH=f"{path}:{root}"))
        return {"status": status, "told": told(said), "done": done(Path(name)), "then": f"status {again}, {told(then)}"}


HARDSHIPS = {
    "disk full": disk_full,
    "cache full": cache_full,
    "read-only folder": read_only,
    "two sweeps in one folder": lambda: at_once(2),
    "five starts in one second": lambda: at_once(5),
    "clock backwards": clock_backwards,
}


def main() -> None:
    """Print and write a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=HARDSHIPS)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    chosen = {options.only: HARDSHIPS[options.only]} if options.only else HARDSHIPS
    rows = []
    for name, meet in chosen.items():
        rows.append({"hardship": name, **meet()})
        print(rows[-1], flush=True)
    write_rows(options.csv, rows)


if __name__ == "__main__":
    main()
