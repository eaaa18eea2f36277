"""Bytes of a model's weights under a plan.

    bytes = (16 * parameters that no scheme touches + sum over sites of weights * bits per weight) / 8

The base is 16 bits a parameter whatever dtype a run computes in: a float32 run on a CPU says nothing about storage.
`bits per weight` contains scales and zero points: 16-bit scales at group g add 16/g bits, 2/g bytes, a weight.

A tied table is one tensor and counted once, unless its two ends are stored differently: a head quantized apart from
the embedding is a second tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.scheme import BLOCKS

if TYPE_CHECKING:
    from harness.model.sites import Site  # brings torch along

BASE_BITS = 16


@dataclass(frozen=True)
class ModelBytes:
    """What a plan stores and what it saves against 16 bits."""

    weight_bytes: int  # the whole model
    ffn_bytes_saved: int
    attention_bytes_saved: int
    bits_per_weight: float  # mean over all block matrices, untouched ones at 16


def model_bytes(
    parameters: int, sites: Iterable[Site], bits_by_site: Mapping[str, float], *, tied: bool = False
) -> ModelBytes:
    """Bytes of a model of `parameters` (tied table once) whose sites named in `bits_by_site` are quantized.

    `bits_by_site` maps site names to stored bits per weight, all metadata included. Sites it lacks stay at 16 bits.
    """
    saved_bits: dict[str, float] = defaultdict(float)
    block_weights = table_weights = 0
    for site in sites:
        saved_bits[site.block] += site.weights * (BASE_BITS - bits_by_site.get(site.name, BASE_BITS))
        block_weights += site.weights if site.block in BLOCKS else 0
        table_weights = table_weights if site.block in BLOCKS else site.weights
    stored_bits = BASE_BITS * parameters - sum(saved_bits.values())
    if tied:  # the head's savings were taken from the one table that the embedding already shrank
        head_bits = bits_by_site.get("head", BASE_BITS)
        shared = head_bits == bits_by_site.get("embedding", BASE_BITS)
        stored_bits += table_weights * (BASE_BITS - head_bits if shared else BASE_BITS)
    block_saved = sum(saved_bits[block] for block in BLOCKS)
    return ModelBytes(
        weight_bytes=round(stored_bits / 8),
        ffn_bytes_saved=round(saved_bits["ffn"] / 8),
        attention_bytes_saved=round(saved_bits["attention"] / 8),
        bits_per_weight=BASE_BITS - block_saved / block_weights if block_weights else float(BASE_BITS),
    )
