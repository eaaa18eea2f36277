"""Scores that another run made already: taken from the cache folder, and those made here left there.

Runs of a sweep have much in common. Base is the same in all of them, and so is every arm that the swept setting does
not touch: in a sweep of the FFN's group sizes, attention alone and the noise arms. Two things are kept, under a hash
of weights, tokens, packing, batches, type, device, attention and the code that computes, libraries' included:

    base/<key>/hidden       final hidden states of base at the scored positions, [slots, hidden]. With them a new arm is
                            compared with base (KL, agreement) without pushing base through the layers
    scores/<key>/<arm>      an arm's scores, and what is known of its sites (sites.csv)

What is taken equals what would be computed, to the bit, as no arm's scores depend on which arms are computed beside
it. Where they do, nothing is taken: sequential calibration, whose statistics belong to an arm, and spliced arms.

Runs at work at the same time do not make the same thing twice. Base's states are made in a pass of their own, together
with the calibration statistics, under a lock; others wait for that pass only. Arms are claimed by locks: a run makes
what no other one is making, and then takes over what the others made.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from filelock import Timeout
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from harness.calibration import Calibration
from harness.entries import Entry, folder_of, usable
from harness.files import key_of, to_json
from harness.keys import arm_key, computed_by
from harness.model.load import Model
from harness.packs import Pack
from harness.plan import Arm, Splice, Treatment
from harness.scheme import Scheme
from harness.stream import Scores
from harness.weigh import Weigher

log = logging.getLogger(__name__)

Row = dict[str, np.ndarray]  # one arm's part of Scores, by field


class Pass(Protocol):
    """One pass of the engine over all batches (harness.stream.Stream). The first arm is base, unless `base_SD` is."""

    def __call__(
        self,
        arms: Sequence[Arm],
        calibration: Calibration | None,
        *,
        base_SD: Tensor | None = None,
        final_SD: Tensor | None = None,
    ) -> Scores:
        """Scores of the arms; `final_SD` is filled with the first one's final hidden states."""
        ...


def reusable(arms: Sequence[Arm], calibration: Calibration | None) -> bool:
    """Whether every arm's scores are its own, whatever else is computed."""
    spliced = any(isinstance(recipe, Splice) for arm in arms for recipe in arm.plan.values())
    return not spliced and (calibration is None or not calibration.sequential)


def protocol(model: Model, batches: Sequence[Sequence[Pack]], head_tokens: int) -> dict[str, Any]:
    """What base's scores depend on."""
    packs = [[(p.tokens, p.position, p.branches, p.at, p.target, p.slot) for p in batch] for batch in batches]
    return {"batches": key_of(packs), "head_tokens": head_tokens, **computed_by(model)}


def kept_base(made_from: Mapping[str, Any], indivisible: str) -> Scores | None:
    """Base's scores as an earlier run left them; nothing is made, and nothing thrown away."""
    entry = Entry(_path(made_from, arm_key(None, indivisible, None)))
    if entry.damage() != "":
        return None
    row = load_file(entry.path)
    return Scores(*(row[f.name].numpy()[None] for f in fields(Scores)))


def _path(made_from: Mapping[str, Any], key: str) -> Path:
    """Where an arm's scores are."""
    return folder_of("scores", made_from) / f"{key}.safetensors"


