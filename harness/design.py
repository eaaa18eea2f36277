"""Designs: which coalitions of players become arms.

    blocks, all          base, ffn, attention, both: the 2 x 2 that alone, restored and interaction are read from
    roles, one_in_out    16 arms for seven roles: each alone, all but each, everything, nothing
    roles, sampled       every prefix of some orders of the players and of their reverses: Shapley values, estimated
    roles, owen          every subset of one block's roles with the other block off and on: 44 arms, exact Owen values
    layers, one_in_out   each layer (or group of layers) alone, and all but each
    role_layers, one_in  each role in each group of layers alone: a map of where a loss comes from
    base                 base alone: the model as it is, and nothing to attribute

Embedding and head are players of their own in every design, and only where they are quantized by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from math import comb, factorial

import numpy as np

from harness.config import ArmsRule, DesignConfig, Players
from harness.errors import UserError
from harness.model.sites import Site
from harness.plan import Arm, Plan, base_arm
from harness.scheme import BLOCKS
from harness.words import DRAW

MOST_ARMS = 128
Coalition = frozenset[str]


def player_of(site: Site, design: DesignConfig, layers: int) -> str:
    """The player a site belongs to."""
    if site.block not in BLOCKS:
        return site.block
    return PLAYERS[design.players](site, _layer_group(site.layer, design.layer_groups or layers, layers))


PLAYERS: dict[Players, Callable[[Site, str], str]] = {
    Players.blocks: lambda site, _: site.block,
    Players.roles: lambda site, _: f"{site.block}.{site.role}",
    Players.layers: lambda _, group: group,
    Players.block_layers: lambda site, group: f"{site.block}.{group}",
    Players.role_layers: lambda site, group: f"{site.block}.{site.role}.{group}",
    Players.experts: lambda site, _: f"{site.block}.dense" if site.expert is None else f"expert{site.expert}",
}


def _layer_group(layer: int, groups: int, layers: int) -> str:
    """`layers.7`, or `layers.0-9` where consecutive layers are one player."""
    own = [i for i in range(layers) if i * groups // layers == layer * groups // layers]
    return f"layers.{own[0]}" if len(own) == 1 else f"layers.{own[0]}-{own[-1]}"


def build_arms(plan: Plan, design: DesignConfig, layers: int) -> list[Arm]:
    """The arms of a design; the first is `base`. UserError: nothing to quantize, or more arms than make sense."""
    if not layers:
        raise UserError("model: num_hidden_layers=0, so there is nothing to quantize.")
    if design.arms is ArmsRule.base:
        return [_only_base(plan)]
    if not plan:
        raise UserError(
            "quant: every method is `keep`, so there is nothing to measure. "
            "Set quant.ffn.method or quant.attention.method, or choose an experiment: +exp=int4_ffn_only. "
            "To score the model as it is: design.arms=base."
        )
    if design.players is Players.experts and all(site.expert is None for site in plan):
        raise UserError("design.players=experts: no quantized site of this model is an expert's. Use blocks or roles.")
    if design.layer_groups > layers:
        raise UserError(
            f"design.layer_groups={design.layer_groups}: the model has {layers} layers. Set it to {layers} or less; "
            "0 makes each layer a player of its own."
        )
    owner = {site: player_of(site, design, layers) for site in plan}
    players = sorted(dict.fromkeys(owner.values()), key=lambda player: not player.startswith("ffn"))
    arms = [base_arm()]
    if design.arms is ArmsRule.sampled:
        _few_enough(len(players), design.permutations)
    orders = sampled_orders(players, design)
    prefixes = (frozenset(order[:size]) for order in orders for size in range(1, len(order) + 1))
    for coalition in dict.fromkeys(prefixes if orders else COALITIONS[design.arms](players)):
        chosen = {site: scheme for site, scheme in plan.items() if owner[site] in coalition}
        arms.append(Arm(_name(coalition, players), coalition, chosen))
    return arms


def sampled_orders(players: Iterable[str], design: DesignConfig) -> list[tuple[str, ...]]:
    """Different orders of the players, drawn with the seed and each followed by its reverse; all, where they suffice.

    The prefixes of a reverse are what those of the order leave out, so a pair sees each player early and late. Empty
    for designs that are not sampled.
    """
    if design.arms is not ArmsRule.sampled:
        return []
    names, found = sorted(players), {}
    if factorial(len(names)) <= design.permutations:
        return list(permutations(names))
    rng = np.random.default_rng(design.seed)
    while len(found) < design.permutations:
        order = tuple(names[n] for n in rng.permutation(len(names)))
        if order not in found:
            found |= dict.fromkeys((order, order[::-1]))
    return list(found)


def _few_enough(players: int, orders: int) -> None:
    """UserError where the orders' prefixes may be too many, before any order is drawn."""
    if (arms := _most_prefixes(players, orders)) <= MOST_ARMS:
        return
    fitting = [fewer for fewer in range(2, min(orders, MOST_ARMS), 2) if _most_prefixes(players, fewer) <= MOST_ARMS]
    way_out = f"Set it to {fitting[-1]} or less" if fitting else "Use design.arms=one_in, or fewer players"
    raise UserError(
        f"design.permutations={orders} with {players} players would be up to {arms} arms, more than {MOST_ARMS}. "
        f"{way_out}."
    )


