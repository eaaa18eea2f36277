"""Sites: every block matrix of a decoder, named the same way in every architecture.

`find_sites` looks at shapes, module types and the config only, so it works on a model on the meta device. Every
parameter with two or more axes in a decoder layer must be explained by `layouts`: as one or more sites, or as
something known not to be a block matrix (norm, bias, router). Otherwise the model is refused by name, since a
weight that nobody counted would stay in 16 bits under a label that says int4.

`read_site` and `write_site` work on one decoder layer, so a caller can hold one layer in memory at a time.

O out_features, I in_features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from harness.errors import UserError
from harness.model.layouts import ROLE_ORDER, Part, Rows, block_of, explain

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Site:
    """One weight matrix `w_OI`, or the row slices of a fused one.

    `module` is a path inside the decoder layer (inside the whole model for `embedding` and `head`), `parameter` the
    attribute there. `rows` are ranges of output rows in the [O, I] view, in the order in which `w_OI` holds them;
    empty means all rows. `transposed` means stored as [I, O]. `expert` indexes the first axis of a 3-D parameter.
    """

    name: str  # layers.{i}.{block}.{role}[.expert{e}|.shared], or embedding / head
    layer: int  # -1: the embedding, before the layers; their number: the head, behind them
    block: str  # ffn, attention, embedding, head
    role: str
    module: str
    parameter: str
    out_features: int
    in_features: int
    rows: Rows = ()
    transposed: bool = False
    expert: int | None = None

    @property
    def weights(self) -> int:
        """Number of weights."""
        return self.out_features * self.in_features

    @property
    def is_whole(self) -> bool:
        """Whether it is a stored matrix as it lies, neither a part of one nor transposed."""
        return not self.rows and not self.transposed and self.expert is None

    @property
    def slices(self) -> list[slice]:
        """The rows of the stored matrix, in [O, I] view, that this site is made of."""
        return [slice(rows.start, rows.stop, rows.step) for rows in self.rows] or [slice(None)]


def find_layers(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Path and list of the decoder layers, for instance `model.layers`: the one list as long as the config says."""
    count = model.config.get_text_config().num_hidden_layers
    found = [(path, m) for path, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    outermost = [(path, m) for path, m in found if not any(path.startswith(f"{other}.") for other, _ in found)]
    if len(outermost) != 1:
        raise UserError(
            f"{model.config.model_type}: {count} decoder layers expected in one list, found "
            f"{[path for path, _ in outermost] or 'none'}. Use a decoder-only language model."
        )
    return outermost[0]


def find_sites(model: PreTrainedModel) -> list[Site]:
    """Every block matrix of every decoder layer; by layer, block, expert and role. UserError names what is unknown."""
    config, sites, unknown = model.config.get_text_config(), [], []
    for i, layer in enumerate(find_layers(model)[1]):
        for path, weight in layer.named_parameters():
            if weight.dim() < 2:
                continue
            parts = explain(layer, path, config)
            if parts is None:
                unknown.append(f"layers.{i}.{path} {tuple(weight.shape)}")
            else:
                sites += [_site(i, path, weight, part) for part in parts]
    if unknown:
        raise UserError(_refusal(model, unknown))
    return sorted(sites, key=_rank)


def _rank(site: Site) -> tuple[int, str, int, int]:
    return site.layer, site.block, -1 if site.expert is None else site.expert, ROLE_ORDER.index(site.role)


def find_extra_sites(model: PreTrainedModel) -> tuple[list[Site], bool]:
    """`embedding` and `head` (paths are inside the whole model), and whether the two are one tensor.

    A skeleton on the meta device holds two tensors where the real model ties them: there the config decides.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    modules = {"embedding": model.get_input_embeddings(), "head": model.get_output_embeddings()}
    sites = []
    for name, module in modules.items():
        if module is not None:
            rows, columns = module.get_parameter("weight").shape
            layer = -1 if name == "embedding" else model.config.get_text_config().num_hidden_layers
            sites.append(Site(name, layer, name, name, paths[id(module)], "weight", rows, columns))
    weights = [module.get_parameter("weight") for module in modules.values() if module is not None]
    on_meta = weights[0].is_meta and bool(model.config.get_text_config().tie_word_embeddings)
    return sites, len(weights) == 2 and (on_meta or weights[0] is weights[1])


def _site(layer: int, path: str, weight: nn.Parameter, part: Part) -> Site:
    module, _, parameter = path.rpartition(".")
    block = block_of(path)
    assert block is not None
    stored = tuple(weight.shape[-2:])
    rows, columns = stored[::-1] if part.transposed else stored
    return Site(
        name=f"layers.{layer}.{block}.{part.role}{part.suffix}",
        layer=layer,
        block=block,
        role=part.role,
        module=module,
        parameter=parameter,
        out_features=sum(len(part_rows) for part_rows in part.rows) or rows,
        in_features=columns,
        rows=part.rows,
        transposed=part.transposed,
        expert=part.expert,
    )


def _refusal(model: PreTrainedModel, unknown: list[str]) -> str:
    shown = ", ".join(unknown[:8]) + (f" and {len(unknown) - 8} more" if len(unknown) > 8 else "")
    return (
        f"{model.config.model_type}: the layout of its decoder layers is not understood.\nNot known: {shown}.\n"
        "Nothing is measured on a guess: use a supported architecture, or describe this one in harness/model/layouts.py"
    )


def read_site(layer: nn.Module, site: Site) -> torch.Tensor:
    """The site's weights as a fresh contiguous `w_OI`, in the dtype and on the device of the stored parameter."""
    matrix_OI = _matrix(layer, site)
    return torch.cat([matrix_OI[rows] for rows in site.slices]).contiguous()


def write_site(layer: nn.Module, site: Site, w_OI: torch.Tensor) -> None:
    """Write `w_OI` into the stored parameter, in place and nowhere else; rounded to the parameter's dtype."""
    assert w_OI.shape == (site.out_features, site.in_features), f"{site.name}: {tuple(w_OI.shape)}"
    matrix_OI, start = _matrix(layer, site), 0
    for rows in site.slices:
        target = matrix_OI[rows]
        target.copy_(w_OI[start : start + len(target)])
        start += len(target)


@contextmanager
def substituted(layer: nn.Module, weights: Mapping[Site, torch.Tensor]) -> Iterator[nn.Module]:
    """The layer with other weights at some sites; the old ones are back, bit for bit, on the way out.

    A whole matrix is exchanged, which copies nothing; a part of one is overwritten and written back.
    """
    before = {site: _whole(layer, site) if site.is_whole else read_site(layer, site) for site in weights}
    try:
        for site, w_OI in weights.items():
            _put(layer, site, w_OI.to(before[site].dtype))
        yield layer
    finally:
        for site, old in before.items():
            _put(layer, site, old)


def _put(layer: nn.Module, site: Site, w_OI: torch.Tensor) -> None:
    if not site.is_whole:
        return write_site(layer, site, w_OI)
    parameter = w_OI if isinstance(w_OI, nn.Parameter) else nn.Parameter(w_OI, requires_grad=False)
    return setattr(layer.get_submodule(site.module), site.parameter, parameter)


def _whole(layer: nn.Module, site: Site) -> nn.Parameter:
    return layer.get_submodule(site.module).get_parameter(site.parameter)


def _matrix(layer: nn.Module, site: Site) -> torch.Tensor:
    """The stored matrix that holds the site, as an [O, I] view outside autograd."""
    weight = _whole(layer, site).detach()
    if site.expert is not None:
        weight = weight[site.expert]
    return weight.T if site.transposed else weight
