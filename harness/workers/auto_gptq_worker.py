"""auto-gptq 0.7.1 behind the protocol. Runs in the environment of requirements/auto-gptq.txt."""

import torch
from protocol import Quantize, Tensors, layer_with, serve


def load() -> Quantize:
    """The tool's per-layer GPTQ."""
    from auto_gptq.quantization import GPTQ  # pyright: ignore[reportMissingImports]

    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda device=None: None  # the tool calls it, and it fails without CUDA

    def quantize(tensors: Tensors, options: dict[str, str]) -> Tensors:
        gptq = GPTQ(layer_with(tensors["weight"]))
        gptq.H, gptq.nsamples = 2 * tensors["hessian"], 1  # what it would have summed up from one sample of all tokens
        gptq.quantizer.configure(int(options["bits"]), perchannel=True, sym=options["symmetric"] == "true")
        scale, zero, group = gptq.fasterquant(
            percdamp=float(options["damp"]),
            group_size=int(options["group_size"]),
            actorder=options["act_order"] == "true",
            static_groups=options["static_groups"] == "true",
        )
        return {"weight": gptq.layer.weight.data, "scale": scale, "zero": zero, "group": group}

    return quantize


if __name__ == "__main__":
    serve(load)
