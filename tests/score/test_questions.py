"""What a task file's metadata says of its rows: documents, bands, popularity, and which tasks ask the same."""

import pytest

from harness.config import EvalConfig
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.score.encode import Encoder
from harness.score.library import build_tasks, find_tasks
from tests.score.questions import ROWS, write_task


def asked(folder, *specs, **changes):
    """Questions of each task."""
    config = EvalConfig(knowledge=list(specs), **changes)
    tasks = build_tasks(find_tasks(config, folder), config, Encoder(byte_tokenizer(), config.bos, 2048), 258)
    return [task.questions for task in tasks]


def metadata(**fields):
    return {"metadata": {"version": 1.0, **fields}}


def popular(values):
    return [row | {"views": value} for row, value in zip(ROWS, values, strict=True)]


@pytest.mark.parametrize("key", ["document", "entity"])
def test_a_named_field_is_the_document(tmp_path, key):
    (questions,) = asked(tmp_path, write_task(tmp_path, **metadata(**{key: "topic"})))
    assert [q.document for q in questions] == [row["topic"] for row in ROWS]


def test_rows_of_different_tasks_are_different_documents_unless_one_asks_the_other_with_a_passage(tmp_path):
    closed, other = write_task(tmp_path, "closed"), write_task(tmp_path, "other")
    opened = write_task(tmp_path, "opened", doc_to_text="It is red. {{query}}", **metadata(closed_book="closed"))
    of_closed, of_opened, of_other = ([q.document for q in own] for own in asked(tmp_path, closed, opened, other))
    assert of_closed == of_opened and len(set(of_closed)) == 6 and not set(of_closed) & set(of_other)


def test_popularity_is_a_number_and_its_thirds_are_bands_where_none_is_named(tmp_path):
    rows = popular([5, 100, 30_000, "7", 200, 1e6])
    rows[3]["views"] = 7
    spec = write_task(tmp_path, rows=rows, **metadata(popularity="views"))
    (questions,) = asked(tmp_path, spec, limit=5)
    assert [q.popularity for q in questions] == [5.0, 100.0, 30_000.0, 7.0, 200.0]
    assert [q.band for q in questions] == ["rare", "middling", "popular", "rare", "middling"]
    (named,) = asked(tmp_path, write_task(tmp_path, rows=rows, **metadata(popularity="views", band="gold")))
    assert [q.band for q in named] == ["0", "1", "2", "0", "1", "2"] and named[0].popularity == 5.0


@pytest.mark.parametrize("key", ["document", "entity", "band", "popularity"])
def test_a_field_that_no_row_has_is_refused_with_those_there_are(tmp_path, key):
    spec = write_task(tmp_path, **metadata(**{key: "topics"}))
    with pytest.raises(UserError, match=rf"task own: metadata\.{key}=topics, but its rows have choices, gold, .*topic"):
        asked(tmp_path, spec)


def test_a_popularity_that_is_no_number_names_the_item(tmp_path):
    spec = write_task(tmp_path, rows=popular(["1", "2", "many", "4", "5", "6"]), **metadata(popularity="views"))
    with pytest.raises(UserError, match=r"own, item 2: metadata\.popularity=views is no number: 'many'"):
        asked(tmp_path, spec)
