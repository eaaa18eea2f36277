"""Effects that a design cannot show are refused before anything is scored."""

import pytest

from harness.config import ArmsRule, AttributeConfig, DesignConfig, EffectKind, Players, QuantConfig
from harness.controls import control_arms
from harness.design import build_arms
from harness.effects import check_effects, check_work, game_of, resolves, unclear_documents
from harness.errors import UserError
from harness.plan import resolve
from harness.scheme import Scheme
from tests.test_plan import sites


def arms(players=Players.blocks, rule=ArmsRule.all, noise=0):
    design = DesignConfig(players=players, arms=rule, noise_draws=noise)
    plan = resolve(sites(), QuantConfig(ffn=Scheme(group_size=32), attention=Scheme(group_size=32))).plan
    return [*build_arms(plan, design, 3), *control_arms(plan, sites(), design, sequential=False)]


@pytest.mark.parametrize(
    ("made", "kind", "words"),
    [
        (arms(rule=ArmsRule.single), EffectKind.shapley, "effect shapley: no arm quantizes exactly"),
        (arms(rule=ArmsRule.single), EffectKind.restored, "effect restored"),
        (arms(), EffectKind.owen, "effect owen"),
    ],
)
def test_an_effect_that_lacks_its_arms_is_refused_with_the_designs_that_have_them(made, kind, words):
    with pytest.raises(UserError, match=words) as error:
        check_effects(made, AttributeConfig(effects=[kind]))
    assert "one_in_out or owen" in str(error.value)


@pytest.mark.parametrize(
    ("made", "kinds"),
    [
        (arms(), [EffectKind.shapley, EffectKind.interaction]),
        (arms(noise=2), []),
        (arms(rule=ArmsRule.single), [EffectKind.alone]),
        (arms(Players.roles, ArmsRule.owen), [EffectKind.owen]),
        (arms(Players.layers, ArmsRule.one_in_out), [EffectKind.restored]),
    ],
)
def test_what_the_arms_allow_may_be_asked_for(made, kinds):
    check_effects(made, AttributeConfig(effects=kinds))


def test_a_claim_about_no_player_is_refused_by_name():
    with pytest.raises(UserError, match=r"attribute\.claims\.mlp: .*attention, ffn"):
        check_effects(arms(), AttributeConfig(claims={"ffn": 0.7, "mlp": 0.2}))
    check_effects(arms(Players.roles, ArmsRule.one_in_out), AttributeConfig(claims={"ffn.down": 0.3}))


def test_a_game_counts_every_weight_once_and_bytes_from_the_bits_stored():
    made = arms(Players.roles, ArmsRule.one_in_out, noise=1)
    game = game_of(made, {site.name: 4.5 for site in sites()})
    assert sum(game.weights.values()) == sum(site.weights for site in sites())
    assert sum(game.bytes_saved.values()) == pytest.approx(sum(site.weights for site in sites()) * 11.5 / 8)
    assert {block: len(own) for block, own in game.blocks.items()} == {"ffn": 3, "attention": 4}
    assert "noise.0" not in game.coalitions


class Task:
    """A scorable, as far as its name, metrics and documents go."""

    def __init__(self, name, *metrics, documents=(), is_text=False):
        self.subset, self.name, self.metrics = "general", name, metrics
        self.item_documents, self.is_text = list(documents), is_text


def test_a_primary_metric_that_no_task_has_is_refused_with_those_that_are_there():
    work = [Task("prose", "nll", "kl"), Task("qa", "nll", "acc", "acc_norm")]
    for metric in ("nll", "acc_norm"):
        check_work(work, AttributeConfig(primary_metric=metric))
    with pytest.raises(UserError, match=r"primary_metric=nl: .*Did you mean nll\? There are nll, kl, acc, acc_norm"):
        check_work(work, AttributeConfig(primary_metric="nl"))
    with pytest.raises(UserError, match=r"primary_metric=acc: .*There are nll, kl\."):
        check_work(work[:1], AttributeConfig(primary_metric="acc"))


def test_metrics_to_attribute_are_known_and_the_primary_one_is_among_them():
    work = [Task("prose", "nll", "kl"), Task("qa", "nll", "acc")]
    check_work(work, AttributeConfig(), ["nll", "kl"])
    with pytest.raises(UserError, match=r"eval\.attribute_metrics=akk: .*There are nll, kl, acc"):
        check_work(work, AttributeConfig(), ["nll", "akk"])
    with pytest.raises(UserError, match=r"primary_metric=acc is not among .*\['nll', 'kl'\]\..*attribute_metrics=\[\]"):
        check_work(work, AttributeConfig(primary_metric="acc"), ["nll", "kl"])


def test_two_tasks_of_one_name_would_be_one_row():
    with pytest.raises(UserError, match=r"eval: qa in general is two tasks\. .*eval\.perplexity\.name"):
        check_work([Task("qa", "nll"), Task("qa", "nll")], AttributeConfig())


def test_what_tasks_and_their_subset_resolve_in_the_metrics_a_run_is_read_by():
    work = [
        Task("prose", "nll", "kl", documents=[f"window {n}" for n in range(40)], is_text=True),
        Task("qa", "nll", "acc", "acc_norm", "kl", "prob", documents=[f"d{n // 2}" for n in range(60)]),
        Task("one", "nll", documents=["d0"]),
    ]
    found = {(one.task, one.metric): one for one in resolves(work, 0.95, ["nll", "kl"])}
    assert list(found) == [
        ("prose", "nll"), ("prose", "kl"), ("qa", "nll"), ("qa", "acc"), ("qa", "kl"), ("all", "nll"), ("all", "kl"),
    ]  # fmt: skip
    assert (found["qa", "acc"].n_items, found["qa", "acc"].n_documents) == (60, 30)
    assert (found["all", "nll"].n_items, found["all", "nll"].n_documents) == (100, 70)
    assert found["prose", "nll"].smallest < found["qa", "nll"].smallest
    assert "acc_norm" in {one.metric for one in resolves(work, 0.95)}
    assert unclear_documents(work) == ["prose"]
