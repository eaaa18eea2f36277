"""`make gpu-check`: does the harness hold on this GPU, how fast is it there, and how much memory does it take?

One script, under eight minutes on one data-centre GPU. Without a GPU it says so and ends well. Figures go to
outputs/gpu_check/gpu_check.json; the exit status is 1 where a check fails. `--device cpu` runs the same code on a
processor with smaller shapes, to try the script itself.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import pandas as pd
import torch
from hydra import compose, initialize_config_dir

from harness.app import config_folder, typed
from harness.config import ArmsRule, DesignConfig, DType, EngineConfig, ModelConfig, ModelSource, QuantConfig, RunConfig
from harness.design import build_arms
from harness.errors import UserError
from harness.model.load import Model, open_model
from harness.model.skeleton import random_module
from harness.packs import TokenSequence, batches, pack_plain, pack_trees, slots
from harness.pipeline import run
from harness.plan import base_arm, resolve, trunk_counts
from harness.report.cells import peak_bytes, reset_peak
from harness.scheme import Method, Scheme
from harness.stream import Stream
from harness.weigh import Weigher

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "smollm2"
BUDGET = 440.0  # seconds, after which no further check begins

SMALL = {
    "model_type": "llama", "vocab_size": 1024, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 2048, "initializer_range": 0.1,
}  # fmt: skip
# Four layers of Llama-2-7B's shape: 0.81 B parameters in the layers.
LARGE = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096,
}  # fmt: skip
METHODS = (
    "rtn/int2", "rtn/int3", "rtn/int4", "rtn/int5", "rtn/int6", "rtn/int8", "rtn/fp8_e4m3", "rtn/mxfp4", "rtn/nvfp4",
    "gptq/int4", "awq/int4", "hqq/int4", "bnb/nf4", "bnb/fp4", "bnb/int8",
)  # fmt: skip
GROUPS = {"mxfp4": 32, "nvfp4": 16, "bnb/int8": -1}  # where the format or LLM.int8 fixes it
TEXT = (
    "model=tiny", "eval=perplexity", "eval.perplexity.window=64", "eval.perplexity.max_windows=2",
    "attribute.resamples=100", "design.noise_draws=0", "calib.samples=4", "calib.length=64", "harness.reuse=false",
)  # fmt: skip


@dataclass
class Report:
    """What was found. `failed` names the checks that did not hold."""

    device: str
    begun: float = field(default_factory=time.monotonic)
    facts: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def check(self, name: str, holds: bool, **facts: Any) -> None:
        """Note figures and whether they are as they should be."""
        self.facts[name] = {"holds": bool(holds), **facts}
        if not holds:
            self.failed.append(name)
        print(
            f"{'ok    ' if holds else 'FAILED'} {name}: " + ", ".join(f"{k} {v}" for k, v in facts.items()), flush=True
        )

    @property
    def large(self) -> bool:
        """Whether there is a GPU to be kept busy."""
        return self.device != "cpu"


def composed(*overrides: str) -> RunConfig:
    """The typed configuration of a command line."""
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return typed(compose("config", list(overrides)))


def questions(rng: np.random.Generator, vocabulary: int, count: int = 24) -> list[TokenSequence]:
    """Contexts of up to 60 tokens with three continuations each."""
    made = []
    for _ in range(count):
        context = tuple(int(t) for t in rng.integers(0, vocabulary, rng.integers(2, 60)))
        made += [
            TokenSequence((*context, *(int(t) for t in rng.integers(0, vocabulary, 4))), len(context)) for _ in range(3)
        ]
    return made


def engine(report: Report) -> None:
    """The engine's log-probabilities against the model's own forward, in float32 and bfloat16.

    On batches of the same shape only the head may round differently: it sees scored positions, and the kernel of a
    product is picked by its number of rows. Packed trees round differently everywhere. Logits are about 10, and
    bfloat16 has steps of 1/16 there.
    """
    given = questions(np.random.default_rng(0), SMALL["vocab_size"])
    for dtype, most in ((torch.float32, 1e-3), (torch.bfloat16, 0.5)):
        module = random_module(ModelConfig("small", ModelSource.random, config=SMALL), dtype)
        plain = copy.deepcopy(module).to(report.device)
        model = Model.from_module(module, device=report.device)
        want = np.concatenate([own_logp(plain, sequence) for sequence in given])
        same = scored(model, list(batches(pack_plain(given), 1)), given)
        trees = scored(model, list(batches(pack_trees(given, 256), 1024)), given)
        name = str(dtype).removeprefix("torch.")
        exact = np.abs(same - want).max()
        report.check(f"engine, same shapes, {name}", exact < most, largest=f"{exact:.1e}")
        errors = np.abs(trees - want)
        report.check(f"engine, trees, {name}", errors.max() < most, largest=f"{errors.max():.1e}")


def own_logp(module: torch.nn.Module, sequence: TokenSequence) -> np.ndarray:
    """Log-probabilities of the scored tokens by the plain forward."""
    ids = torch.tensor([sequence.tokens], device=next(module.parameters()).device)
    with torch.inference_mode():
        logp = module(ids[:, :-1], use_cache=False).logits[0].float().log_softmax(-1)
    rows = torch.arange(sequence.start - 1, len(sequence.tokens) - 1, device=ids.device)
    return logp[rows, ids[0, sequence.start :]].double().cpu().numpy()


def scored(model: Model, cut: list, given: list[TokenSequence]) -> np.ndarray:
    """Log-probabilities of the same tokens by the engine."""
    stream = Stream(model, [base_arm()], Weigher(), EngineConfig())
    return stream.score(cut, int(slots(given)[-1])).logp_AS[0]


def golden(report: Report) -> None:
    """Nll of four windows of Moby Dick in four arms, against transformers in float32 on a CPU."""
    want = json.loads((GOLDEN / "moby_dick_ppl.json").read_text(encoding="utf-8"))["results"]
    for dtype, most in (("float32", 1e-3), ("bfloat16", 2e-2)):
        overrides = (
            "+exp=int4_split", "model=smollm2_135m_raw", f"model.dtype={dtype}", f"model.device={report.device}",
            "eval=perplexity", f"eval.perplexity.path={GOLDEN / 'moby_dick_30000.txt'}", "eval.perplexity.joiner=''",
            "eval.perplexity.window=1024", "eval.perplexity.max_windows=4", "quant.ffn.scale_dtype=float32",
            "quant.attention.scale_dtype=float32", "design.noise_draws=0", "outputs=outputs/gpu_check",
            "harness.force=true",
        )  # fmt: skip
        try:
            folder = run(composed(*overrides), ROOT).folder
        except UserError as error:  # the weights cannot be had here
            report.facts[f"golden, {dtype}"] = {"skipped": str(error)}
            print(f"       golden, {dtype}: skipped: {error}", flush=True)
            return
        assert folder is not None
        items = pd.read_parquet(folder / "items.parquet")
        items = items[items["metric"] == "nll"]
        errors = {
            arm: float(np.abs(own["value"] * own["n_tokens"] / want[arm]["window_nll"] - 1).max())
            for arm, own in items.groupby("arm")
        }
        report.check(f"golden, {dtype}", max(errors.values()) < most, **{a: f"{e:.1e}" for a, e in errors.items()})


def methods(report: Report) -> None:
    """Every method in a whole run of the tiny model: it ends, and its weight error is the one that a CPU finds."""
    for name in METHODS:
        method, precision = name.split("/")
        scheme = {"method": method, "precision": precision, "group_size": GROUPS.get(name, GROUPS.get(precision, 64))}
        if method == "hqq":  # searches zero points
            scheme["symmetric"] = "false"
        overrides = [f"quant.ffn.{key}={value}" for key, value in scheme.items()]
        found = {device: site_errors(device, overrides) for device in dict.fromkeys(("cpu", report.device))}
        apart = np.abs(found[report.device] / found["cpu"] - 1).max()
        error = found[report.device].mean()
        report.check(f"method {name}", apart < 0.02, weight_error=round(float(error), 4), apart=f"{apart:.1e}")


def site_errors(device: str, scheme: list[str]) -> np.ndarray:
    """Relative weight errors of all sites, float32."""
    place = (
        f"model.device={device}",
        "model.dtype=float32",
        f"outputs=outputs/gpu_check/{device}",
        "harness.force=true",
    )
    folder = run(composed("+exp=int4_ffn_only", *TEXT, *scheme, *place), ROOT).folder
    assert folder is not None
    return pd.read_csv(folder / "sites.csv")["relative_weight_error"].to_numpy()


def speed(report: Report) -> None:
    """Tokens a second of the 2 x 2 in bfloat16, as a share of what the card's own matrix products allow; memory."""
    shape, windows, length = (LARGE, 48, 2048) if report.large else (SMALL, 4, 128)
    model = open_model(
        ModelConfig("speed", ModelSource.random, config=shape, dtype=DType.bfloat16, device=report.device)
    )
    rng = np.random.default_rng(0)
    given = [
        TokenSequence(tuple(int(t) for t in rng.integers(0, shape["vocab_size"], length)), 1) for _ in range(windows)
    ]
    int4 = Scheme(Method.rtn, group_size=64)
    plan = resolve(model.all_sites, QuantConfig(ffn=int4, attention=int4)).plan
    arms = build_arms(plan, DesignConfig(arms=ArmsRule.all), len(model.layers))
    cut = list(batches(pack_plain(given), 4 * length))
    reset_peak(model.device)
    synchronize(report)
    begin = time.monotonic()
    stream = Stream(model, arms, Weigher(model.sites), EngineConfig(memory_gib=16.0))
    stream.score(cut, int(slots(given)[-1]))
    synchronize(report)
    seconds, tokens = time.monotonic() - begin, windows * (length - 1)
    layer_weights = sum(site.weights for site in model.sites)
    pushed = tokens * sum(trunk_counts(arms, len(model.layers))) / len(model.layers)
    flops = 2 * pushed * layer_weights + 2 * tokens * len(arms) * model.vocab_size * model.hidden_size
    rate = matmul_rate(report)
    report.check(
        "speed", seconds > 0, tokens=tokens, arms=len(arms), waves=stream.waves, seconds=round(seconds, 2),
        tokens_a_second=round(pushed / seconds), tflops=round(flops / seconds / 1e12, 2),
        card_tflops=round(rate / 1e12, 1), share_of_card=round(flops / seconds / rate, 3),
        peak_gib=round(peak_bytes(model.device) / 2**30, 2),
    )  # fmt: skip


