"""The engine beside lm-eval's own HF backend: the same questions, the same model, one process, one after the other.

    python experiments/benchmarks/lm_eval_pair.py TASK.yaml [TASK.yaml ...] [--limit N] [--shots K] [--out FILE.csv]
    python experiments/benchmarks/lm_eval_pair.py tests/benchmarks/*.yaml --each --limit 100 --out lm_eval_100.csv

Prints and writes, for each side, wall seconds of scoring (model and requests ready), and the largest difference of any
choice's log-likelihood; with `--each` in a row for every task. Few-shot examples are the first K of the task's file
(`first_n`), the same for both. Tasks that write text are left out: lm-eval's backend writes their answers for us too.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM

from harness.app import config_folder, typed
from harness.config import RunConfig, Sampler
from harness.cut import form_packs
from harness.model.fetch import fetch
from harness.model.load import Model, open_model
from harness.packs import batches, slots
from harness.plan import base_arm
from harness.score.gather import find, gather
from harness.score.tasks import TaskItems
from harness.stream import Stream
from harness.weigh import Weigher


def settings(tasks: Sequence[str], model: str, limit: int | None, shots: int = 0) -> RunConfig:
    """The configuration of a run over the given tasks."""
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = typed(compose("config", ["eval=none", f"model={model}", "+exp=int4_ffn_only"]))
    config.eval.general = [str(Path(task).resolve()) for task in tasks]
    config.eval.limit = limit
    if shots:
        config.eval.num_fewshot, config.eval.sampler = shots, Sampler.first_n
    return config


def ours(config: RunConfig, model: Model, tasks: list[TaskItems]) -> tuple[np.ndarray, float, int]:
    """Log-likelihood of every choice, seconds, and tokens computed."""
    begun = time.perf_counter()
    sequences = [sequence for task in tasks for sequence in task.sequences]
    packs = form_packs(config, model, sequences)
    stream = Stream(model, [base_arm()], Weigher(model.sites), config.engine)
    scores = stream.score(list(batches(packs, config.engine.batch_tokens)), int(slots(sequences)[-1]))
    logp = np.add.reduceat(scores.logp_AS[0], slots(sequences)[:-1])
    return logp, time.perf_counter() - begun, sum(map(len, packs))


def backend(config: RunConfig, model: Model, batch: int = 8) -> Any:
    """lm-eval's HF backend on the same checkpoint, loaded by transformers alone, in float32."""
    module = AutoModelForCausalLM.from_pretrained(fetch(config.model), dtype=torch.float32).eval()
    hflm: Any = HFLM  # being registered hides its signature
    return hflm(pretrained=module, tokenizer=model.tokenizer, batch_size=batch, add_bos_token=False)


def theirs(reference: Any, tasks: list[TaskItems]) -> tuple[np.ndarray, float, int]:
    """The same by lm-eval's backend."""
    instances = [instance for task in tasks for question in task.questions for instance in question.instances]
    begun = time.perf_counter()
    logp = np.array([total for total, _ in reference.loglikelihood(instances, disable_tqdm=True)])
    return logp, time.perf_counter() - begun, sum(len(s.tokens) - 1 for task in tasks for s in task.sequences)


def compared(config: RunConfig, model: Model, tasks: list[TaskItems], reference: Any) -> dict[str, Any]:
    """One row: both sides on the same tasks, ours first."""
    our_logp, our_seconds, our_tokens = ours(config, model, tasks)
    logp, seconds, tokens = theirs(reference, tasks)
    return {
        "tasks": " ".join(task.name for task in tasks),
        "questions": sum(len(task.questions) for task in tasks),
        "choices": len(logp),
        "shots": config.eval.num_fewshot or 0,
        "threads": torch.get_num_threads(),
        "engine_seconds": round(our_seconds, 1),
        "engine_tokens": our_tokens,
        "lm_eval_seconds": round(seconds, 1),
        "lm_eval_tokens": tokens,
        "time_ratio": round(our_seconds / seconds, 3),
        "largest_difference": f"{np.abs(our_logp - logp).max():.2e}",
    }


def scored_tasks(config: RunConfig, model: Model) -> list[TaskItems]:
    """The tasks of a configuration that ask for log-likelihoods."""
    work = gather(find(config.eval, Path.cwd()), config.eval, model)
    return [task for task in work if isinstance(task, TaskItems) and not task.writes]


def write(row: dict[str, Any], out: Path | None) -> None:
    """Print a row, and add it to a CSV file."""
    print("\n".join(f"{name}: {value}" for name, value in row.items()), flush=True)
    if out is None:
        return
    new = not out.exists()
    with out.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, row)
        if new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    """All tasks in one row, or each in its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--model", default="smollm2_135m_raw")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--shots", type=int, default=0)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--batch", type=int, default=8, help="of lm-eval's side; 1 for long passages")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    config = settings(args.tasks, args.model, args.limit, args.shots)
    model = open_model(config.model)
    tasks, reference = scored_tasks(config, model), backend(config, model, args.batch)
    for group in [[task] for task in tasks] if args.each else [tasks]:
        write(compared(config, model, group, reference), args.out)


if __name__ == "__main__":
    main()