def _most_prefixes(players: int, orders: int) -> int:
    """How many arms, with base, so many orders have at most: one a size and order, and no more than there are sets."""
    return sum(min(orders, comb(players, size)) for size in range(players + 1))


def _only_base(plan: Plan) -> Arm:
    if plan:
        raise UserError(
            f"design.arms=base quantizes nothing, and quant quantizes {next(iter(plan)).name}. "
            "Set quant=default, or choose other arms: design.arms=all."
        )
    return base_arm()


def with_draws(arms: Sequence[Arm], draws: int) -> list[Arm]:
    """Every calibrated arm once per calibration draw: `ffn`, `ffn@1`, `ffn@2`."""
    calibrated = [arm for arm in arms if arm.calibrated]
    more = [replace(arm, name=f"{arm.name}{DRAW}{draw}", draw=draw) for draw in range(1, draws) for arm in calibrated]
    return [*arms, *more]


def _alone(players: list[str]) -> Iterable[Coalition]:
    return [frozenset({p}) for p in players]


def _everyone(players: list[str]) -> Iterable[Coalition]:
    return [frozenset(players)]


def _all_but_one(players: list[str]) -> Iterable[Coalition]:
    return [frozenset(players) - {p} for p in players if len(players) > 1]


def _every_subset(players: list[str]) -> Iterable[Coalition]:
    if 2 ** len(players) > MOST_ARMS:
        raise UserError(
            f"design.arms=all with {len(players)} players would be {2 ** len(players)} arms. "
            "Use design.arms=one_in_out, or owen for roles."
        )
    return [frozenset(c) for size in range(1, len(players) + 1) for c in combinations(players, size)]


def _owen(players: list[str]) -> Iterable[Coalition]:
    """Every subset of one block's players, with the other block off and on."""
    blocks: dict[str, list[str]] = {}
    for player in players:
        blocks.setdefault(player.partition(".")[0], []).append(player)
    found = []
    for block, own in blocks.items():
        if 2 ** len(own) > MOST_ARMS:
            raise UserError(
                f"design.arms=owen with {len(own)} players in {block} would be {2 ** len(own)} arms or more. "
                "Use design.players=roles, block_layers with a smaller design.layer_groups, or design.arms=one_in_out."
            )
        rest = frozenset(players) - frozenset(own)
        subsets = [frozenset(), *_every_subset(own)]
        found += [c for subset in subsets for c in (subset, subset | rest) if c]
    return found


COALITIONS: dict[ArmsRule, Callable[[list[str]], Iterable[Coalition]]] = {
    ArmsRule.single: _alone,
    ArmsRule.together: _everyone,
    ArmsRule.all: _every_subset,
    ArmsRule.one_in: lambda p: [*_alone(p), *_everyone(p)],
    ArmsRule.one_out: lambda p: [*_all_but_one(p), *_everyone(p)],
    ArmsRule.one_in_out: lambda p: [*_alone(p), *_all_but_one(p), *_everyone(p)],
    ArmsRule.owen: _owen,
}


def _name(coalition: Coalition, players: list[str]) -> str:
    whole = "both" if set(players) == {"ffn", "attention"} else "all"
    if coalition == frozenset(players) and len(players) > 1:
        return whole
    if 1 < len(coalition) == len(players) - 1:
        return f"{whole}-{next(p for p in players if p not in coalition)}"
    return "+".join(p for p in players if p in coalition)
