"""The calibration side of a run: hands the engine its calibration tokens, and each layer's statistics to the methods.

Statistics of float inputs depend on the weights, the tokens, their batches, the type, device and attention they were
computed in, and on the code (harness.makers), and on nothing that a sweep of precisions changes. They are kept on disk
under a hash of those, one file a layer (harness.entries); a run that finds all of them pushes no calibration token at
all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from harness.calibrate import Draw, gather
from harness.entries import Entry
from harness.files import key_of
from harness.makers import maker_version
from harness.model.load import Model
from harness.model.sites import Site
from harness.packs import Pack, batches
from harness.quantize import InputStats

Stats = Mapping[Site, InputStats]


@dataclass
class Calibration:
    """What the engine needs of calibration. `folder`: where statistics of float inputs are kept; none: nowhere."""

    model: Model
    draws: Sequence[Draw]
    sequential: bool  # every arm's own quantized layers feed the next one's statistics
    batch_tokens: int
    folder: Path | None = None
    _sites: dict[int, list[Site]] = field(init=False, default_factory=dict)
    _whole: set[int] = field(init=False, default_factory=set)  # draws seen to be on disk

    def __post_init__(self) -> None:
        for site in self.model.sites:
            self._sites.setdefault(site.layer, []).append(site)

    def batches(self, draw: int) -> list[list[Pack]]:
        """A draw's tokens; none where everything that they would tell is on disk."""
        if self._stored(draw):
            return []
        return list(batches(self.draws[draw].packs(), self.batch_tokens))

    def stats(self, index: int, layer: nn.Module, draw: int, replay: Callable[[], Any]) -> Stats:
        """Statistics of a layer's sites: from disk, or by `replay`, which runs the tokens through the layer."""
        sites = self._sites[index]
        if self._stored(draw):
            return _load(self._entry(draw, index).path, sites, self.model.device)
        found = gather(layer, sites, replay)
        if not self.sequential and self.folder:
            self._entry(draw, index).write(lambda path: _save(path, found))
        return found

    @property
    def complete(self) -> bool:
        """Whether no calibration token has to be pushed any more."""
        return all(self._stored(draw) for draw in range(len(self.draws)))

    def _stored(self, draw: int) -> bool:
        if self.sequential or not self.folder:
            return False
        if draw not in self._whole and all(self._entry(draw, i).whole() for i in range(len(self.model.layers))):
            self._whole.add(draw)
        return draw in self._whole

    def _entry(self, draw: int, index: int) -> Entry:
        assert self.folder is not None
        made_from = {
            "model_sha": self.model.sha,
            "samples": self.draws[draw].digest,
            "batch_tokens": self.batch_tokens,
            "dtype": str(self.model.dtype),
            "device": self.model.device_name,
            "attention": self.model.module.config._attn_implementation,
            "code_version": maker_version("statistics"),
        }
        about = {"model": self.model.name, **made_from}
        return Entry(self.folder / key_of(made_from) / f"layer{index}.safetensors", about)


def _save(path: Path, stats: Stats) -> None:
    """Statistics that sites share are stored once."""
    numbers = {id(s): n for n, s in enumerate({id(s): s for s in stats.values()}.values())}
    unique = {numbers[id(s)]: s for s in stats.values()}
    tensors = {f"{n}.{name}": t.cpu().contiguous() for n, s in unique.items() for name, t in s.tensors().items()}
    save_file(tensors, path, {"sites": json.dumps({site.name: numbers[id(s)] for site, s in stats.items()})})


def _load(path: Path, sites: Sequence[Site], device: Any) -> Stats:
    with safe_open(path, "pt") as file:
        numbers = json.loads(file.metadata()["sites"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    unique = {
        n: InputStats.from_tensors(
            {name.partition(".")[2]: t for name, t in tensors.items() if name.partition(".")[0] == str(n)}
        ).to(device)
        for n in set(numbers.values())
    }
    return {site: unique[numbers[site.name]] for site in sites}
