"""One test for all architectures: whatever the layout of a model, the engine computes what the model computes.

For every entry of the table in tests/model/architectures.py: layer by layer equals the plain forward bit for bit;
packed trees score like separate sequences (or the documented fallback to plain ones is taken); every arm of a 2 x 2
scores like a model whose sites were overwritten by hand; and quantizing a block changes that block and nothing else.
"""

import numpy as np
import pytest
import torch

from harness.config import ArmsRule, DesignConfig, EngineConfig, QuantConfig, RunConfig
from harness.cut import form_packs
from harness.design import build_arms
from harness.model.load import Model
from harness.model.sites import find_layers, read_site, substituted, write_site
from harness.packs import TokenSequence, batches, slots
from harness.plan import base_arm, resolve
from harness.quantize import quantize
from harness.replay import head_logits, push, record
from harness.scheme import Scheme
from harness.stream import Stream
from harness.weigh import Weigher
from tests.model.architectures import EVERY, tiny

every = pytest.mark.parametrize("name", EVERY)

ALIBI = ("bloom", "falcon_alibi")  # take no tree mask
WINDOW = 16  # of the tiny models that have one: deeper trees would see past it
INT4 = Scheme(group_size=8)
CONFIG = RunConfig(engine=EngineConfig(pack_tokens=48, batch_tokens=128))


def questions():
    """Contexts with three answers each, shorter and longer than the window, some answers of one token."""
    rng = np.random.default_rng(0)
    made = []
    for length in (1, 4, 9, 12, 20, 33):
        context = rng.integers(3, 128, length).tolist()
        for answer in (1, 3, 5):
            made.append(TokenSequence((*context, *rng.integers(3, 128, answer).tolist()), length))
    return made


def streamed(module, arms):
    """The engine's scores, and whether it packed trees."""
    model, given = Model.from_module(module), questions()
    packs = form_packs(CONFIG, model, given)
    scores = Stream(model, arms, Weigher(), CONFIG.engine).score(list(batches(packs, 128)), int(slots(given)[-1]))
    return scores, packs


def separate(module):
    """Log-probabilities of the scored tokens by the model's own forward, one sequence at a time."""
    found = []
    for sequence in questions():
        logp_TV = module(torch.tensor([sequence.tokens[:-1]]), use_cache=False).logits[0].log_softmax(-1)
        target = torch.tensor(sequence.tokens[sequence.start :])
        found.append(logp_TV[sequence.start - 1 :].gather(1, target[:, None])[:, 0])
    return torch.cat(found).numpy()


def two_by_two(module):
    plan = resolve(Model.from_module(module).sites, QuantConfig(ffn=INT4, attention=INT4)).plan
    return build_arms(plan, DesignConfig(arms=ArmsRule.all), 2)


@every
def test_layer_by_layer_equals_the_plain_forward_bit_for_bit(name):
    module = tiny(name)
    model = Model.from_module(module)
    ids = torch.randint(3, 128, (3, 24), generator=torch.Generator().manual_seed(0))  # more tokens than positions
    with torch.inference_mode():
        want = module(ids, use_cache=False).logits
        recorded = record(model, {"input_ids": ids})
        hidden = recorded.hidden_BTD
        for i, call in enumerate(recorded.calls):
            with model.layer(i) as layer:
                hidden = push(layer, hidden, call)
        got = head_logits(model, hidden.reshape(-1, model.hidden_size)).reshape(want.shape)
    assert torch.equal(got, want)
    assert model.module.config._attn_implementation == ("eager" if model.notes.eager_only else "sdpa")


@every
@pytest.mark.case("C18")
def test_packed_trees_score_like_separate_sequences(name):
    module = tiny(name)
    scores, packs = streamed(module, [base_arm()])
    np.testing.assert_allclose(scores.logp_AS[0], separate(module), atol=1e-5)
    depth = Model.from_module(module).notes.tree.depth
    assert any(pack.is_tree for pack in packs) == (name not in ALIBI)
    assert all(max(pack.position) < (depth or 64) for pack in packs if pack.is_tree)


@every
def test_every_arm_scores_like_a_model_quantized_by_hand(name):
    module = tiny(name)
    arms = two_by_two(module)
    scores, _ = streamed(module, arms)
    assert [arm.name for arm in arms] == ["base", "ffn", "attention", "both"]
    for a, arm in enumerate(arms):
        copy = tiny(name)
        layers = find_layers(copy)[1]
        for site, scheme in arm.plan.items():
            layer = layers[site.layer]
            write_site(layer, site, quantize(read_site(layer, site), scheme).dequantize())
        np.testing.assert_allclose(scores.logp_AS[a], separate(copy), atol=1e-5, err_msg=arm.name)
    assert np.abs(scores.logp_AS[1:] - scores.logp_AS[0]).max(axis=1).min() > 1e-3


@every
@pytest.mark.case("B7")
def test_quantizing_a_block_changes_that_block_and_nothing_else(name):
    module = tiny(name)
    layers = find_layers(module)[1]
    before = {n: p.clone() for n, p in module.named_parameters()}
    for arm in two_by_two(module)[1:]:
        for i, layer in enumerate(layers):
            own = {site: read_site(layer, site) for site, _, _ in arm.treatment(i)}
            with substituted(layer, Weigher().weights(arm.treatment(i), layer)):
                for site, w_OI in own.items():
                    assert (read_site(layer, site) != w_OI).float().mean() > 0.9, site.name
                    write_site(layer, site, w_OI)
                assert all(torch.equal(p, before[n]) for n, p in module.named_parameters()), "more than the sites"
