"""Jobs of a sweep share a process: none sees what another one left."""

import gc
import subprocess
import sys
import weakref

import pandas as pd
import pytest
import torch

from harness import pipeline
from harness.model.skeleton import random_module
from harness.pipeline import run
from tests.runs import composed

JOB = (
    "+exp=int4_ffn_only", "model=tiny", "eval=perplexity", "eval.perplexity.window=48", "eval.perplexity.max_windows=2",
    "eval.perplexity.max_chars=9000", "attribute.resamples=200", "harness.force=true",
)  # fmt: skip
SETTINGS = [("quant.ffn.group_size=64",), ("quant.ffn.precision=int3",), ("quant.ffn.group_size=32", "model.seed=1")]


@pytest.fixture
def opened(monkeypatch):
    """Weak references to the modules that jobs opened."""
    modules = []

    def watched(*args):
        module = random_module(*args)
        modules.append(weakref.ref(module))
        return module

    monkeypatch.setattr("harness.model.load.random_module", watched)
    return modules


def items(tmp_path, settings):
    folder = run(composed(*JOB, *settings), tmp_path).folder
    assert folder is not None
    return pd.read_parquet(folder / "items.parquet")


@pytest.mark.case("G8")
def test_a_model_is_gone_when_its_job_is_done(tmp_path, opened):
    for settings in SETTINGS:
        items(tmp_path, settings)
        gc.collect()
    assert len(opened) == 3 and not any(reference() for reference in opened)


@pytest.mark.case("G8")
def test_a_later_job_gives_the_same_numbers_as_alone(tmp_path):
    alone = [items(tmp_path / f"alone{n}", settings) for n, settings in enumerate(SETTINGS)]
    for n in (2, 0, 1, 2):
        pd.testing.assert_frame_equal(items(tmp_path / "sweep", SETTINGS[n]), alone[n])


FORGOTTEN = """
import torch
from harness.report.cells import peak_bytes, reset_peak
before = peak_bytes(torch.device("cpu"))
held = torch.ones(100 * 2**20)  # 400 MiB that an earlier job held
between = peak_bytes(torch.device("cpu"))
del held
reset_peak(torch.device("cpu"))
print(before, between, peak_bytes(torch.device("cpu")))
"""


@pytest.mark.case("G8")
def test_peaks_are_of_the_job_not_of_the_process():
    """In a process of its own: a long one may serve 400 MiB from what it has kept."""
    done = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, check=True)
    before, between, after = map(int, done.stdout.split())
    assert between > before + 350 * 2**20
    assert after < before + 50 * 2**20


@pytest.mark.case("G8")
def test_a_run_counts_its_peak_anew(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(pipeline, "reset_peak", calls.append)
    assert run(composed(*JOB), tmp_path).folder
    assert calls == [torch.device("cpu")]
