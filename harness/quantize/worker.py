"""GPTQ by a published tool that runs in its own Python environment (`harness/workers`).

The tool's process is started once and kept; a matrix travels as a safetensors file in a temporary folder. It returns
weights, scales, zero points and the group of every input; the codes follow from them, so that the result is measured
and counted like every other. Scales are stored as the scheme says (the tools compute in float32).
"""

from __future__ import annotations

import atexit
import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import IO

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from harness.errors import UserError
from harness.quantize import grid
from harness.quantize.factor import over_median
from harness.quantize.formats import FORMATS
from harness.quantize.grid import Grid
from harness.quantize.result import Quantized, assemble
from harness.quantize.rtn import round_to_nearest
from harness.quantize.stats import InputStats
from harness.scheme import ActOrder, Scheme
from harness.workers import TOOLS


class Worker:
    """A running worker process. It ends when its standard input does, so at the latest with this process."""

    def __init__(self, python: Path, script: Path) -> None:
        command = [str(python), "-sE", str(script)]  # its own packages only
        self.python = python
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, encoding="utf-8"
        )
        self._read()

    def ask(self, tensors: dict[str, Tensor], options: dict[str, str]) -> dict[str, Tensor]:
        """The reply to one request. UserError with the tool's own words where it failed."""
        assert self.process.stdin
        with tempfile.TemporaryDirectory(prefix="harness-") as folder:
            request = Path(folder) / "request.safetensors"
            save_file({key: tensor.contiguous().cpu() for key, tensor in tensors.items()}, request, options)
            print(request, file=self.process.stdin, flush=True)
            answer = self._read()
            if not answer["ok"]:
                raise UserError(f"The quantization tool failed: {answer['reason']}. More damping (damp) may help.")
            return load_file(request.with_name("reply.safetensors"))

    def close(self) -> None:
        """Ends the process."""
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream:
                stream.close()
        self.process.wait()

    def _read(self) -> dict[str, object]:
        """The next line of the process; UserError with the end of its log if it died."""
        assert self.process.stdout
        if line := self.process.stdout.readline():
            return json.loads(line)
        start.cache_clear()  # the next request starts a new one
        self.process.wait()
        self.log.seek(0)
        last = self.log.read().decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        self.close()
        raise UserError(f"The worker {self.python} ended by itself: {last[0]}. Make its environment anew.")


@cache
def start(python: Path, script: Path) -> Worker:
    """The one worker of this interpreter and script."""
    worker = Worker(python, script)
    atexit.register(worker.close)
    return worker


def quantize_with_tool(w_OI: Tensor, scheme: Scheme, group_size: int, stats: InputStats) -> Quantized:
    """Codes by the tool that the method names."""
    stats.require_finite()
    tool = TOOLS[scheme.method]
    worker = start(tool.python(), tool.script)
    if reason := stats.emptiness():  # these tools would set the whole weight to 0
        return round_to_nearest(w_OI, scheme, group_size).with_facts(fallback="rtn", fallback_reason=reason)
    options = {
        "bits": str(FORMATS[scheme.precision].bits),
        "group_size": str(-1 if group_size == w_OI.shape[1] else group_size),
        "symmetric": str(scheme.symmetric).lower(),
        "damp": repr(scheme.damp),
        "act_order": str(scheme.act_order is not ActOrder.none).lower(),
        "static_groups": str(scheme.act_order is ActOrder.static).lower(),
    }
    reply = worker.ask({"weight": w_OI.float(), "hessian": stats.hessian_II.float()}, options)
    diagonal_I = stats.hessian_II.diagonal()
    facts = {"damp": scheme.damp, "damp_over_median": over_median(diagonal_I, scheme.damp)}
    facts["dead_inputs"] = int((diagonal_I == 0).sum())
    reply = {key: tensor.to(w_OI.device) for key, tensor in reply.items()}
    return _from_reply(reply, scheme, group_size).with_facts(**facts)


def _from_reply(reply: dict[str, Tensor], scheme: Scheme, group_size: int) -> Quantized:
    """Codes from weights, scales and zero points, in the order in which groups are made of successive columns."""
    form, group_I = FORMATS[scheme.precision], reply["group"].long()
    order_I = torch.argsort(group_I, stable=True)
    scale_OG, zero_OG = reply["scale"].float(), reply["zero"].float()
    never_OG = torch.zeros_like(scale_OG, dtype=torch.bool)
    codes_OI = grid.encode(
        reply["weight"][:, order_I].float(), Grid(scale_OG, zero_OG, never_OG, never_OG, never_OG), group_size, form
    )
    stored_OG, wide_OG = grid.store(scale_OG, getattr(torch, scheme.scale_dtype))
    lattice = Grid(stored_OG, zero_OG, never_OG, never_OG, wide_OG)
    as_stored = bool((group_I[1:] >= group_I[:-1]).all())
    return assemble(codes_OI, lattice, scheme, form, group_size, None if as_stored else order_I)
