"""Played back to lm-eval, our log-probabilities give the numbers that lm-eval's own backend gives."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM

from harness.config import BosUse, EvalConfig, Sampler
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.model.load import Model, open_model
from harness.plan import base_arm
from harness.score.choices import MARGIN_CUT
from harness.score.gather import find, gather
from harness.score.library import load
from harness.scoring import Scoring
from harness.stream import Scores
from harness.weigh import Weigher
from tests.runs import composed
from tests.score.questions import ROWS, write_task

MUTUAL = [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_mutual_info")]
WORDS = [{"text": "The sea was calm and the sky was clear."}, {"text": "It rained."}, {"text": "a " * 40 + "b"}]
TASKS = {
    "choice": {},
    "delimiter": {"target_delimiter": "", "doc_to_choice": "{{['red', 'blue', ' deep green']}}"},
    "mutual": {"metric_list": MUTUAL},
    "f1": {"metric_list": [{"metric": "mcc"}, {"metric": "acc", "aggregation": "mean", "higher_is_better": True}]},
    "letters": {"doc_to_text": "{{query}}\nA. red\nB. blue\nC. green\nAnswer:", "doc_to_choice": ["A", "B", "C"]},
    "blank": {
        "doc_to_text": "{{[0, 1, 0, 1, 0, 1][topic[1:] | int]}}",
        "doc_to_choice": "{{['The ' + query, 'A ' + query]}}",
        "doc_to_target": "rest of it",
    },
    "rolling": {
        "rows": WORDS, "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
        "doc_to_choice": None, "metric_list": [{"metric": m} for m in ("word_perplexity", "bits_per_byte")],
    },
    "last_word": {
        "rows": WORDS, "output_type": "loglikelihood", "doc_to_text": "{{text.split(' ')[:-1] | join(' ')}}",
        "doc_to_target": "{{' ' + text.split(' ')[-1]}}", "doc_to_choice": None,
        "metric_list": [{"metric": m} for m in ("perplexity", "acc")],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def module():
    return open_model(composed("model=tiny").model).module


def settings(spec, **changes):
    return EvalConfig(general=[spec], **changes)


def scored(module, config, folder, tokenizer=None):
    """Results of the first task in the base arm."""
    model = Model.from_module(module, tokenizer or byte_tokenizer())
    (task,) = gather(find(config, folder), config, model)
    scores = Scoring(composed("model=tiny"), model, [base_arm()], [task]).scores(Weigher(model.sites), None)
    return task.results(scores), task, scores


@pytest.fixture(scope="module")
def backend(module):
    return HFLM(pretrained=module, tokenizer=byte_tokenizer(), batch_size=3, add_bos_token=False)


def reference(backend, spec, folder, shots=0, seed=1234):
    """lm-eval's own results on the same task."""
    (task,) = load(spec, folder)
    task.set_config("num_fewshot", shots)
    task.set_fewshot_seed(seed)
    return evaluate(backend, {task.task_name: task}, bootstrap_iters=0, log_samples=True, verbosity="ERROR")


def numbers(results):
    """Every metric's value: means of measures, and what is one number."""
    means = {m.metric: np.average(m.values_AN[0], weights=m.weights_N) for m in results.measures}
    return means | {s.metric: s.value_A[0] for s in results.summaries}


@pytest.mark.parametrize("name", TASKS)
def test_every_metric_is_lm_evals(tmp_path, module, backend, name):
    spec = write_task(tmp_path, name, **TASKS[name])
    found = reference(backend, spec, tmp_path)["results"][name]  # pyright: ignore
    want = {key.removesuffix(",none"): v for key, v in found.items() if key.endswith(",none") and "stderr" not in key}
    got = numbers(scored(module, settings(spec), tmp_path)[0])
    assert want and want == {metric: pytest.approx(got[metric], rel=1e-5) for metric in want}


def per_choice(results):
    """lm-eval's log-likelihoods, by document and choice."""
    (samples,) = results["samples"].values()
    samples = sorted(samples, key=lambda sample: sample["doc_id"])
    return np.array([float(r[0][0]) for sample in samples for r in sample["resps"]])


def sums(task, scores):
    """Our log-likelihoods, in the order of requests."""
    ends = np.cumsum([s.scored for s in task.sequences])[:-1]
    return np.array([part.sum() for part in np.split(scores.logp_AS[0], ends)])


@pytest.mark.parametrize(
    ("shots", "sampler", "seed"), [(0, None, 1234), (2, None, 1234), (2, None, 7), (2, "first_n", 7)]
)
def test_every_choice_has_lm_evals_log_likelihood_with_the_same_examples(
    tmp_path, module, backend, shots, sampler, seed
):
    few = {"fewshot_config": {"sampler": sampler}} if sampler else {}
    want = per_choice(reference(backend, write_task(tmp_path, **few), tmp_path, shots, seed))
    config = settings(write_task(tmp_path), num_fewshot=shots, sampler=sampler and Sampler(sampler), seed=seed)
    results, task, scores = scored(module, config, tmp_path)
    np.testing.assert_allclose(sums(task, scores), want, atol=1e-4)
    assert (results.protocol["num_fewshot"], results.protocol["sampler"]) == (shots, sampler or "default")


@pytest.mark.case("F9")
def test_the_seed_draws_the_examples_and_the_hash_tells(tmp_path, module):
    spec = write_task(tmp_path)
    prompts, marks = {}, {}
    for seed in (0, 0, 1):
        _, task, _ = scored(module, settings(spec, num_fewshot=3, seed=seed), tmp_path)
        text = [question.instances[0].args[0] for question in task.questions]
        assert prompts.setdefault(seed, text) == text and marks.setdefault(seed, task.fingerprint) == task.fingerprint
    assert prompts[0] != prompts[1] and marks[0] != marks[1]


@pytest.mark.case("F1")
def test_scores_do_not_move_with_the_batch(tmp_path, module):
    model = Model.from_module(module, byte_tokenizer())
    config = settings(write_task(tmp_path), num_fewshot=2)
    (task,) = gather(find(config, tmp_path), config, model)
    found = []
    for cut in (["engine.batch_tokens=1"], ["engine.batch_tokens=500"], ["engine.packing=false"]):
        run = composed("model=tiny", *cut)
        found.append(Scoring(run, model, [base_arm()], [task]).scores(Weigher(model.sites), None).logp_AS)
    np.testing.assert_allclose(found[1:], [found[0]] * 2, atol=1e-5)


@pytest.mark.case("F2")
@pytest.mark.parametrize("bos", ["auto", "always", "never"])
def test_a_bos_is_never_scored_and_the_rule_is_in_the_protocol(tmp_path, module, bos):
    config = settings(write_task(tmp_path), bos=BosUse(bos))
    results, task, _ = scored(module, config, tmp_path, byte_tokenizer(add_bos=True))
    assert results.protocol["bos"] == bos
    for sequence in task.sequences:
        assert sequence.tokens.count(0) == (bos != "never") and 0 not in sequence.tokens[sequence.start :]


@pytest.mark.case("F2")
@pytest.mark.parametrize(("bos", "add_bos", "said"), [("never", True, 1), ("auto", True, 0), ("never", False, 0)])
def test_leaving_out_a_bos_that_the_tokenizer_would_set_is_said(tmp_path, module, caplog, bos, add_bos, said):
    model = Model.from_module(module, byte_tokenizer(add_bos))
    config = settings(write_task(tmp_path), bos=BosUse(bos))
    gather(find(config, tmp_path), config, model)
    assert len([r for r in caplog.records if "BOS" in r.message]) == said


def made_up(task, arms, seed=0):
    """Scores drawn at random, for tests of what is made of them."""
    rng = np.random.default_rng(seed)
    slots = sum(s.scored for s in task.sequences)
    return Scores(
        -rng.gamma(2.0, size=(arms, slots)), rng.random((arms, slots)) < 0.5, rng.gamma(1.0, size=(arms, slots)),
        rng.random((arms, slots)) < 0.5,
    )  # fmt: skip


@pytest.fixture
def choices(tmp_path, module):
    """A task with documents and bands, and its results in three arms."""
    config = settings(write_task(tmp_path, metadata={"version": 1.0, "document": "topic", "band": "gold"}))
    (task,) = gather(find(config, tmp_path), config, Model.from_module(module, byte_tokenizer()))
    scores = made_up(task, 3)
    return task, scores, {m.metric: m for m in task.results(scores).measures}


