"""The engine: one pass over the decoder layers scores every arm.

No arm has a model of its own. For each layer, in order: its weights are put on the device once; for every distinct
way in which the arms treat it, the quantized weights are written in and the hidden states of those arms are pushed
through; it is freed; the next one comes. After the last layer, norm and head turn the hidden states of all arms into
token log-probabilities side by side, in chunks. Memory is one layer plus hidden states, whatever the model's size or
the number of arms.

Arms whose plans agree on all layers so far share one set of hidden states (a *trunk*); a layer that they treat
differently splits it.

Nothing here knows an architecture. The model's own forward is run once per batch with every decoder layer replaced
by a recorder, which yields the embedded input and each layer's real arguments (masks differ by layer in
sliding-window models; rotary tables; cache flags). The end is run the same way: all layers replaced by one that
returns the final hidden state, so that norm, head, soft-capping and scaling are the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from harness.config import EngineConfig
from harness.model.load import Model
from harness.model.sites import substituted
from harness.packs import Pack
from harness.plan import Arm, Treatment


class NonFiniteError(ArithmeticError):
    """Activations or logits that are not finite; no score is made of them."""


class Weigher(Protocol):
    """Makes the weights of a treatment: harness.weigh."""

    def weights(self, treatment: Treatment, layer: nn.Module, context: Any) -> dict[Any, Tensor]:
        """The weights [O, I] to write, by site."""
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


@dataclass
class Recorded:
    """A batch as the first layer sees it, and the other arguments of every layer."""

    hidden_BTD: Tensor
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass
class Trunk:
    """Arms (by index) that agreed so far, and their hidden states, one tensor a batch."""

    arms: list[int]
    hidden: list[Tensor]


class StandIn(nn.Module):
    """In a decoder layer's place. Models read attributes of their layers, so reads pass through."""

    def __init__(self, layer: nn.Module, act: Callable[..., Tensor], as_tuple: bool) -> None:
        super().__init__()
        self.__dict__.update(layer=layer, act=act, as_tuple=as_tuple)  # not registered as a submodule

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["layer"], name)

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        out = self.__dict__["act"](hidden, args, kwargs)
        return (out,) if self.__dict__["as_tuple"] else out


@contextmanager
def _layers_replaced(model: Model, act: Callable[..., Tensor]) -> Iterator[None]:
    owner, _, name = model.layers_path.rpartition(".")
    parent = model.module.get_submodule(owner)
    stand_ins = nn.ModuleList(StandIn(layer, act, model.notes.layers_return_tuple) for layer in model.layers)
    setattr(parent, name, stand_ins)
    try:
        yield
    finally:
        setattr(parent, name, model.layers)


def model_inputs(batch: Sequence[Pack], model: Model) -> dict[str, Any]:
    """The forward arguments of a batch, padded on the right.

    Plain rows need no mask: under a causal mask no token sees the padding behind it. Trees take an additive mask in
    the model's own dtype (a boolean one is silently wrong under eager attention); a padding token sees itself.
    """
    width = max(len(pack) for pack in batch)
    ids_BT = np.zeros((len(batch), width), dtype=np.int64)
    position_BT = np.tile(np.arange(width), (len(batch), 1))
    for row, pack in enumerate(batch):
        ids_BT[row, : len(pack)] = pack.tokens
        position_BT[row, : len(pack)] = pack.position
    inputs: dict[str, Any] = {
        "input_ids": torch.from_numpy(ids_BT).to(model.device),
        "position_ids": torch.from_numpy(position_BT).to(model.device),
        "attention_mask": None,
    }
    if any(pack.is_tree for pack in batch):
        inputs["attention_mask"] = _tree_mask(batch, width, model)
    return inputs


def _tree_mask(batch: Sequence[Pack], width: int, model: Model) -> Tensor:
    sees_BTT = np.zeros((len(batch), width, width), dtype=bool)
    for row, pack in enumerate(batch):
        sees_BTT[row, : len(pack), : len(pack)] = pack.visible()
        rest = np.arange(len(pack), width)
        sees_BTT[row, rest, rest] = True
    hidden = torch.from_numpy(~sees_BTT).to(model.device)[:, None]
    mask = torch.zeros(hidden.shape, dtype=model.dtype, device=model.device)
    return mask.masked_fill_(hidden, torch.finfo(model.dtype).min)


def record(model: Model, inputs: dict[str, Any]) -> Recorded:
    """Run the model with recorders for layers (module docstring)."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    first: list[Tensor] = []

    def act(hidden: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        first.append(hidden) if not first else None
        calls.append((args, kwargs))
        return hidden[:, :1]  # the rest of the forward is thrown away: keep its norm and head small

    with _layers_replaced(model, act):
        model.module(use_cache=False, **inputs)
    return Recorded(first[0], calls)


def push(layer: nn.Module, hidden_BTD: Tensor, call: tuple[tuple[Any, ...], dict[str, Any]]) -> Tensor:
    """One decoder layer with its own recorded arguments."""
    out = layer(hidden_BTD, *call[0], **call[1])
    return out[0] if isinstance(out, tuple) else out


def head_logits(model: Model, hidden_ND: Tensor) -> Tensor:
    """Logits [N, V] of final hidden states, by the model's own norm, head and whatever stands behind them."""
    ids = torch.zeros(1, len(hidden_ND), dtype=torch.long, device=model.device)
    with _layers_replaced(model, lambda *_: hidden_ND[None]):
        return model.module(input_ids=ids, use_cache=False).logits[0]


