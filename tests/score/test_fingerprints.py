"""A run's id is made of fingerprints: whatever changes a number or a row of a task changes the task's."""

from dataclasses import replace

import pytest

from harness.config import BosUse, ContextSuiteConfig, EvalConfig, PerplexityConfig, TooLong
from harness.model.byte_tokenizer import byte_tokenizer
from harness.score.context import ContextTask, context_tasks
from harness.score.encode import Encoder
from harness.score.library import build_tasks, find_tasks
from harness.score.perplexity import cut_text
from tests.score.questions import write_task

WRITES = {"output_type": "generate_until", "doc_to_choice": None, "doc_to_target": "{{choices[gold]}}",
          "generation_kwargs": {"until": ["."], "max_gen_toks": 4}}  # fmt: skip
METRIC = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}


def encoder():
    return Encoder(byte_tokenizer(), BosUse.auto, 4096)


def built(folder, spec):
    config = EvalConfig(general=[spec])
    (task,) = build_tasks(find_tasks(config, folder), config, encoder(), 258)
    return task


def template_hash(task):
    return task._template_hash()


@pytest.mark.parametrize(
    "change",
    [{"ignore_case": True}, {"regexes_to_ignore": [","]}, {"aggregation": "median"}, {"higher_is_better": False}],
)
def test_how_a_metric_is_taken_is_part_of_it(tmp_path, change):
    marks = [built(tmp_path, write_task(tmp_path, **WRITES, metric_list=[m])) for m in (METRIC, METRIC | change)]
    assert len({task.fingerprint for task in marks}) == len({template_hash(task) for task in marks}) == 2


def test_the_version_that_a_file_says_is_part_of_it(tmp_path):
    versions = [{"metadata": {"version": version}} for version in (1.0, 2.0)]
    marks = [built(tmp_path, write_task(tmp_path, **WRITES, metric_list=[METRIC], **own)) for own in versions]
    assert marks[0].fingerprint != marks[1].fingerprint


def with_code(folder, code):
    """A task whose results are processed by `utils.py` beside it."""
    (folder / "utils.py").write_text(code, encoding="utf-8")
    spec = write_task(folder, **WRITES, metric_list=[METRIC])
    yaml = folder / spec
    yaml.write_text(yaml.read_text(encoding="utf-8") + "process_results: !function utils.right\n", encoding="utf-8")
    return spec


CODE = """
def same(a, b): return a == b

def right(doc, results):
    return {'exact_match': same(results[0], doc['gold'])}
"""


@pytest.mark.parametrize(("old", "new"), [("results[0]", "results[-1]"), ("a == b", "a in b")])
def test_what_makes_values_of_answers_is_part_of_it(tmp_path, old, new):
    """The second change is to a function that the named one calls."""
    marks = []
    for number, code in enumerate((CODE, CODE, CODE.replace(old, new))):
        (tmp_path / str(number)).mkdir()
        marks.append(built(tmp_path / str(number), with_code(tmp_path / str(number), code)).fingerprint)
    assert marks[0] == marks[1] != marks[2]


def test_where_a_function_with_bound_arguments_lies_in_memory_is_not(tmp_path):
    code = "from functools import partial\n\ndef ask(doc, n): return doc['query'] * n\n\nright = partial(ask, n=2)\n"
    tasks = []
    for folder in (tmp_path / "0", tmp_path / "1"):
        folder.mkdir()
        spec = with_code(folder, code)
        text = (folder / spec).read_text(encoding="utf-8").replace("doc_to_text: '{{query}}'\n", "")
        (folder / spec).write_text(text.replace("process_results", "doc_to_text"), encoding="utf-8")
        tasks.append(built(folder, spec))
    places = [str(task.task.config.doc_to_text) for task in tasks]
    assert places[0] != places[1] and " at 0x" in places[0]
    assert tasks[0].fingerprint == tasks[1].fingerprint


def items():
    (task, *_) = context_tasks(ContextSuiteConfig(lengths=[400], documents=2), TooLong.error, encoder(), 258)
    return list(task.items)


def mark(made):
    return ContextTask("passkey_400", made, encoder(), 258, {}).fingerprint


@pytest.mark.parametrize("change", [{"gold": 3}, {"gold": 2}, {"document": "another"}, {"band": "another"}])
def test_what_the_context_suite_says_of_an_item_is_part_of_it(change):
    first, *rest = items()
    assert mark(items()) == mark(items())
    assert first.gold != change.get("gold")
    assert mark([replace(first, **change), *rest]) != mark([first, *rest])


def test_which_choices_belong_together_is_part_of_it():
    """The same tokens, cut into items elsewhere."""
    first = items()[0]
    one, two = (replace(first, choices=first.choices[part]) for part in (slice(0, 1), slice(1, 4)))
    one, two = replace(one, gold=0), replace(two, gold=0)
    other = [replace(one, choices=first.choices[:2]), replace(two, choices=first.choices[2:])]
    assert mark([one, two]) != mark(other)


def test_words_behind_the_last_window_count_in_word_perplexity():
    def windows(text):
        return cut_text(text, PerplexityConfig(path="a", window=10, max_windows=2), byte_tokenizer(), 258)

    one, other = windows("a sentence of some words"), windows("a sentence of some wordsandmore")
    assert one.sequences == other.sequences and one.tokens_per_word != other.tokens_per_word
    assert one.fingerprint != other.fingerprint
