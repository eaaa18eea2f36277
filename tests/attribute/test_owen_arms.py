"""Owen values of 44 scored arms against brute force over all 128, on a model."""

from itertools import permutations

import pytest

from harness.pipeline import run
from harness.report.tables import read_report
from tests.attribute.test_values import ROLES, mean_over
from tests.runs import composed

TINY = (
    "+exp=int4_roles", "model=tiny", "eval=perplexity", "eval.perplexity.window=48", "eval.perplexity.max_windows=2",
    "eval.perplexity.joiner=''", "design.noise_draws=0", "attribute.resamples=200",
)  # fmt: skip


def tables(folder, *overrides):
    """report.csv and attribution.csv, nll only."""
    done = run(composed(*TINY, *overrides), folder).folder
    found = (read_report(done / name) for name in ("report.csv", "attribution.csv"))
    return [table[table["metric"] == "nll"] for table in found]


def test_owen_values_of_44_arms_are_those_of_all_128(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("It was a bright cold day in April, and the clocks were striking thirteen. " * 3, encoding="utf-8")
    report, _ = tables(tmp_path, f"eval.perplexity.path={text}", "design.arms=all")
    losses = report.set_index("arm")["loss"].drop("base")
    assert len(losses) == 127
    game = {frozenset(_players(arm)): loss for arm, loss in losses.items()} | {frozenset(): 0.0}
    assert len(game) == 128
    inner = [[list(order) for order in permutations(sorted(own))] for own in ROLES.values()]
    orders = [a + f for a in inner[0] for f in inner[1]] + [f + a for a in inner[0] for f in inner[1]]
    brute = mean_over(orders, game)
    few, effects = tables(tmp_path, f"eval.perplexity.path={text}", "design.arms=owen")
    assert len(set(few["arm"])) == 44
    owen = effects[effects["kind"] == "owen"].set_index("player")["loss"]
    assert dict(owen) == pytest.approx(brute, abs=1e-9)
    total = effects.loc[effects["kind"] == "total", "loss"].item()
    assert owen.sum() == pytest.approx(total, abs=1e-9)


def _players(arm):
    everyone = [player for block in ROLES.values() for player in block]
    if arm == "all":
        return everyone
    return [p for p in everyone if p not in arm[4:].split("+")] if arm.startswith("all-") else arm.split("+")
