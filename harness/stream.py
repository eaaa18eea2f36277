"""The engine: one pass over the decoder layers scores every arm.

No arm has a model of its own. For each layer, in order: its weights are put on the device once; for every distinct
way in which the arms treat it, the quantized weights are written in and the hidden states of those arms are pushed
through; it is freed; the next one comes. After the last layer, norm and head turn the hidden states of all arms into
token log-probabilities side by side, in chunks. Memory is one layer plus hidden states, whatever the model's size or
the number of arms.

Arms whose plans agree on all layers so far share one set of hidden states (a *trunk*); a layer that they treat
differently splits it.

Calibration tokens travel the same way, and are looked at before a layer is quantized.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from harness.config import EngineConfig
from harness.errors import NonFiniteError, UserError
from harness.live import Linear, computing
from harness.model.load import Model
from harness.model.sites import Site, substituted
from harness.packs import Pack
from harness.plan import Arm, Treatment, true_sequential_stages
from harness.replay import head_logits, model_inputs, record
from harness.trunks import States, Trunk

log = logging.getLogger(__name__)

SMALLER = "Lower engine.pack_tokens or engine.head_tokens, or set model.dtype=bfloat16."


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, of a GPU or of the machine; torch has no type of error for the latter."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _halves(wave: list[list[Pack]], error: Exception) -> list[list[list[Pack]]]:
    """Half as many batches at once; of a single one, half as many packs."""
    if len(wave) > 1:
        log.warning("out of memory with %d batches at once: going on with half of them", len(wave))
        return [wave[: len(wave) // 2], wave[len(wave) // 2 :]]
    (batch,) = wave
    if len(batch) == 1:
        raise UserError(f"Out of memory with a single pack of {len(batch[0])} tokens ({error}). {SMALLER}") from error
    half = len(batch) // 2
    log.warning("out of memory with a batch of %d packs: going on with %d", len(batch), half)
    return [[batch[:half]], [batch[half:]]]


class Weighs(Protocol):
    """Makes the weights of a treatment: harness.weigh."""

    def weights(self, treatment: Treatment, layer: nn.Module, stats: Any = None, /) -> dict[Site, Tensor]:
        """The weights [O, I] to write, by site. `stats`: calibration statistics by draw and site."""
        ...

    def forwards(self, treatment: Treatment, layer: nn.Module, /) -> dict[Site, Linear]:
        """The sites that compute in another way instead."""
        ...

    def note(self, arms: Sequence[str], treatment: Treatment, /) -> None:
        """What was just made belongs to these arms only."""
        ...


class Calibrates(Protocol):
    """Gives calibration tokens, and makes statistics of what enters a layer's sites: harness.calibration."""

    draws: Sequence[Any]
    sequential: bool  # every arm's own quantized layers feed the next one's statistics; else the model's own do

    def batches(self, draw: int) -> list[list[Pack]]:
        """Tokens of a draw; none where their statistics are known already."""
        ...

    def stats(self, index: int, layer: nn.Module, draw: int, replay: Callable[[], Any], /) -> Any:
        """Statistics by site; `replay` runs the draw's hidden states through the layer."""
        ...


@dataclass
class Scores:
    """What every arm says of every scored token: [arms, slots]. `kl_AS` is KL(base || arm) in nats."""

    logp_AS: np.ndarray
    greedy_AS: np.ndarray  # the token is the arm's own first choice
    kl_AS: np.ndarray
    agree_AS: np.ndarray  # the arm's first choice is base's

    @classmethod
    def empty(cls, arms: int, slots: int) -> Scores:
        """Arrays to fill; NaN until scored."""
        shape = (arms, slots)
        return cls(np.full(shape, np.nan), np.zeros(shape, bool), np.full(shape, np.nan), np.zeros(shape, bool))

    def part(self, slots: slice) -> Scores:
        """The scores of some slots only."""
        return Scores(*(getattr(self, f.name)[:, slots] for f in fields(self)))


def head_cost(model: Model) -> float:
    """What the logits of one position cost, in layers that a token passes."""
    return model.vocab_size * model.hidden_size * len(model.layers) / sum(model.used_weights.values())


