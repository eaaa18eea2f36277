"""What a run will take, in bytes and seconds, worked out from shapes before any weight is read.

Besides what stays in memory from opening the model on (`Outline.pending_bytes`):

    layer          its weights; a second copy of those that an arm changes, and a third to put back; what the arms'
                   quantized weights take while the layer is in use; 16 bytes a weight of the largest matrix, for
                   the float32 copies that quantizing it makes
    statistics     sum x x^T of every input of the largest layer, float32, for each calibration draw; float64 while it
                   is summed, and float64 factors
    calibration    hidden states of the calibration tokens
    activations    one batch inside a layer: q, k, v, o and the FFN's inner tensors; scores where attention is eager
    logits         `engine.head_tokens` rows of the vocabulary in float32: base's, an arm's, and what KL needs
    states         hidden states of one batch for every different arm, and its mask

Time is forward FLOPs, 2 a weight, token and arm, over the speed of one matrix product measured here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

import torch

from harness.config import CalibInputs, RunConfig
from harness.ledger.costs import ffn_activation_bytes, forward_flops
from harness.model.outline import Outline
from harness.model.room import largest_layer_bytes
from harness.model.sites import Site
from harness.packs import Pack, TokenSequence
from harness.plan import STAGES, Arm, trunk_counts
from harness.scheme import Scheme

FLOAT32, FLOAT64 = 4, 8  # bytes
LOGITS = 5  # tensors [head_tokens, vocabulary] at once
INNER = 3  # FFN tensors of the inner width at once: gate, up, their product
MATRIX = 16  # bytes a weight while a matrix is quantized
FACTORS = 3  # matrices [I, I] while a Hessian is factored


def memory(config: RunConfig, model: Outline, arms: Sequence[Arm], work: Sequence[TokenSequence]) -> dict[str, int]:
    """Bytes by use (module docstring), with one batch of `work` at a time."""
    longest = max(len(sequence.tokens) for sequence in work)
    trees = config.engine.packing and model.notes.tree.tokens != 0
    width = max(longest, 2 * config.engine.pack_tokens) if trees else longest
    tokens, draws = max(width, config.engine.batch_tokens), _draws(arms)
    different = len({arm.key for arm in arms})
    calibrated = draws * (different if config.calib.inputs is CalibInputs.quantized else 1)
    state = model.hidden_size * model.dtype.itemsize
    return {
        "layer": largest_layer_bytes(model.module) + _changed(model, arms),
        "statistics": _layer_statistics(model, draws),
        "calibration": calibrated * config.calib.samples * config.calib.length * state,
        "activations": _activations(model, tokens, width),
        "logits": LOGITS * FLOAT32 * config.engine.head_tokens * model.vocab_size,
        "states": tokens * ((different + 1) * state + (width * model.dtype.itemsize if trees else 0)),
    }


def kept_statistics(config: RunConfig, model: Outline, arms: Sequence[Arm]) -> int:
    """Bytes of statistics that a run leaves in the cache folder."""
    if not config.calib.keep or config.calib.inputs is CalibInputs.quantized:
        return 0
    return FLOAT32 * _draws(arms) * sum(width**2 for widths in _inputs(model.sites) for width in widths)


def seconds(model: Outline, arms: Sequence[Arm], packs: Sequence[Pack]) -> float:
    """Time of the matrix products of all forward passes; attention, quantizing and calibration come on top."""
    weights = model.used_weights
    tokens, scored = sum(map(len, packs)), sum(len(set(pack.at)) for pack in packs)
    states = trunk_counts(arms, len(model.layers))
    layers = tokens * sum(count * forward_flops(weights[i]) for i, count in enumerate(states))
    head = scored * states[-1] * forward_flops(model.hidden_size * model.vocab_size)
    return (layers + head) / _speed(model)


def _speed(model: Outline, size: int = 1024) -> float:
    """FLOP/s of a matrix product in the model's type on its device."""
    a = torch.ones(size, size, dtype=model.dtype, device=model.device)
    (a @ a).sum().item()  # warms up
    begun = time.perf_counter()
    (a @ a).sum().item()
    return 2 * size**3 / (time.perf_counter() - begun)


def _changed(model: Outline, arms: Sequence[Arm]) -> int:
    """Weights that an arm writes into one layer, those they replace, and quantized ones that are kept meanwhile."""
    kept: dict[int, int] = defaultdict(int)
    for site, recipe, _ in {part for arm in arms for part in arm.key}:
        kept[site.layer] += site.weights if isinstance(recipe, Scheme) else 0
    layers = range(-1, len(model.layers) + 1)
    written = max(sum(site.weights for site, _, _ in arm.treatment(i)) for arm in arms for i in layers)
    largest = max((site.weights for arm in arms for site in arm.plan), default=0)
    return model.dtype.itemsize * (2 * written + max(kept.values(), default=0)) + MATRIX * largest


def _draws(arms: Sequence[Arm]) -> int:
    return len({arm.draw for arm in arms if arm.calibrated})


def _inputs(sites: Sequence[Site]) -> list[list[int]]:
    """By layer, the widths of the different tensors that enter its matrices."""
    stage = {role: n for n, roles in enumerate(STAGES) for role in roles}
    different = {(s.layer, s.expert, s.name.endswith(".shared"), stage[s.role]): s.in_features for s in sites}
    widths: dict[int, list[int]] = defaultdict(list)
    for (layer, *_), width in different.items():
        widths[layer].append(width)
    return list(widths.values())


def _layer_statistics(model: Outline, draws: int) -> int:
    """Statistics of the largest layer, and the factor of the widest input."""
    layers = _inputs(model.sites)
    largest = max(sum(width**2 for width in widths) for widths in layers)
    widest = max(max(widths) for widths in layers)
    summed = (FLOAT64 - FLOAT32) * largest
    return draws * FLOAT32 * largest + (summed + FACTORS * FLOAT64 * widest**2 if draws else 0)


def _activations(model: Outline, tokens: int, width: int) -> int:
    """The largest tensors inside a layer while one batch is in it."""
    text, item = model.config.get_text_config(), model.dtype.itemsize
    chosen = getattr(text, "num_experts_per_tok", None) or 1
    inner = max(site.out_features for site in model.sites if site.role in ("up", "gate"))
    projected = max(site.out_features for site in model.sites if site.block == "attention")
    attention = 4 * tokens * max(model.hidden_size, projected)
    if model.config._attn_implementation == "eager":
        attention += 2 * text.num_attention_heads * tokens * width
    return attention * item + ffn_activation_bytes(chosen, tokens, inner, item, held=INNER)
