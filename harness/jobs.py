"""One job of a sweep, run to its end, whatever that is: no exception, exit or lack of memory reaches the others.

A failed job leaves its reason and traceback in its run folder, or where it had none yet, under
outputs/<experiment>/failed/ (harness.failures). With a launcher a job runs in a process of its own behind the
launcher's (harness.apart), so that a kill, a crash in native code or lack of memory is its failure only.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness import failures

FAILED, NOT_RUN = "failed", "not run"
# Told a run's folder when its work begins.
Begun = Callable[[Path], None]
# Runs a composed configuration whose relative paths begin at a folder; returns its status and the run's folder.
Runner = Callable[[DictConfig, Path, Begun], tuple[str, Path | None]]


@dataclass(frozen=True)
class Job:
    """What became of a job."""

    status: str  # as of harness.pipeline.Outcome, or `failed`, or `not run`
    folder: str = ""
    reason: str = ""
    headline: str = ""
    seconds: float = 0.0


def attempt(cfg: DictConfig, start: Path, runner: Runner, begun: Begun = lambda folder: None) -> Job:
    """Run a job. Only Ctrl-C gets out of here."""
    folder = nowhere = start / failures.folder_without_id(settings_of(cfg))

    def note(path: Path) -> None:
        nonlocal folder
        folder = path
        begun(path)

    failures.clear(nowhere)
    begin = time.monotonic()
    try:
        status, where = runner(cfg, start, note)
        return Job(status, str(where or ""), seconds=time.monotonic() - begin)
    except (Exception, SystemExit) as error:
        reason = failures.reason_of(error)
        if not (folder / "failed.json").exists():
            failures.record(folder, settings_of(cfg), reason, failures.trace_of(error))
        return Job(FAILED, str(folder), reason, seconds=time.monotonic() - begin)


def settings_of(cfg: DictConfig) -> Any:
    """The composed configuration as plain dictionaries."""
    return OmegaConf.to_container(cfg, resolve=True)


def release() -> None:
    """Free what a job held, so that the next one is as if it were alone; peaks are counted anew by each run."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
