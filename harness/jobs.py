"""One job of a sweep, run to its end, whatever that is: no exception, exit or lack of memory reaches the others.

A failed job leaves its reason and traceback in its run folder, or where it had none yet, under
outputs/<experiment>/failed/ (harness.failures). With `harness.isolate=true` a job runs in a process of its own, so that
a kill, a crash in native code or the system's out-of-memory killer is its failure only.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness import failures

FAILED, NOT_RUN = "failed", "not run"
# Told a run's folder when its work begins.
Begun = Callable[[Path], None]
# Runs a composed configuration; returns its status and folder.
Runner = Callable[[DictConfig, Begun], tuple[str, Path | None]]


@dataclass(frozen=True)
class Job:
    """What became of a job."""

    status: str  # as of harness.pipeline.Outcome, or `failed`, or `not run`
    folder: str = ""
    reason: str = ""
    headline: str = ""
    seconds: float = 0.0


def attempt(cfg: DictConfig, runner: Runner, begun: Begun = lambda folder: None) -> Job:
    """Run a job. Only Ctrl-C gets out of here."""
    folder = nowhere = failures.folder_without_id(_settings(cfg))

    def note(path: Path) -> None:
        nonlocal folder
        folder = path
        begun(path)

    failures.clear(nowhere)
    start = time.monotonic()
    try:
        status, where = runner(cfg, note)
        return Job(status, str(where or ""), seconds=time.monotonic() - start)
    except (Exception, SystemExit) as error:
        reason = failures.reason_of(error)
        if folder is nowhere:
            failures.record(folder, _settings(cfg), reason, failures.trace_of(error))
        return Job(FAILED, str(folder), reason, seconds=time.monotonic() - start)


def attempt_apart(cfg: DictConfig, runner: Runner) -> Job:
    """Run a job in a process of its own. One that dies is a failed job."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, cfg, runner))
    start = time.monotonic()
    process.start()
    theirs.close()
    folder = failures.folder_without_id(_settings(cfg))
    try:
        while not isinstance(told := ours.recv(), Job):
            folder = told
        return told
    except EOFError:
        process.join()
        reason = _death(process.exitcode or 0)
        failures.record(folder, _settings(cfg), reason, f"{reason}: no traceback. attempts/*/run.log may say more.\n")
        return Job(FAILED, str(folder), reason, seconds=time.monotonic() - start)
    finally:
        process.join()


def _child(pipe: Connection, cfg: DictConfig, runner: Runner) -> None:
    try:
        pipe.send(attempt(cfg, runner, pipe.send))
    except KeyboardInterrupt:
        sys.exit(130)  # the parent was told as well


def _settings(cfg: DictConfig) -> Any:
    return OmegaConf.to_container(cfg, resolve=True)


def _death(code: int) -> str:
    if code >= 0:
        return f"its process ended with status {code}"
    name = signal.Signals(-code).name
    return f"its process was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def release() -> None:
    """Free what a job held, so that the next one is as if it were alone; peaks are counted anew by each run."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
