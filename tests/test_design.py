"""Designs: which coalitions become arms."""

import pytest

from harness.config import ArmsRule, DesignConfig, Players, QuantConfig
from harness.design import build_arms, sampled_orders
from harness.errors import UserError
from harness.plan import resolve
from harness.scheme import Scheme
from tests.test_plan import sites


def arms(players, rule, layers=6, **kwargs):
    plan = resolve(sites(layers), QuantConfig(ffn=Scheme(group_size=32), attention=Scheme(group_size=32))).plan
    return build_arms(plan, DesignConfig(players=players, arms=rule, **kwargs), layers)


def test_blocks_all_is_two_by_two():
    made = arms(Players.blocks, ArmsRule.all)
    assert [a.name for a in made] == ["base", "ffn", "attention", "both"]
    assert made[3].plan == {**made[1].plan, **made[2].plan}


def test_single_and_together():
    assert [a.name for a in arms(Players.blocks, ArmsRule.single)] == ["base", "ffn", "attention"]
    assert [a.name for a in arms(Players.blocks, ArmsRule.together)] == ["base", "both"]


def test_roles_one_in_out_is_sixteen_arms():
    made = arms(Players.roles, ArmsRule.one_in_out)
    assert len(made) == 16 == len({a.players for a in made})
    assert "all-ffn.down" in {a.name for a in made}


def test_owen_is_forty_four_arms():
    made = arms(Players.roles, ArmsRule.owen)
    # 2 x 2^3 subsets of the FFN's roles and 2 x 2^4 of attention's, four of them common to both
    assert len(made) == 2 * 8 + 2 * 16 - 4 == 44
    assert len({a.players for a in made}) == 44


def test_layers_and_groups_of_layers():
    assert len(arms(Players.layers, ArmsRule.one_in)) == 1 + 6 + 1
    names = [a.name for a in arms(Players.layers, ArmsRule.single, layer_groups=3)]
    assert names == ["base", "layers.0-1", "layers.2-3", "layers.4-5"]
    assert len(arms(Players.block_layers, ArmsRule.one_in_out, layer_groups=3)) == 1 + 6 + 6 + 1


def test_roles_in_groups_of_layers():
    made = arms(Players.role_layers, ArmsRule.one_in, layer_groups=3)
    assert len(made) == 1 + 7 * 3 + 1
    assert {site.name for site in made[1].plan} == {"layers.0.ffn.gate", "layers.1.ffn.gate"}
    assert made[1].name == "ffn.gate.layers.0-1" and made[-1].name == "all"


def test_sampled_arms_are_the_prefixes_of_orders_and_their_reverses():
    made = arms(Players.roles, ArmsRule.sampled, permutations=4)
    orders = sampled_orders(
        {p for arm in made for p in arm.players}, DesignConfig(arms=ArmsRule.sampled, permutations=4)
    )
    assert len(orders) == 4 and {a.players for a in made} == {frozenset(o[:n]) for o in orders for n in range(8)}
    assert len(made) == len({a.players for a in made}) <= 2 + 4 * 6
    assert "all" in {a.name for a in made}
    two = arms(Players.blocks, ArmsRule.sampled)
    assert {a.name for a in two} == {"base", "ffn", "attention", "both"}
    assert sampled_orders("ab", DesignConfig()) == []


def test_every_site_belongs_to_exactly_one_player():
    for players in (Players.blocks, Players.roles, Players.layers, Players.block_layers, Players.role_layers):
        made = arms(players, ArmsRule.single)
        owned = [site for arm in made for site in arm.plan]
        assert len(owned) == len(set(owned)) == 6 * 7


def test_too_many_arms_are_refused():
    with pytest.raises(UserError, match="owen"):
        arms(Players.layers, ArmsRule.all, layers=8)


@pytest.mark.parametrize(
    ("players", "groups", "permutations", "words"),
    [
        # 9 layers: base and all, 9 arms of one layer and 9 of eight, one of each order for sizes 2 to 7
        (
            Players.layers,
            0,
            20,
            "permutations=20 with 9 players would be up to 140 arms, more than 128. Set it to 18 or less",
        ),
        (
            Players.role_layers,
            2,
            10**9,
            "1000000000 with 14 players would be up to 16384 arms, more than 128. Set it to 8 or less",
        ),
        (Players.block_layers, 0, 100, "with 18 players would be .* than 128. Set it to 6 or less"),
        (Players.role_layers, 0, 4, "with 63 players would be up to 250 arms, more than 128. Set it to 2 or less"),
    ],
)
def test_too_many_sampled_arms_are_refused_before_an_order_is_drawn(monkeypatch, players, groups, permutations, words):
    monkeypatch.setattr("harness.design.sampled_orders", lambda *_: pytest.fail("orders were drawn"))
    with pytest.raises(UserError, match=words):
        arms(players, ArmsRule.sampled, layers=9, layer_groups=groups, permutations=permutations)


def test_too_many_players_for_two_orders_are_told_of_another_design():
    with pytest.raises(
        UserError,
        match=r"with 70 players would be up to 140 arms, more than 128. Use design.arms=one_in, or fewer players",
    ):
        arms(Players.role_layers, ArmsRule.sampled, layers=10, permutations=2)


def test_as_many_orders_as_the_refusal_names_are_taken():
    assert len(arms(Players.layers, ArmsRule.sampled, layers=9, permutations=18)) <= 128
    assert len(arms(Players.roles, ArmsRule.sampled, permutations=5040)) == 128


@pytest.mark.parametrize(
    ("players", "groups", "words"),
    [(Players.role_layers, 6, "18 players in ffn"), (Players.block_layers, 0, "8 players in ffn")],
)
def test_too_many_owen_arms_are_refused_in_the_words_of_what_was_set(players, groups, words):
    with pytest.raises(UserError, match=f"design.arms=owen with {words}") as error:
        arms(players, ArmsRule.owen, layers=8, layer_groups=groups)
    message = str(error.value)
    assert "design.players=roles" in message and "design.layer_groups" in message
    assert "design.arms=all" not in message


@pytest.mark.parametrize("players", [Players.layers, Players.block_layers, Players.role_layers])
def test_more_groups_of_layers_than_layers_are_refused(players):
    with pytest.raises(UserError, match=r"design.layer_groups=7: the model has 6 layers. Set it to 6 or less"):
        arms(players, ArmsRule.single, layer_groups=7)
    assert len(arms(players, ArmsRule.single, layer_groups=6)) == len(arms(players, ArmsRule.single))


def test_nothing_to_quantize_is_refused():
    with pytest.raises(UserError, match="nothing to measure"):
        build_arms({}, DesignConfig(), 2)


def test_a_model_without_layers_has_nothing_to_quantize():
    with pytest.raises(UserError, match="num_hidden_layers=0"):
        build_arms({}, DesignConfig(), 0)
