"""Sites of every architecture: all block matrices, each once, and writing one touches nothing else."""

import copy

import pytest
import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from harness.errors import UserError
from harness.model.sites import find_extra_sites, find_layers, find_sites, read_site, substituted, write_site
from tests.model.architectures import ARCHITECTURES, EVERY, tiny, tiny_config

every = pytest.mark.parametrize("name", EVERY)

# What decoder layers hold in matrices besides the sites: routers (4 x 64) and, in gpt_oss, the experts' bias tables.
ROUTER = 4 * 64
LEFT_ALONE = {
    "mixtral": 2 * ROUTER,
    "qwen3_moe": 2 * ROUTER,
    "deepseek_v3": ROUTER,
    "deepseek_v3_plain_q": ROUTER,
    "llama4_text": ROUTER,
    "gpt_oss": 2 * (ROUTER + 4 * (2 * 32 + 64)),
}


def snapshot(model):
    return {name: p.detach().clone().view(torch.int32) for name, p in model.named_parameters()}


def changed(model, before):
    """Name -> mask of the elements whose bits differ."""
    masks = {name: p.detach().view(torch.int32) != before[name] for name, p in model.named_parameters()}
    return {name: mask for name, mask in masks.items() if mask.any()}


@every
@pytest.mark.case("C1")
def test_every_block_matrix_is_covered_once(name):
    model = tiny(name)
    _, layers = find_layers(model)
    sites = find_sites(model)
    for parameter in layers.parameters():
        parameter.zero_()
    for site in sites:
        write_site(layers[site.layer], site, read_site(layers[site.layer], site) + 1)
    matrices = [p for p in layers.parameters() if p.dim() > 1]
    assert all(set(p.unique().tolist()) in ({0.0}, {1.0}) for p in matrices), "a matrix in part, or twice"
    total = sum(p.numel() for p in matrices)
    assert sum(site.weights for site in sites) == sum(int(p.sum()) for p in matrices) == total - LEFT_ALONE.get(name, 0)
    assert len({site.name for site in sites}) == len(sites)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_counts_add_up_to_the_whole_model(name):
    model = tiny(name)
    _, layers = find_layers(model)
    extra, tied = find_extra_sites(model)
    outside = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in layers.parameters())
    matrices = sum(site.weights for site in extra[: 1 if tied else 2])
    norms_and_positions = sum(
        p.numel() for n, p in model.named_parameters() if "norm" in n.split(".")[-2] and ".layers." not in n
    )
    assert matrices == (1 if tied else 2) * 128 * 64
    assert outside - matrices == OUTSIDE.get(name, norms_and_positions)


# Final norm with bias; gpt2: ln_f and 64 positions; opt: 64 + 2 positions; granite and others: a final RMSNorm.
OUTSIDE = {"gpt2": 2 * 64 + 64 * 64, "opt": 2 * 64 + 66 * 64, "falcon": 2 * 64}


@every
@pytest.mark.case("B7")
def test_writing_one_site_changes_exactly_its_weights(name):
    model = tiny(name)
    _, layers = find_layers(model)
    before = snapshot(model)
    for site in find_sites(model):
        layer = layers[site.layer]
        old_OI = read_site(layer, site)
        with substituted(layer, {site: -old_OI}):
            masks = list(changed(model, before).values())
            assert [int(mask.sum()) for mask in masks] == [site.weights], site.name
            assert torch.equal(read_site(layer, site), -old_OI)
        assert not changed(model, before), site.name


@pytest.mark.case("B7")
@pytest.mark.parametrize("name", ["phi3", "gpt_neox", "gpt2", "gpt_oss"])
@pytest.mark.parametrize("block", ["ffn", "attention"])
def test_writing_one_block_changes_exactly_that_block(name, block):
    model = tiny(name)
    path, layers = find_layers(model)
    before = snapshot(model)
    chosen = [site for site in find_sites(model) if site.block == block]
    for site in chosen:
        write_site(layers[site.layer], site, -read_site(layers[site.layer], site))
    masks = changed(model, before)
    expected = {f"{path}.{site.layer}.{site.module}.{site.parameter}" for site in chosen}
    assert set(masks) == expected
    assert all(mask.all() for mask in masks.values())


@every
@pytest.mark.parametrize("empty", ["meta", "accelerate"])
def test_a_skeleton_without_weights_has_the_same_sites(name, empty):
    model = tiny(name)
    with torch.device("meta") if empty == "meta" else init_empty_weights(include_buffers=False):
        skeleton = AutoModelForCausalLM.from_config(tiny_config(name))
    assert find_sites(skeleton) == find_sites(model)
    assert find_extra_sites(skeleton) == find_extra_sites(model)


def test_names_follow_layer_block_expert_role():
    names = [site.name for site in find_sites(tiny("deepseek_v3"))]
    assert names[:8] == [f"layers.0.attention.{role}" for role in ("q_a", "q_b", "kv_a", "kv_b", "o")] + [
        f"layers.0.ffn.{role}" for role in ("gate", "up", "down")
    ]
    assert names[13:20] == [
        "layers.1.ffn.gate.shared",
        "layers.1.ffn.up.shared",
        "layers.1.ffn.down.shared",
        "layers.1.ffn.gate.expert0",
        "layers.1.ffn.up.expert0",
        "layers.1.ffn.down.expert0",
        "layers.1.ffn.gate.expert1",
    ]


