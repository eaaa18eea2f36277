"""Calibration: the samples that are drawn, and the statistics of what enters every site."""

import json
import random

import numpy as np
import pytest
import torch

from harness.calibrate import Draw, draw_samples, gather
from harness.calibration import Calibration
from harness.config import (
    ArmsRule,
    CalibConfig,
    CalibDraw,
    CalibPacking,
    CalibSource,
    DesignConfig,
    EngineConfig,
    QuantConfig,
)
from harness.design import build_arms, with_draws
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.model.load import Model
from harness.model.sites import find_sites
from harness.packs import batches, pack_trees, slots
from harness.plan import Arm, Splice, resolve
from harness.quantize import InputStats, quantize
from harness.scheme import Scheme
from harness.stream import Stream
from harness.weigh import Weigher
from tests.test_stream import sequences, tiny

TOKENIZER = byte_tokenizer()


def jsonl(tmp_path, rows):
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"source": CalibSource.jsonl, "path": "c.jsonl"}


def drawn(tmp_path, seed=0, tokenizer=TOKENIZER, **settings):
    return draw_samples(CalibConfig(**settings), tokenizer, seed, tmp_path)


@pytest.mark.case("E7")
def test_same_seed_same_samples_other_seed_other_samples(tmp_path):
    one, again, other = (drawn(tmp_path, seed, samples=4, length=32) for seed in (0, 0, 1))
    assert one.digest == again.digest != other.digest
    assert len({len(s) for s in one.samples}) == 1


@pytest.mark.case("E8")
def test_no_global_generator_is_touched(tmp_path):
    states = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    drawn(tmp_path, samples=4, length=32)
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


@pytest.mark.case("E1")
def test_long_texts_are_cut_to_the_set_length_and_short_ones_counted(tmp_path):
    rows = [{"text": "x" * 600}] * 5 + [{"text": "y" * 20}] * 3
    draw = drawn(tmp_path, samples=5, length=512, packing=CalibPacking.rows, **jsonl(tmp_path, rows))
    assert [len(s) for s in draw.samples] == [512] * 5
    assert (draw.usable, draw.dropped) == (5, 3)


@pytest.mark.case("E2")
@pytest.mark.parametrize("content", ["", "\n\n \n", "short"])
def test_too_little_text_says_how_many_samples_were_usable(tmp_path, content):
    (tmp_path / "c.txt").write_text(content)
    with pytest.raises(UserError, match=r"0 usable samples of 1 texts, 8 asked \(each needs 64 tokens\)"):
        drawn(tmp_path, samples=8, length=64, source=CalibSource.text, path="c.txt")
    with pytest.raises(UserError, match="0 usable samples of 0 texts"):
        drawn(tmp_path, samples=8, length=64, **jsonl(tmp_path, []))


@pytest.mark.case("E2")
def test_no_text_is_used_over_again(tmp_path):
    """Random places always fit in, so papers' 128 x 2048 tokens could be had of the shipped 90,000: each thrice."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    (tmp_path / "c.txt").write_text("".join(np.random.default_rng(0).choice(letters, 640)))
    own = {"source": CalibSource.text, "path": "c.txt", "length": 64}
    with pytest.raises(UserError, match=r"10 usable samples of 1 texts, 11 asked.*Give more text \(calib\.source"):
        drawn(tmp_path, samples=11, **own)
    draw = drawn(tmp_path, samples=10, **own)
    places = [(tmp_path / "c.txt").read_text().index(TOKENIZER.decode(sample)) for sample in draw.samples]
    seen = {place + n for place in places for n in range(64)}
    assert draw.usable == 10
    assert 0 < draw.repeated == 640 - len(seen)
    assert drawn(tmp_path, samples=10, draw=CalibDraw.start, **own).repeated == 0


@pytest.mark.case("E9")
def test_bos_stands_at_the_start_of_every_sample(tmp_path):
    draw = drawn(tmp_path, samples=4, length=32, bos=True)
    assert all(s[0] == TOKENIZER.bos_token_id and len(s) == 32 for s in draw.samples)
    assert not any(TOKENIZER.bos_token_id in s[1:] for s in draw.samples)


@pytest.mark.case("E10")
def test_token_ids_are_taken_as_they_are(tmp_path):
    source = jsonl(tmp_path, [{"ids": list(range(10))}, {"ids": list(range(10, 20))}])
    draw = drawn(
        tmp_path, samples=2, length=10, packing=CalibPacking.rows, draw=CalibDraw.start, text_field="ids", **source
    )
    assert draw.samples == (tuple(range(10)), tuple(range(10, 20)))


def test_from_the_start_one_after_the_other(tmp_path):
    (tmp_path / "c.txt").write_text("abcdefghij")
    draw = drawn(tmp_path, samples=3, length=3, draw=CalibDraw.start, source=CalibSource.text, path="c.txt")
    assert [TOKENIZER.decode(s) for s in draw.samples] == ["abc", "def", "ghi"]


@pytest.mark.case("E4")
def test_a_remote_set_that_cannot_be_had_names_itself_and_the_local_way(tmp_path, monkeypatch):
    for switch in ("datasets.config.HF_HUB_OFFLINE", "huggingface_hub.constants.HF_HUB_OFFLINE"):
        monkeypatch.setattr(switch, True)
    with pytest.raises(UserError, match=r"calib.path=allenai/no-such-set.*local file always works.*calib=default"):
        drawn(tmp_path, source=CalibSource.dataset, path="allenai/no-such-set")


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("{}\n", {"source": CalibSource.jsonl}, "text_field='text' is no column"),
        ("not json\n", {"source": CalibSource.jsonl}, "not a jsonl file"),
        ("[1]\n", {"source": CalibSource.jsonl}, "no column"),
        *(
            (
                f'{{"text": {value}}}\n',
                {"source": CalibSource.jsonl},
                "text_field='text' of c holds .*: neither a text nor",
            )
            for value in ("null", "5", "[1, 258]", "[-1]", '["a"]')
        ),
    ],
)
def test_wrong_files_are_named(tmp_path, text, settings, message):
    (tmp_path / "c").write_text(text)
    with pytest.raises(UserError, match=message):
        drawn(tmp_path, path="c", **settings)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"calib\.path='gone\.txt': no such file"):
        drawn(tmp_path, source=CalibSource.text, path="gone.txt")


def inputs_of(module, layer, path, batches_of_ids):
    """What enters a module, by the model's own forward."""
    seen = []
    target = module.model.layers[layer].get_submodule(path)
    handle = target.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    for ids in batches_of_ids:
        module(torch.tensor(ids))
    handle.remove()
    return torch.cat([x.reshape(-1, x.shape[-1]) for x in seen])


def calibration_of(module, tokens=24, samples=5, batch_tokens=64, folder=None, sequential=False):
    ids = np.random.default_rng(0).integers(0, 128, (samples, tokens)).tolist()
    draw = Draw(tuple(map(tuple, ids)), samples, 0)
    return Calibration(Model.from_module(module), [draw], sequential, batch_tokens, folder), ids


def calibrated_arms(module, method="gptq", **scheme):
    quant = QuantConfig(
        ffn=Scheme(method=method, group_size=32, **scheme), attention=Scheme(method=method, group_size=32, **scheme)
    )
    return build_arms(resolve(find_sites(module), quant).plan, DesignConfig(arms=ArmsRule.all), 2)


def streamed(module, arms, calibration):
    given = sequences(np.random.default_rng(0))
    weigher = Weigher(calibration.model.sites)
    stream = Stream(calibration.model, arms, weigher, EngineConfig(), calibration)
    scores = stream.score(list(batches(pack_trees(given, 48), 128)), int(slots(given)[-1]))
    return scores, weigher


