"""Tables of attribution: what is set between subsets, and what within one."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from harness.attribute import Game, Scores, attribute, between_subsets
from harness.config import AttributeConfig
from harness.report.effect_tables import between_table

SUBSETS = {"general": 0.3, "context": 0.2, "knowledge": 0.5}  # what the first player costs alone
PAIRS = ["general-context", "general-knowledge", "context-knowledge"]


def effects(first="ffn", second="attention", subsets=SUBSETS, **options):
    """Of a design of two players, in subsets whose losses are known to a hair."""
    arms = {"base": set(), "first": {first}, "second": {second}, "both": {first, second}}
    rng = np.random.default_rng(0)
    found = []
    for subset, loss in subsets.items():
        values_A = np.array([0, loss, 0.1, loss + 0.1])
        values_AN = 3 + values_A[:, None] + 1e-6 * rng.normal(size=(4, 40))
        found.append(Scores(subset, "t", "nll", list(arms), values_AN, np.arange(40), False, worst=10.8))
    game = Game({arm: frozenset(players) for arm, players in arms.items()})
    return attribute(found, game, AttributeConfig(resamples=100, claims={}, **options))


@pytest.mark.parametrize("players", [("ffn", "attention"), ("ffn", "head"), ("layers.0-1", "layers.2-3")])
def test_differences_of_differences_come_first_and_those_within_a_subset_not_at_all(players):
    found = effects(*players)
    within = {effect.player for effect in found if effect.kind == "difference" and effect.subset in SUBSETS}
    assert len(within) == 1, "FFN minus attention, or whatever the two players are, is read in each subset"
    rows = [[cell.text for cell in row[:3]] for row in between_table(found, 0.01).rows]
    assert rows[:3] == [[pair, *within, "difference of differences"] for pair in PAIRS]
    parts = [(pair, player) for pair in PAIRS for player in ("all", *players)]
    assert sorted(map(tuple, rows[3:])) == sorted((*part, "difference") for part in parts)


def test_a_difference_of_differences_is_that_of_the_parts():
    twice, parts = between_subsets(effects())
    of = {(effect.subset, effect.player): effect.loss for effect in parts}
    for effect in twice:
        apart = of[effect.subset, "ffn"] - of[effect.subset, "attention"]
        assert effect.loss == pytest.approx(apart) and effect.player == "ffn-attention"
        first, second = effect.subset.split("-")
        assert effect.loss == pytest.approx(SUBSETS[first] - SUBSETS[second], abs=1e-5)


def test_differences_alone_are_told_apart_too():
    twice, parts = between_subsets(effects(effects=["difference"]))
    assert [effect.subset for effect in twice] == PAIRS and not parts


def test_a_subset_is_no_pair_for_a_dash_in_its_name():
    found = effects(subsets={"long-text": 0.3, "general": 0.2})
    assert {effect.subset for own in between_subsets(found) for effect in own} == {"long-text-general"}
    assert between_subsets([effect for effect in found if effect.subset == "long-text"]) == ([], [])


def test_one_subset_has_no_rows():
    assert not between_table(effects(subsets={"general": 0.3}), 0.01).rows


def test_losses_are_drawn_on_one_scale():
    table = between_table([replace(effect, lo=None, hi=None) for effect in effects()], 0.01)
    at = [row[4].drawn.at for row in sorted(table.rows, key=lambda row: row[3].sort)]
    assert all(first <= second for first, second in pairwise(at)) and table.margin == 0.01
