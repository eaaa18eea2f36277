"""A scaling family: the same rule of width at several depths and sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.errors import UserError
from harness.ledger.config import ModelChoice
from harness.ledger.params import summary
from harness.ledger.shape import plain_shape


def family_rows(choice: ModelChoice) -> list[dict[str, Any]]:
    """One row per member: its width, its counts, the FFN's share of a layer and how much rounding adds to d_ff."""
    if not choice.members:
        raise UserError("model.members is empty. Give layers and d_model of each: model.members=[[12,768],[24,1536]]")
    return [_member(choice, member) for member in choice.members]


def _member(choice: ModelChoice, member: list[int]) -> dict[str, Any]:
    if len(member) != 2:
        raise UserError(f"model.members: {member} is not a pair [layers, d_model].")
    layers, d_model = member
    shape = plain_shape(replace(choice.shape, layers=layers, d_model=d_model))
    counts = summary(shape)
    d_ff = next(m.out_features for m in shape.matrices if m.role == "up")
    exact = plain_shape(replace(choice.shape, layers=1, d_model=d_model, multiple_of=1))
    unrounded = next(m.out_features for m in exact.matrices if m.role == "up")
    return {
        "layers": layers,
        "d_model": d_model,
        "d_ff": d_ff,
        "ratio": d_ff / d_model,
        "rounding": d_ff / unrounded - 1,
        "layer_ffn": counts["params"]["layer"]["ffn"],
        "layer_attention": counts["params"]["layer"]["attention"],
        "layer_ffn_share": counts["share"]["layer_ffn"],
        "total": counts["params"]["total"]["all"],
    }
