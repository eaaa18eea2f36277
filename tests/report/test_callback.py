"""The report at the end of a multirun."""

from omegaconf import OmegaConf

from harness.report.callback import SweepReport
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
    assert capsys.readouterr().out.count("report: ") == 2


def test_jobs_that_ran_elsewhere_are_reported_by_the_sweeps_name(tmp_path, capsys):
    write_run(tmp_path / "mine" / "1")
    SweepReport().on_multirun_end(OmegaConf.create({"outputs": str(tmp_path), "experiment": "mine"}))
    assert (tmp_path / "mine" / "report.html").is_file()


def test_a_sweep_without_runs_ends_without_a_traceback(tmp_path, capsys):
    SweepReport().on_multirun_end(OmegaConf.create({"outputs": str(tmp_path), "experiment": "none"}))
    assert "no report of" in capsys.readouterr().out
