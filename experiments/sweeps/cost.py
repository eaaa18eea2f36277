"""What a sweep of six group sizes costs, beside the same six runs each by itself and taking nothing from the others.

python experiments/sweeps/cost.py --csv experiments/sweeps/cost.csv [override ...]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pandas as pd

from experiments.sweeps.commands import finish, start, write_rows
from harness.model.cache import cache_folder

SIZES = (16, 32, 48, 64, 96, 192)  # all divide SmolLM2's 576 and 1536
SPLIT = (
    "+exp=int4_split", "eval=perplexity", "eval.perplexity.window=384", "eval.perplexity.joiner=''",
    "eval.perplexity.max_windows=4",
)  # fmt: skip


def cpu_seconds() -> float:
    """Of all processes started and ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(folder: Path, *arguments: str) -> dict[str, float]:
    """Wall and CPU seconds of a command that must succeed."""
    wall, cpu = time.monotonic(), cpu_seconds()
    status, said = finish(start(folder, *arguments))
    assert status == 0, said
    return {"wall_seconds": round(time.monotonic() - wall, 1), "cpu_seconds": round(cpu_seconds() - cpu, 1)}


def new_folder(top: Path, name: str) -> Path:
    """An empty folder with a cache that holds converted models only."""
    folder = top / name
    (folder / "cache").mkdir(parents=True)
    for shared in ("models", "digests"):
        (folder / "cache" / shared).symlink_to(cache_folder() / shared)
    return folder


def items(folder: Path) -> dict[str, pd.DataFrame]:
    """items.parquet of every run in a folder, by run_id."""
    return {path.parent.name: pd.read_parquet(path) for path in folder.glob("outputs/*/*/items.parquet")}


def main() -> None:
    """Print and write a row for the sweep and for each run by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("overrides", nargs="*", default=list(SPLIT))
    options = parser.parse_args()
    sizes = ",".join(map(str, SIZES))
    with tempfile.TemporaryDirectory() as name:
        together, alone = new_folder(Path(name), "together"), new_folder(Path(name), "alone")
        rows = [{"what": "sweep of 6", **timed(together, *options.overrides, f"quant.ffn.group_size={sizes}")}]
        print(rows[-1], flush=True)
        for size in SIZES:
            run = timed(alone, *options.overrides, f"quant.ffn.group_size={size}", "harness.reuse=false")
            rows.append({"what": f"group_size={size} by itself", **run})
            print(rows[-1], flush=True)
        assert items(together).keys() == items(alone).keys()
        for run, table in items(alone).items():
            pd.testing.assert_frame_equal(items(together)[run], table, check_exact=True)
    for unit in ("cpu_seconds", "wall_seconds"):
        share = rows[0][unit] / sum(row[unit] for row in rows[1:])
        print(f"{unit}: the sweep takes {100 * share:.0f} % of the six runs; every item's value is the same")
    write_rows(options.csv, rows)


if __name__ == "__main__":
    main()
