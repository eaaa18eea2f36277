"""One run on two processes is the run of one."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from harness.report.stored import read_report

ROOT = Path(__file__).parents[1]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
RUN = (
    "+exp=int4_split", "model=tiny", "eval.limit=3", "eval.context_suite.lengths=[]", "eval.perplexity.window=48",
    "eval.perplexity.max_windows=4", "engine.batch_tokens=128", "engine.pack_tokens=100", "attribute.resamples=100",
    "design.noise_draws=1", "quant.ffn.method=gptq", "calib.samples=2", "calib.length=32",
)  # fmt: skip


def start(command, folder):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_every_rank_scores_its_part_and_the_first_has_all():
    status, said = start([*TORCHRUN, str(ROOT / "tests" / "ranked.py")], ROOT)
    assert status == 0, said
    expected = [[0.0, -1.0, -2.0, -3.0, -4.0], [0.0, 1.0, 0.0, 1.0, 0.0], [1.0] * 5]
    assert f"first: {expected}" in said and "second hears nothing" not in said


@pytest.mark.slow
def test_what_fails_on_one_rank_is_told_on_the_first():
    status, said = start([*TORCHRUN, str(ROOT / "tests" / "ranked.py"), "fail"], ROOT)
    assert status == 0 and "first: rank 1: ValueError: no memory here" in said


@pytest.mark.slow
def test_two_processes_give_the_report_of_one(tmp_path):
    status, said = start([*TORCHRUN, "-m", "harness", *RUN, "outputs=two"], tmp_path)
    assert status == 0 and said.count("\ndone: ") == 1, said
    status, said = start([sys.executable, "-m", "harness", *RUN, "outputs=one", "harness.reuse=false"], tmp_path)
    assert status == 0, said
    (one,), (two,) = (list((tmp_path / n / "int4_split").iterdir()) for n in ("one", "two"))
    assert one.name == two.name
    for name in ("report.csv", "sites.csv", "attribution.csv"):
        tables = [
            read_report(folder / name).drop(columns=["seconds", "peak_bytes"], errors="ignore") for folder in (one, two)
        ]
        pd.testing.assert_frame_equal(*tables, check_exact=True)
    pd.testing.assert_frame_equal(*(pd.read_parquet(folder / "items.parquet") for folder in (one, two)))
    status, said = start([*TORCHRUN, "-m", "harness", *RUN, "outputs=two"], tmp_path)
    assert status == 0 and f"already done: {two}" in said


def test_a_sweep_is_not_for_torchrun(tmp_path):
    env = {**os.environ, "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "harness", "-m", *RUN]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "hydra/launcher=joblib" in done.stderr