class Spy(Calibration):
    """Keeps the statistics that it hands out."""

    def stats(self, index, layer, draw, replay):
        found = super().stats(index, layer, draw, replay)
        self.__dict__.setdefault("seen", {}).update({site.name: s for site, s in found.items()})
        return found


@pytest.mark.case("C6")
@pytest.mark.case("E6")
@pytest.mark.parametrize("batch_tokens", [1, 50, 1000])
def test_statistics_are_those_of_all_tokens_whatever_the_batch(batch_tokens):
    """To 1e-6 of the Hessian's scale. Samples have one length, whatever their texts' (E1), so none is ever padded."""
    module = tiny()
    calibration, ids = calibration_of(module)
    spy = Spy(calibration.model, calibration.draws, False, batch_tokens)
    streamed(module, calibrated_arms(module), spy)
    for name, path in (("layers.1.ffn.down", "mlp.down_proj"), ("layers.1.attention.v", "self_attn.v_proj")):
        want = InputStats.from_inputs(inputs_of(module, 1, path, [ids]))
        assert spy.seen[name].n_tokens == want.n_tokens == 5 * 24
        for field, value in want.tensors().items():
            same = spy.seen[name].tensors()[field]
            assert (same - value).abs().max() <= 1e-6 * value.abs().max(), field


def test_statistics_do_not_depend_on_into_how_many_batches_the_tokens_are_cut():
    """A thousand batches and two: where sums are float32, they differ by more than 1e-6."""
    module = tiny()
    calibration, _ = calibration_of(module, tokens=8, samples=1000)
    seen = []
    for batch_tokens in (8, 4096):
        spy = Spy(calibration.model, calibration.draws, False, batch_tokens)
        streamed(module, calibrated_arms(module), spy)
        seen.append(spy.seen)
    for name, one in seen[0].items():
        other = seen[1][name].hessian_II
        assert one.hessian_II.dtype is torch.float32
        assert (one.hessian_II - other).abs().max() <= 1e-6 * other.abs().max(), name


def test_sites_with_one_input_share_one_sum():
    module = tiny()
    model = Model.from_module(module)
    sites = [s for s in model.sites if s.layer == 0]
    hidden = torch.randn(1, 8, 64)
    position = module.model.rotary_emb(hidden, torch.arange(8)[None])
    with torch.no_grad():
        found = gather(
            module.model.layers[0], sites, lambda: module.model.layers[0](hidden, position_embeddings=position)
        )
    by_role = {site.role: stats for site, stats in found.items()}
    assert by_role["q"] is by_role["k"] is by_role["v"]
    assert by_role["gate"] is by_role["up"]
    assert len({id(s) for s in found.values()}) == 4
    assert all(s.n_tokens == 8 for s in found.values())


def test_sequential_statistics_see_the_arms_own_quantized_layers():
    module = tiny()
    arms = calibrated_arms(module, damp=0.1)
    calibration, _ = calibration_of(module, sequential=True)
    own, _ = streamed(module, arms, calibration)
    clean, _ = streamed(module, arms, calibration_of(module)[0])
    assert np.abs(own.logp_AS[3] - clean.logp_AS[3]).max() > 1e-4
    alone, _ = streamed(module, [arms[0], arms[1]], calibration_of(module, sequential=True)[0])
    np.testing.assert_array_equal(alone.logp_AS[1], own.logp_AS[1])


def test_with_sequential_statistics_every_arm_has_facts_of_its_own():
    module = tiny()
    base, ffn, attention, both = calibrated_arms(module, damp=0.1)
    splice = Arm("spliced", frozenset(), {site: Splice(scheme) for site, scheme in both.plan.items()}, control=True)
    arms = [base, ffn, attention, both, splice]
    _, together = streamed(module, arms, calibration_of(module, sequential=True)[0])
    for arm in arms[1:4]:
        _, alone = streamed(module, [base, arm], calibration_of(module, sequential=True)[0])
        assert together.facts_of(arm) == alone.facts_of(arm)
    assert together.facts_of(splice) == together.facts_of(ffn) | together.facts_of(attention)
    name = "layers.1.ffn.up"  # behind a layer that the two arms treat differently
    error = "relative_output_error"
    assert together.facts_of(ffn)[name][error] != together.facts_of(both)[name][error]


