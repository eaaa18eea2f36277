"""The whole ledger of a model: a summary, tables and notes, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.errors import UserError
from harness.ledger import checks, costs, decode, params, storage
from harness.ledger.config import LedgerConfig, LedgerOptions, Source
from harness.ledger.family import family_rows
from harness.ledger.presets import shape_of
from harness.ledger.shape import Shape, check_size

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Ledger:
    """Everything that is printed. Bytes, counts and milliseconds are bare numbers, shares lie between 0 and 1."""

    model: str
    summary: dict[str, dict[str, Any]]
    tables: dict[str, Rows]
    notes: list[str]
    shape: Shape | None = None  # None for a family


def build(config: LedgerConfig) -> Ledger:
    """Work out the ledger that a call asks for."""
    if config.model.source is Source.family:
        return Ledger("family", {}, {"family": family_rows(config.model)}, [])
    _check(config.ledger)
    shape, options = shape_of(config.model), config.ledger
    return Ledger(
        model=shape.name,
        summary={
            **params.summary(shape),
            "kv_cache": costs.cache(shape, options),
            "flops": costs.flops(shape, options),
        },
        tables={
            "roles": params.by_role(shape),
            "layers": params.by_layer(shape),
            "bytes": storage.by_precision(shape, options),
            "decode": decode.bounds(shape, options),
            "training_state": costs.training_state(shape),
            "activations": costs.activations(shape, options),
            "share_by_ratio": params.by_ratio(shape, options),
            "group_fit": checks.group_fit(shape, options),
        },
        notes=[_plans(options), *checks.notes(shape, options)],
        shape=shape,
    )


def _plans(options: LedgerOptions) -> str:
    size = "whole rows" if options.plan_group_size == -1 else f"groups of {options.plan_group_size}"
    return f"Decode plans: {options.plan_precision} in {size} for ffn, attention or both; the rest in 16 bits."


def _check(options: LedgerOptions) -> None:
    """UserError for sizes and counts that cannot be."""
    limits = {"batch_sizes": 10**6, "tensor_parallel": 10**5, "query_heads_per_kv_head": 10**4}
    for name, limit in limits.items():
        for value in getattr(options, name):
            check_size(f"ledger.{name}", value, limit)
    for value in [*options.group_sizes, options.plan_group_size]:
        if value != -1 and not 1 <= value <= 10**7:
            raise UserError(f"group size {value} cannot be. Give a number of weights, or -1 for one group a row.")
    check_size("ledger.length", options.length, 10**9)
    check_size("ledger.cache_bytes", options.cache_bytes, 8)
    if not 0 < options.train_tokens < 1e18 or not 0 < options.train_tflops < 1e9:
        raise UserError("ledger.train_tokens and ledger.train_tflops must be above 0, and below 1e18 and 1e9.")
    if not all(0 < ratio <= 1000 for ratio in options.ratios):
        raise UserError(f"ledger.ratios={options.ratios}: every ratio lies above 0 and is at most 1000.")
