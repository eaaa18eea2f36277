"""The cells of a report that describe the run and its arms: what was quantized, how, on what, at which cost."""

from __future__ import annotations

import platform
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import harness
from harness.config import RunConfig
from harness.ledger.weights import model_bytes
from harness.model.load import Model
from harness.plan import Arm, scheme_of
from harness.scheme import AXIS, BLOCKS, Scheme
from harness.supported import is_live, wants_inputs
from harness.weigh import Weigher

W8A8 = "w8a8"  # LLM.int8 rounds activations too: not to be set beside weight-only int8 unmarked


def run_cells(
    config: RunConfig, model: Model, run_id: str, seconds: float, sample_hashes: Sequence[str]
) -> dict[str, Any]:
    """What is the same in every row. `sample_hashes`: of the calibration samples, one a draw."""
    return {
        "experiment": config.experiment,
        "run_id": run_id,
        "model": model.name,
        "model_sha": model.sha,
        "base_lattice": model.base_lattice,
        "config": settings(config, sample_hashes) | ({"model": {"commit": model.commit}} if model.commit else {}),
        "seed": config.design.seed,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": device_name(model.device),
        "batch_tokens": config.engine.batch_tokens,
        "seconds": round(seconds, 2),
        "peak_bytes": peak_bytes(model.device),
        "harness_version": harness.__version__,
    }


def settings(config: RunConfig, sample_hashes: Sequence[str]) -> dict[str, Any]:
    """What else could matter, for the column `config`: untouched blocks in a word, calibration where there is any."""
    rest = asdict(config)
    quant = rest["quant"] | {"axis": AXIS}
    for block in ("ffn", "attention", "embedding", "head"):
        if not getattr(config.quant, block).touches:
            quant[block] = "keep"
    calibrated = any(wants_inputs(getattr(config.quant, block)) for block in BLOCKS) or config.quant.overrides
    engine = {name: rest["engine"][name] for name in ("pack_tokens", "batch_tokens", "packing")}
    parts = {"quant": quant, "design": rest["design"], "engine": engine, "attribute": rest["attribute"]}
    return parts | ({"calib": rest["calib"] | {"sample_hashes": list(sample_hashes)}} if calibrated else {})


def arm_cells(arm: Arm, model: Model, weigher: Weigher, calibration: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What an arm quantizes, what its weights take, and where its inputs came from. `calibration`: cells by draw."""
    facts = weigher.facts_of(arm)
    stored = model_bytes(
        model.parameters,
        model.all_sites,
        {name: fact["bits_per_weight"] for name, fact in facts.items()},
        tied=model.tied,
    )
    return {
        "arm": arm.name,
        **{f"{block}_{name}": cell for block in BLOCKS for name, cell in _block_cells(arm, block).items()},
        **(calibration[arm.draw] if any(map(wants_inputs, _schemes(arm))) else {}),
        "quantized_share": _quantized_share(arm, facts),
        "bits_per_weight": stored.bits_per_weight,
        "weight_bytes": stored.weight_bytes,
        "ffn_bytes_saved": stored.ffn_bytes_saved,
        "attention_bytes_saved": stored.attention_bytes_saved,
    }


def _block_cells(arm: Arm, block: str) -> dict[str, Any]:
    """Method, precision and group size of a block; `mixed` where its sites differ."""
    schemes = _schemes(arm, block)
    if not schemes:
        return {"method": "keep", "precision": "", "group_size": None}
    methods, sizes = ({getattr(s, n) for s in schemes} for n in ("method", "group_size"))
    precisions = {W8A8 if is_live(s) else s.precision.value for s in schemes}
    return {
        "method": methods.pop().value if len(methods) == 1 else "mixed",
        "precision": precisions.pop() if len(precisions) == 1 else "mixed",
        "group_size": sizes.pop() if len(sizes) == 1 else None,
    }


def _schemes(arm: Arm, block: str = "") -> set[Scheme]:
    """What the weights (of one block) were made with, by this arm or by those that it is spliced of."""
    found = (scheme_of(recipe) for site, recipe in arm.plan.items() if block in ("", site.block))
    return {scheme for scheme in found if scheme is not None}


def _quantized_share(arm: Arm, facts: dict[str, dict[str, Any]]) -> float | None:
    if not facts:
        return None
    asked = sum(site.weights for site in arm.plan)
    kept = sum(site.weights * facts[site.name].get("kept_columns", 0) / site.in_features for site in arm.plan)
    return 1 - kept / asked if asked else None


def site_rows(arms: Sequence[Arm], weigher: Weigher) -> pd.DataFrame:
    """sites.csv: every site of every arm."""
    rows = [{"arm": arm.name, **fact} for arm in arms for fact in weigher.facts_of(arm).values()]
    return pd.DataFrame(rows, columns=None if rows else ["arm", "site"])  # base alone has none


def device_name(device: torch.device) -> str:
    """`cpu`, or the accelerator's own name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def reset_peak(device: torch.device) -> None:
    """Start counting anew, so that a job of a sweep does not report an earlier one's. Not on every system."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes(device: torch.device) -> int:
    """Most memory held at once: the accelerator's, or else the process's resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_resident_bytes()


def peak_resident_bytes() -> int:
    """Most resident memory of this process, from Linux's VmHWM where there is one.

    Linux's `ru_maxrss` starts at the peak of the process that started this one (vfork shares its memory until exec).
    """
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return resident if sys.platform == "darwin" else resident * 1024


def versions() -> dict[str, str]:
    """Software and machine behind the numbers."""
    names = ("torch", "transformers", "lm_eval", "datasets", "numpy", "scipy")
    return {name: version(name) for name in names} | {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }
