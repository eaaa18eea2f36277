"""How a worker is asked and answers. Runs in the tool's environment: needs torch and safetensors, nothing from here.

    stdin    path of a request file a line; the end of stdin ends the process
    stdout   {"ok": true} or {"ok": false, "reason": ...} a line, after {"ready": true} at the start
    files    request.safetensors   weight [O, I], hessian [I, I] (sum of x x^T), both float32; the options are metadata
             reply.safetensors     beside it: weight [O, I], scale [O, G], zero [O, G], group [I] (int32, by input)

Options, all text: bits, group_size (-1: one group a row), symmetric, damp, act_order, static_groups ("true", "false").
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]
Quantize = Callable[[Tensors, dict[str, str]], Tensors]


def serve(load: Callable[[], Quantize]) -> None:
    """Answers requests until stdin ends. `load` imports the tool, which is slow, and returns what quantizes with it."""
    replies, sys.stdout = sys.stdout, sys.stderr  # whatever the tool prints stays out of the answers
    quantize = load()
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(Path(line.rstrip("\n")), quantize)), file=replies, flush=True)


def answer(path: Path, quantize: Quantize) -> dict[str, object]:
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


def layer_with(weight_OI: torch.Tensor) -> torch.nn.Linear:
    """A linear layer of this weight."""
    layer = torch.nn.Linear(weight_OI.shape[1], weight_OI.shape[0], bias=False)
    layer.weight.data = weight_OI
    return layer
