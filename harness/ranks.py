"""One run on several processes: `torchrun --nproc-per-node=N -m harness ...`, one GPU each where there are GPUs.

Every rank opens the model, makes all quantized weights and pushes whole batches, every N-th one. Packs and batches are
formed before they are dealt out, so the scores are those of one process, to the bit. The first rank alone looks for a
result, writes files and prints; the others wait to hear whether there is work, and send it their scores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from harness.stream import Scores

PATIENCE = timedelta(days=7)  # the first rank may be waiting for another run to let go of its folder
T = TypeVar("T")


def rank() -> int:
    """Which process this is, as torchrun says; the first is 0."""
    return int(os.environ.get("RANK", "0"))


def ranks() -> int:
    """How many there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def together() -> Iterator[None]:
    """Joins the other ranks, if there are any. All but the first are silent."""
    if ranks() == 1:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo", timeout=PATIENCE)
    if rank():
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    try:
        yield
    finally:
        dist.destroy_process_group()


def agreed(decision: bool) -> bool:
    """What the first rank decided."""
    told: list[Any] = [decision]
    if ranks() > 1:
        dist.broadcast_object_list(told, src=0)
    return told[0]


def dealt(batches: Sequence[T]) -> Sequence[T]:
    """This rank's part. Batches come sorted by length, so that dealing them out is fair."""
    return batches[rank() :: ranks()]


def gathered(score: Callable[[], Scores]) -> Scores:
    """The scores of all ranks together, on the first; what failed on any rank is raised there too."""
    if ranks() == 1:
        return score()
    own: Scores | Exception
    try:
        own = score()
    except Exception as error:
        own = error
    parts: list[Any] = [None] * ranks()
    dist.gather_object(_sendable(own), parts if rank() == 0 else None, dst=0)
    if isinstance(own, Exception):
        raise own
    if rank():
        return own
    for number, part in enumerate(parts):
        if isinstance(part, str):
            raise RuntimeError(f"rank {number}: {part}")
    return merged(parts)


def merged(parts: Sequence[Scores]) -> Scores:
    """One array of what each part scored; a slot that a part did not score is NaN there."""
    whole = Scores(*(np.array(getattr(parts[0], f.name)) for f in fields(Scores)))
    for part in parts[1:]:
        scored_S = np.isfinite(part.logp_AS).all(axis=0)
        for f in fields(Scores):
            getattr(whole, f.name)[:, scored_S] = getattr(part, f.name)[:, scored_S]
    return whole


def _sendable(own: Scores | Exception) -> Scores | str:
    return own if isinstance(own, Scores) else f"{type(own).__name__}: {own}"
