"""Off the grid: an exact re-parameterization, so that 4-bit source weights can stand in for float ones.

Weights that were once rounded to a grid are reproduced without loss by any grid that nests in it, and a loss of
exactly 0 says nothing about quantization. A LLaMA-shaped layer has four places where a positive factor can be moved
from one tensor to the next without changing the function (the same freedom that SmoothQuant, arXiv:2211.10438
section 4, and AWQ, arXiv:2306.00978 section 3.2, use to make weights easier to quantize):

    norm  -> q, k, v     w_norm * a        columns of q, k, v / a        a_D
    norm  -> gate, up    w_norm * b        columns of gate, up / b       b_D
    up    -> down        rows of up * c    columns of down / c           c_F    silu(gate) * up is linear in up
    v     -> o           rows of v * d     columns of o / d              d_K    attention is linear in v; query heads
                                                                                that share a KV head share its d

Every factor is exp(sigma * normal), drawn once per layer from (seed, layer). Biases of scaled rows are scaled too.
Left alone: embedding, final norm and head (they may be one tensor), and q, k rows (the rotary embedding mixes them).
The factors are no powers of two, so every weight is rounded to float32 once more: logits move by about 1e-5.

D hidden size, F width of the FFN, K rows of v, O out_features, I in_features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from harness.config import OffGrid
from harness.errors import UserError

# RMSNorm that multiplies by its plain weight, split projections, a gated FFN, no other path from v to o.
LLAMA_SHAPED = ("llama", "mistral", "qwen2", "qwen3", "smollm3")

_LAYER_TENSOR = re.compile(r"(?:^|\.)layers\.(\d+)\.(?:self_attn\.|mlp\.)?(\w+)\.(weight|bias)$")

Factors = dict[str, tuple[torch.Tensor | None, torch.Tensor | None]]


def off_grid(state: Mapping[str, torch.Tensor], config: Mapping[str, Any], how: OffGrid) -> dict[str, torch.Tensor]:
    """The re-parameterized tensors, in float32. `state` may be one shard of a model: each tensor stands for itself.

    `config` is the model's config.json. UserError where the architecture is not LLaMA-shaped.
    """
    check_shape(config)
    drawn: dict[int, Factors] = {}
    moved = {}
    for name, tensor in state.items():
        match = _LAYER_TENSOR.search(name)
        if match is None:
            moved[name] = tensor.float()
            continue
        layer, role, kind = int(match[1]), match[2], match[3]
        if layer not in drawn:
            drawn[layer] = layer_factors(config, layer, how)
        moved[name] = _rescale(tensor, kind, *drawn[layer].get(role, (None, None)))
    return moved


def check_shape(config: Mapping[str, Any]) -> None:
    """UserError unless factors can be moved exactly in this architecture."""
    if (kind := config.get("model_type")) not in LLAMA_SHAPED:
        raise UserError(
            f"model.off_grid: not exact for model_type={kind!r}, only for {', '.join(LLAMA_SHAPED)}. "
            "Set model.off_grid.sigma=0."
        )


def layer_factors(config: Mapping[str, Any], layer: int, how: OffGrid) -> Factors:
    """What each tensor of a decoder layer is multiplied by on its rows, and divided by on its columns."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    generator = torch.Generator().manual_seed(how.seed * 1_000_003 + layer)

    def draw(size: int) -> torch.Tensor:
        return torch.exp(how.sigma * torch.randn(size, generator=generator, dtype=torch.float64))

    a_D, b_D, c_F = draw(hidden), draw(hidden), draw(config["intermediate_size"])
    d_K = draw(kv_heads * head_dim)
    shared_by_heads = d_K.view(kv_heads, 1, head_dim).expand(-1, heads // kv_heads, -1).flatten()
    return {
        "input_layernorm": (a_D, None),
        "q_proj": (None, a_D),
        "k_proj": (None, a_D),
        "v_proj": (d_K, a_D),
        "o_proj": (None, shared_by_heads),
        "post_attention_layernorm": (b_D, None),
        "gate_proj": (None, b_D),
        "up_proj": (c_F, b_D),
        "down_proj": (None, c_F),
    }


def _rescale(
    tensor: torch.Tensor, kind: str, rows_O: torch.Tensor | None, columns_I: torch.Tensor | None
) -> torch.Tensor:
    """Rows times `rows_O`, columns over `columns_I`, computed in float64 and rounded once; a bias has rows only."""
    scaled = tensor.double()
    if columns_I is not None and kind == "weight":
        scaled = scaled / columns_I
    if rows_O is not None:
        scaled = scaled * rows_O.view(-1, *[1] * (tensor.dim() - 1))
    return scaled.float()
