"""Notes on architectures, each told from the model's behaviour."""

import pytest
import torch

from harness.model.notes import TreeLimits, architecture_notes, tree_limits
from harness.model.sites import find_layers, find_sites, read_site, write_site
from tests.model.architectures import EVERY, tiny, tiny_config

WINDOWS = ["gemma2", "gemma3_text", "gpt_oss", "cohere2", "llama4_text", "mistral_window"]
ALIBI = ["bloom", "falcon_alibi"]
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0}
LONGROPE |= {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "original_max_position_embeddings": 16}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
CHANGING_ROPES = [
    ("phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 16}, 16),
    ("llama", {"rope_parameters": DYNAMIC}, 64),
]


def tree(context, branches):
    """A context and its branches in one sequence: token ids, additive mask, position ids by path."""
    owner = [0] * len(context) + [k for k, branch in enumerate(branches, start=1) for _ in branch]
    place = list(range(len(context))) + [len(context) + i for branch in branches for i in range(len(branch))]
    owner = torch.tensor(owner)
    sees = torch.ones(len(owner), len(owner)).tril().bool() & ((owner[:, None] == owner) | (owner == 0))
    mask = torch.zeros(1, 1, *sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)
    ids = torch.tensor([context + [t for branch in branches for t in branch]])
    return {"input_ids": ids, "position_ids": torch.tensor([place]), "attention_mask": mask}


@torch.no_grad()
def worst_difference(model, depth):
    """Largest difference of logits, packed against alone, for branches of two lengths; the longer path is `depth`."""
    generator = torch.Generator().manual_seed(0)
    context, *branches = (
        torch.randint(3, 128, (n,), generator=generator).tolist() for n in (6, depth - 6, depth - 10, depth - 6)
    )
    packed = model(**tree(context, branches), use_cache=False).logits[0, len(context) :]
    alone = [model(torch.tensor([context + branch]), use_cache=False).logits[0, len(context) :] for branch in branches]
    return ((packed - torch.cat(alone)).abs().max() / packed.abs().max()).item()


@pytest.mark.parametrize("name", [n for n in EVERY if n not in ALIBI])
def test_trees_within_the_limit_score_like_separate_sequences(name):
    model = tiny(name)
    limits = architecture_notes(model).tree
    assert limits.depth == (16 if name in WINDOWS else None)
    depth = limits.depth or 40
    tokens = 3 * depth - 16  # the pack as a whole is longer than any window
    assert limits.tokens is None or tokens <= limits.tokens
    assert worst_difference(model, depth) < 1e-5


@pytest.mark.parametrize("name", WINDOWS)
def test_the_depth_limit_is_sharp(name):
    assert worst_difference(tiny(name), 17) > 1e-3


@pytest.mark.parametrize("name, rope, limit", CHANGING_ROPES)
def test_rotary_tables_that_change_with_length(name, rope, limit):
    model = tiny(name, **rope)
    assert tree_limits(model.config) == TreeLimits(tokens=None, depth=limit)
    assert worst_difference(model, limit) < 1e-5
    assert worst_difference(model, limit + 1) > 1e-4


def test_temperature_tuning_counts_places_in_the_pack():
    model = tiny("llama4_text", floor_scale=30)
    assert tree_limits(model.config) == TreeLimits(tokens=29, depth=16)
    assert worst_difference(model, 16) > 1e-3  # 32 tokens
    assert worst_difference(model, 15) < 1e-5  # 29 tokens
    assert tree_limits(tiny_config("llama4_text", attn_temperature_tuning=False)).tokens is None


@pytest.mark.parametrize("name", ALIBI)
def test_alibi_never_takes_a_tree(name):
    model = tiny(name)
    assert architecture_notes(model).tree == TreeLimits(tokens=0, depth=0)
    with pytest.raises(ValueError, match="unpack"):
        worst_difference(model, 16)


def test_windows_are_read_from_the_config():
    assert tree_limits(tiny_config("llama")).depth is None
    assert tree_limits(tiny_config("gpt_oss")).depth == 16
    assert tree_limits(tiny_config("qwen2", sliding_window=16)).depth is None  # needs use_sliding_window too
    assert (
        tree_limits(tiny_config("qwen2", sliding_window=16, use_sliding_window=True, max_window_layers=1)).depth == 16
    )
    assert tree_limits(tiny_config("mixtral", sliding_window=16)).depth == 16
    assert tree_limits(tiny_config("llama4_text", floor_scale=10)).tokens == 9


@pytest.mark.parametrize("name", EVERY)
def test_what_layers_return_and_which_attention_runs(name):
    model = tiny(name)
    notes = architecture_notes(model)
    returned = []
    for layer in find_layers(model)[1]:
        layer.register_forward_hook(lambda _, __, output: returned.append(isinstance(output, tuple)))
    model(torch.tensor([[5, 6, 7]]), use_cache=False)
    assert returned == [notes.layers_return_tuple] * 2
    assert model.config._attn_implementation == ("eager" if notes.eager_only else "sdpa")


@pytest.mark.parametrize("name", EVERY)
def test_norm_offset(name):
    """A norm whose weight is zero gives zero, unless it multiplies by 1 + weight."""
    model = tiny(name)
    modules = find_layers(model)[1][0].modules()
    norms = [m for m in modules if "norm" in type(m).__name__.lower() and hasattr(m, "weight")]
    assert norms
    for norm in norms:
        for parameter in norm.parameters():
            parameter.zero_()
        assert norm(torch.randn(3, norm.weight.numel())).any().item() == bool(architecture_notes(model).norm_offset)


@pytest.mark.case("C15")
@pytest.mark.parametrize("name", ["gemma2", "gemma3_text", "llama"])
def test_folding_a_scale_into_a_norm_respects_its_offset(name):
    model, ids = tiny(name), torch.arange(3, 20)[None]
    before = model(ids, use_cache=False).logits
    offset = architecture_notes(model).norm_offset
    layer = find_layers(model)[1][0]
    scale_I = torch.linspace(0.5, 2, 64)
    for site in find_sites(model)[:3]:
        write_site(layer, site, read_site(layer, site) * scale_I)
    weight = layer.input_layernorm.weight
    plain = weight / scale_I
    weight.copy_((offset + weight) / scale_I - offset)
    folded = model(ids, use_cache=False).logits
    torch.testing.assert_close(folded, before, rtol=0, atol=1e-5)
    weight.copy_(plain)
    assert ((model(ids, use_cache=False).logits - before).abs().max() > 0.1) == bool(offset)
