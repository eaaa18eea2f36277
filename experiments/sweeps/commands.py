"""A sweep of 12 jobs of the tiny model, as a process that can be killed, and what its sweep.csv says but for times."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = (
    "+exp=int4_ffn_only", "model=tiny", "eval=perplexity", "eval.perplexity.window=32",
    "eval.perplexity.max_windows=1", "attribute.resamples=100", "design.noise_draws=0",
)  # fmt: skip
TWELVE = (*SMALL, "quant.ffn.group_size=16,32,64,128", "quant.ffn.precision=int3,int4,int8")
TIMES = ("seconds", "peak_bytes")  # of a start, not of a run


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """`python -m harness -m ...` in `folder`, with a cache of its own there, leading a process group of its own."""
    cache = str(folder / "cache")
    env = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(ROOT), "HARNESS_CACHE": cache, **environment}
    return subprocess.Popen(
        [sys.executable, "-m", "harness", "-m", *arguments],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status and output."""
    said = process.communicate()[0]
    return process.returncode, said


def table(folder: Path, experiment: str = "int4_ffn_only") -> str:
    """sweep.csv without the columns that hold times, byte for byte otherwise."""
    with (folder / "outputs" / experiment / "sweep.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return "\n".join(repr({k: v for k, v in row.items() if k not in TIMES}) for row in rows)


def write_rows(path: Path | None, rows: list[dict]) -> None:
    """Rows as a CSV file, where one is asked for."""
    if path is None:
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def done(folder: Path) -> int:
    """Runs with a result."""
    return len(list((folder / "outputs").glob("*/*/result.json")))
