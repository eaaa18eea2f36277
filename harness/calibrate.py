"""Calibration: which tokens, and the statistics of every site's inputs.

Tokens are drawn by a generator of their own, so that the same configuration gives the same samples and nothing else
in the process is disturbed. The statistics are gathered in the engine's own loop: as each layer comes by, the
calibration tokens' hidden states run through it, and what enters each site's module is added up. With
`calib.inputs=float` those states come from the unquantized model, once for all arms, precisions and group sizes, and
the statistics are kept on disk; with `quantized` every arm sees the outputs of its own quantized layers.

No sample is padded: all have the same length, so a statistic holds nothing but text. Random samples of a stream may
overlap by chance, and how many of their tokens are repeated is told; a text that holds fewer tokens than all samples
together is refused, as it could only be used over again.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.config import CalibConfig, CalibDraw, CalibPacking, CalibSource
from harness.errors import UserError
from harness.expert_inputs import Entry, entry, listening_to_experts
from harness.model.sites import Site
from harness.packs import Pack
from harness.quantize import InputStats
from harness.text import bare_ids, joined

SHIPPED = Path(__file__).parent / "data" / "prose" / "sotu.txt"


@dataclass(frozen=True)
class Draw:
    """The samples of one seed, all `length` tokens long."""

    samples: tuple[tuple[int, ...], ...]
    usable: int  # samples that there were to choose from
    dropped: int  # texts shorter than a sample
    repeated: int = 0  # tokens at places of the text that another sample has already

    @property
    def digest(self) -> str:
        """Hash of the token ids."""
        return hashlib.sha256(json.dumps(self.samples).encode()).hexdigest()[:16]

    def packs(self) -> list[Pack]:
        """As rows for the engine, nothing scored."""
        return [Pack(tokens=list(s), position=list(range(len(s))), branches=[(0, len(s), [])]) for s in self.samples]


def draw_samples(config: CalibConfig, tokenizer: Any, seed: int, start: Path) -> Draw:
    """The samples of one seed. UserError where fewer than asked are usable."""
    length = config.length - config.bos
    rows = [_ids(text, tokenizer, config) for text in _texts(config, start)]
    streamed = config.packing is CalibPacking.stream
    pieces, usable, repeated = (_cut if streamed else _whole)(rows, length, config, seed)
    if usable < config.samples:
        raise UserError(
            f"calib: {usable} usable samples of {len(rows)} texts, {config.samples} asked (each needs {length} "
            "tokens). Give more text (calib.source, calib.path), or lower calib.samples or calib.length."
        )
    prefix = [_bos(tokenizer)] if config.bos else []
    dropped = 0 if streamed else len(rows) - usable
    return Draw(tuple((*prefix, *p) for p in pieces[: config.samples]), usable, dropped, repeated)


Cut = tuple[list[list[int]], int, int]  # samples, how many without common tokens there are, tokens repeated


def _cut(rows: list[list[int]], length: int, config: CalibConfig, seed: int) -> Cut:
    """Pieces of one stream: one after the other, or at random places that may overlap."""
    tokens = [token for row in rows for token in row]
    usable = len(tokens) // length
    starts = range(0, usable * length, length)
    if usable and config.draw is CalibDraw.random:
        starts = np.random.default_rng(seed).integers(0, len(tokens) - length + 1, config.samples)
    steps = np.diff(sorted(starts))
    return [tokens[s : s + length] for s in starts], usable, int((length - steps).clip(0).sum())


def _whole(rows: list[list[int]], length: int, config: CalibConfig, seed: int) -> Cut:
    """The beginning of every text that is long enough."""
    long = [row[:length] for row in rows if len(row) >= length]
    if config.draw is CalibDraw.random:
        long = [long[i] for i in np.random.default_rng(seed).permutation(len(long))]
    return long, len(long), 0


def _texts(config: CalibConfig, start: Path) -> list[Any]:
    return _SOURCES[config.source](config, start)


def _shipped(config: CalibConfig, start: Path) -> list[Any]:
    return [SHIPPED.read_text(encoding="utf-8")]


def _text(config: CalibConfig, start: Path) -> list[Any]:
    return [joined(_read(config, start), config.joiner)]


def _jsonl(config: CalibConfig, start: Path) -> list[Any]:
    lines = [line for line in _read(config, start).split("\n") if line.strip()]
    try:
        rows = [json.loads(line) for line in lines]
    except ValueError as error:
        raise UserError(f"calib.path={config.path}: not a jsonl file ({error}). One JSON object a line.") from error
    return [_column(row, config) for row in rows]


def _dataset(config: CalibConfig, start: Path) -> list[Any]:
    import datasets

    try:
        data: Any = datasets.load_dataset(config.path, config.config_name or None, split=config.split)
    except Exception as error:  # the hub, the network, a script, a name: whatever `datasets` makes of it
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"calib.path={config.path}: this data set cannot be loaded ({reason}). A local file always works: "
            "calib.source=text or jsonl with calib.path=FILE. So does calib=default in place of calib=hub: the shipped "
            "speeches, in fewer samples."
        ) from error
    return [_column(row, config) for row in data]


_SOURCES: dict[CalibSource, Callable[[CalibConfig, Path], list[Any]]] = {
    CalibSource.shipped: _shipped,
    CalibSource.text: _text,
    CalibSource.jsonl: _jsonl,
    CalibSource.dataset: _dataset,
}


def _read(config: CalibConfig, start: Path) -> str:
    path = start / config.path
    if not config.path or not path.is_file():
        raise UserError(f"calib.path={config.path!r}: no such file. Give a text or jsonl file.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"calib.path={config.path}: not UTF-8 ({error}).") from error


def _column(row: Mapping[str, Any], config: CalibConfig) -> Any:
    if not isinstance(row, Mapping) or config.text_field not in row:
        found = ", ".join(map(str, row)) or "none"
        raise UserError(f"calib.text_field={config.text_field!r} is no column of {config.path}; it has {found}.")
    return row[config.text_field]


def _ids(text: Any, tokenizer: Any, config: CalibConfig) -> list[int]:
    """Token ids of a text; ids are taken as they are. UserError for what is neither."""
    if isinstance(text, str):
        return bare_ids(tokenizer, text)
    most = len(tokenizer) - 1
    if isinstance(text, list) and all(isinstance(token, int) and 0 <= token <= most for token in text):
        return text
    raise UserError(
        f"calib.text_field={config.text_field!r} of {config.path} holds {textwrap.shorten(repr(text), 60)}: neither a "
        f"text nor a list of this tokenizer's ids, 0 to {most}."
    )


def _bos(tokenizer: Any) -> int:
    if tokenizer.bos_token_id is None:
        raise UserError("calib.bos=true: this tokenizer has no BOS token.")
    return tokenizer.bos_token_id


def gather(layer: nn.Module, sites: Sequence[Site], replay: Callable[[], Any]) -> dict[Site, InputStats]:
    """Statistics of the inputs of a layer's sites while `replay` runs calibration tokens through it.

    Sites that are fed the same tensor (q, k, v; gate, up) share one object: it is summed once, and factored once. Sums
    are made in float64 and handed out in float32: a thousand small batches, added up in float32, would differ from a
    few large ones by more than 1e-6.
    """
    by_module: dict[str, InputStats] = {}
    by_expert: dict[Entry, InputStats] = {}
    routed = [site for site in sites if site.expert is not None]
    paths = sorted({site.module for site in sites if site.expert is None})
    with _listening(layer, paths, by_module), listening_to_experts(layer, routed, by_expert):
        replay()
    for stats in (*by_module.values(), *by_expert.values()):
        stats.hessian_II = stats.hessian_II.float()
    return {site: by_module[site.module] if site.expert is None else by_expert[entry(site)] for site in sites}


@contextmanager
def _listening(layer: nn.Module, paths: Sequence[str], found: dict[str, InputStats]) -> Iterator[None]:
    """Hooks that add up what enters each module. A module whose input is that of the one before shares its sum."""
    last: list[tuple[Tensor, InputStats]] = []

    def hook(path: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def listen(module: nn.Module, args: tuple[Any, ...]) -> None:
            x = args[0]
            if last and last[0][0] is x:
                found.setdefault(path, last[0][1])
                return
            stats = found.setdefault(path, InputStats.empty(x.shape[-1], dtype=torch.float64, device=x.device))
            last[:] = [(x, stats.add(x))]

        return listen

    handles = [layer.get_submodule(path).register_forward_pre_hook(hook(path)) for path in paths]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
