"""What enters each expert of a mixture: its own tokens, and what its down projection makes of them.

All routed experts of a layer are one module with 3-D parameters, so a hook on it sees every token. An expert's
statistics must come from the tokens routed to it and from no others; over the experts of a layer the counts add up to
tokens x experts per token. Two ways of calling, as transformers 5 has them:

    chosen     forward(hidden_TD, top_k_index_TK, top_k_weights_TK): mixtral qwen3_moe deepseek_v3 gpt_oss.
               Expert e's tokens are those with e among their K.
    repeated   forward(hidden_[ET]D): llama4_text. Every expert is given all tokens, already times the router's score,
               which is 0 where it was not chosen: its tokens are the rows that are not all zero.

Gate and up are fed those tokens; down is fed activation(gate) * up, which no module boundary shows, so it is computed
here from the expert's own weights with the module's own activation.

An expert that fewer than FEW_TOKENS tokens reached is rounded to nearest, whatever the method.

T tokens, D hidden size, I the expert's inner width, K experts per token, E experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from harness.model.layouts import expert_marks
from harness.model.sites import Site
from harness.quantize import InputStats

# Fewer tokens than this say more about themselves than about what the expert will be asked.
FEW_TOKENS = 32

Entry = tuple[str, int, bool]  # module, expert, whether it is what enters down


def entry(site: Site) -> Entry:
    """Where a routed expert's statistics are found; gate and up share theirs."""
    assert site.expert is not None
    return site.module, site.expert, site.role == "down"


def too_few(site: Site, stats: InputStats) -> str:
    """Why an expert's statistics are not to be used, if so; else an empty text."""
    if site.expert is None or stats.n_tokens >= FEW_TOKENS:
        return ""
    return f"{stats.n_tokens} calibration tokens, fewer than {FEW_TOKENS}"


def nothing_known(w_OI: Tensor) -> InputStats:
    """Statistics of no tokens. Columns to keep in 16 bits are then chosen by the weights' own size."""
    stats = InputStats.empty(w_OI.shape[1], device=w_OI.device)
    stats.max_abs_I = w_OI.abs().amax(0).float()
    return stats


@contextmanager
def listening_to_experts(layer: nn.Module, sites: Sequence[Site], found: dict[Entry, InputStats]) -> Iterator[None]:
    """Adds up in `found` what enters the experts of these sites; an expert without a token has statistics of none."""
    modules = {site.module: layer.get_submodule(site.module) for site in sites}
    for site in sites:
        device = modules[site.module].get_parameter(site.parameter).device
        if entry(site) not in found:
            found[entry(site)] = InputStats.empty(site.in_features, dtype=torch.float64, device=device)

    def listener(path: str) -> Any:
        def listen(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            for expert, x_TD in _routed(module, [*args, *kwargs.values()]):
                found[path, expert, False].add(x_TD)
                found[path, expert, True].add(_inner(module, expert, x_TD))

        return listen

    handles = [m.register_forward_pre_hook(listener(path), with_kwargs=True) for path, m in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _routed(module: nn.Module, inputs: Sequence[Tensor]) -> Iterator[tuple[int, Tensor]]:
    """Each expert's tokens [T, D], where it has any."""
    hidden_TD = inputs[0].reshape(-1, inputs[0].shape[-1])
    experts = len(module.get_parameter("down_proj"))
    if len(inputs) == 1:
        own = ((x_TD, x_TD.any(1)) for x_TD in hidden_TD.view(experts, -1, hidden_TD.shape[-1]))
    else:
        index_TK = inputs[1].reshape(len(hidden_TD), -1)
        own = ((hidden_TD, (index_TK == expert).any(1)) for expert in range(experts))
    for expert, (x_TD, chosen_T) in enumerate(own):
        if chosen_T.any():
            yield expert, x_TD[chosen_T]


def _inner(module: Any, expert: int, x_TD: Tensor) -> Tensor:
    """What enters an expert's down projection [T, I]."""
    marks = expert_marks(module)
    assert marks is not None, "its sites were found by these marks"
    gated = hasattr(module, "gate_up_proj")
    name = "gate_up_proj" if gated else "up_proj"
    weight = module.get_parameter(name)[expert]
    h_TO = x_TD @ (weight if marks.transposed else weight.T)
    if (bias_EO := getattr(module, f"{name}_bias", None)) is not None:
        h_TO = h_TO + bias_EO[expert]
    if not gated:
        return module.act_fn(h_TO)
    if hasattr(module, "_apply_gate"):
        return module._apply_gate(h_TO)
    gate_TI, up_TI = h_TO.chunk(2, dim=-1)
    return module.act_fn(gate_TI) * up_TI
