"""Many runs on one page, and as one table: what to do, what it costs, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.report.markup import write_page
from harness.report.numbers import short
from harness.report.runs import FAILED, INCOMPLETE, Run, find_runs
from harness.report.stored import write_table
from harness.report.sweep import in_order, sweep_frame, swept_settings
from harness.report.sweep_sections import Sweep, sections

MOST_VALUES = 7  # of a swept setting, in the subtitle


def write_sweep_report(folders: Sequence[Path], out: Path) -> Path:
    """Write sweep.csv, report.html and figures/ into `out`, from all runs in and below some folders.

    In sweep.csv a run's `config` stands in its first row.

    UserError where there is no run.
    """
    runs, out = in_order(find_runs([Path(folder) for folder in folders])), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    frame = sweep_frame(runs)
    said_once = frame["config"].mask(
        frame.duplicated(["experiment", "run_id"])
    )  # kilobytes, the same in all rows of a run
    write_table(frame.assign(config=said_once), out / "sweep.csv")
    return write_page(
        out / "report.html",
        kind="sweep",
        title=", ".join(dict.fromkeys(run.experiment for run in runs)),
        subtitle=" \N{MIDDLE DOT} ".join(_subtitle(runs)),
        warning=_warning(runs),
        sections=[section for section in sections(Sweep.of(runs, frame, out)) if not section.empty],
        footer="All numbers of all runs: sweep.csv beside this page; pictures as PNG and SVG in figures/.",
    )


def _subtitle(runs: Sequence[Run]) -> Iterator[str]:
    models = dict.fromkeys(str(run.setting("model.name", "")) for run in runs)
    yield ", ".join(name for name in models if name) or "no model named"
    yield f"{len(runs)} runs"
    for name, cells in swept_settings(runs).items():
        values = list(dict.fromkeys(short(value) for value in cells if value is not None))
        shown = [*values[: MOST_VALUES - 1], f"... ({len(values)} values)"] if len(values) > MOST_VALUES else values
        yield f"{name} {', '.join(shown)}"


def _warning(runs: Sequence[Run]) -> str:
    counts = {status: sum(run.status == status for run in runs) for status in (FAILED, INCOMPLETE)}
    said = [f"{count} {status}" for status, count in counts.items() if count]
    return f"{', '.join(said)} of {len(runs)} runs: listed below, and in no comparison." if said else ""
