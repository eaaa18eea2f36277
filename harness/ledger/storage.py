"""What each precision and group size costs in bytes.

A matrix [O, I] of b-bit codes in groups of g along a row, with scales of s bits:

    codes         O I b           rows padded to whole bytes (harness.quantize.pack)
    scales        O ceil(I/g) s   integers: s = 16 for float16, so 2/g bytes a weight
    zero points   O ceil(I/g) b   asymmetric grids only

Formats with a scale of their own kind: nf4 and fp4 one float32 a block (bitsandbytes, without double quantization),
mxfp4 8 bits per 32 weights (OCP MX 1.0), nvfp4 8 bits per 16 weights (its float32 per tensor is left out). Where g does
not divide I the last group of a row is shorter.

Two scopes: `blocks` (FFN and attention matrices, the rest in 16 bits) and `everything` (embedding and head too; a tied
table once). Norms, biases, position tables and routers stay in 16 bits in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.ledger.config import LedgerOptions
from harness.ledger.params import totals
from harness.ledger.shape import Matrix, Shape
from harness.ledger.weights import BASE_BITS
from harness.scheme import Precision, Scheme

CODE_BITS = {
    **{Precision(f"int{bits}"): bits for bits in (2, 3, 4, 5, 6, 8)},
    **dict.fromkeys((Precision.nf4, Precision.fp4, Precision.mxfp4, Precision.nvfp4), 4),
    Precision.fp8_e4m3: 8,
}
OWN_SCALE_BITS = {Precision.nf4: 32, Precision.fp4: 32, Precision.mxfp4: 8, Precision.nvfp4: 8}
OWN_GROUP = {Precision.mxfp4: 32, Precision.nvfp4: 16}
INTEGERS = [precision for precision in Precision if precision.startswith("int")]


def stored_bits(out_features: int, in_features: int, scheme: Scheme | None) -> int:
    """Bits of an [O, I] matrix under a scheme, metadata included; None: 16 bits a weight."""
    if scheme is None:
        return out_features * in_features * BASE_BITS
    code = CODE_BITS[scheme.precision]
    group = OWN_GROUP.get(scheme.precision, in_features if scheme.group_size == -1 else scheme.group_size)
    scale = OWN_SCALE_BITS.get(scheme.precision, 32 if scheme.scale_dtype == "float32" else 16)
    zero = 0 if scheme.symmetric or scheme.precision not in INTEGERS else code
    return out_features * (8 * -(-in_features * code // 8) + -(-in_features // group) * (scale + zero))


def scheme_of(options: LedgerOptions, precision: Precision, group_size: int) -> Scheme:
    """A plain scheme with the ledger's conventions."""
    return Scheme(
        precision=precision, group_size=group_size, symmetric=options.symmetric, scale_dtype=options.scale_dtype
    )


def plan_schemes(options: LedgerOptions) -> dict[str, dict[str, Scheme]]:
    """The four plans of the 2 x 2: name -> schemes by block; a block that is not named stays in 16 bits."""
    scheme = scheme_of(options, options.plan_precision, options.plan_group_size)
    ffn, attention = {"ffn": scheme}, {"attention": scheme}
    return {"base": {}, "ffn": ffn, "attention": attention, "both": ffn | attention}


def block_bytes(matrices: Iterable[Matrix], scheme: Scheme | None) -> float:
    """Bytes of all these matrices."""
    return sum(m.count * stored_bits(m.out_features, m.in_features, scheme) for m in matrices) / 8


def tables_bytes(shape: Shape, scheme: Scheme | None) -> float:
    """Bytes of the input and output table, rows of d_model weights; a tied one once."""
    return stored_bits((shape.embedding + shape.head) // shape.d_model, shape.d_model, scheme) / 8


def by_precision(shape: Shape, options: LedgerOptions) -> list[dict[str, Any]]:
    """One row per precision and group size, with 16 bits first."""
    rows = [_row(shape, "16 bit", "", None)]
    for precision in options.precisions:
        rows.append(_codes_only(shape, precision))
        sizes = [OWN_GROUP[precision]] if precision in OWN_GROUP else options.group_sizes
        rows += [_row(shape, precision, group, scheme_of(options, precision, group)) for group in sizes]
    return rows


def _row(shape: Shape, precision: str, group_size: int | str, scheme: Scheme | None) -> dict[str, Any]:
    ffn, attention = (block_bytes(_of(shape, block), scheme) for block in ("ffn", "attention"))
    return _saved(shape, precision, group_size, ffn, attention, tables_bytes(shape, scheme))


def _codes_only(shape: Shape, precision: Precision) -> dict[str, Any]:
    """What the bare codes take: N bytes at 8 bits, N/2 at 4."""
    counts, part = totals(shape), CODE_BITS[precision] / 8
    return _saved(shape, precision, "codes only", *(counts[b] * part for b in ("ffn", "attention", "embedding")))


def _saved(
    shape: Shape, precision: str, group_size: int | str, ffn: float, attention: float, tables: float
) -> dict[str, Any]:
    counts = totals(shape)
    block_weights = counts["ffn"] + counts["attention"]
    saved = {"ffn": 2 * counts["ffn"] - ffn, "attention": 2 * counts["attention"] - attention}
    blocks = saved["ffn"] + saved["attention"]
    everything = blocks + 2 * counts["embedding"] - tables
    return {
        "precision": str(precision),
        "group_size": group_size,
        "bits_per_weight": 8 * (ffn + attention) / block_weights,
        "ffn_bytes": round(ffn),
        "attention_bytes": round(attention),
        "tables_bytes": round(tables),
        "ffn_saved_bytes": round(saved["ffn"]),
        "attention_saved_bytes": round(saved["attention"]),
        "blocks_saved_bytes": round(blocks),
        "everything_saved_bytes": round(everything),
        "model_blocks_bytes": round(2 * counts["all"] - blocks),
        "model_everything_bytes": round(2 * counts["all"] - everything),
    }


def _of(shape: Shape, block: str) -> list[Matrix]:
    return [m for m in shape.matrices if m.block == block]
