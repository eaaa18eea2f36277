"""What differs between architectures besides the layout of their weights.

**Trees.** A question and its choices are packed into one sequence with an additive 4-D mask. transformers hands such a
mask to every layer as it is (`masking_utils._preprocess_mask_arguments`), so a layer's own window is not applied. The
pack then scores like separate sequences only while no path from root to leaf is longer than

    the sliding window              gemma2 gemma3_text gpt_oss cohere2 mistral, and qwen, phi3, mixtral, starcoder2,
                                    smollm3 where their config turns it on
    the attention chunk             llama4_text
    the original context            longrope (phi3) and dynamic rope: the rotary table changes with the longest position

however long the whole pack is. Two things depend on a token's place in the pack instead: ALiBi (bloom, falcon with
`alibi`; these do not take such a mask at all), and Llama-4's temperature tuning, which is 1 for the first `floor_scale`
places only.

**Batches.** The longest position in a batch decides on the rotary table of all its rows: those beyond the original
context are batched by themselves.

**Norms.** Gemma multiplies by 1 + weight. Dividing a norm's output by s takes weight' = (offset + weight) / s - offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

TUPLE_LAYERS = ("bloom", "falcon")
NORMS_PLUS_ONE = ("gemma", "gemma2", "gemma3_text")


@dataclass(frozen=True)
class TreeLimits:
    """Largest packs that score like separate sequences. None: no limit; 0: never."""

    tokens: int | None  # of the whole pack
    depth: int | None  # of the longest path from root to leaf


@dataclass(frozen=True)
class ArchitectureNotes:
    """How to call a model's layers and what to expect."""

    eager_only: bool  # no sdpa: attention soft-capping, sinks, ALiBi of BLOOM
    layers_return_tuple: bool  # (hidden, ...) instead of hidden
    norm_offset: float  # norms multiply by offset + weight
    tree: TreeLimits
    rope: int | None  # length up to which a batch's longest row does not change the rotary table of all; None: any


def architecture_notes(model: PreTrainedModel) -> ArchitectureNotes:
    """The notes on a model; weights are not read."""
    config = model.config.get_text_config()
    return ArchitectureNotes(
        eager_only=not type(model)._supports_sdpa,
        layers_return_tuple=config.model_type in TUPLE_LAYERS,
        norm_offset=1.0 if config.model_type in NORMS_PLUS_ONE else 0.0,
        tree=tree_limits(config),
        rope=_least(_ropes(config)),
    )


def tree_limits(config: PretrainedConfig) -> TreeLimits:
    """Limits on packed trees (module docstring)."""
    config = config.get_text_config()
    if config.model_type == "bloom" or getattr(config, "alibi", False):
        return TreeLimits(tokens=0, depth=0)
    tuned = getattr(config, "attn_temperature_tuning", False)
    return TreeLimits(tokens=config.floor_scale - 1 if tuned else None, depth=_least(_windows(config) + _ropes(config)))


def _windows(config: PretrainedConfig) -> list[int]:
    """The attention spans of layers that do not see everything before them."""
    window = getattr(config, "sliding_window", None)
    everywhere = ["sliding_attention"] if window else []  # models without `layer_types` slide in all layers or none
    kinds = set(getattr(config, "layer_types", None) or everywhere)
    spans = {"sliding_attention": window, "chunked_attention": getattr(config, "attention_chunk_size", None)}
    return [span for kind, span in spans.items() if kind in kinds and span]


def _ropes(config: PretrainedConfig) -> list[int]:
    """The lengths up to which rotary tables do not depend on the longest position."""
    parameters = getattr(config, "rope_parameters", None) or {}
    per_layer_type = [p for p in parameters.values() if isinstance(p, dict)] or [parameters]
    lengths = []
    for rope in per_layer_type:
        if rope.get("rope_type") == "longrope":
            lengths.append(rope["original_max_position_embeddings"])
        elif rope.get("rope_type") == "dynamic":
            lengths.append(config.max_position_embeddings)
    return lengths


def _least(lengths: list[int]) -> int | None:
    return min(lengths, default=None)
