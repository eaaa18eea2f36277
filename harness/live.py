"""Sites that compute in another way instead of having other weights: LLM.int8, which rounds activations as well.

For as long as the context lasts, the module of each site has another `forward`; the module itself is not touched.
Only whole linear modules can be so treated: a slice of a fused matrix has no output of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from harness.model.sites import Site
from harness.quantize.llm_int8 import Int8Weight, cast_linear, int8_linear

Linear = Callable[[Tensor], Tensor]  # x [..., I] -> x W^T [..., O], without bias


@contextmanager
def computing(layer: nn.Module, forwards: Mapping[Site, Linear]) -> Iterator[None]:
    """The layer, its sites' modules computing by `forwards` plus their own bias."""
    modules = {site: _module(layer, site) for site in forwards}
    try:
        for site, module in modules.items():
            module.forward = _with_bias(forwards[site], module)
        yield
    finally:
        for module in modules.values():
            module.__dict__.pop("forward", None)


def int8_forward(weight: Int8Weight, threshold: float) -> Linear:
    """LLM.int8's product."""
    return lambda x_TI: int8_linear(x_TI, weight, threshold)


def cast_forward(w_OI: Tensor) -> Linear:
    """The control: the same float16 casts, nothing rounded to integers."""
    return lambda x_TI: cast_linear(x_TI, w_OI)


def _module(layer: nn.Module, site: Site) -> nn.Module:
    assert site.is_whole, f"{site.name}: harness.plan lets no other through"
    return layer.get_submodule(site.module)


def _with_bias(linear: Linear, module: nn.Module) -> Linear:
    bias = getattr(module, "bias", None)
    return linear if not isinstance(bias, torch.Tensor) else lambda x: linear(x) + bias
