"""What a token costs beyond its weights: cache, FLOPs, training state, activations.

KV cache       2 x layers x KV heads x head_dim elements a token; latent attention keeps its compressed row
forward        2 N FLOPs a token, N parameters in use (Kaplan et al. 2020, section 2.1), plus attention scores:
               2 (q width + v width) FLOPs a layer for every token looked at
training       6 N D for D tokens: backward costs twice forward
AdamW, mixed   16 bytes a parameter: weights 2, gradients 2, master 4, two moments of 4 (Rajbhandari et al. 2020,
               ZeRO, section 3.1)
activations    batch x length x d_ff elements a layer; gated FFNs hold two, gate and up
"""

from __future__ import annotations

from typing import Any

from harness.ledger.config import LedgerOptions
from harness.ledger.params import totals, usual_layer
from harness.ledger.shape import Matrix, Shape

# Bytes a parameter. Activations and temporary buffers come on top.
TRAINING_STATE = {
    "adamw_mixed": {"weights": 2, "gradients": 2, "master": 4, "moments": 8},
    "adamw_8bit": {"weights": 2, "gradients": 2, "master": 4, "moments": 2},
    "adamw_float32": {"weights": 4, "gradients": 4, "master": 0, "moments": 8},
    "sgd_momentum_mixed": {"weights": 2, "gradients": 2, "master": 4, "moments": 4},
    "sgd_mixed": {"weights": 2, "gradients": 2, "master": 4, "moments": 0},
}


def cache_elements(shape: Shape) -> int:
    """Elements that one token leaves in the KV cache. Sliding windows, which only cap the length, are not looked at."""
    return sum(m.out_features for m in shape.matrices if m.role in ("k", "v", "kv_a"))


def score_flops(shape: Shape, length: int) -> int:
    """FLOPs of one token's attention to `length` tokens: queries with keys, weights with values."""
    queries = sum(m.out_features for m in shape.matrices if m.role in ("q", "q_b"))
    values = sum(m.in_features for m in shape.matrices if m.role == "o")
    return 2 * length * (queries + values)


def forward_flops(parameters: float) -> float:
    """FLOPs a token of a forward pass."""
    return 2 * parameters


def training_flops(parameters: float, tokens: float) -> float:
    """FLOPs of training on so many tokens."""
    return 6 * parameters * tokens


def gpu_days(flops: float, tflops: float) -> float:
    """Days on one accelerator that sustains so many TFLOP/s."""
    return flops / (tflops * 1e12) / 86_400


def training_state_bytes(parameters: float, optimizer: str) -> float:
    """Bytes of weights, gradients and optimizer state."""
    return parameters * sum(TRAINING_STATE[optimizer].values())


def ffn_activation_bytes(batch: int, length: int, d_ff: int, element_bytes: int = 2, held: int = 1) -> int:
    """Bytes of an FFN's inner activations in one layer; `held`: tensors of that size, 2 in gated FFNs."""
    return batch * length * d_ff * element_bytes * held


def cache(shape: Shape, options: LedgerOptions) -> dict[str, Any]:
    """KV cache of one sequence."""
    token = cache_elements(shape) * options.cache_bytes
    return {"bytes_a_token": token, "length": options.length, "bytes": token * options.length}


def flops(shape: Shape, options: LedgerOptions) -> dict[str, Any]:
    """FLOPs a token, and of a whole training."""
    parameters = totals(shape, active=True)["all"]
    tables = shape.head or shape.embedding
    matrices = shape.weights("ffn", active=True) + shape.weights("attention", active=True)
    training = training_flops(parameters, options.train_tokens)
    return {
        "forward": forward_flops(parameters),
        "forward_matrices": forward_flops(matrices + shape.others.get("router", 0) + tables),
        "attention_scores": score_flops(shape, options.length),
        "length": options.length,
        "training_a_token": training_flops(parameters, 1),
        "training": training,
        "training_tokens": options.train_tokens,
        "training_gpu_days": gpu_days(training, options.train_tflops),
    }


def training_state(shape: Shape) -> list[dict[str, Any]]:
    """One row per optimizer, all parameters trained."""
    parameters = totals(shape)["all"]
    return [
        {
            "optimizer": name,
            **parts,
            "bytes_a_parameter": sum(parts.values()),
            "bytes": training_state_bytes(parameters, name),
        }
        for name, parts in TRAINING_STATE.items()
    ]


def activations(shape: Shape, options: LedgerOptions) -> list[dict[str, Any]]:
    """FFN activations of one usual layer, one row per batch size; a token's active experts each hold their own."""
    inner = [m for m in usual_layer(shape).matrices if m.role in ("gate", "up")]
    return [
        {
            "batch": batch,
            "length": options.length,
            "d_ff": inner[0].out_features,
            "tensor_bytes": ffn_activation_bytes(batch, options.length, inner[0].out_features, options.cache_bytes),
            "held": sum(m.active for m in inner),
            "layer_bytes": sum(_inner_bytes(m, batch, options) for m in inner),
        }
        for batch in options.batch_sizes
    ]


def _inner_bytes(m: Matrix, batch: int, options: LedgerOptions) -> int:
    return ffn_activation_bytes(batch, options.length, m.out_features, options.cache_bytes, held=m.active)
