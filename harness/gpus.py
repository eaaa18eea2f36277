"""One GPU a job: jobs that share a machine, of one sweep or of several, do not share a GPU.

A job locks the first free GPU for as long as it runs, and waits where there is none. Locks are named by the GPU's own
id, so that jobs that see different GPUs under the same number (Slurm, Ray) do not wait for each other.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

WAIT = 2.0  # seconds between looks at GPUs that are all taken


def gpu_count() -> int:
    """GPUs of this machine; at least 1, so that as many jobs can run at once."""
    import torch

    return max(1, torch.cuda.device_count())


@contextmanager
def one_gpu() -> Iterator[None]:
    """Makes a free GPU this thread's current one, and keeps it from others meanwhile. Nothing without GPUs."""
    import torch

    names = [str(torch.cuda.get_device_properties(k).uuid) for k in range(torch.cuda.device_count())]
    if not names:
        yield
        return
    number, lock = _free(names)
    try:
        torch.cuda.set_device(number)
        yield
    finally:
        lock.release()


def _free(names: list[str]) -> tuple[int, FileLock]:
    folder = Path(tempfile.gettempdir()) / f"quant-harness-gpus-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    while True:
        for number, name in enumerate(names):
            lock = FileLock(folder / f"{name}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            return number, lock
        time.sleep(WAIT)
