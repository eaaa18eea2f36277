"""Hidden states on their way through the layers, and the arms that share them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from harness.replay import Call, push


@dataclass
class States:
    """Hidden states of some batches on their way through the layers, and how each layer is called with them."""

    hidden: list[Tensor]
    calls: list[list[Call]]  # batch, layer

    def copy(self) -> States:
        """The same states, to be pushed another way."""
        return States(list(self.hidden), self.calls)

    def push(self, index: int, layer: nn.Module) -> None:
        """Through a layer, one batch after the other, each replacing its former states."""
        for b, calls in enumerate(self.calls):
            self.hidden[b] = push(layer, self.hidden[b], calls[index])

    def replay(self, index: int, layer: nn.Module) -> None:
        """Through a layer, for those who listen inside; the states stay as they are."""
        for hidden_BTD, calls in zip(self.hidden, self.calls, strict=True):
            push(layer, hidden_BTD, calls[index])


@dataclass
class Trunk:
    """Arms (by index) that agreed so far: the states of what is scored, and of calibration tokens by draw."""

    arms: list[int]
    scored: States
    calib: dict[int, States]
