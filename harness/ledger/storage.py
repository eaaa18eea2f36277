"""What each precision and group size costs in bytes.

A matrix [O, I] of b-bit codes in groups of g along a row, counted as `harness.quantize` counts what it made:

    codes         rows of I b bits, padded to whole bytes
    scales        O ceil(I/g) scales of 16 bits (float32: 32), so 2/g bytes a weight; mxfp4 and nvfp4: 8 bits each, and
                  nvfp4 one float32 a matrix. Where g does not divide I, the last group of a row is shorter
    zero points   O ceil(I/g) of b bits, asymmetric integer grids only

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
from harness.quantize.formats import FORMATS
from harness.quantize.pack import packed_bits
from harness.scheme import Precision, Scheme
from harness.supported import FIXED_GROUPS


def stored_bits(out_features: int, in_features: int, scheme: Scheme | None) -> int:
    """Bits of an [O, I] matrix under a scheme, metadata included; None: 16 bits a weight."""
    if scheme is None:
        return out_features * in_features * BASE_BITS
    code, own_scale = FORMATS[scheme.precision].bits, scheme.precision in FIXED_GROUPS
    groups = out_features * -(-in_features // (in_features if scheme.group_size == -1 else scheme.group_size))
    scale = 8 if own_scale else 32 if scheme.scale_dtype == "float32" else 16
    zero = 0 if scheme.symmetric or FORMATS[scheme.precision].values else code
    whole = 32 if scheme.precision is Precision.nvfp4 else 0
    return packed_bits(out_features, in_features, code) + groups * (scale + zero) + whole


def scheme_of(options: LedgerOptions, precision: Precision, group_size: int) -> Scheme:
    """A plain scheme with the ledger's conventions, at the format's own group size where it has one."""
    return Scheme(
        precision=precision,
        group_size=FIXED_GROUPS.get(precision, group_size),
        symmetric=options.symmetric,
        scale_dtype=options.scale_dtype,
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
        sizes = [FIXED_GROUPS[precision]] if precision in FIXED_GROUPS else options.group_sizes
        rows += [_row(shape, precision, group, scheme_of(options, precision, group)) for group in sizes]
    return rows


def _row(shape: Shape, precision: str, group_size: int | str, scheme: Scheme | None) -> dict[str, Any]:
    ffn, attention = (block_bytes(_of(shape, block), scheme) for block in ("ffn", "attention"))
    return _saved(shape, precision, group_size, ffn, attention, tables_bytes(shape, scheme))


def _codes_only(shape: Shape, precision: Precision) -> dict[str, Any]:
    """What the bare codes take: N bytes at 8 bits, N/2 at 4."""
    counts, part = totals(shape), FORMATS[precision].bits / 8
    return _saved(shape, precision, "codes", *(counts[b] * part for b in ("ffn", "attention", "embedding")))


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
