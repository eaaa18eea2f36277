"""Few-shot examples and chat templates: lm-eval's own prompts, and which rows were shown is known afterwards."""

import numpy as np
import pandas as pd
import pytest
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM

from harness.config import EvalConfig, Sampler, TaskOptions
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.model.load import Model, open_model
from harness.plan import base_arm
from harness.score.gather import find, gather
from harness.score.library import load
from harness.scoring import Scoring
from harness.weigh import Weigher
from tests.runs import composed, ran
from tests.score.questions import ROWS, write_task

CHAT = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def chatty(template=CHAT, add_bos=False):
    tokenizer = byte_tokenizer(add_bos)
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="module")
def module():
    return open_model(composed("model=tiny").model).module


def built(module, folder, spec, tokenizer=None, **changes):
    config = EvalConfig(general=[spec], **changes)
    (task,) = gather(find(config, folder), config, Model.from_module(module, tokenizer or byte_tokenizer()))
    return task


def results(module, task):
    model = Model.from_module(module, task.encoder.tokenizer)
    scores = Scoring(composed("model=tiny"), model, [base_arm()], [task]).scores(Weigher(model.sites), None)
    return task.results(scores), scores


@pytest.mark.parametrize("shots", [0, 2])
@pytest.mark.parametrize("delimiter", [" ", ""])
def test_a_chat_template_gives_lm_evals_prompts_and_scores(tmp_path, module, shots, delimiter):
    changes = {"fewshot_split": "test", "target_delimiter": delimiter, "description": "Answer."}
    spec = write_task(tmp_path, **changes)
    task = built(module, tmp_path, spec, chatty(), num_fewshot=shots, chat_template=True)
    (reference,) = load(spec, tmp_path)
    reference.set_config("num_fewshot", shots)
    reference.set_fewshot_seed(1234)
    backend = HFLM(pretrained=module, tokenizer=chatty(), batch_size=3, add_bos_token=False)
    found = evaluate(backend, {"own": reference}, apply_chat_template=True, fewshot_as_multiturn=True,
                     bootstrap_iters=0, log_samples=True, verbosity="ERROR")  # fmt: skip
    assert found is not None
    samples = sorted(found["samples"]["own"], key=lambda sample: sample["doc_id"])
    want = [list(arguments) for sample in samples for arguments in sample["arguments"]]
    assert want == [list(i.args) for q in task.questions for i in q.instances]
    assert want[0][0].count("[user]") == shots + 1 and want[0][0].startswith("[system]Answer.")
    _, scores = results(module, task)
    ends = np.cumsum([s.scored for s in task.sequences])[:-1]
    got = [part.sum() for part in np.split(scores.logp_AS[0], ends)]
    np.testing.assert_allclose(got, [float(r[0][0]) for s in samples for r in s["resps"]], atol=1e-4)


@pytest.mark.case("F7")
def test_the_dress_is_in_protocol_and_hashes_and_one_task_may_differ(tmp_path, module):
    spec = write_task(tmp_path)
    off, on, other, own = (
        built(module, tmp_path, spec, chatty()),
        built(module, tmp_path, spec, chatty(), chat_template=True),
        built(module, tmp_path, spec, chatty(CHAT + " "), chat_template=True),
        built(module, tmp_path, spec, chatty(), task_options={"own": TaskOptions(chat_template=True)}),
    )
    found = [results(module, task)[0] for task in (off, on, other, own)]
    assert found[0].protocol["chat_template"] == "off" and "examples as turns" in found[1].protocol["chat_template"]
    assert len({r.template_hash for r in found[:3]}) == len({r.protocol["chat_template"] for r in found[:3]}) == 3
    assert found[3].template_hash == found[1].template_hash and len({t.fingerprint for t in (off, on, other)}) == 3


@pytest.mark.case("F3")
def test_a_bos_of_the_template_and_one_of_the_tokenizer_are_one(tmp_path, module):
    task = built(module, tmp_path, write_task(tmp_path), chatty("<s>" + CHAT, add_bos=True), chat_template=True)
    assert all(s.tokens[0] == 0 and s.tokens.count(0) == 1 and s.start > 1 for s in task.sequences)


