"""LLM.int8 (Dettmers et al. 2022): 8-bit weights and 8-bit activations, but for input channels with outliers.

    x, w in float16;  an input channel is an outlier if any |x| of the batch in it reaches the threshold
    X = round(127 x / max|x|) a token, without outliers;  W = round(127 w / max|w|) an output row
    y = (X W^T) * max|x| * max|w| / 127^2 + x_outliers (W_outliers max|w| / 127)^T

Activations are rounded too (W8A8), so this is a function of inputs and weights, not a rounded matrix. Outliers depend
on all tokens of the batch: results are reproducible only for a fixed batch. As in bitsandbytes 0.50.2, in eval mode,
the weights of outlier channels are the 8-bit ones, widened; only their activations stay in 16 bits. A token or row of
zeros gives zeros.

`cast_linear` is the control: the same float16 casts and no rounding to integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.errors import UserError

TOP = 127


@dataclass(frozen=True)
class Int8Weight:
    """Integers [O, I] and max|w| of every row in float32."""

    codes_OI: Tensor  # int8
    top_O: Tensor

    @property
    def bits_per_weight(self) -> float:
        """8 bits a code and a float32 a row."""
        return 8 + 32 / self.codes_OI.shape[1]

    def dequantize(self) -> Tensor:
        """The weights alone, float32 [O, I]."""
        return self.codes_OI.float() * (self.top_O / TOP).unsqueeze(1)


def int8_weight(w_OI: Tensor) -> Int8Weight:
    """Weights rounded row by row. UserError where float16 cannot hold them."""
    w_OI = w_OI.to(torch.float16)
    if not torch.isfinite(w_OI).all():
        raise UserError("The weight holds values that are not finite in float16, which LLM.int8 computes in.")
    return Int8Weight(*_round_rows(w_OI))


def int8_linear(x_TI: Tensor, weight: Int8Weight, threshold: float = 6.0) -> Tensor:
    """y [..., O] in the type of x. `threshold` 0: no outliers."""
    x_NI = x_TI.reshape(-1, x_TI.shape[-1])
    half_NI = x_NI.to(torch.float16)
    outlier_NI = half_NI.abs() >= threshold if threshold > 0 else torch.zeros_like(half_NI, dtype=torch.bool)
    outliers = outlier_NI.any(0).nonzero().squeeze(1)
    codes_NI, top_N = _round_rows(half_NI.masked_fill(outlier_NI, 0))
    codes_NI[:, outliers] = 0
    sums_NO = codes_NI.float() @ weight.codes_OI.float().T
    y_NO = (sums_NO * (top_N.unsqueeze(1) * weight.top_O) / TOP**2).to(x_TI.dtype)
    if len(outliers):
        y_NO = y_NO + x_NI[:, outliers] @ weight.dequantize()[:, outliers].to(x_TI.dtype).T
    return y_NO.unflatten(0, x_TI.shape[:-1])


def cast_linear(x_TI: Tensor, w_OI: Tensor) -> Tensor:
    """x w^T with both cast to float16 and back: what LLM.int8 would do without any rounding to integers."""
    return x_TI.half().to(x_TI.dtype) @ w_OI.half().to(x_TI.dtype).T


def _round_rows(x_NI: Tensor) -> tuple[Tensor, Tensor]:
    """int8 codes and max|x| of every row."""
    top_N = x_NI.abs().amax(1).float()
    step_N = TOP / torch.where(top_N == 0, 1.0, top_N)
    return (x_NI * step_N.unsqueeze(1)).round().to(torch.int8), top_N
