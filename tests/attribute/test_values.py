"""Values against brute force: all orders of arrival, one by one."""

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.attribute.effects import Game, contrasts
from harness.attribute.values import everyone, interaction, means, owen, restored, sampled, shapley
from harness.config import ArmsRule, DesignConfig
from harness.design import sampled_orders
from harness.errors import UserError

ROLES = {
    "attention": frozenset(f"attention.{r}" for r in "qkvo"),
    "ffn": frozenset(f"ffn.{r}" for r in ("gate", "up", "down")),
}
PLAYERS = sorted(everyone(ROLES))
SUBSETS = [frozenset(c) for n in range(8) for c in combinations(PLAYERS, n)]


def random_game(seed):
    values = np.random.default_rng(seed).normal(size=len(SUBSETS))
    return {subset: value if subset else 0.0 for subset, value in zip(SUBSETS, values, strict=True)}


def read(form, game):
    return sum(weight * game[coalition] for coalition, weight in form.items())


def mean_over(orders, game):
    added = dict.fromkeys(PLAYERS, 0.0)
    for order in orders:
        for n, player in enumerate(order):
            added[player] += game[frozenset(order[: n + 1])] - game[frozenset(order[:n])]
    return {player: value / len(orders) for player, value in added.items()}


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_shapley_is_the_mean_over_all_orders(seed):
    game = random_game(seed)
    brute = mean_over(list(permutations(PLAYERS)), game)
    exact = shapley({player: frozenset({player}) for player in PLAYERS})
    assert {player: read(form, game) for player, form in exact.items()} == pytest.approx(brute, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_owen_is_the_mean_over_orders_that_keep_blocks_together(seed):
    game = random_game(seed)
    inner = [[list(order) for order in permutations(sorted(own))] for own in ROLES.values()]
    orders = [a + f for a in inner[0] for f in inner[1]] + [f + a for a in inner[0] for f in inner[1]]
    exact = owen(ROLES)
    assert {p: read(form, game) for p, form in exact.items()} == pytest.approx(mean_over(orders, game), abs=1e-12)


def test_owen_needs_44_arms_and_nests_in_the_blocks():
    forms, game = owen(ROLES), random_game(0)
    assert len({coalition for form in forms.values() for coalition in form} | {frozenset()}) == 44
    for block, form in shapley(ROLES).items():
        assert sum(read(forms[player], game) for player in ROLES[block]) == pytest.approx(read(form, game), abs=1e-12)


@settings(deadline=None)
@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5))
def test_closed_form_for_two_blocks(ffn, attention, both):
    units = {"ffn": frozenset({"ffn"}), "attention": frozenset({"attention"})}
    game = {frozenset(): 0.0, units["ffn"]: ffn, units["attention"]: attention, everyone(units): both}
    assert read(shapley(units)["ffn"], game) == pytest.approx((ffn + both - attention) / 2, abs=1e-12)
    assert read(restored(units)["ffn"], game) == pytest.approx(both - attention, abs=1e-12)
    assert read(interaction(units), game) == pytest.approx(both - ffn - attention, abs=1e-12)
    assert shapley(units) == means(units)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_parts_sum_to_the_total(seed):
    game = random_game(seed)
    units = {player: frozenset({player}) for player in PLAYERS}
    for parts in (shapley(units), means(units), owen(ROLES), shapley(ROLES)):
        assert sum(read(form, game) for form in parts.values()) == pytest.approx(game[everyone(ROLES)], abs=1e-9)


UNITS = {player: frozenset({player}) for player in PLAYERS}


def drawn(permutations, seed=0, players=PLAYERS):
    return sampled_orders(players, DesignConfig(arms=ArmsRule.sampled, permutations=permutations, seed=seed))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 8, 40]))
def test_sampled_values_are_the_mean_over_their_orders_and_sum_to_the_total(seed, count):
    game, orders = random_game(seed), drawn(count, seed % 100)
    found = {player: read(form, game) for player, form in sampled(UNITS, orders).items()}
    assert found == pytest.approx(mean_over(orders, game), abs=1e-12)
    assert sum(found.values()) == pytest.approx(game[everyone(ROLES)], abs=1e-9)


def test_all_orders_give_exact_values():
    players = PLAYERS[:4]
    units = {player: UNITS[player] for player in players}
    orders = drawn(24, players=players)
    assert sorted(orders) == sorted(permutations(players))
    exact, game = shapley(units), random_game(0)
    for player, form in sampled(units, orders).items():
        assert read(form, game) == pytest.approx(read(exact[player], game), abs=1e-12)


