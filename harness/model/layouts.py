"""Layouts: how each architecture stores its block matrices, as data.

A decoder layer is read by names and module types; a name that is not in these tables is not guessed at. What is
recognised (`[O, I]` means rows are outputs):

    split      q_proj k_proj v_proj o_proj, gate_proj up_proj down_proj: one Linear, [O, I], a role.
               llama mistral qwen2 qwen3 smollm3 gemma2 gemma3_text olmo2 granite stablelm cohere2, and the attention
               of mixtral qwen3_moe gpt_oss llama4_text glm4. Two-matrix FFNs: starcoder2 (c_fc, c_proj), opt (fc1,
               fc2, directly in the layer), gpt_neox falcon bloom (dense_h_to_4h, dense_4h_to_h).
    latent     q_a_proj q_b_proj kv_a_proj_with_mqa kv_b_proj o_proj (deepseek_v3; q_proj where q_lora_rank is null).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

Rows = tuple[tuple[int, int], ...]  # [start, stop) ranges of output rows; empty: all

# First part of a parameter's path inside its decoder layer -> block. OPT has no FFN module: fc1, fc2 stand alone.
BLOCKS = {
    "self_attn": "attention",
    "mlp": "ffn",
}

# Module that holds the matrix -> role.
ROLES = {
    "attention": {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o"},
    "ffn": {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"},
}


@dataclass(frozen=True)
class Part:
    """One site's share of a parameter: see `Site` for the fields."""

    role: str
    suffix: str = ""  # "", ".shared" or ".expert{e}"
    rows: Rows = ()
    stride: int = 1
    transposed: bool = False
    expert: int | None = None


def block_of(path: str) -> str | None:
    """The block that a parameter of a decoder layer belongs to, or None."""
    return BLOCKS.get(path.split(".")[0])


def explain(layer: nn.Module, path: str) -> list[Part] | None:
    """The sites inside the parameter at `path` of a decoder layer: [] if it holds none, None if not understood."""
    *parents, parameter = path.split(".")
    module = layer.get_submodule(".".join(parents))
    if "norm" in parents[-1] or parameter.endswith("bias"):
        return []
    role = ROLES.get(block_of(path) or "", {}).get(parents[-1])
    if role and len(parents) == 2 and isinstance(module, nn.Linear):
        return [Part(role)]
    return None
