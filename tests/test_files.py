"""Files are whole or absent, a folder belongs to one start at a time, and JSON is JSON."""

import errno
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from harness.config import OnLocked
from harness.errors import UserError
from harness.files import RunFolder, to_json, write_atomic, write_text
from harness.scheme import Method


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.case("H13")
@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_a_write_cut_short_leaves_the_old_file_and_nothing_else(tmp_path, stop):
    write_text(tmp_path / "report.csv", "old\n")

    def half(aside):
        aside.write_text("ne")
        raise stop

    with pytest.raises(stop):
        write_atomic(tmp_path / "report.csv", half)
    assert (tmp_path / "report.csv").read_text() == "old\n"
    assert names(tmp_path) == ["report.csv"]


@pytest.mark.case("H13")
def test_a_file_is_complete_on_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr("harness.files.os.fsync", lambda handle: done.append("fsync"))
    monkeypatch.setattr("harness.files.Path.replace", lambda self, target: done.append(f"rename to {target.name}"))
    write_text(tmp_path / "a.txt", "text")
    assert done == ["fsync", "rename to a.txt"]


@pytest.mark.case("G7")
def test_a_full_disk_is_the_users_to_solve_and_names_the_file(tmp_path):
    def full(aside):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match=r"report.csv: cannot be written \(No space left on device\).*outputs"):
        write_atomic(tmp_path / "report.csv", full)
    assert names(tmp_path) == []


def test_a_folder_that_is_not_there_is_a_plain_message(tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        write_text(tmp_path / "nowhere" / "a.txt", "text")


@pytest.mark.case("H15")
def test_text_is_utf8_whatever_the_locale_and_odd_file_names_keep_their_bytes(tmp_path):
    write_text(tmp_path / "a.txt", "π → ±\n")
    assert (tmp_path / "a.txt").read_bytes() == "π → ±\n".encode()
    as_the_ascii_locale_reads_it = "π.txt".encode().decode("ascii", "surrogateescape")
    write_text(tmp_path / "a.txt", as_the_ascii_locale_reads_it)
    assert (tmp_path / "a.txt").read_bytes() == "π.txt".encode()


@pytest.mark.case("F17")
def test_everything_that_a_result_may_hold_can_be_written():
    value = {
        "dtype": torch.bfloat16,
        "tensor": torch.tensor([1.5, 2.5]),
        "scalar": torch.tensor(3),
        "array": np.arange(3),
        "number": np.float32(0.5),
        "whole": np.int64(7),
        "yes": np.bool_(True),
        "enum": Method.rtn,
        "set": {1},
        "device": torch.device("cpu"),
        3: "a key",
    }
    assert json.loads(to_json(value)) == {
        "dtype": "torch.bfloat16", "tensor": [1.5, 2.5], "scalar": 3, "array": [0, 1, 2], "number": 0.5, "whole": 7,
        "yes": True, "enum": "rtn", "set": [1], "device": "cpu", "3": "a key",
    }  # fmt: skip


@pytest.mark.case("H16")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float64("nan"), torch.tensor(float("-inf"))])
def test_numbers_that_json_lacks_become_null(value):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    assert json.loads(to_json({"acc": value, "all": [value]}), parse_constant=refuse) == {"acc": None, "all": [None]}


def finished(folder, text="rows\n"):
    folder.path.mkdir(parents=True, exist_ok=True)
    write_text(folder.path / "report.csv", text)
    folder.finish({"status": "done"}, ["report.csv"])


@pytest.mark.case("H6")
def test_a_run_is_done_when_its_result_and_all_its_files_are_there(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert not folder.done
    finished(folder)
    assert folder.done and folder.result()["files"] == {"report.csv": 5}  # pyright: ignore


@pytest.mark.case("H6")
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "report.csv").write_text("ro"),
        lambda path: (path / "report.csv").unlink(),
        lambda path: (path / "result.json").write_text('{"status": "do'),
        lambda path: (path / "result.json").write_text("{}"),
        lambda path: (path / "result.json").write_text("[]"),
        lambda path: (path / "result.json").write_bytes(b"\xff\xfe"),
    ],
)
def test_half_a_result_is_none(tmp_path, damage):
    folder = RunFolder(tmp_path)
    finished(folder)
    damage(tmp_path)
    assert not folder.done


def test_a_new_start_takes_the_old_result_away_first(tmp_path):
    folder = RunFolder(tmp_path)
    finished(folder)
    folder.attempt()
    assert not folder.done and (tmp_path / "report.csv").is_file()


@pytest.mark.case("H5")
def test_five_starts_at_once_take_turns_and_each_has_a_folder_of_its_own(tmp_path):
    together = threading.Barrier(5)
    inside = []

    def start(_):
        together.wait()
        with RunFolder(tmp_path / "new" / "run").locked(OnLocked.wait) as mine:
            assert mine
            inside.append(1)
            alone = len(inside) == 1
            made = RunFolder(tmp_path / "new" / "run").attempt()
            inside.pop()
            return alone, made.name

    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(start, range(5)))
    assert all(alone for alone, _ in found)
    assert sorted(name for _, name in found) == ["0", "1", "2", "3", "4"]


@pytest.mark.case("H5")
def test_a_second_start_that_is_not_to_wait_goes_away(tmp_path):
    folder = RunFolder(tmp_path)
    with folder.locked(OnLocked.wait) as first, folder.locked(OnLocked.skip) as second:
        assert first and not second
    with folder.locked(OnLocked.skip) as third:
        assert third


def test_a_lock_is_let_go_when_the_run_fails(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(RuntimeError), folder.locked(OnLocked.wait):
        raise RuntimeError
    with folder.locked(OnLocked.skip) as mine:
        assert mine


@pytest.mark.parametrize("where", ["a_file/run", "a_file"])
def test_a_folder_that_cannot_be_made_is_a_plain_message(tmp_path, where):
    (tmp_path / "a_file").write_text("")
    with (
        pytest.raises(UserError, match=r"cannot be written.*outputs"),
        RunFolder(tmp_path / where).locked(OnLocked.wait),
    ):
        pass
