"""Statistics of a mixture's experts against sums written out token by token."""

import pytest
import torch

from harness.calibrate import gather
from harness.expert_inputs import FEW_TOKENS
from harness.model.sites import find_layers, find_sites, read_site
from harness.quantize import InputStats, quantize
from harness.scheme import Scheme
from harness.weigh import Weigher
from tests.model.architectures import tiny

MIXTURES = ["mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "llama4_text"]
LAYER = 1  # has experts in all of them
TOKENS = 40
TOP_K = {"llama4_text": 1}


def silu_gate(gate_I, up_I, biases):
    return torch.nn.functional.silu(gate_I) * up_I


def clamped_gate(gate_I, up_I, biases):
    """gpt_oss: biases, both clamped at 7, gate * sigmoid(1.702 gate) * (up + 1)."""
    gate_bias_I, up_bias_I = biases
    gate_I, up_I = (gate_I + gate_bias_I).clamp(max=7), (up_I + up_bias_I).clamp(-7, 7)
    return gate_I * torch.sigmoid(1.702 * gate_I) * (up_I + 1)


def gathered(name, tokens=TOKENS, **changes):
    """A layer, its sites, their statistics, and what its experts module was called with."""
    module, seen = tiny(name, **changes), []
    layer = find_layers(module)[1][LAYER]
    experts = next(m for n, m in layer.named_modules() if n.endswith(".experts"))
    handle = experts.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((*args, *kwargs.values())), with_kwargs=True
    )
    ids = torch.randint(3, 128, (1, tokens), generator=torch.Generator().manual_seed(1))
    sites = [site for site in find_sites(module) if site.layer == LAYER]
    stats = gather(layer, sites, lambda: module(ids, use_cache=False))
    handle.remove()
    return layer, experts, {site: stats[site] for site in sites if site.expert is not None}, seen


def inputs_by_hand(name, layer, experts, seen, sites):
    """For every expert, lists of the vectors that enter gate and up, and down."""
    by_role = {(s.expert, s.role): read_site(layer, s) for s in sites}
    count = max(s.expert for s in sites) + 1
    found = {e: ([], []) for e in range(count)}
    ((hidden, *routing),) = seen
    for t in range(TOKENS):
        for e in range(count):
            x_D = hidden.view(count, TOKENS, -1)[e, t] if name == "llama4_text" else hidden.view(TOKENS, -1)[t]
            chosen = x_D.abs().sum() > 0 if name == "llama4_text" else e in routing[0][t].tolist()
            if chosen:
                act, biases = silu_gate, None
                if name == "gpt_oss":
                    bias = experts.gate_up_proj_bias[e]
                    act, biases = clamped_gate, (bias[0::2], bias[1::2])
                found[e][0].append(x_D)
                found[e][1].append(act(by_role[e, "gate"] @ x_D, by_role[e, "up"] @ x_D, biases))
    return found


@pytest.mark.case("C3")
@pytest.mark.parametrize("name", MIXTURES)
def test_an_experts_statistics_are_of_the_tokens_routed_to_it(name):
    layer, experts, stats, seen = gathered(name)
    found = inputs_by_hand(name, layer, experts, seen, list(stats))
    for site, own in stats.items():
        rows = found[site.expert][site.role == "down"]
        assert own.n_tokens == len(rows), site.name
        if rows:
            want = InputStats.from_inputs(torch.stack(rows))
            torch.testing.assert_close(own.hessian_II, want.hessian_II, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(own.sum_abs_I, want.sum_abs_I, rtol=1e-4, atol=1e-4)
    for role in ("gate", "up", "down"):
        counts = [own.n_tokens for site, own in stats.items() if site.role == role]
        assert sum(counts) == TOKENS * TOP_K.get(name, 2) and max(counts) < TOKENS
    assert all(own.in_features == site.in_features for site, own in stats.items())


def test_gate_and_up_share_their_statistics_and_experts_do_not():
    stats = gathered("mixtral")[2]
    by_name = {site.name.removeprefix("layers.1.ffn."): id(own) for site, own in stats.items()}
    assert by_name["gate.expert0"] == by_name["up.expert0"] != by_name["gate.expert1"]
    assert len(set(by_name.values())) == 2 * 4


def test_what_down_gives_back_is_what_the_module_gives_back():
    """The inputs of down, times down, times the router's weights, add up to the output of the experts module."""
    layer, experts, stats, seen = gathered("qwen3_moe")
    hidden_TD, index_TK, weight_TK = seen[0]
    found = inputs_by_hand("qwen3_moe", layer, experts, seen, list(stats))
    down = {site.expert: read_site(layer, site) for site in stats if site.role == "down"}
    out_TD = torch.zeros_like(hidden_TD)
    for e, (_, inner) in found.items():
        for t, a_I in zip((index_TK == e).any(1).nonzero()[:, 0].tolist(), inner, strict=True):
            out_TD[t] += weight_TK[t][index_TK[t] == e] * (down[e] @ a_I)
    torch.testing.assert_close(out_TD, experts(hidden_TD, index_TK, weight_TK), rtol=1e-4, atol=1e-5)


@pytest.mark.case("C4")
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_experts_with_few_tokens_are_rounded_to_nearest_and_say_so(method):
    layer, _, stats, _ = gathered("mixtral", tokens=TOKENS, num_local_experts=8)
    ranges = {"gptq": "half", "awq": "qmax"}
    scheme = Scheme(method=method, group_size=32)
    weigher = Weigher(list(stats))
    weights = weigher.weights(tuple((site, scheme, 0) for site in stats), layer, {0: stats})
    few = {site for site, own in stats.items() if own.n_tokens < FEW_TOKENS}
    assert 0 < len(few) < len(stats)
    for site, own in stats.items():
        facts = weigher.facts[site.name, scheme, 0]
        assert facts["calibration_tokens"] == own.n_tokens
        plain_OI = quantize(read_site(layer, site), Scheme(group_size=32, range=ranges[method])).dequantize()
        assert torch.equal(weights[site], plain_OI) == (site in few)
        assert facts.get("fallback") == ("rtn" if site in few else None)
        if site in few:
            assert facts["fallback_reason"] == f"{own.n_tokens} calibration tokens, fewer than {FEW_TOKENS}"


def test_columns_kept_in_16_bits_are_then_chosen_by_their_weights():
    layer, _, stats, _ = gathered("mixtral", tokens=2)
    site = next(iter(stats))
    for method in ("rtn", "gptq"):
        scheme = Scheme(method=method, group_size=32, range="half", keep_columns=3)
        w_OI = Weigher([site]).weights(((site, scheme, 0),), layer, {0: stats})[site]
        before_OI = read_site(layer, site)
        kept = (w_OI == before_OI.half()).all(0).nonzero()[:, 0].tolist()
        assert sorted(before_OI.abs().amax(0).topk(3).indices.tolist()) == kept
