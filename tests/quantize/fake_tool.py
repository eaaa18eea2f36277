"""Stands in for the environment of auto-gptq: the real worker script around a tool that only rounds."""

import sys
import types
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "harness" / "workers"))


class GPTQ:
    """Plain rounding with the interface of auto_gptq.quantization.GPTQ. With act-order groups run backwards."""

    def __init__(self, layer):
        self.layer, self.H, self.nsamples = layer, None, 0
        self.quantizer = self

    def configure(self, bits, perchannel, sym):
        assert perchannel
        self.top, self.sym = 2**bits - 1, sym

    def fasterquant(self, percdamp, group_size, actorder, static_groups):
        print("the tool prints things")
        torch.cuda.synchronize()
        if percdamp > 1:
            raise RuntimeError("not positive-definite")
        if percdamp == 1:
            sys.exit("out of memory")
        w_OI = self.layer.weight.data
        assert torch.equal(self.H, 2 * torch.eye(w_OI.shape[1]))
        groups = w_OI.shape[1] // (w_OI.shape[1] if group_size == -1 else group_size)
        w_OI = w_OI.flip(1) if actorder and not static_groups else w_OI
        w_OGS = w_OI.unflatten(1, (groups, -1))
        scale_OG1 = w_OGS.abs().amax(-1, keepdim=True) * 2 / self.top
        middle = (self.top + 1) / 2
        codes_OGS = ((w_OGS / scale_OG1).round() + middle).clamp(0, self.top)
        dequantized_OI = (scale_OG1 * (codes_OGS - middle)).flatten(1)
        group_I = torch.arange(w_OI.shape[1], dtype=torch.int32) // w_OGS.shape[-1]
        if actorder and not static_groups:
            dequantized_OI, group_I = dequantized_OI.flip(1), group_I.flip(0)
        self.layer.weight.data = dequantized_OI
        return scale_OG1.squeeze(-1), torch.full_like(scale_OG1.squeeze(-1), middle), group_I


package, module = types.ModuleType("auto_gptq"), types.ModuleType("auto_gptq.quantization")
module.GPTQ = GPTQ
sys.modules |= {"auto_gptq": package, "auto_gptq.quantization": module}

from auto_gptq_worker import load, serve  # noqa: E402

serve(load)
