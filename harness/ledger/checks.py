"""Notes on a shape: what makes kernels slow, groups not fit, or a width differ from the usual rule. Never errors.

Tensor parallelism over t devices cuts column-parallel matrices (q, k, v, gate, up) along out_features and row-parallel
ones (o, down) along in_features, so that a group must divide in_features / t of the latter. 29568 / 128 = 231 groups
allow no even cut at all.
"""

from __future__ import annotations

from typing import Any

from harness.ledger.config import LedgerOptions
from harness.ledger.params import usual_layer
from harness.ledger.shape import Matrix, Shape

ALIGNED = 256  # widths that are multiples of it fill tensor-core tiles
ROW_PARALLEL = ("o", "down")
REPLICATED = ("q_a", "kv_a")  # the low-rank first halves of latent attention are kept whole on every device
USUAL_GROUPS = (32, 64, 128, 256)


def notes(shape: Shape, options: LedgerOptions) -> list[str]:
    """What stands out, one sentence each."""
    return [*_tables(shape), *_layers(shape), *_heads(shape), *_width(shape), *_groups(shape, options)]


def _tables(shape: Shape) -> list[str]:
    if not shape.embedding:
        return ["No vocabulary given: no embedding is counted."]
    return ["Input and output embedding are one tied table, counted once."] if shape.tied else []


def _layers(shape: Shape) -> list[str]:
    usual = usual_layer(shape).matrices
    if len({tuple(m.weights for m in layer) for layer in shape.layers}) == 1:
        return []
    return [f"Layers differ; 'layer' figures are of layer {usual[0].layer}'s kind, the most frequent one."]


def _heads(shape: Shape) -> list[str]:
    queries = next(m for m in usual_layer(shape).matrices if m.role in ("q", "q_b"))
    if queries.role == "q_b" or queries.out_features == shape.d_model:
        return []
    return [
        f"heads x head_dim = {shape.heads} x {queries.out_features // shape.heads} = {queries.out_features:,} "
        f"is not d_model = {shape.d_model:,}."
    ]


def _width(shape: Shape) -> list[str]:
    """Alignment, rounding loss and ratio of a dense FFN; experts are narrow by design."""
    inner = [m for m in usual_layer(shape).matrices if m.block == "ffn" and m.role in ("gate", "up")]
    gated, d_ff, found = len({m.role for m in inner}) == 2, inner[0].out_features, []
    if d_ff % ALIGNED:
        found.append(f"d_ff = {d_ff:,} is no multiple of {ALIGNED}.")
    if inner[0].part:
        return found
    rule, name = (8 / 3, "8/3") if gated else (4.0, "4")
    over = d_ff / (rule * shape.d_model) - 1
    if over > 0.005 and d_ff - rule * shape.d_model < ALIGNED:
        found.append(f"Rounding d_ff up from {name} d_model to {d_ff:,} costs {over:.2%} more FFN weights.")
    elif abs(over) > 0.02:
        found.append(
            f"d_ff / d_model = {d_ff / shape.d_model:.4g}, {over:+.1%} off the {name} rule of FFNs with "
            f"{3 if gated else 2} matrices; many current models differ."
        )
    return found


def _groups(shape: Shape, options: LedgerOptions) -> list[str]:
    asked = [g for g in options.group_sizes if g > 0]
    bad = {g: sorted({m.in_features for m in shape.matrices if m.in_features % g}) for g in asked}
    return [
        f"Group size {g} does not divide in_features {', '.join(map(str, widths))}: the last group of a row is shorter."
        for g, widths in bad.items()
        if widths
    ]


def group_fit(shape: Shape, options: LedgerOptions) -> list[dict[str, Any]]:
    """Which group sizes divide each matrix's in_features at each tensor-parallel degree; one row per role.

    `largest_degree`: the largest power of two that cuts the matrix into equal shards of whole heads and whole groups of
    the planned size; 0 where that size does not divide at all, None where the matrix is not cut.
    """
    sizes = sorted({*USUAL_GROUPS, *(g for g in options.group_sizes if g > 0)})
    distinct = {(m.role, m.part, m.in_features): m for m in shape.matrices}
    return [
        {
            "role": f"{m.role} {m.part}".strip(),
            "in_features": m.in_features,
            "cut": _cut(m),
            **{f"tp{degree}": _fitting(m, _units(m, shape), degree, sizes) for degree in options.tensor_parallel},
            "largest_degree": _largest_degree(m, _units(m, shape), max(1, options.plan_group_size)),
        }
        for m in distinct.values()
    ]


def _cut(m: Matrix) -> str:
    if m.role in REPLICATED:
        return "whole"
    return "in" if m.role in ROW_PARALLEL else "out"


def _units(m: Matrix, shape: Shape) -> int:
    """Parts along the cut that must stay whole: heads, rows of the FFN, columns of o and down."""
    if _cut(m) == "in":
        return m.in_features
    if m.role in ("k", "v"):
        queries = next(other for other in shape.matrices if other.layer == m.layer and other.role == "q")
        return shape.heads * m.out_features // queries.out_features
    return shape.heads if m.role in ("q", "q_b", "kv_b") else m.out_features


def _fitting(m: Matrix, units: int, degree: int, sizes: list[int]) -> str:
    """Group sizes that divide a shard's rows; `uncut` where the matrix has no equal shards."""
    if _cut(m) != "whole" and units % degree:
        return "uncut"
    width = m.in_features // degree if _cut(m) == "in" else m.in_features
    return " ".join(str(g) for g in sizes if width % g == 0) or "per row"


def _largest_degree(m: Matrix, units: int, group: int) -> int | None:
    if m.in_features % group:
        return 0
    if _cut(m) == "whole":
        return None
    parts = units // group if _cut(m) == "in" else units
    return parts & -parts
