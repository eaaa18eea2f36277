"""A decoder as a list of matrices: the record from which everything else in the ledger is worked out.

A plain shape, told in bare numbers, with h heads of size c, g KV heads, d = d_model, f = d_ff:

    attention   q [hc, d]   k, v [gc, d]   o [d, hc]         2 d c (h + g) weights, 4 d^2 where h c = d and g = h
    ffn         gate, up [f, d]   down [d, f]                3 d f weights; two-matrix FFNs have no gate: 2 d f
    f           given, or ratio x d rounded up to `multiple_of` (LLaMA: 8/3 d up to 256)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

from harness.errors import UserError
from harness.ledger.config import ShapeNumbers

LIMITS = {  # far above every model so far: what is beyond is a slip of the hand
    "layers": 10_000,
    "d_model": 10**6,
    "d_ff": 10**7,
    "heads": 10**5,
    "kv_heads": 10**5,
    "head_dim": 10**5,
    "vocab": 10**8,
    "experts": 10**5,
    "active_experts": 10**5,
    "multiple_of": 10**6,
}


@dataclass(frozen=True)
class Matrix:
    """`count` equal matrices of one layer, of which a token uses `active`."""

    layer: int
    block: str  # ffn, attention
    role: str
    out_features: int
    in_features: int
    part: str = ""  # "", expert, shared
    count: int = 1
    active: int = 1

    @property
    def weights(self) -> int:
        """Weights stored."""
        return self.count * self.out_features * self.in_features

    @property
    def active_weights(self) -> int:
        """Weights that one token is multiplied with."""
        return self.active * self.out_features * self.in_features


@dataclass(frozen=True)
class Shape:
    """A decoder's matrices, and what else it holds, in parameters."""

    name: str
    d_model: int
    heads: int
    matrices: tuple[Matrix, ...]
    embedding: int = 0  # input table
    head: int = 0  # output table; 0 where tied
    tied: bool = False
    others: dict[str, int] = field(default_factory=dict)  # norm, bias, position, router

    @property
    def layers(self) -> list[list[Matrix]]:
        """Matrices by layer."""
        found: dict[int, list[Matrix]] = {}
        for matrix in self.matrices:
            found.setdefault(matrix.layer, []).append(matrix)
        return [found[i] for i in sorted(found)]

    def weights(self, block: str, *, active: bool = False) -> int:
        """Weights of a block over all layers, stored or used by one token."""
        return sum(m.active_weights if active else m.weights for m in self.matrices if m.block == block)


def round_up(value: Fraction | float, multiple_of: int) -> int:
    """Smallest multiple of `multiple_of` that is not below `value`."""
    return ceil(Fraction(value) / multiple_of) * multiple_of


def check_size(field_name: str, value: object, limit: int) -> None:
    """UserError unless the value is a whole number from 1 to limit."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise UserError(f"{field_name}={value} makes no model. Give a whole number from 1 to {limit:,}.")


def plain_shape(numbers: ShapeNumbers, name: str = "shape") -> Shape:
    """The decoder that bare numbers describe. UserError names a number that is missing, absurd or at odds."""
    n = _completed(numbers)
    assert n.layers and n.d_model and n.d_ff and n.heads and n.kv_heads and n.head_dim
    q, kv = n.heads * n.head_dim, n.kv_heads * n.head_dim
    attention = [("q", q, n.d_model), ("k", kv, n.d_model), ("v", kv, n.d_model), ("o", n.d_model, q)]
    ffn = [("gate", n.d_ff, n.d_model), ("up", n.d_ff, n.d_model), ("down", n.d_model, n.d_ff)][3 - n.matrices :]
    part = "expert" if n.experts > 1 else ""
    matrices = []
    for i in range(n.layers):
        matrices += [Matrix(i, "attention", *sizes) for sizes in attention]
        matrices += [Matrix(i, "ffn", *sizes, part, n.experts, n.active_experts) for sizes in ffn]
    table = n.vocab * n.d_model
    return Shape(
        name=name,
        d_model=n.d_model,
        heads=n.heads,
        matrices=tuple(matrices),
        embedding=table,
        head=0 if n.tied else table,
        tied=n.tied,
        others={"router": n.layers * n.d_model * n.experts} if n.experts > 1 else {},
    )


def _completed(numbers: ShapeNumbers) -> ShapeNumbers:
    """The numbers with what follows from them filled in, checked."""
    n = replace(numbers)
    for needed in ("layers", "d_model"):
        if getattr(n, needed) is None:
            raise UserError(f"model.shape.{needed} is missing. A plain shape needs layers, d_model, and d_ff or ratio.")
    if n.matrices not in (2, 3):
        raise UserError(f"model.shape.matrices={n.matrices}: an FFN has 2 matrices (up, down) or 3 (gate, up, down).")
    for name, limit in LIMITS.items():
        value = getattr(n, name)
        if value is not None and (name, value) != ("vocab", 0):
            check_size(f"model.shape.{name}", value, limit)
    assert n.d_model is not None
    n.d_ff = n.d_ff or round_up(_ratio(n.ratio) * n.d_model, n.multiple_of)
    n.heads, n.head_dim = _heads(n)
    n.kv_heads = n.kv_heads or n.heads
    if n.heads % n.kv_heads:
        raise UserError(f"model.shape: {n.heads} heads cannot share {n.kv_heads} kv_heads evenly.")
    if n.active_experts > n.experts:
        raise UserError(f"model.shape.active_experts={n.active_experts} of experts={n.experts}: give at most all.")
    return n


def _ratio(text: str) -> Fraction:
    """d_ff / d_model from `4`, `2.6875` or `8/3`."""
    if not text:
        raise UserError("model.shape.d_ff is missing. Give it, or a ratio: model.shape.ratio=8/3")
    try:
        ratio = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise UserError(f"model.shape.ratio={text} is no number. Write it like 4, 2.6875 or 8/3.") from None
    if not 0 < ratio <= 1000:
        raise UserError(f"model.shape.ratio={text} makes no model. Give a number above 0 and at most 1000.")
    return ratio


def _heads(n: ShapeNumbers) -> tuple[int, int]:
    """Heads and their size. Without either, one head as wide as the model: the weights are the same."""
    assert n.d_model is not None
    if n.heads is None and (n.kv_heads is not None or n.head_dim is not None):
        raise UserError("model.shape.heads is missing. kv_heads and head_dim need it.")
    heads = n.heads or 1
    if n.head_dim is None and n.d_model % heads:
        raise UserError(f"model.shape: d_model={n.d_model} does not divide into {heads} heads. Give head_dim.")
    return heads, n.head_dim or n.d_model // heads
