"""Tensors from safetensors files into a skeleton, one at a time.

Each tensor is mapped, copied to its place and unmapped again, so that besides the model's own weights at most one
tensor of a file counts as resident.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel

from harness.errors import UserError
from harness.model.checkpoint import Checkpoint


def file_reader(
    checkpoint: Checkpoint, sources: Mapping[str, str], device: torch.device
) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """`read(name, like)`: the tensor that `sources` names for the model's tensor `name`, in the dtype of `like`."""

    def read(name: str, like: torch.Tensor) -> torch.Tensor:
        stored = checkpoint.tensors[sources[name]]
        try:
            with safe_open(stored.file, framework="pt") as file:
                return file.get_tensor(sources[name]).to(device, like.dtype, copy=True)
        except OSError as error:
            raise UserError(
                f"{stored.file} could not be read ({error}). Was it moved or changed during the run?"
            ) from error

    return read


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
