"""Every development benchmark beside lm-eval's own HF backend, on the real model in float32; and what packing saves.

experiments/benchmarks/lm_eval_pair.py does the same on 100 items of each.
"""

import numpy as np
import pytest
import torch

from experiments.benchmarks.lm_eval_pair import backend, ours, scored_tasks, settings, theirs
from harness.cut import form_packs
from harness.model.load import open_model
from harness.plan import base_arm
from harness.score.gather import find, gather
from harness.score.generate import write_answers
from harness.weigh import Weigher
from tests.data.test_benchmarks import BENCHMARKS, ROOT, TASKS
from tests.runs import composed
from tests.score.questions import write_task

needs_benchmarks = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason=f"public benchmark files are not at {BENCHMARKS}")
PATHS = [str(path) for path in TASKS]


@pytest.fixture(scope="module")
def opened():
    torch.set_num_threads(2)
    config = settings(PATHS, "smollm2_135m_raw", limit=4)
    model = open_model(config.model)
    return config, model, backend(config, model)


@pytest.mark.slow
@needs_benchmarks
def test_every_benchmark_has_lm_evals_log_likelihoods(opened):
    config, model, reference = opened
    tasks = scored_tasks(config, model)
    assert len(tasks) == len(PATHS) - 1  # triviaqa_generate writes
    got, want = ours(config, model, tasks)[0], theirs(reference, tasks)[0]
    ends = np.cumsum([len(task.sequences) for task in tasks])[:-1]
    far = {
        task.name: float(np.abs(a - b).max())
        for task, a, b in zip(tasks, np.split(got, ends), np.split(want, ends), strict=True)
    }
    assert {name: size for name, size in far.items() if size > 1e-4} == {}
    assert len(got) > 4 * len(tasks)


@pytest.mark.slow
@needs_benchmarks
def test_base_writes_what_the_checkpoint_writes_in_lm_eval(opened):
    config, model, reference = opened
    config = settings([p for p in PATHS if "generate" in p], "smollm2_135m_raw", limit=3)
    (task,) = gather(find(config.eval, ROOT), config.eval, model)
    write_answers([task], model, [base_arm()], Weigher(model.sites), None, 2048)
    assert task.answers == [reference.generate_until(task.writes, disable_tqdm=True)]
    assert any(answer.strip() for answer in task.answers[0])


def mmlu_like(folder):
    """Questions of MMLU's form and length, where its files are not."""
    rows = [
        {"question": f"Question {n}: " + "some words about a subject " * 12, "choices": ["one", "two", "three", "four"],
         "answer": n % 4}
        for n in range(80)
    ]  # fmt: skip
    text = "{{question.strip()}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:"
    changes = {"doc_to_text": text, "doc_to_choice": ["A", "B", "C", "D"], "doc_to_target": "answer"}
    return write_task(folder, rows=rows, fewshot_split="test", **changes)


def share_computed(model, *overrides, start=ROOT):
    """Tokens computed over those of every choice by itself, first_n examples."""
    config = composed("+exp=int4_ffn_only", "eval=none", "eval.num_fewshot=5", "eval.sampler=first_n", *overrides)
    (task,) = gather(find(config.eval, start), config.eval, model)
    return sum(map(len, form_packs(config, model, task.sequences))) / sum(len(s.tokens) - 1 for s in task.sequences)


@pytest.mark.parametrize("limit", [40, 80])
def test_five_shots_with_a_fixed_prefix_cost_at_most_a_tenth(tmp_path, limit):
    model = open_model(composed("model=tiny", "model.config.max_position_embeddings=8192").model)
    assert share_computed(model, f"eval.general=[{mmlu_like(tmp_path)}]", f"eval.limit={limit}", start=tmp_path) <= 0.1


@pytest.mark.slow
@needs_benchmarks
def test_so_does_mmlu_itself(opened):
    spec = "eval.general=[tests/benchmarks/mmlu_redux.yaml]"
    assert share_computed(opened[1], spec, "eval.limit=100") <= 0.1
