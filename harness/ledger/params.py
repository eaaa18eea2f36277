"""Where the parameters are: by block and role, per layer and in all, stored and used by one token.

FFN share of a layer, at width ratio r = d_ff / d_model, with m FFN matrices and an attention of a d_model^2 weights:

    share = m r / (m r + a)          a = 4 where every head has its own keys and values, 2 + 2 g/h with g KV heads of h

so that two thirds of the layer are FFN at r = 2 a / m: 8/3 for three matrices and a = 4, but 1.5 at a = 2.25.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from harness.ledger.config import LedgerOptions
from harness.ledger.shape import Matrix, Shape


@dataclass(frozen=True)
class LayerKind:
    """Consecutive layers that are alike."""

    first: int
    last: int
    matrices: tuple[Matrix, ...]

    @property
    def count(self) -> int:
        """Number of layers."""
        return self.last - self.first + 1

    def weights(self, block: str, *, active: bool = False) -> int:
        """Weights of a block in one such layer."""
        return sum(m.active_weights if active else m.weights for m in self.matrices if m.block == block)


def ffn_share(ratio: float, matrices: int, attention: float = 4.0) -> float:
    """FFN share of a layer's matrices; `attention` in units of d_model^2."""
    return matrices * ratio / (matrices * ratio + attention)


def ratio_for_share(share: float, matrices: int, attention: float = 4.0) -> float:
    """d_ff / d_model at which the FFN has this share of a layer's matrices."""
    return share / (1 - share) * attention / matrices


def layer_kinds(shape: Shape) -> list[LayerKind]:
    """Runs of equal layers, in order."""

    def sizes(layer: list[Matrix]) -> tuple:
        return tuple((m.block, m.role, m.part, m.out_features, m.in_features, m.count, m.active) for m in layer)

    runs = [list(run) for _, run in groupby(shape.layers, key=sizes)]
    return [LayerKind(run[0][0].layer, run[-1][0].layer, tuple(run[0])) for run in runs]


def usual_layer(shape: Shape) -> LayerKind:
    """The kind that most layers are of; of equals the first."""
    kinds, counts = layer_kinds(shape), Counter[tuple[int, int]]()
    for kind in kinds:
        counts[kind.weights("ffn"), kind.weights("attention")] += kind.count
    return max(kinds, key=lambda kind: counts[kind.weights("ffn"), kind.weights("attention")])


def totals(shape: Shape, *, active: bool = False) -> dict[str, int]:
    """Parameters by block; `embedding` is the input and output table, `other` norms, biases, positions and routers."""
    found = {
        "ffn": shape.weights("ffn", active=active),
        "attention": shape.weights("attention", active=active),
        "embedding": shape.embedding + shape.head,
        "other": sum(shape.others.values()),
    }
    return {**found, "all": sum(found.values())}


def summary(shape: Shape) -> dict[str, Any]:
    """The headline counts and shares, as in JSON."""
    layer, total, active = usual_layer(shape), totals(shape), totals(shape, active=True)
    ffn, attention = layer.weights("ffn"), layer.weights("attention")
    ratio, matrices, attention_over_d2 = proportions(shape)
    return {
        "params": {
            "layer": {"ffn": ffn, "attention": attention, "all": ffn + attention, "count": len(shape.layers)},
            "total": {**total, "matrices": total["all"] - total["other"]},
            "active": active,
            "embedding": {"input": shape.embedding, "output": shape.head, "tied": shape.tied},
            "other": {kind: shape.others.get(kind, 0) for kind in ("norm", "bias", "position", "router")},
        },
        "share": {
            "layer_ffn": ffn / (ffn + attention),
            "layer_attention": attention / (ffn + attention),
            "total_ffn": total["ffn"] / total["all"],
            "total_attention": total["attention"] / total["all"],
            "active_ffn": active["ffn"] / active["all"],
            "ratio": ratio,
            "ratio_for_two_thirds": ratio_for_share(2 / 3, matrices, attention_over_d2),
        },
    }


def by_role(shape: Shape) -> list[dict[str, Any]]:
    """One row per role and matrix size: one matrix, one layer, all layers. Then what is not in a block."""
    rows: dict[Any, dict[str, Any]] = {}
    layer_all = {kind: kind.weights("ffn") + kind.weights("attention") for kind in layer_kinds(shape)}
    for kind, in_layer in layer_all.items():
        for m in kind.matrices:
            key = (m.block, m.role, m.part, m.out_features, m.in_features, m.count)
            row = rows.setdefault(key, _role_row(m, m.weights / in_layer))
            row["layers"] += kind.count
            row["total"] += kind.count * m.weights
            row["active"] += kind.count * m.active_weights
    outside = {"input": shape.embedding, "output": shape.head, **shape.others}
    rows |= {name: _outside_row(name, count) for name, count in outside.items() if count}
    return [{**row, "total_share": row["total"] / totals(shape)["all"]} for row in rows.values()]


def _role_row(m: Matrix, layer_share: float) -> dict[str, Any]:
    return {
        "block": m.block,
        "role": f"{m.role} {m.part}".strip(),
        "out_features": m.out_features,
        "in_features": m.in_features,
        "count": m.count,
        "matrix": m.out_features * m.in_features,
        "layer": m.weights,
        "layer_share": layer_share,
        "layers": 0,
        "total": 0,
        "active": 0,
    }


def _outside_row(name: str, count: int) -> dict[str, Any]:
    sizes = dict.fromkeys(("out_features", "in_features", "count", "matrix", "layer", "layer_share"))
    block = "embedding" if name in ("input", "output") else "other"
    return {"block": block, "role": name, **sizes, "layers": None, "total": count, "active": count}


def by_layer(shape: Shape) -> list[dict[str, Any]]:
    """One row per run of equal layers."""
    return [
        {
            "first": kind.first,
            "last": kind.last,
            "ffn": (ffn := kind.weights("ffn")),
            "attention": (attention := kind.weights("attention")),
            "ffn_share": ffn / (ffn + attention),
            "ffn_active": kind.weights("ffn", active=True),
        }
        for kind in layer_kinds(shape)
    ]


def by_ratio(shape: Shape, options: LedgerOptions) -> list[dict[str, Any]]:
    """FFN share of a layer at other width ratios and numbers of query heads per KV head, and with its own attention."""
    own_ratio, matrices, own_attention = proportions(shape)
    factors = {f"share_gqa_{factor}": 2 + 2 / factor for factor in options.query_heads_per_kv_head}
    return [
        {
            "ratio": ratio,
            **{name: ffn_share(ratio, matrices, attention) for name, attention in factors.items()},
            "share_own_attention": ffn_share(ratio, matrices, own_attention),
        }
        for ratio in sorted({*options.ratios, own_ratio})
    ]


def proportions(shape: Shape) -> tuple[float, int, float]:
    """Of the usual layer: d_ff / d_model, FFN matrices, and attention's weights over d_model^2.

    In a mixture of experts all of a layer's FFNs count as one wide one.
    """
    layer = usual_layer(shape)
    inner = [m for m in layer.matrices if m.role == "up"]
    matrices = len({m.role for m in layer.matrices if m.block == "ffn"})
    width = sum(m.count * m.out_features for m in inner)
    return width / shape.d_model, matrices, layer.weights("attention") / shape.d_model**2
