"""How fast a token can come out: every weight in use is read once a step, and so is the cache of every sequence.

    step >= max( (weight bytes + batch x cache bytes) / bandwidth,   batch x FLOPs a token / peak FLOP/s )

A bound, not a forecast: launch overheads, unpacking of codes and imperfect bandwidth come on top, and whether the
weights fit is not looked at. At batch 1 the weights are nearly all: 14 GB at 3350 GB/s take 4.18 ms. In a mixture of
experts a step of b tokens, each choosing k of E experts as if by lot, touches E (1 - (1 - k/E)^b) of them.

Bandwidths and dense 16-bit peaks are the makers' public figures, named in each record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.errors import UserError
from harness.ledger.config import LedgerOptions
from harness.ledger.costs import cache_elements, forward_flops, score_flops
from harness.ledger.params import totals
from harness.ledger.presets import nearest
from harness.ledger.shape import Matrix, Shape
from harness.ledger.storage import plan_schemes, stored_bits, tables_bytes
from harness.scheme import Scheme


@dataclass(frozen=True)
class Accelerator:
    """Memory bandwidth in GB/s (10^9), dense 16-bit peak in TFLOP/s."""

    gb_s: float
    tflops: float
    source: str


ACCELERATORS = {
    "h100_sxm": Accelerator(3350, 989, "NVIDIA H100 Tensor Core GPU datasheet"),
    "h100_pcie": Accelerator(2000, 756, "NVIDIA H100 Tensor Core GPU datasheet, 2023"),
    "h200_sxm": Accelerator(4800, 989, "NVIDIA H200 Tensor Core GPU datasheet"),
    "b200": Accelerator(8000, 2250, "NVIDIA DGX B200 datasheet, an eighth of the system"),
    "a100_80gb_sxm": Accelerator(2039, 312, "NVIDIA A100 Tensor Core GPU datasheet"),
    "a100_80gb_pcie": Accelerator(1935, 312, "NVIDIA A100 Tensor Core GPU datasheet"),
    "l40s": Accelerator(864, 362, "NVIDIA L40S datasheet"),
    "l4": Accelerator(300, 121, "NVIDIA L4 datasheet"),
    "rtx_4090": Accelerator(1008, 165, "NVIDIA Ada GPU architecture whitepaper, float32 accumulation"),
    "rtx_3090": Accelerator(936, 71, "NVIDIA Ampere GA102 GPU architecture whitepaper, float32 accumulation"),
    "mi300x": Accelerator(5300, 1307, "AMD Instinct MI300X data sheet"),
}


def decode_ms(weight_bytes: float, gb_s: float) -> float:
    """Least time of a step that reads these bytes."""
    return weight_bytes / (gb_s * 1e9) * 1e3


def touched(m: Matrix, batch: int) -> float:
    """Expected number of these matrices that a step of `batch` tokens reads."""
    return m.count * (1 - (1 - m.active / m.count) ** batch)


def step_bytes(shape: Shape, plan: dict[str, Scheme], batch: int) -> float:
    """Weight bytes that one step reads, tables included."""
    matrices = sum(
        touched(m, batch) * stored_bits(m.out_features, m.in_features, plan.get(m.block)) / 8 for m in shape.matrices
    )
    return matrices + tables_bytes(shape, None) + 2 * sum(shape.others.values())


def bounds(shape: Shape, options: LedgerOptions) -> list[dict[str, Any]]:
    """One row per accelerator, batch size and plan."""
    reads = {
        (batch, plan): step_bytes(shape, schemes, batch)
        for batch in options.batch_sizes
        for plan, schemes in plan_schemes(options).items()
    }
    return [
        _bound(shape, options, name, batch, plan, weight_bytes)
        for name in options.accelerators
        for (batch, plan), weight_bytes in reads.items()
    ]


def _bound(
    shape: Shape, options: LedgerOptions, name: str, batch: int, plan: str, weight_bytes: float
) -> dict[str, Any]:
    device = accelerator(name)
    flops = forward_flops(totals(shape, active=True)["all"]) + score_flops(shape, options.length)
    weight_ms = decode_ms(weight_bytes, device.gb_s)
    cache_ms = decode_ms(batch * options.length * cache_elements(shape) * options.cache_bytes, device.gb_s)
    compute_ms = batch * flops / (device.tflops * 1e12) * 1e3
    step_ms = max(weight_ms + cache_ms, compute_ms)
    return {
        "accelerator": name,
        "batch": batch,
        "plan": plan,
        "weight_bytes": round(weight_bytes),
        "weight_ms": weight_ms,
        "weight_tokens_per_s": batch / weight_ms * 1e3,
        "cache_ms": cache_ms,
        "compute_ms": compute_ms,
        "step_ms": step_ms,
        "tokens_per_s": batch / step_ms * 1e3,
        "source": device.source,
    }


def accelerator(name: str) -> Accelerator:
    """The record of a named accelerator."""
    if name not in ACCELERATORS:
        raise UserError(f"ledger.accelerators={name} is not known. {nearest(name, ACCELERATORS)}")
    return ACCELERATORS[name]
