"""The exact re-parameterization: other weights, the same function."""

import pytest
import torch
from gguf import GGMLQuantizationType as Ggml
from gguf import quants

from harness.config import OffGrid
from harness.errors import UserError
from harness.model.lattice import find_lattice
from harness.model.offgrid import LLAMA_SHAPED, layer_factors, off_grid
from harness.model.sites import find_layers, find_sites, read_site
from tests.model.architectures import tiny


def moved(module, **how):
    """The model with re-parameterized weights, loaded strictly."""
    other = tiny_like(module)
    other.load_state_dict(off_grid(module.state_dict(), module.config.to_dict(), OffGrid(**{"sigma": 0.1, **how})))
    return other


def tiny_like(module):
    return type(module)(module.config).eval().requires_grad_(False)


def block_weights(module):
    layers = find_layers(module)[1]
    return {site.name: read_site(layers[site.layer], site) for site in find_sites(module)}


@pytest.mark.parametrize("name", [*LLAMA_SHAPED, "llama_biased"])
def test_same_function_other_weights(name):
    module = tiny(name)
    other = moved(module)
    ids = torch.randint(0, 128, (3, 40), generator=torch.Generator().manual_seed(0))
    plain = module(ids).logits
    assert plain.std() > 0.1
    torch.testing.assert_close(other(ids).logits, plain, atol=5e-5, rtol=0)
    after = block_weights(other)
    for site, w_OI in block_weights(module).items():
        ratio = (after[site] / w_OI).log()
        assert 0.05 < ratio.std() < 0.25, site  # sigma 0.1, or 0.14 where rows and columns move
        assert ratio[0].unique().numel() > 8, site  # the columns of one row move apart, so no group keeps its grid


def test_larger_factors_stay_exact():
    module = tiny("llama")
    ids = torch.arange(40)[None]
    torch.testing.assert_close(moved(module, sigma=0.5).forward(ids).logits, module(ids).logits, atol=5e-5, rtol=0)


@pytest.mark.case("B4")
def test_tied_embedding_is_not_folded():
    module = tiny("llama_biased")
    assert module.config.tie_word_embeddings
    state = off_grid(module.state_dict(), module.config.to_dict(), OffGrid(sigma=0.1))
    for name in ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"):
        assert torch.equal(state[name], module.state_dict()[name])


def test_factors_come_from_the_seed_and_the_layer():
    config = tiny("llama").config.to_dict()
    first, again = (layer_factors(config, 0, OffGrid(0.1, 3))["up_proj"][0] for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, layer_factors(config, 1, OffGrid(0.1, 3))["up_proj"][0])
    assert not torch.equal(first, layer_factors(config, 0, OffGrid(0.1, 4))["up_proj"][0])


def test_global_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    layer_factors(tiny("llama").config.to_dict(), 0, OffGrid(0.1))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_shards_are_treated_alone():
    module = tiny("llama")
    state, config = module.state_dict(), module.config.to_dict()
    whole = off_grid(state, config, OffGrid(sigma=0.1))
    for name, tensor in state.items():
        assert torch.equal(off_grid({name: tensor}, config, OffGrid(sigma=0.1))[name], whole[name])


def test_query_heads_share_the_factors_of_their_kv_head():
    config = tiny("llama").config.to_dict()  # 4 heads, 2 KV heads, head_dim 16
    factors = layer_factors(config, 0, OffGrid(sigma=0.1))
    rows_K, columns_I = factors["v_proj"][0], factors["o_proj"][1]
    heads = columns_I.view(4, 16)
    assert torch.equal(heads[0], heads[1])
    assert torch.equal(heads[::2], rows_K.view(2, 16))


def test_the_lattice_is_gone():
    module = tiny("llama")
    state = {
        name: torch.from_numpy(quants.dequantize(quants.quantize(w.numpy(), Ggml.Q4_1), Ggml.Q4_1))
        if w.dim() > 1
        else w
        for name, w in module.state_dict().items()
    }
    after = off_grid(state, module.config.to_dict(), OffGrid(sigma=0.1))
    for name, w_OI in state.items():
        if "_proj" in name:
            assert find_lattice(w_OI) == "int4 asymmetric groups of 32"
            assert find_lattice(after[name]) == ""


@pytest.mark.parametrize("name", ["gemma2", "phi3", "gpt2"])
def test_refuses_other_architectures(name):
    module = tiny(name)
    with pytest.raises(UserError, match=f"model_type='{module.config.model_type}'.*off_grid.sigma=0"):
        off_grid(module.state_dict(), module.config.to_dict(), OffGrid(sigma=0.1))
