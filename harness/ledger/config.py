"""Settings of the ledger, typed. `harness.ledger.presets` turns presets into the choices of the group `model`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from harness.scheme import Precision, ScaleDtype


class Source(StrEnum):
    """Where names and shapes come from."""

    preset = "preset"  # an architecture config shipped with the package
    hf = "hf"  # config.json of a hub id or a local folder
    gguf = "gguf"  # the header of a GGUF file
    shape = "shape"  # bare numbers
    family = "family"  # several plain shapes, by layers and widths


class Format(StrEnum):
    """How the ledger is printed."""

    table = "table"
    csv = "csv"
    json = "json"


@dataclass
class ShapeNumbers:
    """A decoder told in bare numbers. Unset numbers follow from the others (harness.ledger.shape)."""

    layers: int | None = None
    d_model: int | None = None
    d_ff: int | None = None  # unset: ratio x d_model, rounded up to multiple_of
    ratio: str = ""  # d_ff / d_model, a number or a fraction: 8/3
    multiple_of: int = 1
    matrices: int = 3  # FFN matrices: 3 gated, 2 plain
    heads: int | None = None  # unset: heads x head_dim = d_model
    kv_heads: int | None = None  # unset: as many as heads
    head_dim: int | None = None  # unset: d_model / heads
    vocab: int = 0  # 0: no embedding counted
    tied: bool = False  # one table for input and output
    experts: int = 1  # FFNs a layer; above 1 a router of d_model x experts chooses active_experts of them
    active_experts: int = 1


@dataclass
class ModelChoice:
    """Which model."""

    name: str = ""
    source: Source = Source.preset
    path: str = ""  # hub id, folder or GGUF file
    revision: str = ""  # hub revision; empty: the hub's default branch
    config: dict[str, Any] = field(default_factory=dict)  # fields of the model's own config to change
    shape: ShapeNumbers = field(default_factory=ShapeNumbers)
    members: list[list[int]] = field(default_factory=list)  # of a family: [layers, d_model] each


@dataclass
class LedgerOptions:
    """What is worked out and how it is shown."""

    format: Format = Format.table
    precisions: list[Precision] = field(default_factory=lambda: [Precision.int8, Precision.int4, Precision.int3])
    group_sizes: list[int] = field(default_factory=lambda: [-1, 128, 64, 32])  # -1: one group a row
    symmetric: bool = True  # False: one zero point of the precision's width a group
    scale_dtype: ScaleDtype = ScaleDtype.float16
    plan_precision: Precision = Precision.int4  # of the decode table and the picture
    plan_group_size: int = 128
    accelerators: list[str] = field(default_factory=lambda: ["h100_sxm", "rtx_4090"])
    batch_sizes: list[int] = field(default_factory=lambda: [1, 32])  # sequences decoded together
    length: int = 4096  # tokens a sequence: KV cache, attention scores, activations
    cache_bytes: int = 2  # bytes an element of KV cache and activations
    train_tokens: float = 1e12
    train_tflops: float = 400  # sustained, of one accelerator
    ratios: list[float] = field(default_factory=lambda: [1.5, 2.0, 8 / 3, 3.5, 4.0])  # d_ff / d_model
    query_heads_per_kv_head: list[int] = field(default_factory=lambda: [1, 4, 8])
    tensor_parallel: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    picture: str = ""  # path without ending: writes .png and .svg
    beside: list[str] = field(default_factory=list)  # presets that the picture sets beside the model, as shares


@dataclass
class LedgerConfig:
    """A whole call."""

    defaults: list[Any] = field(default_factory=lambda: ["_self_", {"model": "smollm2_135m"}])
    model: ModelChoice = field(default_factory=ModelChoice)
    ledger: LedgerOptions = field(default_factory=LedgerOptions)
