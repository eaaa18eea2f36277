"""Tasks are found by name or file, and whatever is wrong with one is said in a few lines that name it."""

import json

import pytest
import yaml
from datasets import Dataset, DatasetDict
from datasets.exceptions import DatasetNotFoundError

from harness.config import EvalConfig, Sampler, TaskOptions, TooLong
from harness.data import items as shipped_items
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.score.encode import Encoder
from harness.score.library import SUITES, build_tasks, find_tasks, load
from harness.score.library import _all_tasks as load_all
from harness.score.tasks import OURS
from tests.runs import composed
from tests.score.questions import CHOICE, ROWS, write_task


def built(config, folder):
    """A run's tasks with their requests."""
    return build_tasks(find_tasks(config, folder), config, Encoder(byte_tokenizer(), config.bos, 2048), 258)


def own(folder, rows=None, config=None, **changes):
    """The one task of a file written for the test."""
    (task,) = built(config or EvalConfig(general=[write_task(folder, rows=rows, **changes)]), folder)
    return task


def rows_with(**change):
    """Rows of which the third is different."""
    return [*ROWS[:2], ROWS[2] | change, *ROWS[3:]]


@pytest.mark.parametrize("name", sorted(path.stem for path in SUITES.glob("*.yaml")))
def test_every_shipped_suite_loads_by_name_and_every_row_makes_requests(name, tmp_path):
    (task,) = built(EvalConfig(general=[f"qh_{name}"], limit=12), tmp_path)
    assert task.name == f"qh_{name}" and len(task.questions) == 12
    assert all(question.document for question in task.questions)


def test_shipped_data_says_where_it_is_from():
    assert shipped_items is not None
    text = (SUITES.parent / "PROVENANCE.md").read_text(encoding="utf-8")
    for path in SUITES.glob("*.jsonl"):
        assert path.stem in text, path.stem


def test_files_are_found_beside_their_yaml_and_paths_begin_where_they_should(tmp_path, monkeypatch):
    (tmp_path / "tasks").mkdir()
    write_task(tmp_path / "tasks")
    monkeypatch.chdir("/")
    (by_relative,) = load("tasks/own.yaml", tmp_path)
    (by_absolute,) = load(str(tmp_path / "tasks" / "own.yaml"), tmp_path)
    assert by_relative.task_name == by_absolute.task_name == "own"


def test_parquet_and_several_files_work(tmp_path):
    import pandas as pd

    pd.DataFrame(ROWS).to_parquet(tmp_path / "rows.parquet")
    spec = write_task(tmp_path, dataset_path="parquet", dataset_kwargs={"data_files": {"test": ["rows.parquet"]}})
    (task,) = built(EvalConfig(general=[spec]), tmp_path)
    assert len(task.questions) == 6


@pytest.mark.case("F21")
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no_such_task", r"no task is called 'no_such_task'\. Nearest names: no_such_test"),
        ("qh_city_countri", "qh_city_country"),
        ("missing.yaml", "task file missing.yaml does not exist"),
        ("no_dta.yaml", r"does not exist \(looked for .*\)\. Nearest there: no_data\.yaml"),
        ("broken.yaml", "broken.yaml is no task file: ParserError"),
        ("list.yaml", "list.yaml is no task file"),
        ("include.yaml", "include.yaml is no task file"),
        ("no_data.yaml", "data file nothing.jsonl is not there"),
        ("empty_data.yaml", "empty.jsonl is empty"),
    ],
)
def test_a_name_or_file_that_is_not_there_is_told_before_anything_is_scored(tmp_path, monkeypatch, spec, words):
    index = type("Index", (), {"all_tasks": ["no_such_test", "arc_easy"]})
    monkeypatch.setattr("harness.score.library._all_tasks", lambda: index)
    (tmp_path / "broken.yaml").write_text("task: [a\n  b: {")
    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "include.yaml").write_text("include: nowhere.yaml\ntask: a\n")
    (tmp_path / "empty.jsonl").write_text("")
    for name, file in (("no_data", "nothing.jsonl"), ("empty_data", "empty.jsonl")):
        write_task(tmp_path, name, dataset_kwargs={"data_files": {"test": file}})
    with pytest.raises(UserError, match=words) as error:
        find_tasks(EvalConfig(general=[spec]), tmp_path)
    assert str(error.value).count("\n") < 4


