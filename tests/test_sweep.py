"""Sweeps as on the command line, in this process: what fails, what is skipped, what is said and the exit status."""

import json
import re
import sys
import time
from pathlib import Path

import httpx2
import pytest
import torch
from huggingface_hub.errors import GatedRepoError
from omegaconf import OmegaConf

from harness import app, pipeline
from harness.apart import isolated
from harness.config import Isolate
from harness.errors import UserError
from harness.files import RunFolder
from harness.jobs import Job
from harness.model import hub
from harness.report.stored import read_report
from harness.sweep import Sweep, sweep_folder

SWEEP = (
    "-m", "+exp=int4_ffn_only", "model=tiny", "eval=perplexity", "eval.perplexity.window=32",
    "eval.perplexity.max_windows=1", "attribute.resamples=100", "design.noise_draws=0", "harness.page=False",
    "eval.perplexity.max_chars=9000",
)  # fmt: skip
FOUR = (*SWEEP, "quant.ffn.group_size=16,32,64,128")


@pytest.fixture
def harness(tmp_path, monkeypatch, capsys):
    """Runs a command line in `tmp_path`; its exit status and what it printed."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["harness", *arguments])
        with pytest.raises(SystemExit) as stop:
            app.main()
        said = capsys.readouterr()
        return stop.value.code, said.out + said.err

    return command


@pytest.fixture
def breaks(monkeypatch):
    """Makes jobs of some group sizes end with an exception, in the midst of their work."""
    real, bad = pipeline._measure, {}

    def measure(config, *rest):
        if error := bad.get(config.quant.ffn.group_size):
            raise error
        real(config, *rest)

    monkeypatch.setattr(pipeline, "_measure", measure)
    return bad


def done(tmp_path):
    return sorted(p.parent.name for p in tmp_path.glob("outputs/int4_ffn_only/*/result.json"))


def test_a_sweep_with_a_job_that_cannot_be_composed_is_refused_whole_and_leaves_nothing(tmp_path, harness):
    status, said = harness(*SWEEP, "quant.ffn.precision=int4,int9")
    assert status == 1 and said.startswith("error: quant.ffn.precision=int9: Invalid value 'int9', expected one of")
    assert len(said.splitlines()) == 1 and list(tmp_path.iterdir()) == []


@pytest.mark.case("H1")
@pytest.mark.case("H2")
@pytest.mark.case("H3")
def test_failed_jobs_leave_their_own_trace_the_others_run_and_one_summary_names_all(tmp_path, harness, breaks):
    breaks |= {16: RuntimeError("first"), 32: SystemExit(3), 128: torch.OutOfMemoryError("CUDA out of memory")}
    status, said = harness(*FOUR)
    assert status == 1 and len(done(tmp_path)) == 1
    assert "job 3 of 4 done: quant.ffn.group_size=64: nll of prose: ffn" in said
    summary = said[said.index("sweep of 4 jobs: ") :]
    assert summary.startswith("sweep of 4 jobs: 3 failed, 1 done\n")
    for number, words in {
        "job 1 failed: quant.ffn.group_size=16: RuntimeError: first": "in measure",
        "job 2 failed: quant.ffn.group_size=32: called exit(3)": "SystemExit: 3",
        "job 4 failed: quant.ffn.group_size=128: out of memory (CUDA out of memory)": "OutOfMemoryError",
    }.items():
        assert number in summary
        trace = tmp_path / summary.split(number)[1].splitlines()[1].strip()
        assert words in trace.read_text(encoding="utf-8")
        assert not RunFolder(trace.parent).done
        row = read_report(trace.parent / "failed.csv").iloc[0]
        assert row["status"] == "failed" and row["reason"] in number + summary and row["run_id"] == trace.parent.name
    (kept,) = tmp_path.glob("outputs/sweeps/*/summary.txt")
    assert kept.read_text(encoding="utf-8") == summary
    table = read_report(tmp_path / "outputs" / "int4_ffn_only" / "sweep.csv")
    assert sorted(table.drop_duplicates("run_id")["status"]) == ["done", "failed", "failed", "failed"]


@pytest.mark.case("H6")
def test_started_again_a_sweep_does_only_what_is_missing(tmp_path, harness, breaks):
    breaks[64] = KeyboardInterrupt()
    status, said = harness(*FOUR)
    assert status == 130 and "stopped by Ctrl-C" in said
    assert "sweep of 4 jobs: 2 done, 2 unfinished\nThe same command again does only what is missing." in said
    first = done(tmp_path)
    assert len(first) == 2
    breaks.clear()
    status, said = harness(*FOUR)
    assert status == 0 and "sweep of 4 jobs: 2 already done, 2 done" in said
    assert "job 1 of 4 skipped: already done: quant.ffn.group_size=16" in said
    assert set(first) < set(done(tmp_path)) and len(done(tmp_path)) == 4
    assert len(list(tmp_path.glob("outputs/sweeps/*"))) == 2


@pytest.mark.parametrize("apart", ["always", "never"])
def test_every_job_keeps_its_own_overrides(tmp_path, harness, apart):
    assert harness(*SWEEP, "quant.ffn.group_size=16,32", f"harness.isolate={apart}")[0] == 0
    files = tmp_path.glob("outputs/int4_ffn_only/*/attempts/0/overrides.yaml")
    asked = [*SWEEP[1:], f"harness.isolate={apart}"]
    assert sorted(sorted(map(str, OmegaConf.load(file))) for file in files) == [
        sorted([*asked, f"quant.ffn.group_size={size}"]) for size in (16, 32)
    ]
    assert len(list(tmp_path.glob("outputs/int4_ffn_only/*/attempts/0/hydra.yaml"))) == 2


@pytest.mark.case("H6")
def test_a_failure_made_good_leaves_no_trace(tmp_path, harness, breaks):
    breaks[16] = RuntimeError("once")
    assert harness(*SWEEP, "quant.ffn.group_size=16,32")[0] == 1
    assert len(list(tmp_path.rglob("failed.json"))) == 1
    breaks.clear()
    assert harness(*SWEEP, "quant.ffn.group_size=16,32")[0] == 0
    assert list(tmp_path.rglob("failed.json")) == [] and len(done(tmp_path)) == 2


@pytest.mark.case("H1")
def test_what_is_wrong_with_one_jobs_settings_is_that_jobs_failure(tmp_path, harness):
    status, said = harness(*SWEEP, "quant.ffn.group_size=7,32")
    assert status == 1 and "job 1 failed: quant.ffn.group_size=7: group_size does not divide in_features" in said
    (failed,) = tmp_path.glob("outputs/int4_ffn_only/failed/*/failed.json")
    assert "does not divide" in json.loads(failed.read_text(encoding="utf-8"))["reason"]
    assert len(done(tmp_path)) == 1


@pytest.mark.case("F23")
def test_a_model_that_the_hub_refuses_is_its_own_jobs_failure(tmp_path, harness, monkeypatch):
    def refuse(*args, **kwargs):
        response = httpx2.Response(403, request=httpx2.Request("GET", "https://hub"))
        raise GatedRepoError("Access denied", response=response)

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    status, said = harness(*SWEEP, "model=llama32_1b,tiny")
    assert status == 1 and "sweep of 2 jobs: 1 failed, 1 done" in said
    assert "job 1 failed: model=llama32_1b: " in said and "HF_TOKEN" in said
    assert len(done(tmp_path)) == 1


def test_a_sweep_stops_after_as_many_failures_as_asked(tmp_path, harness, breaks):
    breaks |= {16: RuntimeError("one"), 32: RuntimeError("two")}
    status, said = harness(*FOUR, "harness.max_failures=2")
    assert status == 1 and "sweep of 4 jobs: 2 failed, 2 not run" in said
    assert "job 3 of 4 not run: quant.ffn.group_size=64: harness.max_failures=2 reached" in said
    assert done(tmp_path) == []


@pytest.mark.parametrize("name", ["joblib", "submitit_local", "submitit_slurm", "ray"])
def test_a_launcher_that_is_not_installed_is_one_clear_error(harness, monkeypatch, name):
    monkeypatch.setattr(app, "LAUNCHERS", {name: "no_such_plugin"})
    status, said = harness(*SWEEP, f"hydra/launcher={name}")
    assert status == 1 and said.startswith(f"error: hydra/launcher={name} needs no_such_plugin: pip install")
    assert ("--no-deps hydra-ray-launcher" in said) == (name == "ray")


def test_a_job_gets_a_process_of_its_own_with_a_launcher_or_when_asked():
    basic, other = "hydra._internal.core_plugins.basic_launcher.BasicLauncher", "hydra_plugins.x.JoblibLauncher"
    assert [isolated(Isolate.auto, launcher) for launcher in (basic, other)] == [False, True]
    assert isolated(Isolate.always, basic) and not isolated(Isolate.never, other)


def test_an_override_that_cannot_be_composed_stops_the_sweep_before_the_first_job(tmp_path, harness):
    status, said = harness(*SWEEP, "quant.ffn.precision=int4,int77")
    assert status == 1 and "int77" in said
    assert not (tmp_path / "outputs" / "int4_ffn_only").exists()


def test_a_single_run_ends_with_its_message_and_leaves_its_failure_in_its_folder(tmp_path, harness, breaks):
    breaks[64] = UserError("cannot be")
    status, said = harness(*SWEEP[1:])
    assert status == 1 and "\nerror: cannot be\n" in said
    (failed,) = tmp_path.rglob("failed.json")
    assert json.loads(failed.read_text(encoding="utf-8"))["config"]["quant"]["ffn"]["group_size"] == 64
    assert not (tmp_path / "outputs" / "sweeps").exists()
    breaks[64] = SystemExit(0)
    assert harness(*SWEEP[1:])[0] == 1


@pytest.mark.case("G8")
def test_a_later_job_gives_the_numbers_it_gives_alone(tmp_path, harness):
    import pandas as pd

    harness(*FOUR, "harness.reuse=false")
    alone = harness(*SWEEP[1:], "quant.ffn.group_size=128", "outputs=alone", "harness.reuse=false")
    assert alone[0] == 0
    (folder,) = tmp_path.glob("alone/int4_ffn_only/*/")
    later = tmp_path / "outputs" / "int4_ffn_only" / folder.name
    pd.testing.assert_frame_equal(*(pd.read_parquet(f / "items.parquet") for f in (folder, later)))


@pytest.mark.case("H5")
def test_no_two_sweeps_share_a_folder_whatever_the_clock_says(monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda form: "1970-01-01_00-00-00")
    assert len({sweep_folder("outputs") for _ in range(1000)}) == 1000


def test_time_left_is_what_the_computed_jobs_took_even_if_the_clock_is_set_back(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    sweep = Sweep(tmp_path)
    sweep.begin([["a=1", "b=1"], ["a=2", "b=1"], ["a=3", "b=1"], ["a=4", "b=1"]])
    sweep.end(0, Job("already done"))
    assert sweep.line(0, Job("already done")) == "job 1 of 4 skipped: already done: a=1"
    sweep.end(1, Job("done", headline="fine"))
    for now, left in {1120.0: "4 min", 1030.0: "60 s", 0.0: "0 s"}.items():
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert sweep.line(1, Job("done", headline="fine")) == f"job 2 of 4 done: a=2: fine; about {left} left"


def test_a_job_that_never_noted_its_end_is_unfinished_and_no_success(tmp_path):
    sweep = Sweep(tmp_path)
    sweep.begin([["a=1"], ["a=2"]])
    sweep.end(0, Job("done"))
    assert sweep.summary().startswith("sweep of 2 jobs: 1 done, 1 unfinished") and not sweep.whole()
    sweep.end(1, Job("done"))
    assert sweep.whole()


@pytest.mark.case("G7")
def test_ends_that_a_full_disk_does_not_take_are_in_the_summary_all_the_same(tmp_path, monkeypatch):
    sweep = Sweep(tmp_path)
    sweep.begin([["a=1"], ["a=2"]])

    def full(path, text):
        raise UserError(f"{path}: cannot be written (No space left on device).")

    sweep.end(0, Job("done"))
    monkeypatch.setattr("harness.sweep.write_text", full)
    sweep.end(1, Job("failed", str(tmp_path), "no space"))
    assert "1 done, 1 failed" in sweep.summary() and "job 2 failed: a=2: no space" in sweep.summary()


@pytest.mark.case("G7")
def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path, harness):
    Path("file").write_text("")
    status, said = harness(*SWEEP, "outputs=file/out", "quant.ffn.group_size=32")
    assert status == 1 and re.search(r"error: .*file/out/sweeps/.*cannot be written.*Set outputs", said)
    assert "Traceback" not in said
