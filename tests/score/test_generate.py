"""Text written by an arm is what lm-eval's own backend writes with the same weights, and is scored by lm-eval."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from lm_eval.models.huggingface import HFLM
from tokenizers.processors import TemplateProcessing

from harness.errors import UserError
from harness.materialize import materialized
from harness.model.byte_tokenizer import byte_tokenizer
from harness.model.load import Model, open_model
from harness.model.sites import read_site, write_site
from harness.pipeline import all_arms, run
from harness.plan import base_arm, resolve
from harness.quantize import quantize
from harness.report.tables import read_report
from harness.score import generate
from harness.score.gather import find, gather
from harness.score.generate import check_writing, write_answers
from harness.weigh import Weigher
from tests.model.architectures import tiny
from tests.runs import composed
from tests.score.questions import write_task

IDS = torch.arange(3, 23)[None]
BOS = byte_tokenizer().bos_token_id
WRITE = {
    "output_type": "generate_until",
    "doc_to_choice": None,
    "doc_to_target": "{{choices[gold]}}",
    "generation_kwargs": {"until": ["\n"], "max_gen_toks": 6, "do_sample": False},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
SPLIT = ("+exp=int4_split", "model=tiny", "eval=none", "attribute.resamples=200", "design.noise_draws=1")


def by_hand(config, block):
    """A module of its own whose sites were quantized one by one."""
    module = open_model(config.model).module
    model = Model.from_module(module, byte_tokenizer())
    with torch.no_grad():
        for site in (s for s in model.sites if block in (s.block, "both")):
            layer = model.layers[site.layer]
            write_site(layer, site, quantize(read_site(layer, site), getattr(config.quant, site.block)).dequantize())
    return module


def replies(module, prompts, batch_size):
    backend = HFLM(pretrained=module, tokenizer=byte_tokenizer(), batch_size=batch_size)
    instances = [type("Request", (), {"args": (p, WRITE["generation_kwargs"])}) for p in prompts]
    return backend.generate_until(instances, disable_tqdm=True)


@pytest.fixture
def asked(tmp_path):
    """A task whose right answers are what base would write, and the prompts."""
    prompts = [f"{word}:" for word in ("red", "a long blue one", "green", "no")]
    right = replies(open_model(composed(*SPLIT).model).module, prompts, 4)
    rows = [{"query": p, "choices": [r or "none", "other"], "gold": 0} for p, r in zip(prompts, right, strict=True)]
    return write_task(tmp_path, rows=rows, **WRITE), prompts, [row["choices"][0] for row in rows]


@pytest.mark.parametrize("batch_tokens", [1, 2048])
def test_every_arm_writes_what_lm_eval_writes_with_its_weights(tmp_path, asked, batch_tokens):
    spec, prompts, right = asked
    config = composed(*SPLIT, f"eval.general=[{spec}]", f"engine.batch_tokens={batch_tokens}")
    folder = run(config, tmp_path).folder
    assert folder is not None
    items = pd.read_parquet(folder / "items.parquet")
    exact = items[items["metric"] == "exact_match"]
    assert (exact.loc[exact["arm"] == "base", "value"] == 1).all()
    for arm in ("ffn", "attention", "both"):
        want = [float(t == r) for t, r in zip(replies(by_hand(config, arm), prompts, 4), right, strict=True)]
        assert list(exact.loc[exact["arm"] == arm, "value"]) == want, arm
    report = read_report(folder / "report.csv")
    assert {"exact_match", "nll", "kl", "prob"} == set(report["metric"])
    assert report.loc[report["metric"] == "nll", "loss"].notna().sum() == 4
    changed = exact[exact["arm"] == "both"]["value"]
    assert changed.mean() < 1  # a random model's int4 answers differ, so the comparison above means something


@pytest.mark.parametrize("kind", ["llama", "gpt2", "phi3", "mixtral"])
def test_a_materialized_arm_is_the_model_with_its_weights_and_leaves_it_as_it_was(kind):
    module = tiny(kind)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    base = module(IDS, use_cache=False).logits
    model = Model.from_module(module, byte_tokenizer())
    config = composed("+exp=int4_split", "quant.ffn.group_size=32", "quant.attention.group_size=32",
                      "quant.head.method=rtn", "quant.head.group_size=32", "design.noise_draws=1")  # fmt: skip
    arms = {arm.name: arm for arm in all_arms(config, model, resolve(model.all_sites, config.quant).plan)}
    for arm in arms.values():
        with materialized(model, arm, Weigher(model.sites)) as whole:
            logits = whole(IDS, use_cache=False).logits
        assert torch.equal(logits, base) == (not arm.key)
    with materialized(model, arms["ffn"], Weigher(model.sites)) as whole:
        got = whole(IDS, use_cache=False).logits
    with torch.no_grad():
        for site in arms["ffn"].plan:
            layer = model.layers[site.layer] if site.layer < len(model.layers) else module
            write_site(layer, site, quantize(read_site(layer, site), config.quant.ffn).dequantize())
    assert torch.allclose(module(IDS, use_cache=False).logits, got, atol=1e-6)
    module.load_state_dict(before)


@pytest.mark.parametrize(
    ("changes", "more", "words"),
    [
        ({"generation_kwargs": {"until": ["."], "do_sample": True, "temperature": 0.7}}, (), "own samples its answers"),
        ({"generation_kwargs": {"until": ["."], "max_gen_toks": 4000}}, (), "an answer of 4000, but the model has"),
        ({}, ("quant.ffn.method=gptq", "calib.keep=false"), "calib.keep=true"),
        ({}, ("quant.ffn.method=gptq", "calib.inputs=quantized"), "cannot write text"),
    ],
)
def test_text_that_cannot_be_had_is_refused_before_anything_is_scored(tmp_path, changes, more, words):
    spec = write_task(tmp_path, **{**WRITE, **changes})
    config = composed(*SPLIT, f"eval.general=[{spec}]", "calib.samples=2", "calib.length=32", *more)
    with pytest.raises(UserError, match=words):
        run(config, tmp_path)
    assert not (tmp_path / "outputs").exists()


def test_a_calibrated_arm_writes_with_the_statistics_that_scoring_left(tmp_path, asked):
    spec, _, _ = asked
    more = ("quant.ffn.method=gptq", "calib.samples=4", "calib.length=32", f"eval.general=[{spec}]")
    folder = run(composed(*SPLIT, *more), tmp_path).folder
    assert folder is not None
    items = pd.read_parquet(folder / "items.parquet")
    assert np.isfinite(items["value"]).all() and json.loads((folder / "result.json").read_text())["status"] == "done"


def test_embedding_and_head_are_written_with_beside_a_block_that_is_calibrated(tmp_path, asked):
    """Outside the layers there are no statistics, and none are looked for."""
    spec, _, _ = asked
    more = ("quant.ffn.method=gptq", "quant.head.method=rtn", "quant.embedding.method=rtn", "design.arms=all")
    small = ("calib.samples=4", "calib.length=32", f"eval.knowledge=[{spec}]")
    folder = run(composed(*SPLIT, *more, *small), tmp_path).folder
    assert folder is not None
    items = pd.read_parquet(folder / "items.parquet")
    assert np.isfinite(items["value"]).all() and items["arm"].nunique() > 4


@pytest.mark.case("F1")
@pytest.mark.case("F15")
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_prompts_of_any_length_written_together_are_those_written_alone(tmp_path, kind):
    model = Model.from_module(tiny(kind, vocab_size=258), byte_tokenizer())
    spec = write_task(
        tmp_path, rows=[{"query": "ab" * n, "choices": ["x", "y"], "gold": 0} for n in (1, 3, 9)], **WRITE
    )
    config = composed(*SPLIT, f"eval.general=[{spec}]")
    (task,) = gather(find(config.eval, tmp_path), config.eval, model)
    found = []
    for batch_tokens in (1, 2048):
        write_answers([task], model, [base_arm()], Weigher(model.sites), None, batch_tokens)
        found.append(task.answers)
    assert found[0] == found[1] and any(found[0][0])


def test_llm_int8_writes_one_prompt_at_a_time_so_that_no_neighbour_chooses_its_outliers(tmp_path):
    int8 = [f"quant.{b}.{k}" for b in ("ffn", "attention") for k in ("method=bnb", "precision=int8", "group_size=-1")]
    config = composed(*SPLIT, *int8, "quant.ffn.outlier_threshold=0.5", "quant.attention.outlier_threshold=0.5")
    model = Model.from_module(open_model(config.model).module, byte_tokenizer())
    arms = all_arms(config, model, resolve(model.all_sites, config.quant).plan)
    rows = [{"query": "ab" * n, "choices": ["x", "y"], "gold": 0} for n in (1, 3, 9, 14)]
    spec = write_task(tmp_path, rows=rows, **WRITE)
    (task,) = gather(find(composed(*SPLIT, f"eval.general=[{spec}]").eval, tmp_path), config.eval, model)
    sizes: set[int] = set()
    spied = model.module.register_forward_pre_hook(
        lambda module, args, kwargs: sizes.add(len(kwargs["input_ids"])), with_kwargs=True
    )
    found = {}
    for batch_tokens in (1, 2048):
        write_answers([task], model, arms, Weigher(model.sites), None, batch_tokens)
        found[batch_tokens] = task.answers
    assert sizes == {1} and found[1] == found[2048]
    write_answers([task], model, [arm for arm in arms if not arm.is_live], Weigher(model.sites), None, 2048)
    spied.remove()
    assert max(sizes) > 1  # without such an arm they go together


def test_a_model_that_does_not_fit_as_a_whole_is_told_before_anything_is_scored(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.materialize.free_memory", lambda device: 1000)
    spec = write_task(tmp_path, **WRITE)
    config = composed(*SPLIT, f"eval.general=[{spec}]")
    model = open_model(composed("model=tiny").model)
    work = gather(find(config.eval, tmp_path), config.eval, model)
    with pytest.raises(UserError, match=r"need all layers at once: .* Leave such tasks out"):
        check_writing(work, model, [base_arm()], config.calib)


def test_what_an_arm_wrote_is_kept_at_once_and_taken_by_later_runs(tmp_path, asked, monkeypatch):
    """A run that stops while the third arm writes has lost nothing of the first two."""
    spec, _, _ = asked
    config = composed(*SPLIT, f"eval.general=[{spec}]")
    first, written = [], []
    own = generate._Writer.write

    def counted(self):
        written.append(self.task.name)
        if len(written) == stop_at:
            raise KeyboardInterrupt
        return own(self)

    monkeypatch.setattr(generate._Writer, "write", counted)
    stop_at = 3
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path)
    stop_at, written = 0, []
    folder = run(config, tmp_path).folder
    assert len(written) == 3  # of five arms; noise writes as well
    first = pd.read_parquet(folder / "items.parquet")
    written = []
    again = run(composed(*SPLIT, f"eval.general=[{spec}]", "harness.force=true"), tmp_path).folder
    assert len(written) == 5
    pd.testing.assert_frame_equal(first, pd.read_parquet(again / "items.parquet"))


@pytest.mark.case("F14")
def test_out_of_memory_while_writing_halves_the_batch_of_all_arms(tmp_path, asked, monkeypatch, caplog):
    spec, _, _ = asked
    model = Model.from_module(open_model(composed("model=tiny").model).module, byte_tokenizer())
    config = composed(*SPLIT, f"eval.general=[{spec}]").eval
    (task,) = gather(find(config, tmp_path), config, model)
    write_answers([task], model, [base_arm()], Weigher(model.sites), None, 2048)
    want, own, sizes = task.answers, HFLM._model_generate, []

    def raises_from_the_second_time(self, context, *args, **kwargs):
        sizes.append(len(context))
        if len(context) > most and len(sizes) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return own(self, context, *args, **kwargs)

    monkeypatch.setattr(HFLM, "_model_generate", raises_from_the_second_time)
    most = 2
    write_answers([task], model, [base_arm(), base_arm()], Weigher(model.sites), None, 2048)
    assert task.answers == [want[0], want[0]]
    assert sizes == [4, 4, 2, 2, 2, 2] and "with 4 answers at once: going on with 2" in caplog.text
    most = 0
    with pytest.raises(UserError, match=r"a single answer is written .*max_gen_toks"):
        write_answers([task], model, [base_arm()], Weigher(model.sites), None, 2048)


@pytest.mark.case("F4")
@pytest.mark.parametrize("bos", ["auto", "always", "never"])
@pytest.mark.parametrize("adds", [True, False])
def test_prompts_begin_with_the_bos_that_their_scored_form_begins_with(tmp_path, asked, bos, adds):
    """lm-eval's backend only asks the tokenizer for a BOS, and not every tokenizer that has one adds it."""
    spec, prompts, _ = asked
    model = Model.from_module(open_model(composed("model=tiny").model).module, byte_tokenizer())
    if adds:
        model.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{model.tokenizer.bos_token} $A", special_tokens=[(model.tokenizer.bos_token, BOS)]
        )
    config = composed(*SPLIT, f"eval.general=[{spec}]", f"eval.bos={bos}").eval
    (task,) = gather(find(config, tmp_path), config, model)
    seen = []
    spied = model.module.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
    )
    write_answers([task], model, [base_arm()], Weigher(model.sites), None, 1)
    spied.remove()
    first = sorted(tuple(ids[0].tolist()) for ids in seen if ids.shape[1] > 1)
    assert first == sorted(tuple(task.encoder.encode(prompt)) for prompt in prompts)
    assert all((ids[0] == BOS) == (bos == "always" or (bos == "auto" and adds)) for ids in first)
