"""Every launcher for real: two good jobs and a bad one, in processes of their own; Slurm by commands that stand in."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.report.stored import read_report

pytestmark = pytest.mark.slow

SWEEP = (
    "-m", "+exp=int4_ffn_only", "model=tiny", "eval=perplexity", "eval.perplexity.window=32",
    "eval.perplexity.max_windows=1", "attribute.resamples=100", "design.noise_draws=0", "harness.page=false",
    "eval.perplexity.max_chars=9000",
)  # fmt: skip
SUMMARY = "sweep of 3 jobs: "

SBATCH = """#!{python}
import os, re, subprocess, sys
print("Submitted batch job 77")
for task in range(1 + int(re.search(r"--array=0-([0-9]+)", open(sys.argv[-1]).read())[1])):
    numbers = {{"JOB_ID": 78 + task, "ARRAY_JOB_ID": 77, "ARRAY_TASK_ID": task, "NTASKS": 1, "PROCID": 0, "LOCALID": 0}}
    nodes = {{"NODEID": 0, "JOB_NUM_NODES": 1, "JOB_NODELIST": "localhost"}}
    given = {{f"SLURM_{{name}}": str(value) for name, value in {{**numbers, **nodes}}.items()}}
    subprocess.Popen(["bash", sys.argv[-1]], env=os.environ | given, start_new_session=True,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
SRUN = """#!/bin/bash
while [[ "$1" == -* ]]; do [[ "$1" == --output || "$1" == --error ]] && shift; shift; done
exec "$@"
"""


def harness(start, *arguments, **environment):
    command = [sys.executable, "-m", "harness", *SWEEP, *arguments]
    root = str(Path(__file__).parents[1])
    ray = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}  # nice workers starve beside other tests
    env = {**os.environ, "PYTHONPATH": root, **ray, **environment}
    done = subprocess.run(command, cwd=start, env=env, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def check(start, status, said):
    """The two good jobs are done, the bad one is told and recorded, and the whole is no success."""
    assert status == 1, said
    assert "2 done" in said[said.index(SUMMARY) :].splitlines()[0] and "1 failed" in said
    assert "job 2 failed: quant.ffn.group_size=7: group_size does not divide in_features" in said
    table = read_report(start / "outputs" / "int4_ffn_only" / "sweep.csv")
    assert sorted(table.drop_duplicates("run_id")["status"]) == ["done", "done", "failed"]
    (sweep,) = (start / "outputs" / "sweeps").iterdir()
    ended = [json.loads(path.read_text(encoding="utf-8"))["status"] for path in sorted((sweep / "jobs").iterdir())]
    assert ended == ["done", "failed", "done"]
    assert "ConfigStore schema" not in said and "Traceback" not in said


@pytest.mark.case("H1")
@pytest.mark.parametrize(
    "launcher",
    [("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"), ("hydra/launcher=submitit_local",), ("hydra/launcher=ray",)],
    ids=["joblib", "submitit_local", "ray"],
)
def test_jobs_in_processes_of_a_launcher(tmp_path, launcher):
    check(tmp_path, *harness(tmp_path, *launcher, "quant.ffn.group_size=32,7,64"))
    status, said = harness(tmp_path, *launcher, "quant.ffn.group_size=32,64")
    assert status == 0 and "sweep of 2 jobs: 2 already done" in said


@pytest.mark.case("H1")
def test_slurm_gets_the_script_that_was_asked_for_and_runs_it(tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {
        "sbatch": SBATCH.format(python=sys.executable), "srun": SRUN, "sacct": "#!/bin/bash\n",
        "scontrol": "#!/bin/bash\necho localhost\n",
    }.items():  # fmt: skip
        (commands / name).write_text(text, encoding="utf-8")
        (commands / name).chmod(0o755)
    asked = (
        "hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpu", "hydra.launcher.gpus_per_node=2",
        "hydra.launcher.cpus_per_task=3", "hydra.launcher.mem_gb=5", "hydra.launcher.timeout_min=90",
        "hydra.launcher.array_parallelism=2", "hydra.launcher.account=mine", "hydra.launcher.setup=['true # module']",
        "+hydra.launcher.additional_parameters.mail-type=END",
    )  # fmt: skip
    path = f"{commands}:{os.environ['PATH']}"
    check(tmp_path, *harness(tmp_path, *asked, "quant.ffn.group_size=32,7,64", PATH=path))
    (script,) = tmp_path.rglob("77_submission.sh")
    lines = script.read_text(encoding="utf-8").splitlines()
    assert {
        "#SBATCH --array=0-2%2", "#SBATCH --partition=gpu", "#SBATCH --gpus-per-node=2", "#SBATCH --cpus-per-task=3",
        "#SBATCH --mem=5GB", "#SBATCH --time=90", "#SBATCH --account=mine", "#SBATCH --nodes=1",
        "#SBATCH --ntasks-per-node=1", "#SBATCH --job-name=harness", "#SBATCH --mail-type=END", "true # module",
    } <= set(lines)  # fmt: skip
    (command,) = [line for line in lines if line.startswith("srun ")]
    assert f"{sys.executable} -u -m submitit.core._submit" in command