@pytest.mark.slow
@pytest.mark.case("F21")
def test_the_index_of_lm_evals_own_tasks_knows_the_usual_ones():
    from harness.score.library import _all_tasks

    assert {"arc_easy", "piqa", "mmlu", "wikitext", "lambada_openai"} <= set(_all_tasks().all_tasks)


@pytest.mark.case("F18")
def test_a_loading_script_is_refused_and_local_files_are_offered(tmp_path):
    (tmp_path / "script.py").write_text("import datasets\n")
    spec = write_task(tmp_path, dataset_path=str(tmp_path / "script.py"), dataset_kwargs=None)
    with pytest.raises(UserError, match=r"scripts are no longer supported(.|\n)*parquet"):
        find_tasks(EvalConfig(general=[spec]), tmp_path)


@pytest.mark.case("F19")
def test_offline_a_task_of_the_hub_is_refused_and_one_of_local_files_works(tmp_path, monkeypatch):
    for switch in ("datasets.config.HF_HUB_OFFLINE", "huggingface_hub.constants.HF_HUB_OFFLINE"):
        monkeypatch.setattr(switch, True)
    remote = write_task(tmp_path, "remote", dataset_path="owner/no-such-data", dataset_kwargs=None)
    with pytest.raises(
        UserError, match=r"task remote\.yaml cannot be loaded(.|\n)*owner/no-such-data(.|\n)*local file"
    ):
        find_tasks(EvalConfig(general=[remote]), tmp_path)
    assert len(built(EvalConfig(general=[write_task(tmp_path, "local")]), tmp_path)) == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(
            ConnectionError("Couldn't reach 'owner/data' on the Hub (offline)\nmore"),
            r"task own.yaml cannot be loaded: ConnectionError: .*offline\)\.\n.*local file",
            marks=pytest.mark.case("F19"),
        ),
        pytest.param(
            DatasetNotFoundError("Dataset 'owner/data' is a gated dataset on the Hub. You must be authenticated."),
            r"'owner/data' is a gated dataset(.|\n)*A local file always works",
            marks=pytest.mark.case("F23"),
        ),
    ],
    ids=["offline", "gated"],
)
def test_data_that_the_hub_does_not_give_is_named_with_the_way_out(tmp_path, monkeypatch, error, words):
    def refusing(*args, **kwargs):
        raise error

    monkeypatch.setattr("datasets.load_dataset", refusing)
    spec = write_task(tmp_path, dataset_path="owner/data", dataset_kwargs=None)
    with pytest.raises(UserError, match=words):
        find_tasks(EvalConfig(general=[spec]), tmp_path)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"choices": []}, "own, item 2: no request can be made of it. Has it no choices"),
        ({"choices": ["red"]}, "own, item 2: 1 choice"),
        ({"choices": ["red", "", "blue"]}, "own, item 2: one of its choices is empty"),
        ({"choices": ["red", " ", "blue"]}, "own, item 2: one of its choices is empty"),
        ({"choices": ["red", None, "blue"]}, "own, item 2: one of its choices is empty or no text"),
        ({"gold": 3}, "own, item 2: right answer 3 is not among 3 choices"),
        ({"gold": -1}, "own, item 2: right answer -1 is not among 3 choices"),
        ({"query": "long " * 900}, "own, item 2: .* tokens, but the model has 2048 positions"),
    ],
)
def test_a_row_that_cannot_be_scored_is_named(tmp_path, row, words):
    with pytest.raises(UserError, match=words):
        own(tmp_path, rows_with(**row))