def test_more_orders_come_nearer_to_exact_values():
    exact, far = shapley(UNITS), []
    for count in (2, 32, 512):
        errors = [
            read(form, random_game(seed)) - read(exact[player], random_game(seed))
            for seed in range(5)
            for player, form in sampled(UNITS, drawn(count, seed)).items()
        ]
        far.append(np.square(errors).mean())
    assert far[0] > 4 * far[1] > 16 * far[2]


def test_orders_come_with_their_reverses_and_by_the_seed():
    orders = drawn(8)
    assert len(set(orders)) == 8 and all(a == b[::-1] for a, b in zip(orders[::2], orders[1::2], strict=True))
    assert drawn(8) == orders != drawn(8, seed=1)
    assert drawn(8, players=reversed(PLAYERS)) == orders


def test_additive_losses_have_no_spread_between_orders():
    orders = drawn(6)
    game = replace(game_of(set(), *(order[:n] for order in orders for n in range(1, 8))), orders=orders)
    worth = {player: n / 10 for n, player in enumerate(PLAYERS)}
    found = {c.player: c for c in contrasts(game, {}) if c.kind == "shapley"}
    assert found.keys() == set(PLAYERS) and {c.note for c in found.values()} == {"mean over sampled orders"}
    for player, contrast in found.items():
        assert len(contrast.by_pair) == 3
        for form in (contrast.form, *contrast.by_pair):
            value = sum(weight * sum(worth[p] for p in coalition) for coalition, weight in form.items())
            assert value == pytest.approx(worth[player], abs=1e-12)


def game_of(*coalitions, blocks=ROLES):
    return Game({"+".join(sorted(c)) or "base": frozenset(c) for c in coalitions}, blocks)


def test_sixteen_role_arms_give_means_with_a_residual():
    ones = [{player} for player in PLAYERS]
    outs = [set(PLAYERS) - {player} for player in PLAYERS]
    game = game_of(set(), *ones, *outs, set(PLAYERS))
    assert len(game.arms) == 16
    found = contrasts(game, {"ffn": 0.7})
    assert {c.player for c in found if c.kind == "shapley"} == {*PLAYERS, "residual"}
    assert all(c.note for c in found if c.kind == "shapley")
    assert not [c for c in found if c.kind in ("owen", "contrast")]


def test_owen_arms_give_blocks_exactly_and_the_contrast():
    coalitions = {c for form in owen(ROLES).values() for c in form}
    found = contrasts(game_of(set(), *coalitions), {"ffn": 0.7})
    assert {c.player for c in found if c.kind == "owen"} == set(PLAYERS)
    assert {c.player for c in found if c.kind == "shapley" and not c.note} == set(ROLES)
    assert [c.player for c in found if c.kind == "contrast"] == ["ffn"]
    assert len({(c.kind, c.player) for c in found}) == len(found)


def test_one_block_alone_has_a_total_and_no_interaction():
    found = contrasts(game_of(set(), {"ffn"}, blocks={}), {"ffn": 0.7})
    assert [(c.kind, c.player) for c in found] == [("total", "all"), ("alone", "ffn")]


def test_sixty_players_do_not_look_for_exact_values():
    players = [f"{block}.layers.{n}" for block in ROLES for n in range(30)]
    blocks = {block: frozenset(p for p in players if p.startswith(block)) for block in ROLES}
    game = game_of(set(), *({p} for p in players), set(players), blocks=blocks)
    assert {c.kind for c in contrasts(game, {})} == {"total", "alone", "interaction"}


def test_clear_words_for_a_design_that_lacks_an_arm():
    single = game_of(set(), {"ffn"}, {"attention"}, blocks={})
    with pytest.raises(UserError, match=r"effect shapley: no arm quantizes exactly attention\+ffn\nChoose design.arms"):
        contrasts(single, {}, ["shapley"])
    with pytest.raises(UserError, match="effect owen: too few arms"):
        contrasts(single, {}, ["owen"])
    with pytest.raises(UserError, match="no base arm"):
        contrasts(game_of({"ffn"}), {})
    with pytest.raises(UserError, match="no such kind"):
        contrasts(single, {}, ["shaply"])
    with pytest.raises(UserError, match="no effect"):
        contrasts(game_of(set()), {})
