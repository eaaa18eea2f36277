"""The GPU check says why it does nothing where there is no GPU; its comparisons hold on a processor."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.gpu_check import gpu_check
from experiments.gpu_check.gpu_check import Report, engine, speed

ROOT = Path(__file__).parents[2]


def test_without_a_gpu_it_is_skipped_with_the_reason():
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(ROOT / "experiments" / "gpu_check" / "gpu_check.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0 and "gpu-check: skipped: torch" in done.stdout and "no CUDA device" in done.stdout


def test_the_engine_agrees_and_speed_is_measured():
    report = Report("cpu")
    engine(report)
    speed(report)
    assert report.failed == [] and len(report.facts) == 5
    assert report.facts["speed"]["tokens"] == 4 * 127 and report.facts["speed"]["share_of_card"] > 0


def test_a_check_that_does_not_hold_is_counted(monkeypatch, capsys):
    report = Report("cpu")
    monkeypatch.setattr(gpu_check, "own_logp", lambda module, sequence: gpu_check.np.zeros(sequence.scored))
    engine(report)
    assert "engine, trees, float32" in report.failed and "FAILED engine" in capsys.readouterr().out


@pytest.mark.parametrize("name", gpu_check.METHODS)
def test_every_method_of_the_check_is_one_that_the_configuration_takes(name, monkeypatch):
    asked = []
    monkeypatch.setattr(gpu_check, "METHODS", (name,))
    monkeypatch.setattr(
        gpu_check, "site_errors", lambda device, overrides: asked.append(overrides) or gpu_check.np.ones(2)
    )
    gpu_check.methods(Report("cpu"))
    assert gpu_check.composed("+exp=int4_ffn_only", *asked[0]).quant.ffn.precision == name.split("/")[1]
