"""What is shipped: well-formed, balanced, small, and exactly what the build script makes of its sources."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest
import yaml

import harness.data
from harness.data.build import TASKS, TEXTS, build
from harness.data.items import load_items
from harness.data.sources.prose import DOCUMENT_START, documents
from harness.score.library import load

DATA = Path(harness.data.__file__).parent
REGISTRY = Path(__file__).parents[3] / "shared" / "data" / "registry"
SUITES = sorted((DATA / "suites").glob("*.yaml"))


@pytest.mark.parametrize("task", TASKS)
def test_items_are_well_formed(task):
    items = load_items(DATA / "suites" / f"{task}.jsonl")
    for item in items:
        assert 0 <= item.gold < len(item.choices)
        assert len(set(item.choices)) == len(item.choices) >= 2
        assert all(choice == choice.strip() != "" for choice in item.choices)
        assert item.document and item.band
        assert item.query == item.query.strip()
    assert len({(item.query, item.choices) for item in items}) == len(items)


@pytest.mark.parametrize("task", TASKS)
def test_the_first_sixty_are_a_fair_cut(task):
    items = load_items(DATA / "suites" / f"{task}.jsonl")
    bands = Counter(item.band for item in items[:60])
    assert set(bands) == {item.band for item in items}
    assert max(bands.values()) - min(bands.values()) <= 1


@pytest.mark.parametrize("task", ["city_country", "wikidata", "grammar", "adjective_order", "everyday_physics"])
def test_three_hundred_items_a_band(task):
    bands = Counter(item.band for item in load_items(DATA / "suites" / f"{task}.jsonl"))
    assert min(bands.values()) >= 300


@pytest.mark.parametrize(
    ("task", "n_rows", "sha256"),
    [("adjective_order", 846, "b3ef994646657e25"), ("everyday_physics", 87, "d42134e7fdf2e4ec")],
)
def test_rows_that_results_were_recorded_with_stay_first(task, n_rows, sha256):
    rows = (DATA / "suites" / f"{task}.jsonl").read_bytes().splitlines(keepends=True)
    assert hashlib.sha256(b"".join(rows[:n_rows])).hexdigest()[:16] == sha256


@pytest.mark.parametrize("task", TASKS)
def test_the_place_of_the_right_answer_tells_nothing(task):
    items = [i for i in load_items(DATA / "suites" / f"{task}.jsonl") if len(i.choices) == 4]
    places = Counter(item.gold for item in items)
    assert all(abs(places[i] - len(items) / 4) <= 3.5 * (len(items) * 3 / 16) ** 0.5 for i in range(4))


@pytest.mark.parametrize("task", ["city_country", "country_currency", "entity_class", "wikidata", "everyday_physics"])
def test_knowing_only_which_answers_are_common_is_hardly_better_than_chance(task):
    items = load_items(DATA / "suites" / f"{task}.jsonl")
    for band in {item.band for item in items}:
        inside = [item for item in items if item.band == band]
        common = Counter(item.choices[item.gold] for item in inside)
        right = sum(max(item.choices, key=lambda c: common[c]) == item.choices[item.gold] for item in inside)
        assert right / len(inside) < 0.25 + 0.1


def test_every_passage_names_the_answer_and_every_question_does_not():
    for item in load_items(DATA / "suites" / "entity_class.jsonl"):
        assert item.passage and item.document in item.passage
        assert item.choices[item.gold].split()[-1] not in item.document.casefold().split()


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_lm_eval_reads_every_suite(path, tmp_path):
    (task,) = load(f"qh_{path.stem}", tmp_path)
    fields = task.config.metadata
    row = task.eval_docs[0]
    assert fields["document"] in row and fields["band"] in row
    assert fields.get("popularity", "query") in row
    assert task.doc_to_choice(row) == row["choices"]
    task.build_all_requests(limit=1)
    assert [i.args[1] for i in task.instances] == [f" {choice}" for choice in row["choices"]]
    assert task.instances[0].args[0].endswith(row["query"])
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["metadata"]["licence"]


def test_prose_is_the_golden_text_and_falls_into_documents():
    moby, sotu = ((DATA / "prose" / f"{name}.txt").read_bytes().decode("utf-8") for name in ("moby_dick", "sotu"))
    start = hashlib.sha256(moby[:30_000].encode()).hexdigest()
    assert start == "453c067e9d869e10f184dce26feacdd8c13179c8406d3a20eb82cf7210d7d857"
    chapters = documents(moby, DOCUMENT_START["moby_dick"])
    assert [chapter.split(".")[0] for chapter in chapters] == [f"CHAPTER {n}" for n in range(1, 29)]
    assert len(documents(sotu, DOCUMENT_START["sotu"])) == 12


def test_shipped_data_stay_small():
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.suffix in (".jsonl", ".txt")) < 6e6


@pytest.mark.skipif(not REGISTRY.is_dir(), reason=f"sources of the shipped data are not at hand ({REGISTRY})")
def test_the_build_script_makes_the_shipped_bytes(tmp_path):
    build(REGISTRY, tmp_path)
    made = [f"suites/{task}.jsonl" for task in TASKS] + [f"prose/{text}.txt" for text in TEXTS]
    assert [name for name in made if (tmp_path / name).read_bytes() != (DATA / name).read_bytes()] == []
