"""The engine against the model's own forward."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness.config import ArmsRule, DesignConfig, EngineConfig, QuantConfig
from harness.design import build_arms
from harness.errors import NonFiniteError, UserError
from harness.model.load import Model
from harness.model.sites import find_sites, read_site, write_site
from harness.packs import TokenSequence, batches, pack_plain, pack_trees, slots
from harness.plan import base_arm, resolve
from harness.quantize import quantize
from harness.replay import head_logits, model_inputs, push, record
from harness.scheme import Scheme
from harness.scoring import Scoring
from harness.stream import Stream
from harness.weigh import Weigher
from tests.model import architectures
from tests.runs import composed


def tiny(**changes):
    torch.manual_seed(0)
    shape = {
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    module = LlamaForCausalLM(LlamaConfig(**{**shape, **changes})).float().eval()
    for p in module.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.15)
    return module


def sequences(rng, count=9, longest=30):
    """Questions with three choices, and a few plain texts."""
    made = []
    for _ in range(count):
        context = tuple(rng.integers(0, 128, rng.integers(1, longest)))
        for _ in range(3):
            answer = tuple(rng.integers(0, 128, rng.integers(1, 5)))
            made.append(TokenSequence(tuple(int(t) for t in (*context, *answer)), len(context)))
    return made


def plain_logp(module, sequence):
    """Log-probabilities of the scored tokens by the model's own forward, one sequence at a time."""
    ids = torch.tensor([sequence.tokens])
    with torch.no_grad():
        logp = module(ids[:, :-1]).logits[0].log_softmax(-1)
    rows = range(sequence.start - 1, len(sequence.tokens) - 1)
    return [logp[r, sequence.tokens[r + 1]].item() for r in rows]


def all_plain(module, given):
    return np.concatenate([plain_logp(module, s) for s in given])


def stream_scores(module, arms, given, config=None, plain=False):
    config = config or EngineConfig()
    packs = pack_plain(given) if plain else pack_trees(given, 48)
    stream = Stream(Model.from_module(module), arms, Weigher(), config)
    return stream.score(list(batches(packs, 128)), int(slots(given)[-1])), stream


def two_by_two(module):
    plan = resolve(find_sites(module), QuantConfig(ffn=Scheme(group_size=32), attention=Scheme(group_size=32))).plan
    return build_arms(plan, DesignConfig(arms=ArmsRule.all), 2)


def test_layer_by_layer_is_bit_equal_to_the_plain_forward():
    module = tiny()
    model = Model.from_module(module)
    ids = torch.randint(0, 128, (3, 20))
    with torch.inference_mode():
        want = module(ids).logits
        recorded = record(model, {"input_ids": ids})
        hidden = recorded.hidden_BTD
        for i, call in enumerate(recorded.calls):
            with model.layer(i) as layer:
                hidden = push(layer, hidden, call)
        got = head_logits(model, hidden.reshape(-1, 64)).reshape(want.shape)
    assert torch.equal(got, want)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("plain", [True, False])
def test_base_scores_equal_separate_forwards(attention, plain):
    module = tiny(attn_implementation=attention)
    given = sequences(np.random.default_rng(0))
    scores, _ = stream_scores(module, [base_arm()], given, plain=plain)
    np.testing.assert_allclose(scores.logp_AS[0], all_plain(module, given), atol=1e-5)
    assert not scores.kl_AS.any() and scores.agree_AS.all()