@pytest.mark.parametrize("row", [{"choices": ["", "blue"]}, {"gold": 3}])
def test_a_first_row_that_lm_eval_itself_stumbles_over_is_told_as_the_tasks(tmp_path, row):
    with pytest.raises(UserError, match=r"task own.yaml cannot be loaded: IndexError(.|\n)*answer among its choices"):
        own(tmp_path, [ROWS[0] | row, *ROWS[1:]])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"doc_to_text": "{{nothing.there}}"}, "'nothing' is undefined"),
        ({"metric_list": [{"metric": "wrong", "aggregation": "mean", "higher_is_better": True}]}, "no metric wrong"),
        ({"num_fewshot": 7}, "with 7 examples: ValueError"),
        ({"num_fewshot": 6, "fewshot_split": "test"}, "with 6 examples: ValueError"),
        ({"output_type": "no_such_type"}, "own.yaml cannot be loaded"),
    ],
)
def test_a_yaml_that_asks_for_the_impossible_is_told_as_the_tasks(tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        own(tmp_path, **changes)


def test_words_may_stand_for_the_right_choice_and_several_may_be_right(tmp_path):
    task = own(tmp_path, rows_with(), doc_to_target="{{choices[gold]}}")
    assert [question.gold for question in task.questions] == [[row["gold"]] for row in ROWS]
    several = own(tmp_path, [row | {"gold": [0, 2]} for row in ROWS])
    assert all(question.gold == [0, 2] for question in several.questions)


@pytest.mark.parametrize("entry", [["arc_easy"], {"name": "arc_easy"}])
def test_an_entry_that_is_no_name_is_refused(tmp_path, entry):
    with pytest.raises(UserError, match=r"eval\.knowledge: .* is no task\. List names or paths"):
        find_tasks(EvalConfig(knowledge=[entry]), tmp_path)


def test_a_task_listed_twice_would_be_counted_twice_and_is_refused(tmp_path):
    spec = write_task(tmp_path)
    with pytest.raises(UserError, match=r"own in eval\.general: listed twice"):
        find_tasks(EvalConfig(general=[spec, spec]), tmp_path)
    assert [subset for subset, *_ in find_tasks(EvalConfig(general=[spec], context=[spec]), tmp_path)] == [
        "general",
        "context",
    ]


def test_options_of_a_task_come_before_those_of_the_run(tmp_path):
    a, b = write_task(tmp_path, "a"), write_task(tmp_path, "b")
    options = {"b": TaskOptions(num_fewshot=1, sampler=Sampler.first_n, limit=2)}
    first, second = built(EvalConfig(general=[a, b], limit=4, num_fewshot=0, task_options=options), tmp_path)
    assert (len(first.questions), len(second.questions)) == (4, 2)
    contexts = [task.questions[0].instances[0].args[0] for task in (first, second)]
    assert contexts[0] == ROWS[0]["query"] and contexts[1].startswith(f"{ROWS[0]['query']} red\n\n")


def test_a_task_that_asks_for_no_examples_gets_them_only_by_its_own_name(tmp_path, caplog):
    """As with lm-eval: its `num_fewshot: 0` is meant, and a number for all tasks is not for it."""
    caplog.set_level("INFO", "harness.score")
    a, b = write_task(tmp_path, "a", num_fewshot=0), write_task(tmp_path, "b", num_fewshot=1)
    options = {"a": TaskOptions(num_fewshot=3)}
    plain, named, shown = (
        *built(EvalConfig(general=[a, b], num_fewshot=2), tmp_path)[:1],
        *built(EvalConfig(general=[a], num_fewshot=2, task_options=options), tmp_path),
        *built(EvalConfig(general=[b], num_fewshot=2), tmp_path),
    )
    assert [len(task.questions[0].shots) for task in (plain, named, shown)] == [0, 3, 2]
    assert [r.message.split(":")[0] for r in caplog.records if "num_fewshot" in r.message] == ["a"]


@pytest.mark.case("F9")
@pytest.mark.parametrize(("changes", "said"), [({}, 1), ({"fewshot_split": "test"}, 0), ({"num_fewshot": 0}, 0)])
def test_examples_that_may_give_the_answer_away_are_said(tmp_path, caplog, changes, said):
    task = own(tmp_path, **{"num_fewshot": 5, **changes})
    assert len([r for r in caplog.records if "Set fewshot_split" in r.message]) == said
    if changes.get("fewshot_split"):
        for question in task.questions:
            assert question.instances[0].args[0].count(question.doc["query"]) == 1


@pytest.mark.parametrize("config", [{"general": ["own.yaml"]}, {}])
def test_options_of_a_task_that_is_not_there_are_refused(tmp_path, config):
    write_task(tmp_path)
    with pytest.raises(UserError, match=r"eval\.task_options\.onw: this run has"):
        find_tasks(EvalConfig(task_options={"onw": TaskOptions(limit=1)}, **config), tmp_path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"limit": 7}, r"eval\.limit=7: no task has so many questions; the largest has 6\."),
        ({"task_options": {"a": TaskOptions(limit=7)}}, r"eval\.task_options\.a\.limit=7: the task has 6 questions"),
        ({"limit": 5, "task_options": {"b": TaskOptions(limit=4)}}, r"b\.limit=4: the task has 3 questions"),
    ],
)
def test_a_limit_that_limits_nothing_is_refused(tmp_path, config, words):
    specs = [write_task(tmp_path, "a"), write_task(tmp_path, "b", ROWS[:3])]
    with pytest.raises(UserError, match=words):
        find_tasks(EvalConfig(general=specs, **config), tmp_path)


