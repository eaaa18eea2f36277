"""Weights of arms: how far noise moves them, whatever type holds them, and which matrices AWQ clips."""

import pytest
import torch

from harness.model.load import Model
from harness.plan import Noise
from harness.quantize import InputStats
from harness.scheme import Scheme
from harness.weigh import Weigher, disturbed
from tests.model import architectures

TYPES = [torch.float32, torch.float16, torch.bfloat16]


def gaussian(dtype, size=512):
    """Like trained weights, on the grid of the type."""
    return (0.02 * torch.randn(size, size, generator=torch.Generator().manual_seed(0))).bfloat16().to(dtype)


def moved(w_OI, seed=0, name="layers.0.ffn.up"):
    return disturbed(w_OI, Noise(seed), name).float() - w_OI.float()


def step(w_OI):
    """Of bfloat16 at each weight's size: 8 significant bits."""
    return torch.exp2(w_OI.float().abs().log2().floor() - 7)


@pytest.mark.parametrize("dtype", TYPES)
def test_noise_is_as_strong_in_every_type(dtype):
    """Uniform within half a step: the variance is a twelfth of the step's square."""
    w_OI = gaussian(dtype)
    want = ((step(w_OI).square().sum() / 12).sqrt() / w_OI.float().norm()).item()
    assert want == pytest.approx(1.66e-3, rel=0.03)
    assert (moved(w_OI).norm() / w_OI.float().norm()).item() == pytest.approx(want, rel=0.03)
    assert abs(moved(w_OI).mean()) < 3 * step(w_OI).mean() / 512 / 12**0.5


def test_weights_in_bfloat16_move_by_a_whole_step_or_not_at_all():
    w_OI = gaussian(torch.bfloat16)
    steps_OI = moved(w_OI) / step(w_OI)
    assert set(steps_OI.unique().tolist()) == {-1.0, 0.0, 1.0}
    assert steps_OI.abs().mean().item() == pytest.approx(1 / 12, rel=0.03)


@pytest.mark.parametrize("dtype", TYPES)
def test_powers_of_two_move_up_as_often_as_down_and_as_far(dtype):
    """Below a power of two the grid is twice as fine: neither side may be rounded away."""
    w_OI = torch.full((512, 512), -0.125, dtype=dtype)
    steps_OI = moved(w_OI) / step(w_OI)
    assert steps_OI.square().mean().item() == pytest.approx(1 / 12, rel=0.03)
    assert abs(steps_OI.mean()) < 3 / 512 / 12**0.5


@pytest.mark.parametrize("dtype", TYPES)
def test_zeros_have_no_step(dtype):
    assert not moved(torch.zeros(64, 64, dtype=dtype)).any()


def test_float32_draws_what_recorded_runs_drew():
    w_OI = torch.tensor([[0.0, 1.0, -0.3], [0.02, 4.0, -7.5]])
    assert disturbed(w_OI, Noise(3), "layers.0.ffn.up").tolist() == [
        [0.0, 0.9973967671394348, -0.29999300837516785],
        [0.020004354417324066, 3.989316701889038, -7.496303558349609],
    ]


def test_every_seed_and_site_has_noise_of_its_own_and_always_the_same():
    w_OI = gaussian(torch.bfloat16, 64)
    first = moved(w_OI)
    assert torch.equal(first, moved(w_OI))
    assert not torch.equal(first, moved(w_OI, seed=1)) and not torch.equal(first, moved(w_OI, name="layers.1.ffn.up"))


@pytest.mark.parametrize(("architecture", "clipped"), [("llama", {"v", "o"}), ("deepseek_v3", {"o"})])
def test_awq_clips_nothing_that_makes_queries_or_keys(architecture, clipped):
    model = Model.from_module(architectures.tiny(architecture))
    sites = [site for site in model.sites if site.layer == 0]
    assert {"q_a", "q_b", "kv_a", "kv_b"} <= {s.role for s in sites} or {"q", "k"} <= {s.role for s in sites}
    stats = {}
    for site in sites:
        stats[site] = InputStats.empty(site.in_features)
        stats[site].add(torch.randn(256, site.in_features, generator=torch.Generator().manual_seed(site.in_features)))
    weigher = Weigher(model.sites)
    scheme = Scheme(method="awq", range="qmax", group_size=-1)
    weigher.weights(tuple((site, scheme, 0) for site in sites), model.layers[0], {0: stats})
    found = {fact["role"] for fact in weigher.facts.values() if "awq_clipped_groups" in fact}
    assert found == clipped | {"gate", "up", "down"}
