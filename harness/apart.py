"""A job in a process of its own: `python -m harness.apart`, started by a job's process and ended with it.

The child is told over its standard input what to run, tells over a pipe where it is at work and how it ended, and goes
when its standard input closes, which is when its parent dies, however it does. `multiprocessing` is not used: it
cannot start a process from within one of joblib's.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from omegaconf import DictConfig

from harness import failures
from harness.config import Isolate
from harness.jobs import FAILED, Job, Runner, attempt, settings_of

SENDERS = {"SIGKILL": "out of memory", "SIGTERM": "cancelled", "SIGUSR2": "Slurm's time limit"}


def isolated(asked: Isolate, launcher: str) -> bool:
    """Whether a job gets a process of its own. `launcher`: the class of Hydra's."""
    return asked is Isolate.always or (asked is Isolate.auto and not launcher.endswith(".BasicLauncher"))


def attempt_apart(cfg: DictConfig, start: Path, runner: Runner) -> Job:
    """`harness.jobs.attempt` in a process of its own. One that dies is a failed job."""
    begin = time.monotonic()
    folder = start / failures.folder_without_id(settings_of(cfg))
    reading, writing = os.pipe()
    path = os.pathsep.join(place for place in sys.path if place)
    with subprocess.Popen(
        [sys.executable, "-m", "harness.apart", str(writing)],
        stdin=subprocess.PIPE,
        pass_fds=[writing],
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        os.close(writing)
        assert process.stdin is not None
        try:
            process.stdin.write(pickle.dumps((cfg, start, runner)))
            process.stdin.flush()
            with Connection(reading, writable=False) as told:
                while not isinstance(message := told.recv(), Job):
                    folder = message
            return message
        except (EOFError, BrokenPipeError):
            reason = _death(process.wait())
    failures.record(folder, settings_of(cfg), reason, f"{reason}: no traceback. attempts/*/run.log may say more.\n")
    return Job(FAILED, str(folder), reason, seconds=time.monotonic() - begin)


def _death(code: int) -> str:
    if code >= 0:
        return f"its process ended with status {code}"
    name = signal.Signals(-code).name
    return f"its process was killed by {name}" + (f" ({SENDERS[name]}?)" if name in SENDERS else "")


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _child(writing: int) -> None:
    cfg, start, runner = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with Connection(writing, readable=False) as tell:
        tell.send(attempt(cfg, start, runner, tell.send))


if __name__ == "__main__":
    try:
        _child(int(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)  # the parent was told as well