def test_every_arm_equals_a_model_quantized_by_hand():
    given = sequences(np.random.default_rng(1))
    module = tiny()
    before = {name: p.clone() for name, p in module.named_parameters()}
    arms = two_by_two(module)
    scores, _ = stream_scores(module, arms, given)
    assert all(torch.equal(before[name], p) for name, p in module.named_parameters())
    base_all = None
    for a, arm in enumerate(arms):
        copy = tiny()
        for site, scheme in arm.plan.items():
            layer = copy.model.layers[site.layer]
            write_site(layer, site, quantize(read_site(layer, site), scheme).dequantize())
        np.testing.assert_allclose(scores.logp_AS[a], all_plain(copy, given), atol=1e-5)
        logp = [copy(torch.tensor([s.tokens[:-1]])).logits[0].log_softmax(-1)[s.start - 1 :] for s in given]
        whole = torch.cat(logp).detach()
        base_all = whole if base_all is None else base_all
        kl = (base_all.exp() * (base_all - whole)).sum(1)
        np.testing.assert_allclose(scores.kl_AS[a], kl, atol=1e-5)
        targets = torch.tensor([t for s in given for t in s.tokens[s.start :]])
        assert (scores.greedy_AS[a] == (whole.argmax(1) == targets).numpy()).all()
        assert (scores.agree_AS[a] == (whole.argmax(1) == base_all.argmax(1)).numpy()).all()


@pytest.mark.case("F1")
def test_scores_do_not_depend_on_batch_wave_or_packing():
    module = tiny()
    given = sequences(np.random.default_rng(2))
    arms = two_by_two(module)
    reference, _ = stream_scores(module, arms, given, plain=True)
    for batch_tokens in (1, 64, 1000):
        for packs in (pack_plain(given), pack_trees(given, 16), pack_trees(given, 300)):
            stream = Stream(Model.from_module(module), arms, Weigher(), EngineConfig(head_tokens=7))
            scores = stream.score(list(batches(packs, batch_tokens)), int(slots(given)[-1]))
            np.testing.assert_allclose(scores.logp_AS, reference.logp_AS, atol=1e-5)


def test_choices_that_share_a_position_have_the_scores_they_have_alone():
    """The end of a context predicts the first token of every choice, and its logits are made once."""
    module, rng = tiny(), np.random.default_rng(11)
    given = []
    for _ in range(5):
        context = tuple(map(int, rng.integers(0, 128, 6)))
        given += [TokenSequence((*context, *map(int, rng.integers(0, 128, size))), 6) for size in (1, 2, 1, 3)]
    arms = two_by_two(module)
    alone, _ = stream_scores(module, arms, given, plain=True)
    packs = pack_trees(given, 40)
    places, seen = sum(len(set(pack.at)) for pack in packs), []
    stream = Stream(Model.from_module(module), arms, Weigher(), EngineConfig(head_tokens=3))
    logp = stream._logp
    stream._logp = lambda way, hidden_ND: seen.append(len(hidden_ND)) or logp(way, hidden_ND)
    scores = stream.score(list(batches(packs, 64)), int(slots(given)[-1]))
    assert sum(seen) == places * len(arms) < int(slots(given)[-1]) * len(arms)
    np.testing.assert_allclose(scores.logp_AS, alone.logp_AS, atol=1e-5)
    np.testing.assert_allclose(scores.kl_AS, alone.kl_AS, atol=1e-5)
    np.testing.assert_array_equal(scores.greedy_AS, alone.greedy_AS)
    np.testing.assert_array_equal(scores.agree_AS, alone.agree_AS)


def test_waves_change_nothing():
    module, given = tiny(), sequences(np.random.default_rng(3))
    arms = two_by_two(module)
    one, stream_one = stream_scores(module, arms, given)
    many, stream_many = stream_scores(module, arms, given, EngineConfig(memory_gib=1e-4))
    assert stream_one.waves == 1 < stream_many.waves
    np.testing.assert_array_equal(one.logp_AS, many.logp_AS)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to"),
]


@pytest.mark.case("F14")
@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_out_of_memory_halves_the_wave_and_goes_on(monkeypatch, caplog, error):
    module, given = tiny(), sequences(np.random.default_rng(4))
    whole, _ = stream_scores(module, [base_arm()], given)
    own = Stream._wave

    def raises_above_two(self, wave, scores):
        if len(wave) > 2:
            raise error
        own(self, wave, scores)

    monkeypatch.setattr(Stream, "_wave", raises_above_two)
    halved, stream = stream_scores(module, [base_arm()], given)
    assert stream.waves > 1 and "going on with half of them" in caplog.text
    np.testing.assert_array_equal(whole.logp_AS, halved.logp_AS)


