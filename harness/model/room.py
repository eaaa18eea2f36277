"""Room: how much memory there is, and whether a model's weights go in. Asked before any weight is read."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch
from transformers import PreTrainedModel

from harness.errors import UserError
from harness.model.sites import find_extra_sites, find_layers

CGROUP = Path("/sys/fs/cgroup")  # where a container's or a batch job's own limit is written


def free_memory(device: torch.device) -> float:
    """Bytes that can still be had on a device: of a GPU, or of the machine within the limit set for this process."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(psutil.virtual_memory().available, _cgroup_left())


def _cgroup_left() -> float:
    """Bytes below the limit of this process's control group (version 2); without one there is no limit."""
    try:
        limit, used = ((CGROUP / name).read_text("ascii").strip() for name in ("memory.max", "memory.current"))
        cached = dict(line.split() for line in (CGROUP / "memory.stat").read_text("ascii").splitlines())
        return int(limit) - int(used) + int(cached["inactive_file"])
    except (OSError, ValueError, KeyError):
        return float("inf")


def gib(size: float) -> str:
    """Bytes as people read them."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.1f} MiB"


def parameter_bytes(module: torch.nn.Module) -> int:
    """Bytes of a module's parameters, tied ones once; those on the meta device as if they were there."""
    return sum(parameter.numel() * parameter.itemsize for parameter in module.parameters())


def largest_layer_bytes(module: PreTrainedModel) -> int:
    """Bytes of the largest decoder layer."""
    return max(parameter_bytes(layer) for layer in find_layers(module)[1])


def outside_bytes(module: PreTrainedModel) -> int:
    """Bytes of embedding, head, final norm: all but the layers. Tied tables once, also on the meta device."""
    outside = parameter_bytes(module) - parameter_bytes(find_layers(module)[1])
    head = module.get_output_embeddings()
    if head is None or head.get_parameter("weight") is module.get_input_embeddings().get_parameter("weight"):
        return outside
    return outside - (parameter_bytes(head) if find_extra_sites(module)[1] else 0)


def resting_bytes(module: PreTrainedModel, layers: bool) -> int:
    """Bytes that stay in memory from opening on: all but the layers, or with the `layers` all."""
    return outside_bytes(module) + (parameter_bytes(find_layers(module)[1]) if layers else 0)


def require_room(skeleton: PreTrainedModel, device: torch.device, whole: bool) -> None:
    """UserError unless embedding, head and one layer fit on the device, and a `whole` model in the machine's memory."""
    layer, outside = largest_layer_bytes(skeleton), outside_bytes(skeleton)
    layers, cpu = parameter_bytes(find_layers(skeleton)[1]), torch.device("cpu")
    dtype = str(skeleton.dtype).removeprefix("torch.")
    if whole and layers + outside > free_memory(cpu):
        raise UserError(
            "This checkpoint has to be loaded as a whole, as its tensors are stored in another form than the model's: "
            f"{gib(layers + outside)} in {dtype}, {gib(free_memory(cpu))} of memory are free.\n{_way_out(cpu)}"
        )
    if layer + outside > free_memory(device):
        raise UserError(
            f"Embedding and head take {gib(outside)}, the largest layer {gib(layer)} in {dtype}; "
            f"{gib(free_memory(device))} of memory are free on {device}.\n{_way_out(device)}"
        )


def _way_out(device: torch.device) -> str:
    other = "a machine with more" if device.type == "cpu" else "model.device=cpu"
    return f"Free memory, set model.dtype=bfloat16 if it is float32, or use {other}."
