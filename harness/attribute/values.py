"""How a total is divided between units: each value as a weighted sum of losses of coalitions.

L(S) is the loss with the players in S quantized; L of nobody is 0. For a unit u (one player, or all players of a
block) among the units N:

    alone        L(u)                        what u costs in an otherwise untouched model
    restored     L(N) - L(N minus u)         what giving u its precision back would save
    interaction  L(N) - sum_u L(u)           what the parts do not explain by themselves
    shapley      mean over orders of arrival of u's added loss (Shapley 1953); two units: mean of alone and restored
    sampled      the mean over some orders only: an estimate of the Shapley value (Castro, Gomez & Tejada 2009)
    owen         the same over orders that keep each block's players together (Owen 1977). Nests in the blocks' Shapley
                 values and needs only unions of one block's players with the other block off or on. For 4 + 3 roles:
                 2 x (16 + 8) coalitions less the 4 counted twice = 44 arms
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import comb

RESIDUAL = "residual"  # the unit that stands for what means leave of the total

Coalition = frozenset[str]
Form = dict[Coalition, float]  # weights on L(S)
Units = Mapping[str, Coalition]  # unit -> its players
Order = tuple[str, ...]  # of arrival


def loss(coalition: Coalition) -> Form:
    """L(S) itself."""
    return {coalition: 1.0} if coalition else {}


def weighted(*terms: tuple[float, Form]) -> Form:
    """A weighted sum of forms."""
    total: Form = {}
    for factor, form in terms:
        for coalition, weight in form.items():
            total[coalition] = total.get(coalition, 0.0) + factor * weight
    return {coalition: weight for coalition, weight in total.items() if weight}


def everyone(units: Units) -> Coalition:
    """All players of all units."""
    return frozenset().union(*units.values())


def alone(units: Units) -> dict[str, Form]:
    """L(u) of each unit."""
    return {unit: loss(own) for unit, own in units.items()}


def restored(units: Units) -> dict[str, Form]:
    """L(N) - L(N minus u) of each unit."""
    whole = everyone(units)
    return {unit: weighted((1, loss(whole)), (-1, loss(whole - own))) for unit, own in units.items()}


def interaction(units: Units) -> Form:
    """L(N) - sum of L(u)."""
    return weighted((1, loss(everyone(units))), *((-1, form) for form in alone(units).values()))


def means(units: Units) -> dict[str, Form]:
    """Mean of alone and restored; what they leave of the total is the unit `residual` (nothing, for two units)."""
    first, last = alone(units), restored(units)
    found = {unit: weighted((0.5, first[unit]), (0.5, last[unit])) for unit in units}
    residual = weighted((1, loss(everyone(units))), *((-1, form) for form in found.values()))
    return {**found, RESIDUAL: residual} if residual else found


def shapley(units: Units) -> dict[str, Form]:
    """Exact Shapley values over all 2^n unions of units."""
    return {unit: weighted(*_arrivals(unit, units, frozenset())) for unit in units}


def arrivals(units: Units, order: Order) -> dict[str, Form]:
    """What each unit adds to the loss of those before it in one order. They sum to the total."""
    found, before = {}, frozenset()
    for unit in order:
        joined = before | units[unit]
        found[unit] = weighted((1, loss(joined)), (-1, loss(before)))
        before = joined
    return found


def sampled(units: Units, orders: Sequence[Order]) -> dict[str, Form]:
    """Mean over the orders of what each unit adds: the exact Shapley value where these are all orders."""
    added = [arrivals(units, order) for order in orders]
    return {unit: weighted(*((1 / len(orders), forms[unit]) for forms in added)) for unit in units}


def owen(blocks: Units) -> dict[str, Form]:
    """Exact Owen values of all players, blocks being the unions that stay together."""
    found: dict[str, Form] = {}
    for block, own in blocks.items():
        others = {name: members for name, members in blocks.items() if name != block}
        players = {player: frozenset({player}) for player in sorted(own)}
        for player in players:
            terms = [
                (weight * factor, form)
                for weight, before in _subsets(others)
                for factor, form in _arrivals(player, players, before)
            ]
            found[player] = weighted(*terms)
    return found


def _arrivals(unit: str, units: Units, before: Coalition) -> Iterator[tuple[float, Form]]:
    """Added losses when `unit` joins a subset of the other units, `before` being there already."""
    others = {name: own for name, own in units.items() if name != unit}
    for weight, present in _subsets(others):
        joined = before | present
        yield weight, weighted((1, loss(joined | units[unit])), (-1, loss(joined)))


def _subsets(others: Units) -> Iterator[tuple[float, Coalition]]:
    """Unions of others with the probability that just they arrive before one more unit: 1 / (n+1) / C(n, k)."""
    for size in range(len(others) + 1):
        for chosen in combinations(others, size):
            members = frozenset().union(*(others[name] for name in chosen))
            yield 1 / (len(others) + 1) / comb(len(others), size), members
