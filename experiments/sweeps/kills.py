"""Kill a sweep at random moments, start it again each time, and compare its end with that of an undisturbed one.

python experiments/sweeps/kills.py --kills 20 --csv experiments/sweeps/kills.csv
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.sweeps.commands import TWELVE, done, finish, start, table, write_rows


def killed(folder: Path, rng: random.Random) -> dict[str, object]:
    """Start the sweep in `folder` and kill it a little after it began one of its next jobs."""
    before, attempts = done(folder), len(list(folder.glob("outputs/*/*/attempts/*")))
    jobs, rest = rng.randrange(1, 3), rng.random() * rng.choice((0.05, 0.3, 1.5))
    begin = time.monotonic()
    process = start(folder, *TWELVE)
    while process.poll() is None and len(list(folder.glob("outputs/*/*/attempts/*"))) < attempts + jobs:
        time.sleep(0.01)
    time.sleep(rest)
    alive = process.poll() is None
    os.killpg(process.pid, signal.SIGKILL) if alive else None
    finish(process)
    begun = [path for path in folder.glob("outputs/*/*") if (path / "attempts").is_dir()]
    return {
        "seconds": round(time.monotonic() - begin, 1),
        "killed": alive,
        "done_before": before,
        "done_after": done(folder),
        "begun_without_result": sum(not (path / "result.json").exists() for path in begun),
    }


def main() -> int:
    """Print and write a row for each kill; status 1 where the ends differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rng, rows = random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as name:
        quiet, stormy = Path(name) / "quiet", Path(name) / "stormy"
        quiet.mkdir()
        stormy.mkdir()
        assert finish(start(quiet, *TWELVE))[0] == 0
        while len(rows) < options.kills:
            if done(stormy) == 12:  # as yet there is more to kill: from the start, with an empty cache
                assert finish(start(stormy, *TWELVE))[0] == 0 and table(stormy) == table(quiet)
                stormy = Path(name) / f"stormy{len(rows)}"
                stormy.mkdir()
            row = killed(stormy, rng)
            rows += [{"kill": len(rows) + 1, **row}] if row["killed"] else []
            print(rows[-1] if row["killed"] else "over before it was killed", flush=True)
        status, said = finish(start(stormy, *TWELVE))
        same = table(stormy) == table(quiet)
    print(said[said.index("sweep of 12 jobs") :], f"status {status}, sweep.csv the same: {same}")
    write_rows(options.csv, rows)
    return 0 if same and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
