"""Fused matrices are cut where the model itself cuts them: told from the model's behaviour, not from its code.

Attention, one fused output row r, the attention's result y of the last token, g = d(sum y)/d(row r at position p):

    q   g is zero at every position but the last: an earlier token's query cannot matter to the last token
    v   sum over p of g = H/K: y is a weighted mean of values, and H/K query heads read each value row
    k   neither

FFN f as a function of its gate or up weights: f(2 up) - f(up) = f(up) - f(0 up), as f is affine in up; it is not in
gate, and a closed gate gives f = 0.
"""

import pytest
import torch
from torch import nn

from harness.model.sites import find_layers, find_sites, read_site, substituted
from tests.model.architectures import EVERY, tiny

FUSED_QKV = ["phi3", "gpt2", "gpt_neox", "bloom", "falcon", "falcon_alibi", "falcon_multi_query", "falcon_per_head"]
GATED = [n for n in EVERY if n not in {"starcoder2", "opt", *FUSED_QKV}] + ["phi3"]
EXPERTS = ["mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "llama4_text"]
TOKENS = torch.randint(3, 128, (1, 10), generator=torch.Generator().manual_seed(1))


def sites_of(model, layer, block, *roles):
    return [s for s in find_sites(model) if (s.layer, s.block) == (layer, block) and s.role in roles]


def rows_by_behaviour(model, fused, output):
    """Role of every row of the fused projection in layer 0."""
    seen = {}
    handles = [
        fused.register_forward_hook(lambda _, __, out: seen.update(qkv=out.requires_grad_())),
        output.register_forward_pre_hook(lambda _, args: seen.update(y=args[0])),
    ]
    model(TOKENS, use_cache=False)
    for handle in handles:
        handle.remove()
    (gradient_TR,) = torch.autograd.grad(seen["y"][0, -1].sum(), seen["qkv"])
    gradient_TR = gradient_TR[0]
    heads = model.config.num_attention_heads
    width = model.config.hidden_size // heads
    queries_per_value = 2 * heads * width / (len(gradient_TR[0]) - heads * width)
    is_q = (gradient_TR[:-1] == 0).all(0)
    is_v = (gradient_TR.sum(0) - queries_per_value).abs() < 1e-4
    assert not (is_q & is_v).any()
    return {"q": is_q, "v": is_v, "k": ~is_q & ~is_v}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.case(case))
        for n, case in zip(FUSED_QKV, ["C11", "C10", "C12", "C12", "C12", "C12", "C12", "C12"], strict=True)
    ],
)
def test_fused_qkv_rows(name):
    # Eager, since fused attention kernels leave rounding where a gradient is exactly zero.
    model = tiny(name, attn_implementation="eager")
    layer = find_layers(model)[1][0]
    (q, k, v, o) = sites_of(model, 0, "attention", "q", "k", "v", "o")
    assert q.module == k.module == v.module
    behaviour = rows_by_behaviour(model, layer.get_submodule(q.module), layer.get_submodule(o.module))
    for site in (q, k, v):
        rows = torch.zeros_like(behaviour["q"])
        for part in site.slices:
            rows[part] = True
        assert torch.equal(rows, behaviour[site.role]), site.name


@pytest.mark.case("C11")
def test_phi3_is_cut_by_head_counts_not_in_thirds():
    q, k, v = sites_of(tiny("phi3"), 0, "attention", "q", "k", "v")
    assert (q.rows, k.rows, v.rows) == ((range(64),), (range(64, 96),), (range(96, 128),))
    gate, up = sites_of(tiny("phi3"), 0, "ffn", "gate", "up")
    assert (gate.rows, up.rows) == ((range(96),), (range(96, 192),))


@pytest.mark.case("C12")
def test_gpt_neox_is_cut_per_head_whatever_else_its_config_says():
    q, k, v = sites_of(tiny("gpt_neox", num_key_value_heads=2), 0, "attention", "q", "k", "v")
    assert q.rows == tuple(range(48 * head, 48 * head + 16) for head in range(4))
    assert v.rows == tuple(range(48 * head + 32, 48 * head + 48) for head in range(4))
    assert k.out_features == 64


