"""Settings of the groups `quant` and `design`: which scheme where, and which arms are set against each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from harness.scheme import Indivisible, Method, Scheme


@dataclass
class QuantConfig:
    """Schemes by block. Overrides are rules {match: glob on site names, <scheme fields>}; the last match wins."""

    ffn: Scheme = field(default_factory=lambda: Scheme(method=Method.keep))
    attention: Scheme = field(default_factory=lambda: Scheme(method=Method.keep))
    embedding: Scheme = field(default_factory=lambda: Scheme(method=Method.keep))
    head: Scheme = field(default_factory=lambda: Scheme(method=Method.keep))
    overrides: list[dict[str, Any]] = field(default_factory=list)
    indivisible: Indivisible = Indivisible.error


class Players(StrEnum):
    """Between whom the loss is split."""

    blocks = "blocks"
    roles = "roles"
    layers = "layers"
    block_layers = "block_layers"  # blocks x groups of layers
    role_layers = "role_layers"  # roles x groups of layers
    experts = "experts"


class ArmsRule(StrEnum):
    """Which coalitions of players become arms. Every design has `base`, where nothing is quantized."""

    base = "base"  # none: the model as it is
    single = "single"  # each player alone
    together = "together"  # all players at once
    all = "all"  # every subset: 2 x 2 for two blocks
    one_in = "one_in"  # each player alone, and all at once
    one_out = "one_out"  # all but one player, and all at once
    one_in_out = "one_in_out"  # both: 16 arms for seven roles
    sampled = "sampled"  # prefixes of design.permutations orders of the players (estimated Shapley values)
    owen = "owen"  # roles: every subset of one block's roles with the other block off and on (exact Owen values)


@dataclass
class DesignConfig:
    """The arms of a run."""

    players: Players = Players.blocks
    arms: ArmsRule = ArmsRule.single
    matched_noise: float = 0.0  # arms that disturb one block each to this relative weight error; 0: none
    random_sets: int = 0  # arms that quantize random sites, as many weights as the smaller block has
    noise_draws: int = 0  # arms that move every block weight by at most half a bfloat16 step: the noise floor
    layer_groups: int = 0  # merge consecutive layers into this many players; 0: one each
    permutations: int = 8  # orders of arms=sampled: drawn with the seed, each beside its reverse; even
    seed: int = 0
