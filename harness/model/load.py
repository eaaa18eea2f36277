"""Loading: a model whose decoder layers have weights only while they are used.

    found = find_model(config)            files, names, shapes, tokenizer: all checks, and no weight read
    model = found.open()                  embedding and head on the device
    with model.layer(3) as layer: ...     weights of layer 3 on the device, and nowhere a moment later

Two ways to the weights, one `Model`:

    files    a skeleton without weights (meta device); a layer is read from the safetensors files each time it is
             used. Peak memory: embedding + head + one layer.
    memory   a model that is in memory anyway: a user's own object, random weights, or a checkpoint whose tensors
             transformers has to convert first (experts stored one by one, pickled files). Its layers are copied for
             use, one at a time.

Either way what is written to a layer inside the `with` never reaches the model. Everything but the layers' parameters
(embedding, norms, head, rotary tables) is loaded once and stays on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel

from harness.config import ModelConfig, ModelSource
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.model.checkpoint import check_folder, weights_sha
from harness.model.fetch import commit_of, fetch
from harness.model.lattice import common_lattice
from harness.model.names import match_tensors
from harness.model.outline import Outline
from harness.model.room import require_room, resting_bytes
from harness.model.sites import find_layers, read_site
from harness.model.skeleton import (
    build_skeleton,
    check_tokenizer,
    embedding_of,
    find_device,
    find_dtype,
    load_in_memory,
    random_module,
    random_skeleton,
    refuse_narrow,
    refuse_unusable,
)
from harness.model.stored import file_reader, fill_outside_layers, place

LATTICE_LAYERS = 2  # layers whose weights are looked at for a lattice

# Full name of a layer's parameter, and that parameter as it rests in the module -> a fresh tensor on the device.
Reader = Callable[[str, torch.Tensor], torch.Tensor]


@dataclass
class Model(Outline):
    """A causal language model, and the way to its layers' weights (module docstring)."""

    fingerprint: Callable[[], str]  # gives `sha` when it is first asked for
    read: Reader

    @cached_property
    def sha(self) -> str:
        """Hash of all that can change a number: weights, config, tokenizer. The first use may read whole files."""
        return self.fingerprint()

    @cached_property
    def base_lattice(self) -> str:
        """The grid that the weights already sit on; "" for float weights. The first use reads some layers."""
        return common_lattice(self._first_matrices())

    @contextmanager
    def layer(self, i: int) -> Iterator[nn.Module]:
        """Decoder layer `i` with its weights on the device; afterwards it is as it was before."""
        layer = self.layers[i]
        resting = dict(layer.named_parameters())
        try:
            for name, parameter in resting.items():
                weight = self.read(f"{self.layers_path}.{i}.{name}", parameter)
                place(layer, name, nn.Parameter(weight, requires_grad=False))
            yield layer
        finally:
            for name, parameter in resting.items():
                place(layer, name, parameter)

    @classmethod
    def from_module(
        cls,
        module: PreTrainedModel,
        tokenizer: Any = None,
        name: str = "live",
        device: str | torch.device | None = None,
        fingerprint: Callable[[], str] | None = None,
        commit: str = "",
    ) -> Model:
        """A model in memory, set to eval mode. Its layers stay where they are and are copied to `device` for use.

        `device` defaults to the embedding's; to another one the rest of the module is moved. `fingerprint`
        gives the model's `sha`, by default a hash of config and weights.
        """
        refuse_unusable(module)
        embedding = embedding_of(module)
        device = torch.device(device or embedding.device)
        _move_outside_layers(module.eval(), device)
        fingerprint = fingerprint or partial(state_sha, module)
        return cls(module, tokenizer, name, embedding.dtype, device, fingerprint, _copier(device), commit=commit)

    def _first_matrices(self) -> Iterator[torch.Tensor]:
        for i in range(min(LATTICE_LAYERS, len(self.layers))):
            with self.layer(i) as layer:
                yield from (read_site(layer, site) for site in self.sites if site.layer == i)


@dataclass
class Unread(Outline):
    """A model of which all is known but its weights."""

    whole: bool  # all layers will be in the machine's memory
    open: Callable[[], Model]  # reads what is to stay on the device

    @property
    def pending_bytes(self) -> int:
        """Bytes of embedding and head, and of all layers where they come to lie in the device's memory."""
        return resting_bytes(self.module, layers=self.whole and self.device.type == "cpu")


def find_model(cfg: ModelConfig) -> Unread:
    """The model that `cfg` names, checked without reading a weight. UserError says what is wrong with it."""
    device = find_device(cfg.device)
    dtype = find_dtype(cfg.dtype, device)
    return (_random if cfg.source is ModelSource.random else _stored)(cfg, dtype, device)


def open_model(cfg: ModelConfig) -> Model:
    """The model that `cfg` names, checked and ready for its first layer."""
    return find_model(cfg).open()


def _random(cfg: ModelConfig, dtype: torch.dtype, device: torch.device) -> Unread:
    skeleton, tokenizer = random_skeleton(cfg, dtype), byte_tokenizer()
    check_tokenizer(tokenizer, skeleton)

    def opened() -> Model:
        return Model.from_module(random_module(cfg, dtype), tokenizer, cfg.name, device)

    return Unread(skeleton, tokenizer, cfg.name, dtype, device, whole=True, open=opened)


def _stored(cfg: ModelConfig, dtype: torch.dtype, device: torch.device) -> Unread:
    checkpoint = check_folder(fetch(cfg))
    refuse_narrow(checkpoint, dtype)
    skeleton, tokenizer = build_skeleton(checkpoint.folder, dtype, cfg.attention), _tokenizer(checkpoint.folder)
    check_tokenizer(tokenizer, skeleton)
    sources = match_tensors(skeleton, checkpoint)
    fingerprint, commit = partial(weights_sha, checkpoint), commit_of(checkpoint.folder)
    require_room(skeleton, device, whole=sources is None)

    def opened() -> Model:
        if sources is None:
            module = load_in_memory(checkpoint.folder, dtype, cfg.attention)
            return Model.from_module(module, tokenizer, cfg.name, device, fingerprint, commit)
        read = file_reader(checkpoint, sources, device)
        model = Model(skeleton, tokenizer, cfg.name, dtype, device, fingerprint, read, commit=commit)
        fill_outside_layers(skeleton, model.layers_path, sources, read, device)
        return model

    return Unread(skeleton, tokenizer, cfg.name, dtype, device, sources is None, opened, commit=commit)


def state_sha(module: PreTrainedModel) -> str:
    """xxh3_128 of a model in memory: its configs, and name, type, shape and bytes of every tensor."""
    digest = xxhash.xxh3_128(module.config.to_json_string().encode())
    if writes := getattr(module, "generation_config", None):
        digest.update(writes.to_json_string().encode())
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _copier(device: torch.device) -> Reader:
    return lambda _, parameter: parameter.detach().to(device, copy=True)


def _move_outside_layers(module: PreTrainedModel, device: torch.device) -> None:
    """Move all but the layers' parameters; the objects stay, so tied ones stay tied."""
    prefix = find_layers(module)[0] + "."
    for name, parameter in module.named_parameters():
        if not name.startswith(prefix):
            parameter.data = parameter.data.to(device)
    for name, buffer in list(module.named_buffers()):
        place(module, name, buffer.to(device))


def _tokenizer(folder: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError, ImportError) as error:
        raise UserError(f"{folder}: its tokenizer could not be loaded ({error}).") from error