def test_a_tokenizer_without_a_template_is_told(tmp_path, module):
    with pytest.raises(UserError, match=r"eval\.chat_template=true: this model's tokenizer has no chat template"):
        built(module, tmp_path, write_task(tmp_path), chat_template=True)


@pytest.mark.case("F9")
@pytest.mark.parametrize("sampler", [None, Sampler.first_n])
@pytest.mark.parametrize("split", ["test", None])
def test_the_rows_shown_are_noted(tmp_path, module, sampler, split):
    spec = write_task(tmp_path, fewshot_split=split)
    task = built(module, tmp_path, spec, num_fewshot=2, sampler=sampler, limit=4)
    for question in task.questions:
        assert len(question.shots) == 2 and not (split and int(question.item) in question.shots)
        shown = "".join(f"{ROWS[n]['query']} {ROWS[n]['choices'][ROWS[n]['gold']]}\n\n" for n in question.shots)
        assert question.instances[0].args[0] == shown + question.doc["query"]


@pytest.mark.case("F9")
def test_other_rows_shown_are_another_protocol_and_none_is_said(tmp_path, module):
    spec = write_task(tmp_path, fewshot_split="test")
    marks = [
        results(module, built(module, tmp_path, spec, num_fewshot=n, seed=seed))[0].protocol["shots"]
        for n, seed in ((0, 0), (2, 0), (2, 0), (2, 1), (3, 0))
    ]
    assert marks[0] == "none" and marks[1] == marks[2] and len(set(marks)) == 4


@pytest.mark.case("F9")
def test_one_task_may_draw_its_examples_by_a_seed_of_its_own(tmp_path, module):
    spec = write_task(tmp_path, fewshot_split="test")

    def task(seed, own):
        options = {"own": TaskOptions(seed=own)}
        return built(module, tmp_path, spec, num_fewshot=2, seed=seed, task_options=options)

    run, other, same, zero = task(0, None), task(0, 1), task(1, None), task(1, 0)
    shots = [[question.shots for question in made.questions] for made in (run, other, same, zero)]
    assert shots[0] == shots[3] != shots[1] == shots[2]  # 0 is a seed, not unset
    protocols = [results(module, made)[0].protocol for made in (run, other, same, zero)]
    assert [p["shots_seed"] for p in protocols] == [0, 1, 1, 0]
    assert protocols[1] == protocols[2] != protocols[0]
    assert run.fingerprint == zero.fingerprint != other.fingerprint


def test_a_run_keeps_the_rows_shown_and_the_popularity_of_every_question(tmp_path):
    rows = [row | {"views": 10.0 * n} for n, row in enumerate(ROWS)]
    spec = write_task(tmp_path, rows=rows, fewshot_split="test", metadata={"popularity": "views", "document": "topic"})
    few = ("eval=none", f"eval.knowledge=[{spec}]", "eval.num_fewshot=1", "eval.sampler=first_n")
    _, items = ran(tmp_path, "+exp=int4_ffn_only", "model=tiny", "attribute.resamples=200", *few)
    (path,) = tmp_path.glob("outputs/*/*/questions.parquet")
    kept = pd.read_parquet(path)
    assert list(kept) == ["subset", "task", "item_id", "doc_id", "band", "popularity", "shots"]
    assert [list(own) for own in kept["shots"]] == [[1], [0], [0], [0], [0], [0]]
    assert list(kept["popularity"]) == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    joined = items.merge(kept, on=["subset", "task", "item_id", "doc_id", "band"])
    assert len(joined) == len(items)


def test_shipped_suites_take_examples_from_their_other_rows(tmp_path, module):
    task = built(module, tmp_path, "qh_city_country", num_fewshot=3, limit=20)
    assert all(len(set(q.shots)) == 3 and int(q.item) not in q.shots for q in task.questions)
