"""Layouts: how each architecture stores its block matrices, as data.

A decoder layer is read by names, module types and config. A name that is not in these tables is not guessed at: a
fused matrix cut in the wrong place has the right shape and the wrong rows, and no error ever tells. `[O, I]` means
that rows are outputs; `h` is one head's width, `H` the query heads, `K` the key/value heads.

    split        q_proj k_proj v_proj o_proj, gate_proj up_proj down_proj: a Linear each, [O, I].
                 llama mistral qwen2 qwen3 smollm3 gemma2 gemma3_text olmo2 granite stablelm cohere2; the attention of
                 mixtral qwen3_moe gpt_oss llama4_text glm4 starcoder2 opt.
    two-matrix   FFNs without a gate: up, down. starcoder2 gpt2 (c_fc, c_proj), gpt_neox falcon bloom (dense_h_to_4h,
                 dense_4h_to_h), opt (fc1, fc2, directly in the layer).
    latent       deepseek_v3: q_a q_b (q where q_lora_rank is null), kv_a kv_b o. kv_a carries the shared rotary key's
                 rows, kv_b the keys and values of all heads; neither is cut further.
    stacked qkv  phi3 qkv_proj: H*h rows of q, then K*h of k, then K*h of v: not thirds. gpt2 c_attn: the same, K = H.
    grouped qkv  query_key_value: for each key/value head, its H/K query heads, then its k, then its v. gpt_neox and
                 bloom have K = H, new falcon any K, old falcon K = 1 (which is stacked) or, without multi_query, H.
    gate_up      phi3 glm4: the gate's rows, then up's.
    Conv1D       gpt2: every matrix is stored transposed, [I, O].
    experts      one 3-D parameter for all experts of a layer. [E, O, I]: mixtral qwen3_moe deepseek_v3. [E, I, O]:
                 gpt_oss llama4_text. gate_up_proj holds gate and up as halves of the outputs, in gpt_oss as even and
                 odd outputs. transformers marks both facts on the module (`use_experts_implementation`); Llama-4's
                 experts carry no mark and are known by class.
    shared       shared_expert(s) beside the routed ones (deepseek_v3, llama4_text): plain Linears, suffix `.shared`.

Known and left alone: norms, biases, and the router, whatever its type (Llama-4's is a Linear).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn
from transformers.pytorch_utils import Conv1D

if TYPE_CHECKING:
    from transformers import PretrainedConfig

Rows = tuple[range, ...]  # output rows of a fused matrix; empty: all

# First part of a parameter's path inside its decoder layer -> block. OPT has no FFN module: fc1, fc2 stand alone.
BLOCKS = {
    "self_attn": "attention",
    "self_attention": "attention",
    "attention": "attention",
    "attn": "attention",
    "mlp": "ffn",
    "feed_forward": "ffn",
    "fc1": "ffn",
    "fc2": "ffn",
}

# Module that holds one whole matrix -> role.
ROLES = {
    "attention": {
        "q_proj": "q",
        "k_proj": "k",
        "v_proj": "v",
        "o_proj": "o",
        "out_proj": "o",
        "dense": "o",
        "c_proj": "o",
        "q_a_proj": "q_a",
        "q_b_proj": "q_b",
        "kv_a_proj_with_mqa": "kv_a",
        "kv_b_proj": "kv_b",
    },
    "ffn": {
        "gate_proj": "gate",
        "up_proj": "up",
        "down_proj": "down",
        "c_fc": "up",
        "c_proj": "down",
        "fc1": "up",
        "fc2": "down",
        "dense_h_to_4h": "up",
        "dense_4h_to_h": "down",
    },
}

ROLE_ORDER = ("q", "q_a", "q_b", "k", "v", "kv_a", "kv_b", "o", "gate", "up", "down")
SUFFIXES = {(): "", ("shared_expert",): ".shared", ("shared_experts",): ".shared"}
ROUTERS = ("gate", "router", "shared_expert_gate")  # children of a module that also holds `experts`


@dataclass(frozen=True)
class ExpertMarks:
    """How a module stores its experts."""

    transposed: bool  # [expert, I, O], else [expert, O, I]
    halves: bool  # gate and up are halves of the outputs, else even and odd ones


UNMARKED_EXPERTS = {"Llama4TextExperts": ExpertMarks(transposed=True, halves=True)}  # by class


@dataclass(frozen=True)
class Part:
    """One site's share of a parameter: see `Site` for the fields."""

    role: str
    suffix: str = ""  # "", ".shared" or ".expert{e}"
    rows: Rows = ()
    transposed: bool = False
    expert: int | None = None


def block_of(path: str) -> str | None:
    """The block that a parameter of a decoder layer belongs to, or None."""
    return BLOCKS.get(path.split(".")[0])


