"""What became of a run, from its folder."""

import json

import pytest

from harness.errors import UserError
from harness.report.runs import DONE, FAILED, INCOMPLETE, find_runs, read_run
from tests.report.synthetic import make_config, write_failed, write_partial, write_run


def test_done_run_has_its_tables(tmp_path):
    run = read_run(write_run(tmp_path / "x" / "1"))
    assert (run.status, run.reason, run.experiment) == (DONE, "", "x")
    assert set(run.report["arm"]) == {"base", "ffn", "attention", "both"}
    assert run.effects and len(run.sites) and ("general", "moby_dick", "nll", "ffn") in run.items
    assert run.setting("quant.ffn.precision") == "int4" and run.setting("quant.ffn.nothing", 7) == 7


@pytest.mark.case("H6")
def test_half_written_folders_are_incomplete_and_their_tables_unread(tmp_path):
    run = read_run(write_partial(tmp_path / "1", "int3", 32))
    assert run.status == INCOMPLETE and "no result.json" in run.reason
    assert run.report.empty and run.effects == [] and run.setting("quant.ffn.group_size") == 32


@pytest.mark.case("H6")
def test_a_result_that_does_not_fit_its_files_is_no_result(tmp_path):
    folder = write_run(tmp_path / "1")
    (folder / "report.csv").write_text("arm\r\n", encoding="utf-8")
    run = read_run(folder)
    assert run.status == INCOMPLETE and "does not fit" in run.reason


@pytest.mark.case("H1")
def test_failed_run_has_its_reason_and_settings(tmp_path):
    run = read_run(write_failed(tmp_path / "1", "OutOfMemoryError: 2 GiB", "int3"))
    assert (run.status, run.reason) == (FAILED, "OutOfMemoryError: 2 GiB")
    assert run.setting("quant.ffn.precision") == "int3"


def test_failure_of_the_newest_attempt_is_read(tmp_path):
    for number, reason in (("2", "old"), ("10", "new")):
        attempt = tmp_path / "1" / "attempts" / number
        attempt.mkdir(parents=True)
        (attempt / "failed.json").write_text(json.dumps({"reason": reason}), encoding="utf-8")
        (attempt / "config.json").write_text(json.dumps({"experiment": "mine"}), encoding="utf-8")
    run = read_run(tmp_path / "1")
    assert (run.status, run.reason, run.experiment) == (FAILED, "new", "mine")


def test_tables_that_are_none_make_a_failed_run_not_a_failed_report(tmp_path):
    folder = write_run(tmp_path / "1")
    (folder / "report.csv").write_text("a,b\r\n1,2\r\n", encoding="utf-8")
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    result["files"]["report.csv"] = (folder / "report.csv").stat().st_size
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    run = read_run(folder)
    assert run.status == FAILED and "lacks arm" in run.reason


def test_runs_are_found_below_folders_and_once(tmp_path):
    write_run(tmp_path / "a" / "1")
    write_run(tmp_path / "b" / "deep" / "2")
    (tmp_path / "a" / "figures").mkdir()
    assert [run.id for run in find_runs([tmp_path, tmp_path / "a", tmp_path / "a" / "1"])] == ["1", "2"]


def test_success_speaks_for_earlier_failures_with_the_same_settings(tmp_path):
    write_failed(tmp_path / "x" / "0", "no space", "int4", 64)
    write_failed(tmp_path / "x" / "1", "no space", "int3", 64)
    write_run(tmp_path / "x" / "2", "int4", 64, **{"harness.force": True, "outputs": "elsewhere"})
    assert [(run.id, run.status) for run in find_runs([tmp_path])] == [("1", FAILED), ("2", DONE)]


def test_folders_without_runs_are_refused(tmp_path):
    with pytest.raises(UserError, match="no run here"):
        find_runs([tmp_path])
    with pytest.raises(UserError, match="no such folder"):
        find_runs([tmp_path / "nope"])


def test_synthetic_settings_are_those_of_a_run():
    assert make_config("x", "int4", 64, **{"model.name": "m"})["model"]["name"] == "m"
