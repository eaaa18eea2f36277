"""The report at the end of a multirun."""

import pandas as pd
from omegaconf import OmegaConf

from harness.jobs import Job
from harness.report.callback import SweepReport
from harness.sweep import Sweep
from tests.report.synthetic import write_run


def test_every_experiment_of_a_sweep_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    callback = SweepReport()
    for name in ("a", "b"):
        write_run(tmp_path / "outputs" / name / "1")
        callback.on_job_start(OmegaConf.create({"outputs": "outputs", "experiment": name}), task_function=None)
    callback.on_multirun_end(OmegaConf.create({"outputs": "outputs", "experiment": "run"}), config_name="config")
    assert (tmp_path / "outputs" / "a" / "report.html").is_file() and (
        tmp_path / "outputs" / "b" / "sweep.csv"
    ).is_file()
    assert capsys.readouterr().out.count("report of all runs in ") == 2


def test_jobs_that_ran_elsewhere_are_reported_by_the_sweeps_name(tmp_path, capsys):
    write_run(tmp_path / "mine" / "1")
    SweepReport().on_multirun_end(OmegaConf.create({"outputs": str(tmp_path), "experiment": "mine"}))
    assert (tmp_path / "mine" / "report.html").is_file()


def test_a_sweep_without_runs_ends_without_a_traceback(tmp_path, capsys):
    SweepReport().on_multirun_end(OmegaConf.create({"outputs": str(tmp_path), "experiment": "none"}))
    assert "no report of" in capsys.readouterr().out


def test_a_sweep_beside_other_runs_has_a_page_of_its_own_jobs(tmp_path, capsys):
    for run in ("1", "2", "3"):
        write_run(tmp_path / "mine" / run)
    sweep = Sweep(tmp_path / "sweeps" / "now")
    sweep.begin([["a"], ["b"]])
    for number, run in enumerate(("1", "3")):
        sweep.end(number, Job("done", str(tmp_path / "mine" / run)))
    config = {"outputs": str(tmp_path), "experiment": "mine", "hydra": {"sweep": {"dir": str(sweep.path)}}}
    SweepReport().on_multirun_end(OmegaConf.create(config))
    assert f"report of this sweep: {sweep.path / 'report.html'}" in capsys.readouterr().out
    own, everything = (pd.read_csv(folder / "sweep.csv", dtype=str) for folder in (sweep.path, tmp_path / "mine"))
    assert set(own["run_id"]) == {"1", "3"} and set(everything["run_id"]) == {"1", "2", "3"}


def test_a_sweep_of_all_runs_in_its_folder_has_one_page(tmp_path, capsys):
    write_run(tmp_path / "mine" / "1")
    sweep = Sweep(tmp_path / "sweeps" / "now")
    sweep.begin([["a"]])
    sweep.end(0, Job("done", str(tmp_path / "mine" / "1")))
    config = {"outputs": str(tmp_path), "experiment": "mine", "hydra": {"sweep": {"dir": str(sweep.path)}}}
    SweepReport().on_multirun_end(OmegaConf.create(config))
    assert not (sweep.path / "report.html").exists() and (tmp_path / "mine" / "report.html").is_file()


def test_experiments_that_a_launcher_ran_elsewhere_have_the_sweeps_page(tmp_path, capsys):
    sweep = Sweep(tmp_path / "sweeps" / "now")
    sweep.begin([["a"], ["b"]])
    for number, name in enumerate(("a", "b")):
        write_run(tmp_path / name / "1")
        sweep.end(number, Job("done", str(tmp_path / name / "1")))
    config = {"outputs": str(tmp_path), "experiment": "run", "hydra": {"sweep": {"dir": str(sweep.path)}}}
    SweepReport().on_multirun_end(OmegaConf.create(config))
    assert len(pd.read_csv(sweep.path / "sweep.csv")) > 8 and "report of this sweep" in capsys.readouterr().out
