"""Controls: arms that are no coalition, and which of them make the noise floor."""

import pytest

from harness.config import ArmsRule, DesignConfig, Players, QuantConfig
from harness.controls import control_arms
from harness.design import build_arms
from harness.errors import UserError
from harness.plan import resolve
from harness.scheme import BLOCKS, Scheme
from harness.words import is_control, is_noise
from tests.test_plan import sites


def controls(quant=None, sequential=False, **design):
    quant = quant or QuantConfig(ffn=Scheme(group_size=32), attention=Scheme(group_size=32))
    return control_arms(resolve(sites(), quant).plan, sites(), DesignConfig(**design), sequential)


def test_only_noise_draws_make_the_floor_and_matched_noise_is_tested_like_any_arm():
    made = {arm.name: arm for arm in controls(noise_draws=2, matched_noise=0.1, random_sets=1)}
    assert list(made) == ["noise.0", "noise.1", "matched.ffn", "matched.attention", "random.0"]
    assert [name for name, arm in made.items() if arm.is_noise] == ["noise.0", "noise.1"]
    assert all(arm.control for arm in made.values())
    for block in BLOCKS:
        assert {site.block for site in made[f"matched.{block}"].plan} == {block}


def test_every_control_is_known_by_its_name():
    """Reports have names only."""
    gptq, int8 = Scheme(method="gptq", group_size=32), Scheme(method="bnb", precision="int8")
    made = [
        *controls(noise_draws=2, matched_noise=0.1, random_sets=1),
        *controls(QuantConfig(ffn=gptq, attention=gptq), sequential=True, arms=ArmsRule.all),
        *controls(QuantConfig(ffn=int8)),
    ]
    assert {arm.name.split(".")[0] for arm in made} == {"noise", "matched", "random", "spliced", "fp16_cast"}
    assert all(is_control(arm.name) for arm in made) and is_control("ffn@1")
    assert [arm.name for arm in made if is_noise(arm.name)] == [arm.name for arm in made if arm.is_noise]


@pytest.mark.parametrize("design", [{}, {"players": Players.roles}, {"players": Players.layers}])
def test_no_arm_of_a_design_is_taken_for_a_control(design):
    quant = QuantConfig(ffn=Scheme(group_size=32), attention=Scheme(group_size=32))
    layers = 1 + max(site.layer for site in sites())
    arms = build_arms(resolve(sites(), quant).plan, DesignConfig(arms=ArmsRule.one_in_out, **design), layers)
    assert len(arms) > 2 and not any(is_control(arm.name) for arm in arms)


def test_random_sites_hold_about_as_many_weights_as_the_smaller_block():
    sizes = {block: sum(site.weights for site in sites() if site.block == block) for block in BLOCKS}
    for arm in controls(random_sets=5):
        assert abs(sum(site.weights for site in arm.plan) - min(sizes.values())) <= 64 * 96 / 2


def test_random_sites_need_two_blocks_to_be_compared_with():
    with pytest.raises(UserError, match=r"design\.random_sets=1: quantize both blocks"):
        controls(QuantConfig(ffn=Scheme(group_size=32)), random_sets=1)


def test_spliced_arms_are_made_where_recalibration_can_tell_them_from_both():
    gptq = Scheme(method="gptq", group_size=32)
    quant = QuantConfig(ffn=gptq, attention=gptq)
    assert [arm.name for arm in controls(quant, sequential=True, arms=ArmsRule.all)] == ["spliced"]
    assert controls(quant, sequential=False, arms=ArmsRule.all) == controls(quant, sequential=True) == []