def explain(layer: nn.Module, path: str, config: PretrainedConfig) -> list[Part] | None:
    """The sites inside the parameter at `path` of a decoder layer: [] if it holds none, None if not understood."""
    *parents, parameter = path.split(".")
    if parents and _is_no_matrix(layer, parents, parameter):
        return []
    block = block_of(path)
    if not parents or block is None:
        return None
    owner = layer.get_submodule(".".join(parents))
    if parents[1:] == ["experts"]:
        return _experts(owner, parameter, config)
    suffix, stored = SUFFIXES.get(tuple(parents[1:-1])), _orientation(owner)
    if suffix is None or stored is None or parameter != "weight":
        return None
    rows, transposed = stored
    if role := ROLES[block].get(parents[-1]):
        return [Part(role, suffix, (), transposed)]
    cut = FUSED.get((config.model_type, parents[-1]))
    slices = cut(config, rows) if cut else {}
    if sum(len(part) for parts in slices.values() for part in parts) != rows:
        return None
    return [Part(role, suffix, parts, transposed) for role, parts in slices.items()]


def _is_no_matrix(layer: nn.Module, parents: list[str], parameter: str) -> bool:
    """Norms, biases and routers."""
    parent = layer.get_submodule(".".join(parents[:-1]))
    is_norm = "norm" in parents[-1] and not isinstance(parent.get_submodule(parents[-1]), nn.Linear)
    return is_norm or parameter.endswith("bias") or (parents[-1] in ROUTERS and hasattr(parent, "experts"))


def _orientation(owner: nn.Module) -> tuple[int, bool] | None:
    """(number of outputs, stored transposed?) of a module's weight, by the module's type; None for any other type."""
    if isinstance(owner, nn.Linear) and owner.weight.shape == (owner.out_features, owner.in_features):
        return owner.out_features, False
    if isinstance(owner, Conv1D):
        return owner.nf, True
    return None


def expert_marks(owner: nn.Module) -> ExpertMarks | None:
    """What transformers says of an experts module, or what is known of its class; None where neither helps."""
    if hasattr(owner, "is_transposed"):
        return ExpertMarks(bool(owner.is_transposed), bool(owner.is_concatenated))
    return UNMARKED_EXPERTS.get(type(owner).__name__)


def _experts(owner: nn.Module, parameter: str, config: PretrainedConfig) -> list[Part] | None:
    """Parts of a parameter [expert, O, I] or [expert, I, O]."""
    weight, marks = owner.get_parameter(parameter), expert_marks(owner)
    if marks is None or weight.dim() != 3:
        return None
    outputs, inputs = weight.shape[:0:-1] if marks.transposed else weight.shape[1:]
    cut: dict[str, Rows]
    match parameter:
        case "down_proj" if outputs == config.hidden_size:
            cut = {"down": ()}
        case "up_proj" if inputs == config.hidden_size:
            cut = {"up": ()}
        case "gate_up_proj" if inputs == config.hidden_size:
            cut = _halves(config, outputs) if marks.halves else _even_odd(outputs)
        case _:
            return None
    return [
        Part(role, f".expert{e}", rows, marks.transposed, e) for e in range(len(weight)) for role, rows in cut.items()
    ]


def _kv_heads(config: PretrainedConfig) -> int:
    """Key/value heads of a fused qkv. By model type: a config may carry fields that its model never reads."""
    match config.model_type:
        case "phi3":
            return config.num_key_value_heads
        case "falcon" if config.new_decoder_architecture:
            return config.num_kv_heads
        case "falcon" if config.multi_query:
            return 1
        case _:
            return config.num_attention_heads


def _stacked(config: PretrainedConfig, rows: int) -> dict[str, Rows]:
    """All of q, all of k, all of v."""
    heads, kv_heads = config.num_attention_heads, _kv_heads(config)
    width = rows // (heads + 2 * kv_heads)
    k, v, end = (width * n for n in (heads, heads + kv_heads, heads + 2 * kv_heads))
    return {"q": (range(k),), "k": (range(k, v),), "v": (range(v, end),)}


def _grouped(config: PretrainedConfig, rows: int) -> dict[str, Rows]:
    """For each key/value head: its query heads, its k, its v."""
    heads, kv_heads = config.num_attention_heads, _kv_heads(config)
    width = rows // (heads + 2 * kv_heads)
    k = heads // kv_heads * width
    v, end = k + width, k + 2 * width
    starts = range(0, kv_heads * end, end)
    return {
        "q": tuple(range(s, s + k) for s in starts),
        "k": tuple(range(s + k, s + v) for s in starts),
        "v": tuple(range(s + v, s + end) for s in starts),
    }


def _halves(config: PretrainedConfig, rows: int) -> dict[str, Rows]:
    return {"gate": (range(rows // 2),), "up": (range(rows // 2, rows),)}


def _even_odd(rows: int) -> dict[str, Rows]:
    return {"gate": (range(0, rows, 2),), "up": (range(1, rows, 2),)}


# (model type, module) -> how the fused matrix is cut. By model type, as the same module name means different cuts.
FUSED: dict[tuple[str, str], Callable[[PretrainedConfig, int], dict[str, Rows]]] = {
    ("phi3", "qkv_proj"): _stacked,
    ("gpt2", "c_attn"): _stacked,
    ("gpt_neox", "query_key_value"): _grouped,
    ("falcon", "query_key_value"): _grouped,
    ("bloom", "query_key_value"): _grouped,
    ("phi3", "gate_up_proj"): _halves,
    ("glm4", "gate_up_proj"): _halves,
}
