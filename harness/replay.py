"""Running a model's layers one by one, without knowing its architecture.

The model's own forward is run once per batch with every decoder layer replaced by a recorder, which yields the
embedded input and each layer's real arguments (masks differ by layer in sliding-window models; rotary tables; cache
flags). Each real layer is then called with its own recorded arguments. The end is run the same way: all layers are
replaced by one that returns the final hidden state, so that norm, head, soft-capping and scaling are the model's own.
In float32 the result is bit-equal to the plain forward where batch shapes agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.model.load import Model
from harness.packs import Pack

Call = tuple[tuple[Any, ...], dict[str, Any]]  # a layer's arguments behind the hidden states


@dataclass
class Recorded:
    """A batch as the first layer sees it, and the other arguments of every layer."""

    hidden_BTD: Tensor
    calls: list[Call]


class StandIn(nn.Module):
    """In a decoder layer's place. Models read attributes of their layers, so reads pass through."""

    def __init__(self, layer: nn.Module, act: Callable[..., Tensor], as_tuple: bool) -> None:
        super().__init__()
        self.__dict__.update(layer=layer, act=act, as_tuple=as_tuple)  # not registered as a submodule

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["layer"], name)

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        """In place of the layer's own."""
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
    """The forward arguments of a batch, padded on the right. No padding stands beyond the last position of a token.

    Plain rows need no mask: under a causal mask no token sees the padding behind it. Trees take an additive mask in
    the model's own dtype (a boolean one is silently wrong under eager attention); a padding token sees itself.
    """
    width = max(len(pack) for pack in batch)
    ids_BT = np.zeros((len(batch), width), dtype=np.int64)
    last = max(max(pack.position) for pack in batch)  # padding behind a tree would run on beyond it
    position_BT = np.tile(np.minimum(np.arange(width), last), (len(batch), 1))
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
    calls: list[Call] = []
    first: list[Tensor] = []

    def act(hidden: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        first.append(hidden) if not first else None
        calls.append((args, kwargs))
        return hidden

    with _layers_replaced(model, act):
        model.module(use_cache=False, logits_to_keep=1, **inputs)  # logits are thrown away: keep the head small
    return Recorded(first[0], calls)


def push(layer: nn.Module, hidden_BTD: Tensor, call: Call) -> Tensor:
    """One decoder layer with its own recorded arguments."""
    out = layer(hidden_BTD, *call[0], **call[1])
    return out[0] if isinstance(out, tuple) else out


def head_logits(model: Model, hidden_ND: Tensor) -> Tensor:
    """Logits [N, V] of final hidden states, by the model's own norm, head and whatever stands behind them.

    Each is a sequence of its own, so that there may be more of them than the model has positions.
    """
    ids = torch.zeros(len(hidden_ND), 1, dtype=torch.long, device=model.device)
    with _layers_replaced(model, lambda *_: hidden_ND[:, None]):
        return model.module(input_ids=ids, use_cache=False).logits[:, 0]