def matmul_rate(report: Report) -> float:
    """bfloat16 FLOPs a second of a large square product."""
    size, times = (8192, 20) if report.large else (512, 3)
    a, b = (torch.randn(size, size, device=report.device, dtype=torch.bfloat16) for _ in range(2))
    a @ b
    synchronize(report)
    begin = time.monotonic()
    for _ in range(times):
        a @ b
    synchronize(report)
    return times * 2 * size**3 / (time.monotonic() - begin)


def synchronize(report: Report) -> None:
    """Wait until the device has done what it was given."""
    if report.large:
        torch.cuda.synchronize()


def sweep(report: Report) -> None:
    """A joblib sweep of the tiny model: three group sizes, a GPU each as they come free."""
    command = [
        sys.executable, "-m", "harness", "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "+exp=int4_ffn_only",
        *TEXT, f"model.device={report.device}", "outputs=outputs/gpu_check/sweep", "harness.force=true",
        "quant.ffn.group_size=32,64,128",
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith("sweep of")]
    report.check(
        "joblib sweep", done.returncode == 0, status=done.returncode, said="; ".join(said) or done.stderr[-300:]
    )


CHECKS: tuple[Callable[[Report], None], ...] = (engine, golden, speed, sweep, methods)


def main() -> int:
    """Run all checks; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    if device == "cuda" and not torch.cuda.is_available():
        print(f"gpu-check: skipped: torch {torch.__version__} sees no CUDA device on this machine")
        return 0
    name = torch.cuda.get_device_name() if device == "cuda" else device
    report = Report(device, facts={"device": name, "torch": torch.__version__})
    print(f"gpu-check on {name}, torch {torch.__version__}", flush=True)
    for check in CHECKS:
        if time.monotonic() - report.begun > BUDGET:
            report.check(check.__name__, False, reason="no time left")
            continue
        check(report)
    report.facts["seconds"] = round(time.monotonic() - report.begun, 1)
    path = ROOT / "outputs" / "gpu_check" / "gpu_check.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report.facts, indent=1) + "\n", encoding="utf-8")
    print(f"{report.facts['seconds']} s; failed: {', '.join(report.failed) or 'none'}; {path}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
