"""Files of the cache folder are whole, or made again; a disk that is full stops nothing."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from filelock import Timeout
from safetensors import SafetensorError

from harness import entries
from harness.entries import Entry, folder_of, usable
from harness.files import key_of
from harness.model.cache import read_digest


def written(path, content=b"numbers"):
    entry = Entry(path / "kind" / "key" / "a.safetensors", {"model": "tiny"})
    entry.write(lambda aside: aside.write_bytes(content))
    return entry


def test_an_entry_is_whole_once_written_and_says_what_it_was_made_from(tmp_path):
    assert not Entry(tmp_path / "a.safetensors").whole()
    entry = written(tmp_path)
    assert entry.whole() and entry.damage() == ""
    assert json.loads(entry.note.read_text())["made_from"] == {"model": "tiny"}
    assert sorted(p.name for p in entry.path.parent.iterdir()) == ["a.json", "a.safetensors"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda e: e.path.write_bytes(b"numb"), "has 4 bytes, not 7"),
        (lambda e: e.path.write_bytes(b"nombers"), "is not what was written"),
        (lambda e: e.note.write_text('{"bytes": 7'), "unreadable note"),
        (lambda e: e.note.write_text("[]"), "unreadable note"),
        (lambda e: e.note.write_text("{}"), "has 7 bytes, not None"),
    ],
)
def test_a_damaged_entry_is_thrown_away_and_said(tmp_path, caplog, damage, words):
    entry = written(tmp_path)
    damage(entry)
    assert words in entry.damage()
    with caplog.at_level("WARNING"):
        assert not entry.whole()
    assert words in caplog.text and "made again" in caplog.text
    assert list(entry.path.parent.iterdir()) == []
    assert written(tmp_path).whole()


def test_what_was_found_damaged_on_the_disk_stays_so(tmp_path):
    entry = written(tmp_path)
    state = entry.path.stat()
    entry.path.write_bytes(b"nombers")
    os.utime(entry.path, ns=(state.st_atime_ns, state.st_mtime_ns))  # the disk's fault: nothing was written
    assert entry.damage() == "" and entry.damage(afresh=True) == "is not what was written"
    assert entry.damage() == "is not what was written" and not entry.whole()


@pytest.mark.parametrize("lost", ["path", "note"])
def test_half_an_entry_is_none(tmp_path, lost):
    entry = written(tmp_path)
    getattr(entry, lost).unlink()
    assert entry.damage() is None and not entry.whole()


@pytest.mark.case("G7")
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: No space left on device")]
)
def test_a_full_disk_is_logged_and_leaves_nothing(tmp_path, caplog, error):
    def full(aside):
        raise error

    entry = written(tmp_path)
    with caplog.at_level("WARNING"):
        entry.write(full)
    assert "not kept for later runs" in caplog.text and "No space left" in caplog.text
    assert list(entry.path.parent.iterdir()) == []


def test_a_digest_that_cannot_be_kept_is_still_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"numbers")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file" / "no folder"))
    assert entries.file_digest(tmp_path / "file") == read_digest(tmp_path / "file")


def test_one_maker_at_a_time(tmp_path):
    entry = Entry(tmp_path / "kind" / "a.safetensors")

    def second():
        with pytest.raises(Timeout):
            entry.lock().acquire(timeout=0)

    with entry.lock(), ThreadPoolExecutor(1) as pool:
        pool.submit(second).result()
    with entry.lock().acquire(timeout=0):
        pass


def test_a_folder_that_cannot_be_made_is_not_usable(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level("WARNING"):
        assert not usable(tmp_path / "file" / "scores")
    assert "nothing is taken from it" in caplog.text
    assert usable(tmp_path / "scores")


def test_the_key_holds_all_it_is_made_from(monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    made_from = {"model_sha": "abc", "dtype": "float32"}
    assert folder_of("base", made_from) == tmp_path / "base" / key_of(dict(reversed(made_from.items())))
    assert key_of({**made_from, "dtype": "bfloat16"}) != key_of(made_from)
    assert entries.cache_folder() == tmp_path