@dataclass
class Stream:
    """The one loop. `score` fills the arrays of all arms; arm 0 is base.

    Base may have been pushed in an earlier pass, which left its final hidden states by slot in `final_SD`. Given as
    `base_SD`, they stand for it: the logits made of them are the same to the bit, and no arm here is base.
    """

    model: Model
    arms: Sequence[Arm]
    weigher: Weighs
    config: EngineConfig
    calibration: Calibrates | None = None
    progress: Callable[[int, str], None] = lambda tokens, note: None
    base_SD: Tensor | None = None
    final_SD: Tensor | None = None  # to be filled
    waves: int = field(default=0, init=False)
    halved: bool = field(default=False, init=False)  # a batch was: its scores may be a rounding apart from the whole's
    _stats: dict[int, Any] = field(default_factory=dict, init=False)  # of the layer at hand, from float inputs

    def score(self, batches: Sequence[list[Pack]], slots: int) -> Scores:
        """Scores of every slot in every arm. Batches beyond the memory budget are done in waves."""
        scores = Scores.empty(len(self.arms), slots)
        todo = list(self._waves(batches))
        with torch.inference_mode():
            while todo:
                wave = todo.pop(0)
                try:
                    self._wave(wave, scores)
                    self.waves += 1
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                    self.halved |= len(wave) == 1
                    todo[:0] = _halves(wave, error)
        own = [slot for batch in batches for pack in batch for slot in pack.slot]
        assert np.isfinite(scores.logp_AS[:, own]).all(), "a slot was never scored"
        return scores

    def _waves(self, batches: Sequence[list[Pack]]) -> Iterator[list[list[Pack]]]:
        """Consecutive batches whose hidden states and masks stay within the budget."""
        budget, used, wave = self.config.memory_gib * 2**30, 0.0, []
        for batch in batches:
            size = self._bytes(batch)
            if wave and used + size > budget:
                yield wave
                used, wave = 0.0, []
            wave.append(batch)
            used += size
        if wave:
            yield wave

    def _bytes(self, batch: list[Pack]) -> float:
        width = max(len(pack) for pack in batch)
        states = (len({arm.key for arm in self.arms}) + 1) * self.model.hidden_size
        mask = width if any(pack.is_tree for pack in batch) else 0
        return len(batch) * width * (states + mask) * self.model.dtype.itemsize

    def _wave(self, batches: list[list[Pack]], scores: Scores) -> None:
        trunks = list(self._embed(batches))
        for index in range(len(self.model.layers)):
            with self.model.layer(index) as layer:
                trunks = [after for trunk in trunks for after in self._layer(index, layer, trunk)]
        self._head(batches, trunks, scores)

    def _embed(self, batches: list[list[Pack]]) -> Iterator[Trunk]:
        for treatment, arms in self._split(range(len(self.arms)), -1):
            with self._treated(treatment, self.model.module):
                calib = {draw: self._record(self._calib_batches(draw)) for draw in self._draws(arms)}
                yield Trunk(arms, self._record(batches), calib)

    def _record(self, batches: list[list[Pack]]) -> States:
        recorded = [record(self.model, model_inputs(batch, self.model)) for batch in batches]
        return States([r.hidden_BTD for r in recorded], [r.calls for r in recorded])

    def _draws(self, arms: Sequence[int]) -> list[int]:
        """Calibration draws that these arms must carry along: their own, or base carries all."""
        if self.calibration is None:
            return []
        if self.calibration.sequential:
            return sorted({self.arms[a].draw for a in arms if self.arms[a].calibrated})
        return list(range(len(self.calibration.draws))) if 0 in arms else []

    def _calib_batches(self, draw: int) -> list[list[Pack]]:
        assert self.calibration is not None
        found = self.calibration.batches(draw)
        assert not found or self.base_SD is None or self.calibration.sequential, "base, whose inputs count, is not here"
        return found

    def _layer(self, index: int, layer: nn.Module, trunk: Trunk) -> Iterator[Trunk]:
        """One trunk through one layer, split by how its arms treat it."""
        stats = self._layer_stats(index, layer, trunk)
        ways = self._split(trunk.arms, index)
        for n, (treatment, arms) in enumerate(ways):
            last = n == len(ways) - 1  # the last way may overwrite the trunk's own states
            scored = trunk.scored if last else trunk.scored.copy()
            calib = {draw: trunk.calib[draw] if last else trunk.calib[draw].copy() for draw in self._draws(arms)}
            with self._in_order(index, layer, treatment, stats, trunk.calib):
                if self.calibration and self.calibration.sequential:
                    self.weigher.note([self.arms[a].name for a in arms], treatment)
                for states in (scored, *calib.values()):
                    states.push(index, layer)
            self._check(scored.hidden, f"activations after layer {index}", arms)
            self.progress(sum(h.shape[0] * h.shape[1] for h in scored.hidden), f"layer {index}")
            yield Trunk(arms, scored, calib)

    def _layer_stats(self, index: int, layer: nn.Module, trunk: Trunk) -> dict[int, Any]:
        """Statistics by draw: of this trunk's own states, or once a layer of base's, which is the first trunk."""
        if self.calibration is None or not (self.calibration.sequential or 0 in trunk.arms):
            return self._stats
        self._stats = self._gathered(index, layer, trunk.calib)
        return self._stats

    def _gathered(self, index: int, layer: nn.Module, calib: dict[int, States]) -> dict[int, Any]:
        """Statistics by draw of a layer as it stands."""
        assert self.calibration is not None
        return {
            draw: self.calibration.stats(index, layer, draw, lambda s=states: s.replay(index, layer))
            for draw, states in calib.items()
        }

    @contextmanager
    def _in_order(
        self, index: int, layer: nn.Module, treatment: Treatment, stats: dict[int, Any], calib: dict[int, States]
    ) -> Iterator[None]:
        """A treated layer. True-sequential GPTQ looks at inputs anew after each group of roles is quantized."""
        with ExitStack() as stack:
            stages = true_sequential_stages(treatment)
            for n, stage in enumerate(stages):
                stats = self._gathered(index, layer, calib) if n else stats
                stack.enter_context(self._treated(stage, layer, stats))
            yield

    @contextmanager
    def _treated(self, treatment: Treatment, module: nn.Module, stats: Any = None) -> Iterator[None]:
        """The layer (or the whole model, for embedding and head) as a treatment would have it."""
        weights, forwards = self.weigher.weights(treatment, module, stats), self.weigher.forwards(treatment, module)
        with substituted(module, weights), computing(module, forwards):
            yield

    def _split(self, arms: Sequence[int], layer: int) -> list[tuple[Treatment, list[int]]]:
        """Arms by the way in which they treat a layer."""
        ways: dict[Treatment, list[int]] = {}
        for a in arms:
            ways.setdefault(self.arms[a].treatment(layer), []).append(a)
        return list(ways.items())

    def _check(self, tensors: Sequence[Tensor], what: str, arms: Sequence[int]) -> None:
        if not all(torch.isfinite(t.float().sum()) for t in tensors):
            names = ", ".join(self.arms[a].name for a in arms)
            raise NonFiniteError(
                f"non-finite {what} in arm {names}: its scores would mean nothing. Its weights hold NaN or infinity, "
                f"or numbers grow too large for {self.model.dtype} (model.dtype)."
            )

    def _head(self, batches: list[list[Pack]], trunks: list[Trunk], scores: Scores) -> None:
        ends = [
            (treatment, arms, trunk)
            for trunk in trunks
            for treatment, arms in self._split(trunk.arms, len(self.model.layers))
        ]
        ends.sort(key=lambda end: min(end[1]))  # base first: the others are compared with it
        cost = head_cost(self.model) * len(ends)
        for b, batch in enumerate(batches):
            row = np.concatenate([np.full(len(pack.at), r) for r, pack in enumerate(batch)])
            at, target, slot = (np.concatenate([getattr(p, n) for p in batch]) for n in ("at", "target", "slot"))
            # A place is looked at once for all slots that are predicted there: choices share the end of their context.
            width = trunks[0].scored.hidden[b].shape[1]
            place_P, place_N = np.unique(row * width + at, return_inverse=True)
            for n in range(0, len(place_P), self.config.head_tokens):
                places = np.divmod(place_P[n : n + self.config.head_tokens], width)
                own = np.flatnonzero((place_N >= n) & (place_N < n + len(places[0])))
                hidden = [(way, arms, trunk.scored.hidden[b][places]) for way, arms, trunk in ends]
                self._chunk(hidden, place_N[own] - n, target[own], slot[own], scores)
                self.progress(round(cost * len(places[0])), "head")

    def _chunk(
        self,
        ends: list[tuple[Treatment, list[int], Tensor]],
        place: np.ndarray,
        target: np.ndarray,
        slot: Any,
        s: Scores,
    ) -> None:
        """Scores of some slots in all arms. KL(base || arm) = sum of p (log p - log q), over the vocabulary.

        `place`, `target`, `slot` [N]: the row of `ends`' hidden states [P, D] that predicts a slot's target.
        """
        base = None
        place_N, target_N = (torch.from_numpy(a).to(self.model.device) for a in (place, target))
        slot_P = np.empty(len(ends[0][2]), dtype=np.int64)
        slot_P[place] = slot  # any of a place's slots
        if self.base_SD is not None:
            logp_PV = self._logp((), self.base_SD[slot_P].to(self.model.device))
            base = (logp_PV, logp_PV.exp(), logp_PV.argmax(1))
        for treatment, arms, hidden_PD in ends:
            logp_PV = self._logp(treatment, hidden_PD)
            self._check([logp_PV], "logits", arms)
            first_P = logp_PV.argmax(1)
            if base is None:
                agree_P = torch.ones_like(first_P, dtype=torch.bool)
                kl_P = torch.zeros_like(first_P, dtype=logp_PV.dtype)
                if self.final_SD is not None:
                    self.final_SD[slot] = hidden_PD.cpu()[place]
                base = (logp_PV, logp_PV.exp(), first_P) if len(ends) > 1 else None
            else:
                base_logp_PV, base_p_PV, base_first_P = base
                kl_P, agree_P = (base_p_PV * (base_logp_PV - logp_PV)).sum(1), first_P == base_first_P
            values = (logp_PV[place_N, target_N], first_P[place_N] == target_N, kl_P[place_N], agree_P[place_N])
            at = np.ix_(arms, slot)
            for array, value in zip((s.logp_AS, s.greedy_AS, s.kl_AS, s.agree_AS), values, strict=True):
                array[at] = value.cpu().numpy()

    def _logp(self, treatment: Treatment, hidden_ND: Tensor) -> Tensor:
        """Log-probabilities [N, V] of the whole vocabulary."""
        with self._treated(treatment, self.model.module):
            return head_logits(self.model, hidden_ND).float().log_softmax(-1)
