"""Weight quantization as pure tensor mathematics: a weight, a scheme, and input statistics where a method needs them.

    from harness.quantize import InputStats, Scheme, quantize

    q = quantize(w_OI, Scheme(method="gptq", precision="int4", group_size=64), InputStats.from_inputs(x_TI))
    q.dequantize()        # float32 [O, I]
    q.bits_per_weight     # packed codes, scales, zero points, group index, kept columns

Works on any device. Knows no modules, files or configs. The weight is never changed.
"""

from harness.quantize.awq import pair_scale
from harness.quantize.core import quantize
from harness.quantize.factor import Factor, factor_key, factorize
from harness.quantize.result import Quantized
from harness.quantize.stats import InputStats
from harness.scheme import Scheme

__all__ = ["Factor", "InputStats", "Quantized", "Scheme", "factor_key", "factorize", "pair_scale", "quantize"]