@pytest.mark.case("C10")
def test_gpt2_matrices_are_read_transposed():
    model = tiny("gpt2")
    layer = find_layers(model)[1][0]
    assert layer.attn.c_attn.weight.shape == (64, 192)
    up, down = sites_of(model, 0, "ffn", "up", "down")
    assert (up.out_features, up.in_features, down.out_features, down.in_features) == (96, 64, 64, 96)
    x_TI = torch.randn(3, 64)
    expected_TO = nn.functional.linear(x_TI, read_site(layer, up), layer.mlp.c_fc.bias)
    torch.testing.assert_close(layer.mlp.c_fc(x_TI), expected_TO)


@pytest.mark.parametrize("name", GATED)
def test_gate_and_up(name):
    model = tiny(name)
    last = find_layers(model)[1][1]
    ffn = last.get_submodule("feed_forward" if name == "llama4_text" else "mlp")
    x_TD = torch.randn(1, 12, 64, generator=torch.Generator().manual_seed(2)) / 2  # below gpt_oss's clamp
    for bias in (p for n, p in ffn.named_parameters() if n.endswith("bias")):
        bias.zero_()  # a bias keeps a gate open

    def scaled(role, factor):
        weights = {s: factor * read_site(last, s) for s in sites_of(model, 1, "ffn", role)}
        with substituted(last, weights):
            out = ffn(x_TD)
        return out[0] if isinstance(out, tuple) else out

    plain, scale = scaled("up", 1), scaled("up", 1).abs().max()
    bend = {r: ((scaled(r, 2) - plain) - (plain - scaled(r, 0))).abs().max() / scale for r in ("gate", "up", "down")}
    assert bend["up"] < 1e-5 and bend["down"] < 1e-5 and bend["gate"] > 1e-2
    assert not scaled("gate", 0).any() and not scaled("down", 0).any()


@pytest.mark.case("C2")
@pytest.mark.parametrize("name", EXPERTS)
def test_experts_are_read_along_their_real_input_axis(name):
    """Without input column 5 of gate and up, feature 5 is not seen; without row 7 of down, feature 7 is not written."""
    model = tiny(name)
    layer = find_layers(model)[1][1]
    ffn = layer.feed_forward if name == "llama4_text" else layer.mlp
    for bias in (p for n, p in ffn.experts.named_parameters() if n.endswith("bias")):
        bias.zero_()
    calls = []
    with ffn.experts.register_forward_pre_hook(lambda _, args, kwargs: calls.append((args, kwargs)), with_kwargs=True):
        model(TOKENS, use_cache=False)
    ((x_TD, *args), kwargs) = calls[0]
    other_TD = x_TD.clone()
    other_TD[:, 5] += 1
    into = {s: read_site(layer, s) for s in sites_of(model, 1, "ffn", "gate", "up") if s.expert is not None}
    out_of = {s: read_site(layer, s) for s in sites_of(model, 1, "ffn", "down") if s.expert is not None}
    assert len(into) == 2 * len(out_of) == 8
    assert not torch.equal(ffn.experts(x_TD, *args, **kwargs), ffn.experts(other_TD, *args, **kwargs))
    for w_OI in into.values():
        w_OI[:, 5] = 0
    for w_OI in out_of.values():
        w_OI[7] = 0
    with substituted(layer, into | out_of):
        y_TD = ffn.experts(x_TD, *args, **kwargs)
        torch.testing.assert_close(y_TD, ffn.experts(other_TD, *args, **kwargs), rtol=0, atol=0)
    assert not y_TD[:, 7].any() and y_TD[:, 6].any()


@pytest.mark.case("C2")
def test_expert_shapes():
    shapes = {
        s.role: (s.out_features, s.in_features) for s in sites_of(tiny("gpt_oss"), 0, "ffn", "gate", "up", "down")
    }
    assert shapes == {"gate": (32, 64), "up": (32, 64), "down": (64, 32)}


@pytest.mark.case("C1")
@pytest.mark.parametrize("name, linear_share", [("mixtral", 0.14), ("qwen3_moe", 0.33)])
def test_looking_for_linears_would_miss_most_of_a_mixture(name, linear_share):
    model = tiny(name, num_experts=4) if name == "qwen3_moe" else tiny(name)
    total = sum(site.weights for site in find_sites(model))
    linears = sum(m.weight.numel() for m in find_layers(model)[1].modules() if isinstance(m, nn.Linear))
    assert linears / total == pytest.approx(linear_share, abs=0.01)
