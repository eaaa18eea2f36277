"""Weight quantization as pure tensor mathematics: a weight, a scheme, and input statistics where a method needs them.

    from harness.quantize import InputStats, Scheme, quantize

    q = quantize(w_OI, Scheme(method="rtn", precision="int4", group_size=64))
    q.dequantize()        # float32 [O, I]
    q.bits_per_weight     # packed codes, scales, zero points, group index, kept columns

Works on any device. Knows no modules, files or configs. The weight is never changed.
"""

from __future__ import annotations

from torch import Tensor

from harness.errors import UserError
from harness.quantize.result import Quantized
from harness.quantize.rtn import rtn
from harness.quantize.stats import InputStats
from harness.scheme import Scheme, effective_group

__all__ = ["InputStats", "Quantized", "Scheme", "quantize"]


def quantize(w_OI: Tensor, scheme: Scheme, stats: InputStats | None = None, *, indivisible: str = "error") -> Quantized:
    """Quantize one matrix.

    `indivisible`: "error" or "tail", where group_size does not divide in_features. Raises UserError for what the
    method cannot do, for missing statistics and for values that are not finite.
    """
    if scheme.method not in METHODS:
        raise UserError(f"method={scheme.method} is not a way to round a weight. Choose one of: {', '.join(METHODS)}")
    group_size = effective_group(w_OI.shape[1], scheme.group_size, indivisible)
    return METHODS[scheme.method](w_OI, scheme, group_size)


METHODS = {"rtn": rtn}