def test_nll_margin_and_kl_belong_to_the_right_answer(choices):
    task, scores, measures = choices
    ends = np.cumsum([s.scored for s in task.sequences])[:-1]
    logp = np.array([p.sum(axis=1) for p in np.split(scores.logp_AS, ends, axis=1)]).T.reshape(3, 6, 3)
    kl = np.array([p.sum(axis=1) for p in np.split(scores.kl_AS, ends, axis=1)]).T.reshape(3, 6, 3)
    tokens = np.array([s.scored for s in task.sequences]).reshape(6, 3)
    gold = [row["gold"] for row in ROWS]
    right, n = np.arange(6), tokens[np.arange(6), gold]
    np.testing.assert_allclose(measures["nll"].values_AN, -logp[:, right, gold] / n)
    np.testing.assert_allclose(measures["kl"].values_AN, kl[:, right, gold] / n)
    wrong = np.where(np.eye(3, dtype=bool)[gold], -np.inf, logp).max(axis=2)
    margin = logp[:, right, gold] - wrong
    np.testing.assert_allclose(measures["margin"].values_AN, np.clip(margin, -MARGIN_CUT, MARGIN_CUT))
    assert (np.abs(margin) > MARGIN_CUT).any()
    prob = np.exp(logp)[:, right, gold] / np.exp(logp).sum(axis=2)
    np.testing.assert_allclose(measures["prob"].values_AN, prob)
    np.testing.assert_array_equal(measures["acc"].values_AN, measures["margin"].values_AN > 0)
    lengths = [len(choice) for choice in ROWS[0]["choices"]]
    np.testing.assert_array_equal(measures["acc_norm"].values_AN, (logp / lengths).argmax(axis=2) == gold)
    assert list(measures["nll"].n_tokens) == list(n)


@pytest.mark.case("F6")
def test_units_directions_and_the_know_nothing_value_are_stated(choices):
    _, _, measures = choices
    assert {name: m.unit for name, m in measures.items()} == {
        "acc": "share of items", "acc_norm": "share of items",
        "nll": "nats/token", "margin": "nats", "kl": "nats/token", "prob": "probability",
    }  # fmt: skip
    assert {name for name, m in measures.items() if not m.higher_is_better} == {"nll", "kl"}
    assert measures["acc"].worst == measures["acc_norm"].worst == pytest.approx(1 / 3)
    assert measures["nll"].worst == pytest.approx(np.log(258)) and np.isnan(measures["margin"].worst)


@pytest.mark.case("F6")
def test_acc_norm_divides_by_characters_not_by_bytes(tmp_path, module):
    """`é` is one character and two bytes, `aa` two and two: between them and a long choice the two rules part."""
    rows = [{"query": "Q", "choices": ["é", "aa", "a long one"], "gold": n % 3, "topic": "t"} for n in range(3)]
    config = settings(write_task(tmp_path, rows=rows))
    (task,) = gather(find(config, tmp_path), config, Model.from_module(module, byte_tokenizer()))
    logp_C = np.array([-1.2, -2.0, -11.0])  # by character -1.2 -1.0 -1.1, by byte -0.6 -1.0 -1.1: `aa`, not `é`
    tokens = np.array([s.scored for s in task.sequences])
    scores = made_up(task, 1)
    each_S = np.tile(logp_C, 3) / tokens
    results = task.results(replace(scores, logp_AS=np.repeat(each_S, tokens)[None]))
    measures = {m.metric: m for m in results.measures}
    assert list(measures["acc"].values_AN[0]) == [1, 0, 0]
    assert list(measures["acc_norm"].values_AN[0]) == [0, 1, 0]
    assert results.protocol["acc_norm"] == "log-likelihood over characters of the choice"


@pytest.mark.case("F6")
def test_acc_norm_of_accented_choices_is_lm_evals(tmp_path, module, backend):
    rows = [{"query": f"Q{n}", "choices": ["é", "aa", "a long ï"], "gold": n % 3, "topic": "t"} for n in range(6)]
    spec = write_task(tmp_path, rows=rows)
    found = reference(backend, spec, tmp_path)["samples"]["own"]
    (measure,) = (m for m in scored(module, settings(spec), tmp_path)[0].measures if m.metric == "acc_norm")
    assert list(measure.values_AN[0]) == [s["acc_norm"] for s in sorted(found, key=lambda s: s["doc_id"])]


