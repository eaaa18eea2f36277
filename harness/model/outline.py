"""What is known of a model while its weights are still where they are: modules, matrices, tokenizer, type, device.

Plan, tasks and memory are worked out from an outline, so that whatever is wrong with them is said before a weight is
read. `harness.model.load` gives the weights to it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from harness.model.notes import ArchitectureNotes, architecture_notes
from harness.model.sites import Site, find_extra_sites, find_layers, find_sites
from harness.model.skeleton import embedding_of


@dataclass
class Outline:
    """A causal language model in eval mode, of which nothing here looks at a number."""

    module: PreTrainedModel  # on the meta device, as far as its weights are not there
    tokenizer: Any
    name: str
    dtype: torch.dtype
    device: torch.device  # of the weights, once they are there
    commit: str = field(default="", kw_only=True)  # of the hub's repository that its files are from
    layers_path: str = field(init=False)
    layers: nn.ModuleList = field(init=False)
    sites: list[Site] = field(init=False)
    notes: ArchitectureNotes = field(init=False)

    def __post_init__(self) -> None:
        self.layers_path, self.layers = find_layers(self.module)
        self.sites = find_sites(self.module)
        self.notes = architecture_notes(self.module)

    @property
    def pending_bytes(self) -> int:
        """What its weights will take on the device besides a layer in use, as far as they are not there yet."""
        return 0

    @property
    def device_name(self) -> str:
        """What kind of machine computes: of GPUs which one, as another one rounds in other places."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type

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
    def parameters(self) -> int:
        """Number of parameters, a tied table once."""
        head, embedding = self.module.get_output_embeddings(), embedding_of(self.module)
        twice = self.tied and head is not None and head.get_parameter("weight") is not embedding
        return sum(p.numel() for p in self.module.parameters()) - (embedding.numel() if twice else 0)

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
        return find_extra_sites(self.module)[1]
