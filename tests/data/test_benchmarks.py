"""Task files for public benchmarks: they load, and their requests have the form that golden figures were made with."""

from pathlib import Path

import pytest

from harness.config import EvalConfig
from harness.model.byte_tokenizer import byte_tokenizer
from harness.score.encode import Encoder
from harness.score.library import build_tasks, find_tasks, load

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT.parent / "shared" / "data" / "benchmarks"
TASKS = sorted((ROOT / "tests" / "benchmarks").glob("*.yaml"))
COUNTS = {
    "arc_easy": 2376,
    "arc_challenge": 1172,
    "piqa": 1838,
    "openbook_qa": 500,
    "lambada": 5153,
    "nq_closed": 824,
    "nq_open": 824,
    "triviaqa": 3000,
    "popqa": 2000,
    "mmlu_redux": 2000,
    "blimp": 6700,
}
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason=f"public benchmark files are not at {BENCHMARKS}")


def one(name):
    (task,) = load(f"tests/benchmarks/{name}.yaml", ROOT)
    task.build_all_requests(limit=2)
    return task


@pytest.mark.parametrize("name", [path.stem for path in TASKS])
def test_loads_and_names_its_fields(name):
    task = one(name)
    assert len(task.eval_docs) == COUNTS.get(name, len(task.eval_docs))
    fields = {field for key, field in task.config.metadata.items() if key in ("document", "band", "popularity")}
    assert fields <= set(task.eval_docs[0])
    assert task.instances[0].args[0] or name == "blimp"


@pytest.mark.parametrize("name", ["arc_easy", "piqa", "openbook_qa"])
def test_choice_requests_are_query_space_choice(name):
    task = one(name)
    row = task.eval_docs[0]
    assert [i.args for i in task.instances[: len(row["choices"])]] == [
        (row["query"], f" {choice}") for choice in row["choices"]
    ]


@pytest.mark.parametrize("name", ["nq_closed", "triviaqa", "lambada", "popqa", "lre_company_hq"])
def test_answers_follow_one_space(name):
    context, answer = one(name).instances[0].args
    assert answer[0] == " " and answer[1] != " " and not context.endswith(" ")


def test_open_and_closed_book_ask_the_same():
    closed, opened = one("nq_closed").eval_docs, one("nq_open").eval_docs
    assert closed["answer"] == opened["answer"]
    assert all(o.endswith(c) for o, c in zip(opened["context"], closed["context"], strict=True))


def test_open_and_closed_book_have_the_same_documents():
    config = EvalConfig(
        knowledge=["tests/benchmarks/nq_closed.yaml"], context=["tests/benchmarks/nq_open.yaml"], limit=5
    )
    tasks = build_tasks(find_tasks(config, ROOT), config, Encoder(byte_tokenizer(), config.bos, 100_000), 258)
    closed, opened = ([q.document for q in task.questions] for task in tasks)
    assert closed == opened and len(set(closed)) == 5


def test_popularity_bands():
    rows = one("popqa").eval_docs
    assert {row["band"] for row in rows if row["s_pop"] >= 5_000} == {"popular"}
    assert {row["band"] for row in rows if row["s_pop"] < 300} == {"rare"}