@pytest.mark.case("F14")
def test_a_batch_too_large_is_halved_by_packs_each_anew(monkeypatch, caplog):
    """Of every batch what fits is found by itself, so a long one costs the short ones nothing."""
    module, given = tiny(), sequences(np.random.default_rng(4))
    whole, _ = stream_scores(module, [base_arm()], given)
    own, most = Stream._wave, 85  # the longest pack has 47

    def raises_above(self, wave, scores):
        if sum(len(batch) * max(map(len, batch)) for batch in wave) > most:
            raise OUT_OF_MEMORY[0]
        done.append([len(pack) for batch in wave for pack in batch])
        own(self, wave, scores)

    done = []
    monkeypatch.setattr(Stream, "_wave", raises_above)
    halved, _ = stream_scores(module, [base_arm()], given)
    np.testing.assert_allclose(whole.logp_AS, halved.logp_AS, atol=1e-5)
    assert re.search(r"a batch of \d+ packs: going on with \d+", caplog.text)
    assert len({len(wave) for wave in done}) > 1


@pytest.mark.case("F14")
def test_a_single_pack_too_long_is_told_with_a_way_out(monkeypatch):
    def raises(self, wave, scores):
        raise OUT_OF_MEMORY[0]

    monkeypatch.setattr(Stream, "_wave", raises)
    told = r"single pack of \d+ tokens \(CUDA out of memory\). Lower engine.pack_tokens"
    with pytest.raises(UserError, match=told):
        stream_scores(tiny(), [base_arm()], sequences(np.random.default_rng(4)))


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch):
    def raises(self, wave, scores):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(Stream, "_wave", raises)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        stream_scores(tiny(), [base_arm()], sequences(np.random.default_rng(4)))


@pytest.mark.case("F11")
@pytest.mark.parametrize("layer", [0, 1])
def test_non_finite_activations_stop_the_run_with_layer_and_arm(layer):
    module = tiny()
    with torch.no_grad():
        module.model.layers[layer].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match=rf"layer {layer} in arm base: .* \(model\.dtype\)"):
        stream_scores(module, [base_arm()], sequences(np.random.default_rng(5)))


@pytest.mark.case("C17")
@pytest.mark.case("C18")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_replayed_layer_gets_its_own_mask_and_rotary_tables(attention):
    module = tiny(attn_implementation=attention)
    ids = torch.randint(0, 128, (1, 24))
    with torch.inference_mode():
        want = module(ids, output_hidden_states=True).hidden_states
        recorded = record(Model.from_module(module), {"input_ids": ids})
        got = push(module.model.layers[0], recorded.hidden_BTD, recorded.calls[0])
    assert torch.equal(got, want[1])


@pytest.mark.case("F15")
def test_padding_is_on_the_right_and_positions_are_given():
    from harness.packs import Pack

    short, long = Pack(), Pack()
    short.add(TokenSequence((1, 2, 3), 1), 0, [])
    long.add(TokenSequence((1, 2, 3, 4, 5, 6), 1), 2, [])
    inputs = model_inputs([long, short], Model.from_module(tiny()))
    assert inputs["position_ids"].tolist() == [[0, 1, 2, 3, 4]] * 2
    assert inputs["input_ids"][1].tolist() == [1, 2, 0, 0, 0]


@pytest.mark.case("B1")
def test_head_alone_in_scope_leaves_a_tied_embedding_as_it_is():
    module = tiny(tie_word_embeddings=True)
    assert module.lm_head.weight is module.model.embed_tokens.weight
    model = Model.from_module(module)
    before = module.lm_head.weight.clone()
    given = sequences(np.random.default_rng(6))
    plan = resolve(model.all_sites, QuantConfig(head=Scheme(group_size=32))).plan
    arms = build_arms(plan, DesignConfig(), 2)
    assert [arm.name for arm in arms] == ["base", "head"]
    scores, _ = stream_scores(module, arms, given)
    assert torch.equal(module.lm_head.weight, before)
    untied = tiny(tie_word_embeddings=True)
    head = torch.nn.Linear(64, 128, bias=False)
    head.weight.data = quantize(before, Scheme(group_size=32)).dequantize()
    untied.lm_head = head
    np.testing.assert_allclose(scores.logp_AS[1], all_plain(untied, given), atol=1e-5)


