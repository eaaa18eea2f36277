"""Tensors from safetensors files into a skeleton, a few rows at a time.

A part of the file is mapped, copied to its place and unmapped again, so that besides the model's own weights no more
than `BYTES_AT_ONCE` of a file (one row at least) count as resident.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import EllipsisType

import torch
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel

from harness.errors import UserError
from harness.model.checkpoint import Checkpoint

BYTES_AT_ONCE = 2**24


def file_reader(
    checkpoint: Checkpoint, sources: Mapping[str, str], device: torch.device
) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """`read(name, like)`: the tensor that `sources` names for the model's tensor `name`, in the dtype of `like`."""

    def read(name: str, like: torch.Tensor) -> torch.Tensor:
        stored = checkpoint.tensors[sources[name]]
        try:
            tensor = torch.empty(stored.shape, dtype=like.dtype, device=device)
            for rows in _parts(tensor):
                with safe_open(stored.file, framework="pt") as file:
                    tensor[rows].copy_(file.get_slice(sources[name])[rows])
            return tensor
        except OSError as error:
            raise UserError(
                f"{stored.file} could not be read ({error}). Was it moved or changed during the run?"
            ) from error

    return read


def _parts(tensor: torch.Tensor) -> list[slice | EllipsisType]:
    """Slices along the first dimension, each of about BYTES_AT_ONCE."""
    if tensor.ndim < 2:
        return [...]
    step = max(1, BYTES_AT_ONCE * len(tensor) // max(tensor.nbytes, 1))
    return [slice(start, start + step) for start in range(0, len(tensor), step)]


def place(module: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Set the parameter or buffer at the dotted path `name`."""
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, tensor)


def fill_outside_layers(
    module: PreTrainedModel,
    layers_path: str,
    sources: Mapping[str, str],
    read: Callable[[str, torch.Tensor], torch.Tensor],
    device: torch.device,
) -> None:
    """Read everything but the layers' parameters: embedding, norms, head, stored buffers; tie what is tied.

    Buffers that no file holds (rotary tables) were computed when the skeleton was built: they move to the device.
    """
    for name, buffer in list(module.named_buffers()):
        place(module, name, read(name, buffer) if name in sources else buffer.to(device))
    absent = set()
    for name, parameter in list(module.named_parameters(remove_duplicate=False)):
        if name.startswith(f"{layers_path}."):
            continue
        if name in sources:
            place(module, name, nn.Parameter(read(name, parameter), requires_grad=False))
        else:
            absent.add(name)
    # Shares one tensor where a file holds only one, or two equal ones; two different ones stay two.
    module.tie_weights(missing_keys=absent, recompute_mapping=False)
