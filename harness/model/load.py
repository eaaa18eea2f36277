"""Loading: a model whose decoder layers have weights only while they are used.

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

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from harness.model.fetch import fetch
from harness.model.lattice import common_lattice
from harness.model.names import match_tensors
from harness.model.notes import ArchitectureNotes, architecture_notes
from harness.model.room import require_room
from harness.model.sites import Site, find_extra_sites, find_layers, find_sites, read_site
from harness.model.skeleton import (
    build_skeleton,
    check_tokenizer,
    embedding_of,
    find_device,
    find_dtype,
    load_in_memory,
    random_module,
    refuse_narrow,
    refuse_unusable,
)
from harness.model.stored import file_reader, fill_outside_layers, place

LATTICE_LAYERS = 2  # layers whose weights are looked at for a lattice

# Full name of a layer's parameter, and that parameter as it rests in the module -> a fresh tensor on the device.
Reader = Callable[[str, torch.Tensor], torch.Tensor]


@dataclass
class Model:
    """A causal language model in eval mode, and the way to its layers' weights (module docstring)."""

    module: PreTrainedModel
    tokenizer: Any
    name: str
    fingerprint: Callable[[], str]  # gives `sha` when it is first asked for
    dtype: torch.dtype
    device: torch.device
    read: Reader
    layers_path: str = field(init=False)
    layers: nn.ModuleList = field(init=False)
    sites: list[Site] = field(init=False)
    notes: ArchitectureNotes = field(init=False)

    def __post_init__(self) -> None:
        self.layers_path, self.layers = find_layers(self.module)
        self.sites = find_sites(self.module)
        self.notes = architecture_notes(self.module)

    @cached_property
    def sha(self) -> str:
        """Hash of all that can change a number: weights, config, tokenizer. The first use may read whole files."""
        return self.fingerprint()

    @cached_property
    def base_lattice(self) -> str:
        """The grid that the weights already sit on; "" for float weights. The first use reads some layers."""
        return common_lattice(self._first_matrices())

    @property
    def config(self) -> Any:
        """The model's own config."""
        return self.module.config

    @property
    def all_sites(self) -> list[Site]:
        """Block sites, and embedding and head behind the layers that they stand before and after."""
        return [*self.sites, *find_extra_sites(self.module)[0]]

    @cached_property
    def used_weights(self) -> dict[int, float]:
        """By layer, the weights that a token passes: of experts only the chosen ones."""
        chosen = getattr(self.config.get_text_config(), "num_experts_per_tok", None) or 1
        experts = 1 + max((site.expert or 0 for site in self.sites), default=0)
        used: dict[int, float] = defaultdict(float)
        for site in self.sites:
            used[site.layer] += site.weights * (1 if site.expert is None else chosen / experts)
        return used

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return self.config.get_text_config().hidden_size

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return embedding_of(self.module).shape[0]

    @property
    def max_positions(self) -> int:
        """Longest input, in tokens; no limit where positions are not numbered (ALiBi)."""
        return getattr(self.config.get_text_config(), "max_position_embeddings", None) or sys.maxsize

    @property
    def tied(self) -> bool:
        """Whether embedding and head are one tensor: what changes one in place changes the other."""
        head = self.module.get_output_embeddings()
        return head is not None and head.weight is embedding_of(self.module)

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
        return cls(module, tokenizer, name, fingerprint, embedding.dtype, device, read=_copier(device))

    def _first_matrices(self) -> Iterator[torch.Tensor]:
        for i in range(min(LATTICE_LAYERS, len(self.layers))):
            with self.layer(i) as layer:
                yield from (read_site(layer, site) for site in self.sites if site.layer == i)


def open_model(cfg: ModelConfig) -> Model:
    """The model that `cfg` names, checked and ready for its first layer. UserError says what is wrong with it."""
    device = find_device(cfg.device)
    dtype = find_dtype(cfg.dtype, device)
    if cfg.source is ModelSource.random:
        module, tokenizer = random_module(cfg, dtype), byte_tokenizer()
        check_tokenizer(tokenizer, module)
        return Model.from_module(module, tokenizer, cfg.name, device)
    checkpoint = check_folder(fetch(cfg))
    refuse_narrow(checkpoint, dtype)
    skeleton, tokenizer = build_skeleton(checkpoint.folder, dtype, cfg.attention), _tokenizer(checkpoint.folder)
    check_tokenizer(tokenizer, skeleton)
    sources = match_tensors(skeleton, checkpoint)
    fingerprint = partial(weights_sha, checkpoint)
    require_room(skeleton, device, whole=sources is None)
    if sources is None:
        module = load_in_memory(checkpoint.folder, dtype, cfg.attention)
        return Model.from_module(module, tokenizer, cfg.name, device, fingerprint)
    read = file_reader(checkpoint, sources, device)
    model = Model(skeleton, tokenizer, cfg.name, fingerprint, dtype, device, read)
    fill_outside_layers(skeleton, model.layers_path, sources, read, device)
    return model


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