def test_embedding_alone_in_scope():
    module = tiny(tie_word_embeddings=False)
    model = Model.from_module(module)
    given = sequences(np.random.default_rng(7))
    plan = resolve(model.all_sites, QuantConfig(embedding=Scheme(group_size=32))).plan
    scores, _ = stream_scores(module, build_arms(plan, DesignConfig(), 2), given)
    copy = tiny(tie_word_embeddings=False)
    table = copy.model.embed_tokens.weight
    table.data = quantize(table.data, Scheme(group_size=32)).dequantize()
    np.testing.assert_allclose(scores.logp_AS[1], all_plain(copy, given), atol=1e-5)


def test_each_matrix_is_quantized_once_for_all_arms(monkeypatch):
    module, made = tiny(), []
    import harness.weigh

    def counted(w, scheme, *args, **kwargs):
        made.append(scheme)
        return quantize(w, scheme, *args, **kwargs)

    monkeypatch.setattr(harness.weigh, "quantize", counted)
    stream_scores(module, two_by_two(module), sequences(np.random.default_rng(8)))
    assert len(made) == 2 * 7


def test_arms_that_agree_share_their_states():
    module = tiny()
    plan = resolve(find_sites(module), QuantConfig(ffn=Scheme(group_size=32))).plan
    arms = build_arms(plan, DesignConfig(), 2)
    twins = [*arms, replace(arms[1], name="twin")]
    pushed = []
    given = sequences(np.random.default_rng(9))
    packs = pack_trees(given, 48)
    Stream(
        Model.from_module(module), twins, Weigher(), EngineConfig(), progress=lambda _, note: pushed.append(note)
    ).score(list(batches(packs, 128)), int(slots(given)[-1]))
    assert [note for note in pushed if note != "head"] == ["layer 0"] * 2 + [
        "layer 1"
    ] * 2  # one for each distinct state


@pytest.mark.parametrize("name", ["gpt2", "opt"])
def test_trees_longer_than_the_model_has_positions(name):
    """Learned positions have an end, for padding as well."""
    module = architectures.tiny(name)
    given = sequences(np.random.default_rng(10))
    packs = pack_trees(given, 100)
    assert max(map(len, packs)) > 64 and len({len(p) for p in packs}) > 1
    stream = Stream(Model.from_module(module), [base_arm()], Weigher(), EngineConfig())
    scores = stream.score([packs], int(slots(given)[-1]))
    np.testing.assert_allclose(scores.logp_AS[0], all_plain(module, given), atol=1e-5)


@pytest.mark.parametrize("change", [[], ["engine.packing=false"], ["engine.batch_tokens=1"]])
def test_a_rotary_table_that_changes_with_length_is_each_rows_own(change):
    """Longrope (Phi-3, 128k): one position beyond the original context changes the table of the whole batch."""
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
    rope |= {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    module = architectures.tiny("phi3", rope_parameters=rope, original_max_position_embeddings=16)
    model, given = Model.from_module(module), sequences(np.random.default_rng(0))
    long = [len(s.tokens) - 1 > 16 for s in given]
    assert any(long) and not all(long)
    config = composed("model=tiny", "engine.pack_tokens=48", "engine.batch_tokens=256", "harness.reuse=false", *change)
    scores = Scoring(config, model, [base_arm()], [SimpleNamespace(sequences=given)]).scores(Weigher(), None)
    np.testing.assert_allclose(scores.logp_AS[0], all_plain(module, given), atol=2e-5)
