"""Sweeps as processes that are killed, crowded and starved; experiments/sweeps has the longer, recorded forms."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.sweeps.commands import SMALL, done, finish, start
from experiments.sweeps.hardships import at_once, clock_backwards
from harness.report.stored import read_report

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.mark.case("H6")
@pytest.mark.case("H13")
def test_a_sweep_killed_at_random_moments_ends_as_if_nothing_had_been():
    command = [sys.executable, str(ROOT / "experiments" / "sweeps" / "kills.py"), "--kills", "5"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("'killed': True") == 5 and "sweep.csv the same: True" in ended.stdout


@pytest.mark.case("H5")
@pytest.mark.case("H6")
def test_two_sweeps_in_one_folder_at_once_do_the_work_once():
    found = at_once(2)
    assert (found["status"], found["done"]) == ("0 0", 4)
    assert found["then"] == "2 sweep folders, sweep.csv as of one: True"


def test_a_clock_that_runs_backwards_changes_nothing():
    found = clock_backwards()
    assert (found["status"], found["told"], found["done"]) == (0, "sweep of 4 jobs: 4 done", 4)
    assert found["then"] == "status 0, sweep of 4 jobs: 4 already done"


@pytest.mark.case("G7")
def test_files_that_the_disk_does_not_take_are_a_clear_failure_and_the_next_start_makes_them(tmp_path):
    limited = f"ulimit -f 7; exec {sys.executable} -m harness -m {' '.join(SMALL)} quant.ffn.group_size=32,64"
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HARNESS_CACHE": str(tmp_path / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    full = subprocess.run(["bash", "-c", limited], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert full.returncode == 1 and "sweep of 2 jobs: 2 failed" in full.stdout
    assert "cannot be written (File too large). Free space, or set outputs to another folder." in full.stdout
    assert done(tmp_path) == 0
    assert finish(start(tmp_path, *SMALL, "quant.ffn.group_size=32,64"))[0] == 0
    assert done(tmp_path) == 2
    assert set(read_report(tmp_path / "outputs" / "int4_ffn_only" / "sweep.csv")["status"]) == {"done"}
