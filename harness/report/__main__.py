"""`python -m harness.report FOLDER... [--out FOLDER]`: pages and tables from finished runs, without model or GPU.

One run's folder gets its report.html. A folder of runs, or several folders, become one sweep: sweep.csv, report.html
and figures/, in the first folder unless --out says otherwise. `--runs` also writes every run's own page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UserError
from harness.report.run_page import write_run_report
from harness.report.runs import find_runs, is_run_folder
from harness.report.sweep_page import write_sweep_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what is asked for, print where it is, return the exit status."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m harness.report", description=__doc__.splitlines()[0])
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="a run's folder, or one that holds runs"
    )
    parser.add_argument("--out", type=Path, help="where a sweep's report goes (default: the first folder)")
    parser.add_argument("--runs", action="store_true", help="also write the page of each run")
    options = parser.parse_args(arguments)
    try:
        if len(options.folders) == 1 and is_run_folder(options.folders[0]) and options.out is None:
            print(write_run_report(options.folders[0]))
            return 0
        if options.runs:
            for run in find_runs(options.folders):
                print(write_run_report(run.path))
        print(write_sweep_report(options.folders, options.out or options.folders[0]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename}: cannot be written ({error.strerror}). Set --out to a folder.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