@dataclass
class Reuse:
    """What is kept of one model scored on the same batches. Where arms are given, the first is base."""

    model: Model
    weigher: Weigher
    calibration: Calibration | None
    made_from: Mapping[str, Any]  # `protocol`
    slots: int
    most_bytes: float  # base's hidden states are kept up to this size
    run: Pass
    keeps: Callable[[], bool]  # whether what was made is what the same batches give again, and may be kept
    _found: dict[Path, Row] = field(default_factory=dict, init=False)
    _keys: dict[Treatment, Path] = field(default_factory=dict, init=False)

    def score(self, arms: Sequence[Arm]) -> Scores:
        """Scores of all arms, as one pass over all of them would give."""
        if not usable(folder_of("scores", self.made_from)):
            return self.run(arms, self.calibration)
        self._take(arms)
        log.info("%d of %d arms were scored by earlier runs", len(arms) - len(self._missing(arms)), len(arms))
        while missing := self._missing(arms):
            with self._claimed(missing) as mine:
                self._take(mine)
                if todo := self._missing(mine):
                    self._make(arms[0], todo)
            self._take(missing)
        rows = [self._found[self._key(arm)] for arm in arms]
        return Scores(*(np.stack([row[f.name] for row in rows]) for f in fields(Scores)))

    def _missing(self, arms: Sequence[Arm]) -> list[Arm]:
        return list({key: arm for arm in arms if (key := self._key(arm)) not in self._found}.values())

    @contextmanager
    def _claimed(self, arms: Sequence[Arm]) -> Iterator[list[Arm]]:
        """Those arms that no other run is making, locked; where there is none, the first, once it is let go."""
        with ExitStack() as held:
            mine = []
            for arm in arms:
                try:
                    held.enter_context(self._entry(arm).lock().acquire(timeout=0))
                    mine.append(arm)
                except Timeout:
                    log.info("arm %s is being scored by another run", arm.name)
            if not mine:
                held.enter_context(self._entry(arms[0]).lock().acquire())
                mine = [arms[0]]
            yield mine

    def _make(self, base: Arm, todo: Sequence[Arm]) -> None:
        """The arms that are to do, against base's states: stored ones, or pushed beside them."""
        calibration = self.calibration if any(arm.calibrated for arm in todo) else None
        states = self._base_states(base, calibration) if self._keeps_states(calibration) else None
        rest = [arm for arm in todo if arm.key]
        if states is None or (calibration and not calibration.complete):  # or the disk is full
            self._keep([base, *rest], self.run([base, *rest], calibration))
        elif rest:
            self._keep(rest, self.run(rest, calibration, base_SD=states))

    def _keeps_states(self, calibration: Calibration | None) -> bool:
        """Whether base may have a pass of its own: its states are not too large, and statistics outlive the pass."""
        size = self.slots * self.model.hidden_size * self.model.dtype.itemsize
        return size <= self.most_bytes and (calibration is None or calibration.folder is not None)

    def _base_states(self, base: Arm, calibration: Calibration | None) -> Tensor:
        """Base's final hidden states [slots, hidden]. Their pass also gathers the calibration statistics."""
        entry = Entry(folder_of("base", self.made_from) / "hidden.safetensors", self._about(base))
        with entry.lock():
            self._take([base])
            if entry.whole() and not self._missing([base]) and (calibration is None or calibration.complete):
                return load_file(entry.path)["hidden_SD"]
            final_SD = torch.empty(self.slots, self.model.hidden_size, dtype=self.model.dtype)
            self._keep([base], self.run([base], calibration, final_SD=final_SD))
            if self.keeps():
                entry.write(lambda path: save_file({"hidden_SD": final_SD}, path))
            return final_SD

    def _take(self, arms: Sequence[Arm]) -> None:
        """What is on disk of these arms."""
        for arm in self._missing(arms):
            entry = self._entry(arm)
            if not entry.whole():
                continue
            self._found[self._key(arm)] = {name: t.numpy() for name, t in load_file(entry.path).items()}
            with safe_open(entry.path, "pt") as file:
                facts = json.loads(file.metadata()["facts"])
            for key, fact in zip(_fact_keys(arm), facts, strict=True):
                self.weigher.facts.setdefault(key, fact)

    def _keep(self, arms: Sequence[Arm], scores: Scores) -> None:
        for a, arm in enumerate(arms):
            row = {f.name: getattr(scores, f.name)[a] for f in fields(Scores)}
            self._found[self._key(arm)] = row
            if not self.keeps():
                continue
            facts = to_json([self.weigher.facts[key] for key in _fact_keys(arm)])
            tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in row.items()}
            self._entry(arm).write(lambda path, t=tensors, f=facts: save_file(t, path, {"facts": f}))

    def _entry(self, arm: Arm) -> Entry:
        return Entry(self._key(arm), self._about(arm))

    def _about(self, arm: Arm) -> dict[str, Any]:
        return {"model": self.model.name, "arm": arm.name, **self.made_from}

    def _key(self, arm: Arm) -> Path:
        """The file of its scores, the same for arms that do the same."""
        if arm.key not in self._keys:
            self._keys[arm.key] = _path(self.made_from, arm_key(arm, self.weigher.indivisible, self.calibration))
        return self._keys[arm.key]


def _fact_keys(arm: Arm) -> list[tuple[str, Scheme, int]]:
    """Under which an arm's sites are described in Weigher.facts."""
    return [(site.name, recipe, draw) for site, recipe, draw in arm.key if isinstance(recipe, Scheme)]