def test_chance_counts_choices_however_often_they_are_asked(tmp_path, module):
    config = settings(write_task(tmp_path, "mutual", **TASKS["mutual"]))
    (task,) = gather(find(config, tmp_path), config, Model.from_module(module, byte_tokenizer()))
    (acc,) = (m for m in task.results(made_up(task, 2)).measures if m.metric == "acc")
    assert acc.worst == pytest.approx(1 / 3)


@pytest.mark.parametrize("form", ["last_word", "writes"])
def test_an_answer_given_without_choices_is_never_right_by_chance(tmp_path, module, form):
    """So a task of which base knows nothing is known for one, and left out of attribution."""
    writes = {"output_type": "generate_until", "generation_kwargs": {"until": ["."], "max_gen_toks": 4}}
    changes = TASKS["last_word"] if form == "last_word" else {**writes, "metric_list": [{"metric": "exact_match"}]}
    config = settings(write_task(tmp_path, form, **changes))
    (task,) = gather(find(config, tmp_path), config, Model.from_module(module, byte_tokenizer()))
    task.answers = [["text"] * len(task.questions)]
    measures = {m.metric: m for m in task.results(made_up(task, 1)).measures}
    assert measures["acc" if form == "last_word" else "exact_match"].worst == 0
    assert np.isnan(measures["prob"].worst)


def test_items_documents_and_bands_come_from_the_rows(choices):
    _, _, measures = choices
    for measure in measures.values():
        assert list(measure.items) == [str(n) for n in range(6)]
        assert list(measure.documents) == [row["topic"] for row in ROWS]
        assert list(measure.bands) == [str(row["gold"]) for row in ROWS]


@pytest.mark.parametrize("target", ["gold", "{{[gold]}}", "{{choices[gold]}}"])
def test_the_reference_of_a_task_that_writes_is_the_choice_that_its_target_counts(tmp_path, module, target):
    """lm-eval compares what is written with `doc_to_choice(doc)[target]`; a target in words it cannot take."""
    writes = {"output_type": "generate_until", "generation_kwargs": {"until": ["."], "max_gen_toks": 4}}
    spec = write_task(tmp_path, **writes, doc_to_target=target, metric_list=[{"metric": "exact_match"}])
    (task,) = gather(find(settings(spec), tmp_path), settings(spec), Model.from_module(module, byte_tokenizer()))
    for question, sequence in zip(task.questions, task.sequences, strict=True):
        want = f" {question.doc['choices'][question.doc['gold']]}"
        assert byte_tokenizer().decode(sequence.tokens[sequence.start :]) == want


def test_a_reference_beyond_the_choices_is_told_before_anything_is_scored(tmp_path, module):
    writes = {"output_type": "generate_until", "generation_kwargs": {"until": ["."], "max_gen_toks": 4}}
    spec = write_task(
        tmp_path, rows=[ROWS[0], ROWS[1] | {"gold": 3}], **writes, metric_list=[{"metric": "exact_match"}]
    )
    with pytest.raises(UserError, match="own, item 1: right answer 3 is not among 3 choices"):
        gather(find(settings(spec), tmp_path), settings(spec), Model.from_module(module, byte_tokenizer()))


@pytest.mark.case("F7")
def test_prompt_and_form_are_hashed_apart_from_the_data(tmp_path, module):
    variants = {
        "plain": {},
        "same": {},
        "prompt": {"doc_to_text": "Say: {{query}}"},
        "letters": {"doc_to_choice": ["A", "B", "C"]},
        "rows": {"rows": ROWS[:5]},
    }
    found = {}
    for name, changes in variants.items():
        spec = write_task(tmp_path, **changes)
        results, _, _ = scored(module, settings(spec), tmp_path)
        found[name] = (results.template_hash, results.data_hash)
    assert found["plain"] == found["same"]
    assert len({template for template, _ in found.values()}) == 3
    assert [found[name][1] == found["plain"][1] for name in ("prompt", "letters", "rows")] == [True, True, False]


def test_scoring_leaves_torch_as_it_was(tmp_path, module):
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    scored(module, settings(write_task(tmp_path), num_fewshot=2), tmp_path)
    assert torch.equal(torch.rand(2), want)
