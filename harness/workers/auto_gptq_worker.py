"""Quantizes matrices with auto-gptq 0.7.1, one request a line. Runs in the environment of requirements/auto-gptq.txt.

    stdin    path of a request file a line; the end of stdin ends the process
    stdout   {"ok": true} or {"ok": false, "reason": ...} a line, after {"ready": true} at the start
    files    request.safetensors   weight [O, I], hessian [I, I] (sum of x x^T), both float32; the options are metadata
             reply.safetensors     beside it: weight [O, I], scale [O, G], zero [O, G], group [I] (int32, by input)

Options, all text: bits, group_size (-1: one group a row), symmetric, damp, act_order, static_groups ("true", "false").
A worker for another tool speaks the same way.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn


def quantize(tensors: dict[str, torch.Tensor], options: dict[str, str]) -> dict[str, torch.Tensor]:
    """The tool's result for one matrix."""
    from auto_gptq.quantization import GPTQ  # pyright: ignore[reportMissingImports]

    layer = nn.Linear(tensors["weight"].shape[1], tensors["weight"].shape[0], bias=False)
    layer.weight.data = tensors["weight"]
    gptq = GPTQ(layer)
    gptq.H, gptq.nsamples = 2 * tensors["hessian"], 1  # what it would have summed up from one sample of all tokens
    gptq.quantizer.configure(int(options["bits"]), perchannel=True, sym=options["symmetric"] == "true")
    scale, zero, group = gptq.fasterquant(
        percdamp=float(options["damp"]),
        group_size=int(options["group_size"]),
        actorder=options["act_order"] == "true",
        static_groups=options["static_groups"] == "true",
    )
    return {"weight": layer.weight.data, "scale": scale, "zero": zero, "group": group}


def answer(path: Path) -> dict[str, object]:
    """Reads a request, writes the reply beside it, says how it went."""
    try:
        with safe_open(path, "pt") as file:
            tensors, options = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
        with torch.no_grad():
            reply = quantize(tensors, options)
        save_file({key: tensor.contiguous() for key, tensor in reply.items()}, path.with_name("reply.safetensors"))
    except Exception as error:
        return {"ok": False, "reason": f"{type(error).__name__}: {error}"}
    return {"ok": True}


def main() -> None:
    """Answers requests until stdin ends."""
    replies, sys.stdout = sys.stdout, sys.stderr  # whatever the tool prints stays out of the answers
    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda device=None: None  # the tool calls it, and it fails without CUDA
    import auto_gptq  # noqa: F401  # pyright: ignore[reportMissingImports]  slow, so done before `ready`

    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(Path(line.rstrip("\n")))), file=replies, flush=True)


if __name__ == "__main__":
    main()
