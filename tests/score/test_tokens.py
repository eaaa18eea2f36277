"""Token ids that were kept are those that would be made, to the bit, and are made once."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.config import BosUse, EvalConfig
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.model.cache import cache_folder
from harness.model.load import Model, open_model
from harness.score import tokens
from harness.score.encode import Encoder
from harness.score.gather import find, gather
from harness.score.tokens import Request, tokenized
from tests.runs import composed
from tests.score.questions import write_task
from tests.score.test_encode import PAIRS, merging_tokenizer
from tests.score.test_tasks import TASKS

REQUESTS = [
    *(Request(context, answer, "item") for context, answer in PAIRS),
    Request(None, "hello world " * 40, "text"),  # several windows
]


@pytest.fixture(autouse=True)
def all_kept(monkeypatch):
    """However small a task is."""
    monkeypatch.setattr(tokens, "LEAST_CHARACTERS", 0)


@pytest.fixture
def calls(monkeypatch):
    """Items that were encoded."""
    seen, made = [], tokens._made
    monkeypatch.setattr(tokens, "_made", lambda request, encoder: seen.append(request.item) or made(request, encoder))
    return seen


def encoder(tokenizer=None, bos=BosUse.auto, longest=64, reuse=True):
    return Encoder(tokenizer or merging_tokenizer(), bos, longest, reuse)


def entries():
    return sorted((cache_folder() / "tokens").glob("*/ids.safetensors"))


@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize("bos", [BosUse.auto, BosUse.always, BosUse.never])
def test_what_was_kept_is_what_would_be_made(calls, bos, add_bos):
    tokenizer = merging_tokenizer(add_bos)
    requests = [request for request in REQUESTS if request.answer not in ("llo", "rld")]  # no token of their own
    fresh = tokenized(requests, encoder(tokenizer, bos, reuse=False), "task")
    assert not entries()
    assert tokenized(requests, encoder(tokenizer, bos), "task") == fresh
    calls.clear()
    kept = tokenized(requests, encoder(tokenizer, bos), "task")
    assert kept == fresh and calls == [] and len(kept[-1]) > 1
    assert {type(token) for one in kept for sequence in one for token in sequence.tokens} == {int}


@pytest.mark.parametrize("name", TASKS)
def test_every_kind_of_task_is_the_same_with_and_without(tmp_path, calls, name):
    config = EvalConfig(general=[write_task(tmp_path, **TASKS[name])])
    model = Model.from_module(open_model(composed("model=tiny").model).module, byte_tokenizer())

    def task(reuse):
        calls.clear()
        (found,) = gather(find(config, tmp_path), config, model, reuse)
        return found.sequences, [list(span) for span in found._spans.values()], found.fingerprint, len(calls)

    plain, first, again = task(False), task(True), task(True)
    assert plain[:3] == first[:3] == again[:3]
    assert plain[3] == first[3] > 0 == again[3]


@pytest.mark.parametrize(
    "other",
    [
        {"bos": BosUse.always}, {"longest": 65}, {"tokenizer": byte_tokenizer()},
        {"tokenizer": merging_tokenizer(add_bos=True)},
    ],
)  # fmt: skip
def test_the_key_holds_the_tokenizer_and_its_settings(calls, other):
    requests = REQUESTS[:2]
    tokenized(requests, encoder(), "task")
    tokenized(requests, encoder(**other), "task")
    assert len(entries()) == 2 and len(calls) == 4


@pytest.mark.parametrize(
    "requests",
    [
        [Request("ab", " c", "item"), Request("d", " e", "item")], [Request("a", "b c", "item")],
        [Request("", "ab c", "item")], [Request(None, "ab c", "item")],
    ],
)  # fmt: skip
def test_the_key_holds_the_texts_and_where_they_are_cut(requests):
    tokenized([Request("ab", " c", "item")], encoder(), "task")
    tokenized(requests, encoder(), "task")
    assert len(entries()) == 2


def test_the_key_holds_the_code_and_no_name(monkeypatch):
    tokenized(REQUESTS[:1], encoder(), "task")
    tokenized([REQUESTS[0]._replace(item="other")], encoder(), "another task")
    assert len(entries()) == 1
    monkeypatch.setattr(tokens, "maker_version", lambda kind: f"other {kind}")
    tokenized(REQUESTS[:1], encoder(), "task")
    assert len(entries()) == 2


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[:-1] + b"\x7f"])
def test_a_damaged_entry_is_made_again(calls, caplog, damage):
    fresh = tokenized(REQUESTS[:2], encoder(), "task")
    (path,) = entries()
    path.write_bytes(damage(path.read_bytes()))
    calls.clear()
    with caplog.at_level("WARNING"):
        assert tokenized(REQUESTS[:2], encoder(), "task") == fresh
    assert len(calls) == 2 and "made again" in caplog.text
    assert tokenized(REQUESTS[:2], encoder(), "task") == fresh and len(calls) == 2


def test_runs_side_by_side_make_them_once(calls):
    together, requests = threading.Barrier(4), REQUESTS[:2]

    def one(_):
        own = encoder()
        together.wait()
        return tokenized(requests, own, "task")

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(one, range(4))
    assert all(other == first for other in others) and len(calls) == 2


def test_an_item_that_cannot_be_scored_is_named_and_nothing_is_kept():
    with pytest.raises(UserError, match="item 3: the answer"):
        tokenized([Request("he", "llo", "item 3")], encoder(), "task")
    assert not entries()


def test_small_tasks_are_left_alone(monkeypatch):
    size = sum(len(request.context or "") + len(request.answer) for request in REQUESTS[:2])
    monkeypatch.setattr(tokens, "LEAST_CHARACTERS", size + 1)
    tokenized(REQUESTS[:2], encoder(), "task")
    assert not entries()
    monkeypatch.setattr(tokens, "LEAST_CHARACTERS", size)
    tokenized(REQUESTS[:2], encoder(), "task")
    assert json.loads(entries()[0].with_suffix(".json").read_text())["made_from"]["task"] == "task"


@pytest.mark.case("G7")
def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    fresh = tokenized(REQUESTS[:2], encoder(reuse=False), "task")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file"))
    assert tokenized(REQUESTS[:2], encoder(), "task") == fresh


def test_a_tokenizer_that_does_not_tell_what_it_does_is_asked_every_time():
    class Bytes:
        bos_token_id = 0

        def __call__(self, text, **_):
            return {"input_ids": [0, *text.encode()]}

    tokenized([Request("a", " b", "item")], encoder(Bytes()), "task")
    assert not entries()