@dataclass
class Stream:
    """The one loop. `score` fills the arrays of all arms; arm 0 is base."""

    model: Model
    arms: Sequence[Arm]
    weigher: Weigher
    config: EngineConfig
    progress: Callable[[int, str], None] = lambda tokens, note: None
    waves: int = field(default=0, init=False)

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
                except torch.OutOfMemoryError:
                    if len(wave) == 1:
                        raise
                    todo[:0] = [wave[: len(wave) // 2], wave[len(wave) // 2 :]]
        assert np.isfinite(scores.logp_AS).all(), "a slot was never scored"
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
        inputs = [model_inputs(batch, self.model) for batch in batches]
        trunks, calls = self._embed(inputs)
        for index in range(len(self.model.layers)):
            with self.model.layer(index) as layer:
                trunks = list(self._layer(index, layer, trunks, [c[index] for c in calls]))
        self._head(batches, trunks, scores)

    def _embed(self, inputs: list[dict[str, Any]]) -> tuple[list[Trunk], list[list[Any]]]:
        trunks, calls = [], []
        for treatment, arms in self._split(range(len(self.arms)), -1):
            weights = self.weigher.weights(treatment, self.model.module, None)
            with substituted(self.model.module, weights):
                recorded = [record(self.model, batch) for batch in inputs]
            trunks.append(Trunk(arms, [r.hidden_BTD for r in recorded]))
            calls = [r.calls for r in recorded]
        return trunks, calls

    def _layer(self, index: int, layer: nn.Module, trunks: list[Trunk], calls: list[Any]) -> Iterator[Trunk]:
        for trunk in trunks:
            ways = self._split(trunk.arms, index)
            for n, (treatment, arms) in enumerate(ways):
                last = n == len(ways) - 1
                hidden = trunk.hidden if last else list(trunk.hidden)  # the last way may overwrite the trunk's own
                with substituted(layer, self.weigher.weights(treatment, layer, None)):
                    for b, call in enumerate(calls):
                        hidden[b] = push(layer, hidden[b], call)
                self._check(hidden, f"activations after layer {index}", arms)
                self.progress(sum(h.shape[0] * h.shape[1] for h in hidden), f"layer {index}")
                yield Trunk(arms, hidden)

    def _split(self, arms: Sequence[int], layer: int) -> list[tuple[Treatment, list[int]]]:
        """Arms by the way in which they treat a layer."""
        ways: dict[Treatment, list[int]] = {}
        for a in arms:
            ways.setdefault(self.arms[a].treatment(layer), []).append(a)
        return list(ways.items())

    def _check(self, tensors: Sequence[Tensor], what: str, arms: Sequence[int]) -> None:
        if not all(torch.isfinite(t.float().sum()) for t in tensors):
            names = ", ".join(self.arms[a].name for a in arms)
            raise NonFiniteError(f"non-finite {what} in arm {names}: its scores would mean nothing")

    def _head(self, batches: list[list[Pack]], trunks: list[Trunk], scores: Scores) -> None:
        ends = [
            (treatment, arms, trunk)
            for trunk in trunks
            for treatment, arms in self._split(trunk.arms, len(self.model.layers))
        ]
        ends.sort(key=lambda end: min(end[1]))  # base first: the others are compared with it
        for b, batch in enumerate(batches):
            row = np.concatenate([np.full(len(pack.at), r) for r, pack in enumerate(batch)])
            at, target, slot = (np.concatenate([getattr(p, n) for p in batch]) for n in ("at", "target", "slot"))
            for n in range(0, len(slot), self.config.head_tokens):
                part = slice(n, n + self.config.head_tokens)
                hidden = [(way, arms, trunk.hidden[b][row[part], at[part]]) for way, arms, trunk in ends]
                self._chunk(hidden, torch.from_numpy(target[part]).to(self.model.device), slot[part], scores)

    def _chunk(self, ends: list[tuple[Treatment, list[int], Tensor]], target_N: Tensor, slot_N: Any, s: Scores) -> None:
        base_NV: Tensor | None = None
        for treatment, arms, hidden_ND in ends:
            with substituted(self.model.module, self.weigher.weights(treatment, self.model.module, None)):
                logp_NV = head_logits(self.model, hidden_ND).float().log_softmax(-1)
            self._check([logp_NV], "logits", arms)
            base_NV = logp_NV if base_NV is None else base_NV
            logp_N = logp_NV.gather(1, target_N[:, None])[:, 0]
            first_N = logp_NV.argmax(1)
            kl_N = (base_NV.exp() * (base_NV - logp_NV)).sum(1)
            values = (logp_N, first_N == target_N, kl_N, first_N == base_NV.argmax(1))
            at = np.ix_(arms, slot_N)
            for array, value in zip((s.logp_AS, s.greedy_AS, s.kl_AS, s.agree_AS), values, strict=True):
                array[at] = value.cpu().numpy()
