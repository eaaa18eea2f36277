"""A setting that does not exist, or a value that Hydra refuses: one short message that names it and the way out."""

import pytest
from hydra.errors import HydraException

from harness.refusals import in_words, misspelt, odd_task_options
from tests.runs import composed


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("quant.fnn.group_size=32", "quant.fnn: there is no such setting or group. Did you mean quant.ffn?"),
        ("+quant.ffn.group=32", "quant.ffn.group: there is no such setting or group."),
        ("modle=tiny", "Did you mean model?"),
        ("+exq=int4_split", "Did you mean exp?"),
        ("eval.perplexity.pth=x", "Did you mean eval.perplexity.path?"),
    ],
)
def test_a_misspelt_name_is_told_with_the_nearest_one(argument, words):
    assert words in misspelt(["model=tiny", argument])


@pytest.mark.parametrize(
    "argument",
    [
        "+exp=int4_split", "quant.ffn.group_size=32", "+model.config.hidden_size=64", "hydra/launcher=joblib",
        "++eval.task_options={arc_easy: {limit: 3}}", "hydra.sweep.dir=x", "-m", "--cfg", "~model.name", "model=tiny",
        "quant.overrides=[{match: a=b}]",
    ],
)  # fmt: skip
def test_what_exists_or_is_hydras_own_is_left_to_hydra(argument):
    assert misspelt([argument]) == ""


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("+exp=int4_splt", "exp=int4_splt: there is no such choice. Did you mean int4_split? There are "),
        ("eval=qick", "eval=qick: there is no such choice. Did you mean quick? There are full, none, "),
        ("quant.ffn.group_size=abc", "quant.ffn.group_size=abc: Value 'abc' of type 'str' could not be converted"),
        ("calib.seeds=null", "calib.seeds=null: field 'calib.seeds' cannot be null"),
        ("exp=int4_split", "To append to your default list use +exp=int4_split"),
        ("model.path=~/x", "odd characters need quotes twice: 'name=\"value\"'"),
    ],
)
def test_hydras_words_are_kept_to_what_helps(argument, words):
    with pytest.raises(HydraException) as caught:
        composed(argument)
    said = in_words(caught.value)
    assert words in said and len(said.splitlines()) <= 3
    assert not any(noise in said for noise in ("full_key", "object_type", "provider=", "Traceback", "schema"))


FORM = "'+eval.task_options={arc_easy: {limit: 9}}'"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("eval.task_options.arc_easy.limit=9", f"Write {FORM}"),
        ("++eval.task_options.arc_easy.limit=9", f"Write {FORM}"),
        ("eval.task_options.arc_easy={limit: 9}", f"Write {FORM}"),
        ("eval.task_options={arc_easy: {limit: 9}}", f"Write {FORM}"),
        ("eval.task_options={a: {chat_template: true}}", "{a: {chat_template: true}}"),
        ("eval.task_options={arc_easy: 9}", f"give each task's options by its name. As in {FORM}"),
        ("+eval.task_options.arc_easy=9", "give each task's options by its name"),
        ("+eval.task_options={arc_easy: null}", "give each task's options by its name"),
        ("eval.task_options=[arc_easy]", "give each task's options by its name"),
        ("eval.task_options=9", "give each task's options by its name"),
        ("+eval.task_options={arc_easy: {limt: 9}}", "limt is no option of a task. There are chat_template, limit"),
    ],
)
def test_options_of_a_task_in_any_other_form_are_told_the_one_that_works(argument, words):
    said = odd_task_options(["model=tiny", argument])
    assert words in said and said.startswith(f"{argument}: ") and "\n" not in said


@pytest.mark.parametrize(
    "argument",
    ["eval.task_options={}", "+eval.task_options={a: {limit: 9}, b: {num_fewshot: 1}}", "eval.limit=3", "-m"],
)
def test_the_form_that_works_is_left_alone_and_works(argument):
    assert odd_task_options([argument]) == ""
    if argument.startswith("+"):
        assert composed(argument).eval.task_options["b"].num_fewshot == 1