def test_a_limit_for_all_tasks_is_for_those_that_have_more_and_the_others_are_named(tmp_path, caplog):
    specs = [write_task(tmp_path, "a"), write_task(tmp_path, "b", ROWS[:3])]
    with caplog.at_level("INFO"):
        assert [len(task.questions) for task in built(EvalConfig(general=specs, limit=4), tmp_path)] == [4, 3]
    assert "eval.limit=4: scored whole, as they have fewer questions: b (3)" in caplog.text


@pytest.mark.case("H14")
def test_names_that_readers_take_for_missing_stay_words(tmp_path):
    rows = [row | {"topic": word} for row, word in zip(ROWS, ("None", "null", "NA", "nan", "", "n/a"), strict=True)]
    spec = write_task(tmp_path, "NA", rows, metadata={"version": 1.0, "document": "topic"})
    (task,) = built(EvalConfig(general=[spec]), tmp_path)
    assert [question.document for question in task.questions] == ["None", "null", "NA", "nan", "", "n/a"]


def test_the_users_yaml_is_lm_evals_own_format(tmp_path):
    write_task(tmp_path)
    config = yaml.safe_load((tmp_path / "own.yaml").read_text(encoding="utf-8"))
    assert CHOICE.items() <= config.items()
    assert len([json.loads(line) for line in (tmp_path / "own.jsonl").read_text(encoding="utf-8").splitlines()]) == 6


PAGE = [{"text": f"Name: device {n}. Maker: Acme {n}. Name: device", "key": "Name", "value": str(n)} for n in range(3)]


@pytest.mark.parametrize("name", ["fda", "swde"])
def test_the_tasks_of_lm_eval_that_copy_facts_from_a_page_are_asked_and_scored(name, tmp_path, monkeypatch):
    """With rows of our own in place of those on the hub."""
    asked = EvalConfig(context=[name])
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: DatasetDict(validation=Dataset.from_list(PAGE)))
    (task,) = built(asked, tmp_path)
    assert [write.args[0] for write in task.writes] == [row["text"] for row in PAGE]
    assert [task.task.doc_to_target(q.doc) for q in task.questions] == ["0", "1", "2"]
    assert task.metrics == [*(name for name in OURS if name != "margin"), "contains"]
    assert task.task.process_results(PAGE[1], [" 1, made by Acme"]) == {"contains": 1}


def test_the_full_presets_tasks_are_lm_evals():
    known = load_all().all_tasks
    full = composed("+exp=int4_split", "eval=full").eval
    assert [task for tasks in full.by_subset().values() for task in tasks if task not in known] == []
    assert full.context and full.too_long is TooLong.drop


WRITES = {
    "output_type": "generate_until", "doc_to_choice": None, "doc_to_target": "{{choices[gold]}}",
    "generation_kwargs": {"until": ["."], "max_gen_toks": 2040, "do_sample": False},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}  # fmt: skip


@pytest.mark.parametrize("changes", [{"doc_to_text": "{{query}}" + "a" * 2048}, WRITES])
def test_a_task_too_long_for_the_model_is_refused_or_left_out(changes, tmp_path, caplog):
    specs = [write_task(tmp_path, "long", **changes), write_task(tmp_path, "short")]
    with pytest.raises(UserError, match=r"long.* but the model has 2048 positions"):
        built(EvalConfig(general=specs), tmp_path)
    (left,) = built(EvalConfig(general=specs, too_long=TooLong.drop), tmp_path)
    assert left.name == "short"
    assert ["eval.too_long=drop leaves long out: long" in record.message for record in caplog.records] == [True]


def test_a_group_of_which_one_task_is_too_long_is_left_out_as_a_whole(tmp_path):
    a, b = write_task(tmp_path, "a"), write_task(tmp_path, "b", doc_to_text="{{query}}" + "a" * 2048)
    config = EvalConfig(general=[a, b], too_long=TooLong.drop)
    of_group = [found._replace(group="g") for found in find_tasks(config, tmp_path)]
    alone = find_tasks(EvalConfig(general=[write_task(tmp_path, "c")]), tmp_path)
    left = build_tasks([*of_group, *alone], config, Encoder(byte_tokenizer(), config.bos, 2048), 258)
    assert [task.name for task in left] == ["c"]
