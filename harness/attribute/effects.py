"""Which effects a design's arms allow.

Units are blocks and, where blocks hold several players, also the players (roles, layers, experts). Each effect of
`values` whose coalitions are all arms is read; further there are

    total        L(N)
    contrast     shapley(u) - claim x L(N): positive where u's share is above the claimed one
    difference   shapley(u) - shapley(v), for two units

Exact Shapley values where all 2^n arms exist; else the mean over sampled orders, where the arms are those of a sample
of orders; else the mean of alone and restored with what it leaves of the total as player `residual`: parts always sum
to the total. Every effect is linear in losses, hence in any additive score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.attribute import values
from harness.attribute.values import Coalition, Form, Order, Units, everyone, loss, weighted
from harness.config import EffectKind
from harness.errors import UserError

KINDS = tuple(EffectKind)
MEAN_NOTE = "mean of alone and restored"
SAMPLED_NOTE = "mean over sampled orders"


@dataclass(frozen=True)
class Game:
    """Arms by the players they quantize; `blocks` groups players; `weights` and `bytes_saved` are per player.

    `orders`: in a sampled design those whose prefixes the arms are, each followed by its reverse. Only arms of the
    design belong here: noise draws and other controls are no coalitions.
    """

    coalitions: Mapping[str, Coalition]
    blocks: Units = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    bytes_saved: Mapping[str, int] = field(default_factory=dict)
    orders: Sequence[Order] = ()

    @cached_property
    def arms(self) -> dict[Coalition, str]:
        """Arm names by coalition."""
        return {players: arm for arm, players in self.coalitions.items()}

    @property
    def is_base(self) -> bool:
        """Whether no arm quantizes anything, so that there is nothing to attribute."""
        return not any(self.coalitions.values())

    @cached_property
    def levels(self) -> list[Units]:
        """Blocks where there are several and one holds several players, then players."""
        found = dict.fromkeys(player for own in self.coalitions.values() for player in sorted(own))
        players = {player: frozenset({player}) for player in found}
        blocks = {block: own & everyone(players) for block, own in self.blocks.items() if own & everyone(players)}
        in_blocks = everyone(blocks)
        blocks |= {player: own for player, own in players.items() if player not in in_blocks}
        return [blocks, players] if 1 < len(blocks) < len(players) else [players]

    def allows(self, form: Form) -> bool:
        """Whether every coalition of a form is an arm."""
        return bool(form) and form.keys() <= self.arms.keys()


@dataclass(frozen=True)
class Contrast:
    """An effect as weights on losses. `players`: those whose weights and bytes it is set against.

    `primary`: belongs to the declared family of a two-block design (F, A, interaction, F - A between subsets).
    `by_pair`: of a mean over sampled orders, its part in each pair of an order and the reverse.
    """

    kind: str
    player: str
    form: Form
    players: Coalition = frozenset()
    note: str = ""
    primary: bool = False
    by_pair: tuple[Form, ...] = ()


def contrasts(game: Game, claims: Mapping[str, float], kinds: Sequence[str] = ()) -> list[Contrast]:
    """All effects that the arms allow, or those of the asked kinds. `claims`: the share claimed for a unit.

    UserError: an unknown kind, no base arm, an asked kind that lacks its arms, or no effect at all.
    """
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise UserError(f"effects {', '.join(unknown)}: no such kind; there are {', '.join(KINDS)}")
    if frozenset() not in game.arms:
        raise UserError("design: no base arm. A loss is a distance from base; add the arm that quantizes nothing")
    wanted = [c for c in _candidates(game, claims) if c.kind in (kinds or KINDS)]
    found = list({(c.kind, c.player): c for c in reversed(wanted) if game.allows(c.form)}.values())[::-1]
    lines = [_lack(kind, wanted, game) for kind in kinds if kind not in {c.kind for c in found}]
    if lines:
        raise UserError("\n".join(lines) + "\nChoose design.arms with these arms: all, one_in_out or owen.")
    if not found:
        raise UserError("design: its arms allow no effect; it takes base and an arm that quantizes something")
    return found


def _lack(kind: str, wanted: Sequence[Contrast], game: Game) -> str:
    absent = [players for c in wanted if c.kind == kind for players in c.form if players not in game.arms]
    if not absent:
        return f"effect {kind}: too few arms or players"
    return f"effect {kind}: no arm quantizes exactly {'+'.join(sorted(min(absent, key=sorted)))}"


def _candidates(game: Game, claims: Mapping[str, float]) -> Iterator[Contrast]:
    """Every effect of every level, whether or not its arms are there."""
    everybody = everyone(game.levels[-1])
    yield Contrast("total", "all", loss(everybody), everybody)
    for units in game.levels:
        for unit, form in values.alone(units).items():
            yield Contrast("alone", unit, form, units[unit])
        if len(units) > 1:
            yield from _of_several(game, units, claims)
    if len(game.levels) == 2 and 2 ** max(map(len, game.levels[0].values())) <= len(game.arms):
        for player, form in values.owen(game.levels[0]).items():
            yield Contrast("owen", player, form, frozenset({player}))


def _of_several(game: Game, units: Units, claims: Mapping[str, float]) -> Iterator[Contrast]:
    units, pair = dict(sorted(units.items(), key=lambda unit: unit[0] not in claims)), len(units) == 2
    for unit, form in values.restored(units).items():
        yield Contrast("restored", unit, form, units[unit])
    yield Contrast(
        "interaction", "+".join(units) if len(units) <= 3 else "all", values.interaction(units), primary=pair
    )
    parts, note = _parts(game, units)
    by_pair = list(_by_pair(game, units)) if note == SAMPLED_NOTE else []
    for unit, form in parts.items():
        own = tuple(forms[unit] for forms in by_pair)
        yield Contrast("shapley", unit, form, units.get(unit, frozenset()), note, primary=pair, by_pair=own)
        if unit in claims:
            short = weighted((1, form), (-claims[unit], loss(everyone(units))))
            yield Contrast("contrast", unit, short, note="; ".join(filter(None, [f"claim {claims[unit]:g}", note])))
    if pair:
        first, second = units
        apart = weighted((1, parts[first]), (-1, parts[second]))
        yield Contrast("difference", f"{first}-{second}", apart, primary=True)


def _parts(game: Game, units: Units) -> tuple[dict[str, Form], str]:
    """What the total is divided into, and how where that is not exact."""
    exact = values.shapley(units) if 2 ** len(units) <= len(game.arms) else {}
    if exact and all(map(game.allows, exact.values())):
        return exact, ""
    if game.orders and units.keys() == set(game.orders[0]):
        return values.sampled(units, game.orders), SAMPLED_NOTE
    return values.means(units), MEAN_NOTE


def _by_pair(game: Game, units: Units) -> Iterator[dict[str, Form]]:
    for n in range(0, len(game.orders), 2):
        yield values.sampled(units, game.orders[n : n + 2])
