"""What calibrated methods know of a site's inputs: sum of x x^T, mean |x|, max |x|, and how many tokens.

Sums, not running means, so that statistics add up: gathered in any batches, on several machines, or token by token,
they agree to rounding (1e-6 of the largest entry, over thousands of batches where `hessian_II` is float64, as when the
engine gathers them). Tokens are taken 4096 at a time in float32 (never in the 16-bit type of the activations) and
summed in the type of `hessian_II`.

Letters: T tokens, I in_features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.errors import UserError

TOKENS_AT_ONCE = 4096


@dataclass
class InputStats:
    """Statistics of the inputs of one site (or of sites that share their input)."""

    hessian_II: Tensor  # sum over tokens of x x^T, float32 or float64
    sum_abs_I: Tensor  # float64
    max_abs_I: Tensor  # float32
    n_tokens: int = 0

    @classmethod
    def empty(
        cls, in_features: int, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> InputStats:
        """Statistics of no tokens; `dtype` is the Hessian's."""
        assert dtype in (torch.float32, torch.float64), f"Hessians are float32 or float64, not {dtype}"
        return cls(
            torch.zeros(in_features, in_features, dtype=dtype, device=device),
            torch.zeros(in_features, dtype=torch.float64, device=device),
            torch.zeros(in_features, dtype=torch.float32, device=device),
        )

    @classmethod
    def from_inputs(cls, x_TI: Tensor, *, dtype: torch.dtype = torch.float32) -> InputStats:
        """Statistics of these inputs; leading dimensions are flattened into tokens."""
        return cls.empty(x_TI.shape[-1], dtype=dtype, device=x_TI.device).add(x_TI)

    @property
    def in_features(self) -> int:
        """Number of input features."""
        return self.hessian_II.shape[0]

    @property
    def mean_abs_I(self) -> Tensor:  # noqa: N802
        """Mean |x| of every input feature, float32; 0 where no token was seen."""
        return (self.sum_abs_I / max(self.n_tokens, 1)).float()

    def add(self, x_TI: Tensor) -> InputStats:
        """Take in more tokens, in place. Pad tokens are the caller's to leave out."""
        for part_TI in x_TI.reshape(-1, x_TI.shape[-1]).split(TOKENS_AT_ONCE):
            part_TI = part_TI.float()
            self.hessian_II += part_TI.T @ part_TI
            size_TI = part_TI.abs()
            self.sum_abs_I += size_TI.sum(0, dtype=torch.float64)
            if len(size_TI):
                self.max_abs_I = torch.maximum(self.max_abs_I, size_TI.amax(0))
            self.n_tokens += len(part_TI)
        return self

    def require_finite(self) -> None:
        """UserError where NaN or infinity got in: no damping and no search can help then."""
        if not torch.isfinite(self.hessian_II.sum(dtype=torch.float64)):
            raise UserError("Calibration inputs hold values that are not finite (NaN, infinity). Check model and data.")

    def emptiness(self) -> str:
        """Why these statistics tell nothing, if so; else an empty text."""
        if self.n_tokens == 0:
            return "no calibration tokens"
        return "" if self.hessian_II.diagonal().any() else "every input is zero in calibration"

    def to(self, device: torch.device | str) -> InputStats:
        """The same statistics on another device."""
        tensors = (self.hessian_II, self.sum_abs_I, self.max_abs_I)
        return InputStats(*(tensor.to(device) for tensor in tensors), n_tokens=self.n_tokens)

    def tensors(self) -> dict[str, Tensor]:
        """As named tensors, for a safetensors file."""
        return {
            "hessian_II": self.hessian_II,
            "sum_abs_I": self.sum_abs_I,
            "max_abs_I": self.max_abs_I,
            "n_tokens": torch.tensor(self.n_tokens),
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> InputStats:
        """Back from `tensors()`."""
        return cls(**{**tensors, "n_tokens": int(tensors["n_tokens"])})  # type: ignore[arg-type]
