"""From an architecture config to its matrices, without weights.

The model is built on the meta device (shapes only, no memory) and read by the engine's own site finder, so what the
ledger counts is what the harness quantizes. Every parameter is counted once and lands in one place:

    a site's matrix            ffn, attention
    the input and output table embedding, head; one tensor where tied
    anything else              bias (by name); norm (vectors, and matrices in a norm); router (other matrices of a
                               layer); position (other matrices outside the layers)
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig

from harness.errors import UserError
from harness.ledger.shape import Matrix, Shape
from harness.model.sites import Site, find_layers, find_sites


def shape_of_config(config: PreTrainedConfig, name: str) -> Shape:
    """The matrices of the decoder that the config describes. UserError where no model can be made of it."""
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    except (ValueError, TypeError, RuntimeError, ZeroDivisionError, AttributeError, KeyError, AssertionError) as error:
        raise UserError(f"{name}: no model can be made of this config: {str(error).splitlines()[0]}") from error
    return shape_of_model(model, name)


def shape_of_model(model: Any, name: str) -> Shape:
    """The matrices of a model, on any device; parameters are looked at, never read."""
    text = model.config.get_text_config()
    sites = find_sites(model)
    table, out = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    shape = Shape(
        name=name,
        d_model=text.hidden_size,
        heads=text.num_attention_heads,
        matrices=tuple(_matrices(sites, text)),
        embedding=table.numel(),
        head=0 if out is table else out.numel(),
        tied=out is table,
        others=_others(model, sites, tables={id(table), id(out)}),
    )
    counted = sum(m.weights for m in shape.matrices) + shape.embedding + shape.head + sum(shape.others.values())
    assert counted == sum(p.numel() for p in model.parameters()), "every parameter is counted once"
    return shape


def _matrices(sites: list[Site], text: PreTrainedConfig) -> list[Matrix]:
    """Equal sites of a layer put together, in the order in which the layer holds them."""
    counts = Counter((s.layer, s.block, s.role, s.out_features, s.in_features, _part(s)) for s in sites)
    chosen = getattr(text, "num_experts_per_tok", None)
    return [
        Matrix(*key, count=count, active=min(chosen, count) if key[-1] == "expert" and chosen else count)
        for key, count in counts.items()
    ]


def _part(site: Site) -> str:
    """What stands behind the role in a site's name: expert, shared or nothing."""
    if site.expert is not None:
        return "expert"
    return "shared" if site.name.endswith(".shared") else ""


def _others(model: Any, sites: list[Site], tables: set[int]) -> dict[str, int]:
    """Parameters that are neither a block's matrix nor a table, by kind."""
    layers = f"{find_layers(model)[0]}."
    matrices = {f"{layers}{s.layer}.{s.module}.{s.parameter}" for s in sites}
    found: Counter[str] = Counter()
    for path, parameter in model.named_parameters():
        if path not in matrices and id(parameter) not in tables:
            found[_kind(path, parameter, inside=path.startswith(layers))] += parameter.numel()
    return dict(found)


def _kind(path: str, parameter: nn.Parameter, *, inside: bool) -> str:
    if path.endswith("bias"):
        return "bias"
    if parameter.dim() < 2 or any("norm" in part for part in path.split(".")):
        return "norm"
    return "router" if inside else "position"
