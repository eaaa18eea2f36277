"""One job's end, however bad, is its own: reason and traceback are kept, and nothing gets out."""

import json
from pathlib import Path

import pytest
import torch

from harness import failures
from harness.apart import attempt_apart
from harness.errors import UserError
from harness.jobs import FAILED, attempt
from harness.report.stored import COLUMNS, read_report
from tests.dying import job, runner

FILES = {"failed.json", "failed.csv", "traceback.txt"}


def raising(error):
    def run(cfg, start, begun):
        raise error

    return run


@pytest.mark.case("H1")
@pytest.mark.case("H2")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("broken\n  in two lines"), "RuntimeError: broken in two lines"),
        (UserError("quant.ffn.group_size=7: no"), "quant.ffn.group_size=7: no"),
        (SystemExit(3), "called exit(3)"),
        (SystemExit(0), "called exit(0)"),
        (MemoryError(), "out of memory (MemoryError). Lower engine.memory_gib and engine.batch_tokens."),
        (
            torch.OutOfMemoryError("CUDA out of memory"),
            "out of memory (CUDA out of memory). Lower engine.memory_gib and engine.batch_tokens.",
        ),
    ],
)
def test_a_failed_job_leaves_reason_and_traceback_and_raises_nothing(tmp_path, error, reason):
    ended = attempt(job("mine"), tmp_path, raising(error))
    folder = Path(ended.folder)
    assert (ended.status, ended.reason) == (FAILED, reason)
    assert folder.parent == tmp_path / "mine" / "failed" and {p.name for p in folder.iterdir()} == FILES
    kept = json.loads((folder / "failed.json").read_text(encoding="utf-8"))
    assert kept["reason"] == reason and kept["config"]["experiment"] == "mine"
    assert f"{type(error).__name__}" in (folder / "traceback.txt").read_text(encoding="utf-8")
    row = read_report(folder / "failed.csv")
    assert list(row) == COLUMNS and len(row) == 1
    assert row.iloc[0][["experiment", "model", "status", "reason"]].tolist() == ["mine", "tiny", "failed", reason]


def test_ctrl_c_is_not_a_failure_and_ends_everything(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        attempt(job("mine"), tmp_path, raising(KeyboardInterrupt()))
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_goes_well_takes_its_old_failure_away(tmp_path):
    failed = attempt(job("mine"), tmp_path, raising(RuntimeError()))
    ended = attempt(job("mine"), tmp_path, runner)
    assert (ended.status, ended.folder) == ("done", str(tmp_path / "begun"))
    assert not Path(failed.folder).exists()


def test_jobs_with_other_settings_fail_in_other_folders(tmp_path):
    one, other = (attempt(job(name), tmp_path, raising(RuntimeError())).folder for name in ("one", "other"))
    assert one != other
    assert attempt(job("one"), tmp_path, raising(RuntimeError())).folder == one


@pytest.mark.case("G7")
def test_a_failure_that_cannot_be_recorded_is_still_told(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level("WARNING"):
        ended = attempt(job("mine", "file"), tmp_path, raising(RuntimeError("broken")))
    assert ended.reason == "RuntimeError: broken" and "could not be recorded" in caplog.text


@pytest.mark.parametrize(
    ("what", "reason", "place"),
    [
        ("kill", "its process was killed by SIGKILL (out of memory?)", "failed"),
        ("begun kill", "its process was killed by SIGKILL (out of memory?)", "begun"),
        ("exit", "its process ended with status 3", "failed"),
        ("raise", "RuntimeError: broken", "failed"),
    ],
)
def test_a_process_that_dies_is_that_jobs_failure_only(tmp_path, what, reason, place):
    ended = attempt_apart(job(what), tmp_path, runner)
    assert (ended.status, ended.reason) == (FAILED, reason)
    assert place in ended.folder
    assert json.loads((Path(ended.folder) / "failed.json").read_text())["reason"] == reason


def test_a_process_of_its_own_does_the_work(tmp_path):
    ended = attempt_apart(job("begun"), tmp_path, runner)
    assert (ended.status, ended.folder) == ("done", str(tmp_path / "begun"))


def test_settings_name_a_failure_whatever_the_manner_of_the_start():
    one = {"outputs": "o", "experiment": "e", "seed": 1, "harness": {"force": False}}
    assert failures.folder_without_id(one) == failures.folder_without_id({**one, "harness": {"force": True}})
    assert failures.folder_without_id(one) != failures.folder_without_id({**one, "seed": 2})