def test_kept_statistics_give_the_same_weights_and_push_no_token(tmp_path):
    module = tiny()
    arms = calibrated_arms(module)
    first, weigher = streamed(module, arms, calibration_of(module, folder=tmp_path)[0])
    kept, _ = calibration_of(module, folder=tmp_path)
    assert kept.batches(0) == []
    second, again = streamed(module, arms, kept)
    np.testing.assert_array_equal(first.logp_AS, second.logp_AS)
    assert weigher.facts == again.facts


def test_statistics_of_another_model_are_not_taken(tmp_path):
    module = tiny()
    streamed(module, calibrated_arms(module), calibration_of(module, folder=tmp_path)[0])
    with torch.no_grad():
        module.model.layers[0].mlp.up_proj.weight += 1
    assert calibration_of(module, folder=tmp_path)[0].batches(0)


@pytest.mark.case("E7")
def test_same_calibration_twice_gives_bit_equal_weights():
    module = tiny()
    arms = calibrated_arms(module)
    first, _ = streamed(module, arms, calibration_of(module)[0])
    second, _ = streamed(module, arms, calibration_of(module)[0])
    np.testing.assert_array_equal(first.logp_AS, second.logp_AS)


def test_statistics_are_kept_for_the_same_batches_attention_and_code_only(tmp_path, monkeypatch):
    module = tiny()
    calibration, _ = calibration_of(module, folder=tmp_path)
    assert not calibration.complete
    streamed(module, calibrated_arms(module), calibration)
    assert calibration_of(module, folder=tmp_path)[0].complete
    assert not calibration_of(module, folder=tmp_path, batch_tokens=65)[0].complete
    with monkeypatch.context() as patch:
        patch.setattr("harness.calibration.maker_version", lambda kind: f"other {kind}")
        assert not calibration_of(module, folder=tmp_path)[0].complete
    again, _ = calibration_of(module, folder=tmp_path)
    monkeypatch.setattr(module.config, "_attn_implementation_internal", "eager")
    assert not again.complete


def test_each_draw_is_an_arm_of_its_own():
    module = tiny()
    arms = with_draws(calibrated_arms(module), 2)
    assert [arm.name for arm in arms] == ["base", "ffn", "attention", "both", "ffn@1", "attention@1", "both@1"]
    calibration, ids = calibration_of(module)
    other = Draw(tuple(tuple(reversed(sample)) for sample in ids), 5, 0)
    two = Calibration(calibration.model, [calibration.draws[0], other], False, 64)
    scores, _ = streamed(module, arms, two)
    assert np.abs(scores.logp_AS[1] - scores.logp_AS[4]).max() > 1e-5


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_a_calibrated_method_beats_rounding_on_its_own_inputs(method):
    module = tiny()
    symmetric = {"symmetric": False}
    _, ours = streamed(
        module, calibrated_arms(module, method, **symmetric), calibration_of(module, tokens=60, samples=8)[0]
    )
    plain = calibrated_arms(module, "rtn", **symmetric)
    _, ids = calibration_of(module, tokens=60, samples=8)
    x = inputs_of(module, 1, "mlp.down_proj", [ids])
    site, scheme = next((s, c) for s, c in plain[3].plan.items() if s.name == "layers.1.ffn.down")
    w = module.model.layers[1].mlp.down_proj.weight.detach()
    e = quantize(w, scheme).dequantize() - w
    rounded = ((x @ e.T).norm() / (x @ w.T).norm()).item()
    fact = next(f for (name, _, _), f in ours.facts.items() if name == site.name)
    assert fact["relative_output_error"] < rounded
