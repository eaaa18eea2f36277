"""A sweep: many jobs, one after the other or spread over processes and machines, and what became of each.

Hydra's launchers start the jobs, in this process or elsewhere, and know little of failures. So each job notes in the
sweep's folder how it ended, and that is all a summary needs:

    outputs/sweeps/<when>-<random>/
        sweep.json           the jobs, written before the first one starts
        jobs/<n>.json        written when job n ends (harness.jobs.Job)
        summary.txt          written last

Results are in the run folders, and a sweep's folder is none: started again, the sweep gets a new one and finds done
what is done.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import filter_overrides
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from harness.errors import UserError
from harness.files import to_json, write_text
from harness.jobs import FAILED, NOT_RUN, Job

COMPUTED = ("done", FAILED)  # the others take no time worth extrapolating


@dataclass(frozen=True)
class Sweep:
    """The folder of one sweep."""

    path: Path
    unwritten: ClassVar[dict[Path, dict[int, Job]]] = {}  # ends that a full disk left in this process's memory

    def begin(self, jobs: Sequence[Sequence[str]]) -> None:
        """Note what is to be done. `jobs`: the overrides of each; empty where the sweeper decides as it goes."""
        (self.path / "jobs").mkdir(parents=True, exist_ok=True)
        write_text(self.path / "sweep.json", to_json({"begun": time.time(), "jobs": jobs}) + "\n")

    def end(self, number: int, job: Job) -> None:
        """Note how a job ended."""
        try:
            write_text(self.path / "jobs" / f"{number}.json", to_json(asdict(job)) + "\n")
        except UserError:
            self.unwritten.setdefault(self.path, {})[number] = job

    def ended(self) -> dict[int, Job]:
        """The jobs that ended so far, by number."""
        files = (self.path / "jobs").glob("[0-9]*.json")
        written = {int(path.stem): Job(**json.loads(path.read_text(encoding="utf-8"))) for path in files}
        return dict(sorted({**written, **self.unwritten.get(self.path, {})}.items()))

    def full(self, max_failures: int) -> bool:
        """Whether so many jobs failed that no further one is to start."""
        return 0 < max_failures <= sum(job.status == FAILED for job in self.ended().values())

    def label(self, number: int) -> str:
        """What sets a job apart from the others: its overrides that not all of them have."""
        jobs = self._about["jobs"]
        if number >= len(jobs):
            return ""
        return " ".join(o for o in filter_overrides(jobs[number]) if any(o not in job for job in jobs))

    def line(self, number: int, job: Job) -> str:
        """One line on a job that just ended, and how long the others will take."""
        total = len(self._about["jobs"])
        what = f"job {number + 1}" + (f" of {total}" if total else "")
        words = {"already done": "skipped: already done", "locked": "skipped: another process is at it"}
        said = [f"{what} {words.get(job.status, job.status)}", self.label(number), job.reason or job.headline]
        return ": ".join(part for part in said if part) + self._left(total)

    def _left(self, total: int) -> str:
        ended = self.ended().values()
        computed, left = sum(job.status in COMPUTED for job in ended), total - len(ended)
        if left <= 0 or not computed:
            return ""
        elapsed = max(0.0, time.time() - self._about["begun"])  # a clock may be set back
        seconds = elapsed / computed * left
        return f"; about {seconds / 60:.0f} min left" if seconds > 90 else f"; about {seconds:.0f} s left"

    def summary(self) -> str:
        """What became of all jobs, and of each that failed: why, and where to read on."""
        ended, total = self.ended(), len(self._about["jobs"])
        counts = Counter(job.status for job in ended.values())
        open_ = max(total, len(ended)) - len(ended)
        if open_:
            counts["unfinished"] = open_
        lines = [f"sweep of {max(total, len(ended))} jobs: " + ", ".join(f"{n} {word}" for word, n in counts.items())]
        for number, job in ended.items():
            if job.status == FAILED:
                lines.append(f"  job {number + 1} failed: {self.label(number)}: {job.reason}")
                lines.append(f"    {Path(job.folder) / 'traceback.txt'}")
        if open_ or counts[NOT_RUN] or counts[FAILED]:
            lines.append("The same command again does only what is missing.")
        return "\n".join(lines)

    def whole(self) -> bool:
        """Whether every job ended, and none failed."""
        ended = self.ended()
        bad = any(job.status in (FAILED, NOT_RUN) for job in ended.values())
        return not bad and len(ended) >= len(self._about["jobs"])

    @property
    def _about(self) -> dict[str, Any]:
        try:
            return json.loads((self.path / "sweep.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"begun": time.time(), "jobs": []}


class SweepSummary(Callback):
    """Hydra's callback: notes the jobs of a multirun before the first one starts."""

    current: Sweep | None = None  # of this process: the one that `conclude` speaks of

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Make the sweep's folder."""
        sweep = Sweep(Path(config.hydra.sweep.dir).absolute())
        try:
            sweep.begin(_jobs(config))
        except (OSError, UserError) as error:
            sys.exit(f"error: {sweep.path}: cannot be written ({error}). Set outputs to another folder.")
        SweepSummary.current = sweep


def conclude() -> int:
    """Print the summary of this process's sweep, if it is one; the exit status that it deserves."""
    sweep = SweepSummary.current
    if sweep is None:
        return 0
    SweepSummary.current = None
    print(sweep.summary(), flush=True)
    try:
        write_text(sweep.path / "summary.txt", sweep.summary() + "\n")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if sweep.whole() else 1


def abandon() -> None:
    """Forget this process's sweep, if it is one whose jobs cannot be composed: none has begun, and none will."""
    sweep, SweepSummary.current = SweepSummary.current, None
    if sweep and not sweep.ended():
        shutil.rmtree(sweep.path)
        with suppress(OSError):  # other sweeps' folders, or results
            sweep.path.parent.rmdir()
            sweep.path.parent.parent.rmdir()


def ended_with_headline(job: Job) -> Job:
    """The job, with the main figure of its report."""
    report = Path(job.folder) / "report.csv"
    if job.status not in ("done", "already done") or not report.is_file():
        return job
    from harness.console import headline  # with the plan, and torch behind it
    from harness.report.stored import read_report

    return replace(job, headline=headline(read_report(report)))


def sweep_folder(outputs: str) -> str:
    """A folder that no other start has, whatever its clock says; absolute, as jobs may begin elsewhere."""
    name = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{secrets.token_hex(4)}"
    return str(Path(outputs).absolute() / "sweeps" / name)


def _jobs(config: DictConfig) -> list[list[str]]:
    """The overrides of every job; none where another sweeper than Hydra's own decides."""
    if not str(config.hydra.sweeper._target_).endswith(".BasicSweeper"):
        return []
    params = [f"{k}={v}" for k, v in (config.hydra.sweeper.params or {}).items()]
    texts = [*params, *OmegaConf.to_container(config.hydra.overrides.task)]  # pyright: ignore
    parser = OverridesParser.create(GlobalHydra.instance().config_loader())
    overrides = parser.parse_overrides(texts)
    return [list(job) for batch in BasicSweeper.split_arguments(overrides, None) for job in batch]
