"""Before any weight is read: does the run fit the memory and the disk, and what will it take?

Files, shapes, tokenizer, device, tasks, calibration text and group sizes have been checked by now, each where it is
first known. What the model's weights will take is set aside; what
`harness.needs` lists must fit with one batch at a time. Hidden states of more batches are held as far as
`engine.memory_gib` and the memory that is left allow, and the rest is done in waves, which changes no result.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import needs
from harness.config import EngineConfig, RunConfig
from harness.cut import cut_batches
from harness.errors import UserError
from harness.model.cache import cache_folder
from harness.model.outline import Outline
from harness.model.room import free_memory, gib
from harness.packs import Pack, TokenSequence
from harness.plan import Arm

log = logging.getLogger(__name__)

SPARE = 0.9  # of the free memory may be planned with: allocators round up, and estimates are estimates
MOST_ARMS = 8  # named


@dataclass(frozen=True)
class Preflight:
    """A run that can begin."""

    engine: EngineConfig  # as asked, with no more memory than there is
    lines: dict[str, str]  # to print
    cut: list[list[Pack]]  # what is scored together


def preflight(config: RunConfig, model: Outline, arms: Sequence[Arm], work: Sequence[TokenSequence]) -> Preflight:
    """All that can be known before the first weight. UserError for what cannot work, with figures and a way out."""
    _disk(config, model, arms)
    needed = needs.memory(config, model, arms, work)
    free = SPARE * max(0, free_memory(model.device) - model.pending_bytes)
    total = sum(needed.values())
    parts = ", ".join(f"{name} {gib(size)}" for name, size in needed.items() if size)
    if total > free:
        raise UserError(
            f"The run needs {gib(total)} of memory on {model.device}, {gib(free)} can be had: {parts}.\n"
            "Lower engine.batch_tokens, engine.pack_tokens, engine.head_tokens or calib.samples, design fewer arms, "
            "set model.dtype=bfloat16, or use a larger machine."
        )
    states = min(config.engine.memory_gib, (free - total + needed["states"]) / 2**30)
    if states < config.engine.memory_gib:
        log.warning("engine.memory_gib=%g is more than is free: going on with %.3g", config.engine.memory_gib, states)
    cut = cut_batches(config, model, arms, work)
    packs = [pack for batch in cut for pack in batch]
    lines = {**_lines(model, arms, work, packs), "memory": f"{gib(total)} of {gib(free)}: {parts}"}
    return Preflight(replace(config.engine, memory_gib=states), lines, cut)


def _disk(config: RunConfig, model: Outline, arms: Sequence[Arm]) -> None:
    """Room in the cache folder for the statistics that are to be kept."""
    needed, folder = needs.kept_statistics(config, model, arms), cache_folder()
    free = shutil.disk_usage(_existing(folder)).free
    if needed > free:
        raise UserError(
            f"Calibration statistics take {gib(needed)} in {folder}, {gib(free)} are free there. "
            "Set calib.keep=false, or HARNESS_CACHE to another folder."
        )


def _existing(folder: Path) -> Path:
    """The folder, or the one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def _lines(model: Outline, arms: Sequence[Arm], work: Sequence[TokenSequence], packs: Sequence[Pack]) -> dict[str, str]:
    text = model.config.get_text_config()
    dtype, attention = str(model.dtype).removeprefix("torch."), model.config._attn_implementation
    names = [arm.name for arm in arms[:MOST_ARMS]] + ["..."] * (len(arms) > MOST_ARMS)
    plain, computed = sum(len(sequence.tokens) - 1 for sequence in work), sum(map(len, packs))
    before = f" ({plain:,} before shared ones are computed once)" if plain > computed else ""
    return {
        "model": f"{model.name}: {text.model_type}, {len(model.layers)} layers, {model.parameters:,} parameters",
        "device": f"{model.device}, {dtype}, {attention} attention",
        "arms": f"{len(arms)}: {' '.join(names)}",
        "scored": f"{len(work):,} sequences, {computed:,} tokens an arm{before}",
        "time": f"{_duration(needs.seconds(model, arms, packs))} of matrix products, if no scores are kept; attention "
        "and quantizing come to that",
    }


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"