@pytest.mark.case("C8")
@pytest.mark.parametrize("name", LEFT_ALONE)
def test_the_router_is_no_site(name):
    model = tiny(name)
    routers = [n for n, _ in find_layers(model)[1].named_modules() if n.endswith(("mlp.gate", ".router"))]
    assert len(routers) == LEFT_ALONE[name] // ROUTER or name == "gpt_oss"
    assert not {f"{site.layer}.{site.module}" for site in find_sites(model)} & set(routers)


@pytest.mark.case("C8")
def test_llama4_router_would_pass_for_a_linear():
    layer = find_layers(tiny("llama4_text"))[1][1]
    assert isinstance(layer.feed_forward.router, nn.Linear)


@pytest.mark.case("C13")
def test_grouped_query_heads_give_narrow_k_and_v():
    shapes = {site.role: (site.out_features, site.in_features) for site in find_sites(tiny("qwen3"))}
    assert shapes == {
        **{"q": (96, 64), "k": (48, 64), "v": (48, 64), "o": (64, 96)},
        **{"gate": (96, 64), "up": (96, 64), "down": (64, 96)},
    }


def test_read_is_a_contiguous_copy_and_write_rounds_to_the_stored_dtype():
    model = tiny("gpt2").to(torch.bfloat16)
    layer = find_layers(model)[1][0]
    site = find_sites(model)[0]
    w_OI = read_site(layer, site)
    assert w_OI.is_contiguous() and w_OI.dtype == torch.bfloat16
    w_OI.zero_()
    assert read_site(layer, site).any()
    exact_OI = torch.randn(site.out_features, site.in_features)
    write_site(layer, site, exact_OI)
    assert torch.equal(read_site(layer, site), exact_OI.bfloat16())


def test_substituted_restores_after_an_error():
    model = tiny("phi3")
    layer, before = find_layers(model)[1][0], snapshot(model)
    first, second = find_sites(model)[:2]
    with (
        pytest.raises(AssertionError),
        substituted(layer, {first: read_site(layer, first) * 2, second: torch.zeros(1)}),
    ):
        pass
    with pytest.raises(RuntimeError), substituted(layer, {first: read_site(layer, first) * 2}):
        raise RuntimeError
    assert not changed(model, before)


def test_embedding_and_head():
    model = tiny("llama")
    (embedding, head), tied = find_extra_sites(model)
    assert not tied and (embedding.name, head.name) == ("embedding", "head")
    assert (head.out_features, head.in_features, head.module) == (128, 64, "lm_head")
    assert torch.equal(read_site(model, embedding), model.model.embed_tokens.weight)
    assert find_extra_sites(tiny("llama", tie_word_embeddings=True))[1]


@pytest.mark.case("C9")
def test_unknown_matrices_are_refused_by_name():
    model = tiny("llama")
    layer = find_layers(model)[1][1]
    layer.mlp.adapter = nn.Linear(64, 8)
    layer.side = nn.ModuleDict({"experts": nn.Linear(64, 8)})
    layer.table = nn.Parameter(torch.zeros(2, 3, 4))
    with pytest.raises(UserError) as refusal:
        find_sites(model)
    message = str(refusal.value)
    for name in ("table (2, 3, 4)", "mlp.adapter.weight (8, 64)", "side.experts.weight (8, 64)"):
        assert f"layers.1.{name}" in message
    assert "layers.0" not in message and "q_proj" not in message and len(message.splitlines()) <= 3


@pytest.mark.case("C9")
@pytest.mark.parametrize(
    "model_type, config, unknown",
    [
        ("codegen", {"n_embd": 64, "n_layer": 1, "n_head": 4, "rotary_dim": 8}, "attn.qkv_proj"),  # 4 interleaved cuts
        ("mpt", {"d_model": 64, "n_layers": 1, "n_heads": 4}, "attn.Wqkv"),
        ("mamba2", {"hidden_size": 64, "num_hidden_layers": 1, "num_heads": 8, "head_dim": 16}, "mixer.in_proj"),
    ],
)
def test_unknown_architectures_are_refused(model_type, config, unknown):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, vocab_size=128, **config))
    with pytest.raises(UserError, match=unknown):
        find_sites(model)


@pytest.mark.case("C9")
def test_a_known_name_in_an_unknown_model_or_shape_is_refused():
    phi3 = tiny("phi3")
    phi3.config.model_type = "phi9"
    with pytest.raises(UserError, match=r"phi9: .*\n.*qkv_proj"):
        find_sites(phi3)
    packed = tiny("llama")
    layer = find_layers(packed)[1][0]
    layer.mlp.up_proj.weight = nn.Parameter(torch.zeros(3072, 1))  # as 4-bit Linears keep their codes
    with pytest.raises(UserError, match=r"up_proj\.weight \(3072, 1\)"):
        find_sites(packed)


@pytest.mark.case("C2")
def test_expert_tables_without_a_known_axis_order_are_refused():
    model = tiny("llama4_text")
    experts = find_layers(model)[1][1].feed_forward.experts
    experts.__class__ = type("OtherExperts", (type(experts),), {})
    with pytest.raises(UserError, match=r"experts\.gate_up_proj \(4, 64, 96\)"):
        find_sites(model)


def test_models_without_one_list_of_decoder_layers_are_refused():
    with torch.device("meta"):
        bart = AutoModelForCausalLM.from_config(AutoConfig.for_model("bart", d_model=64, vocab_size=128))
    bart.config.num_hidden_layers = 5
    with pytest.raises(UserError, match="5 decoder layers"):
        find_layers(bart)


def test_a_copied_model_has_equal_sites():
    model = tiny("gpt_neox")
    assert find_sites(copy.deepcopy(model)) == find_sites(model)
    assert len({hash(site) for site in find_sites(model)}) == 12
