"""The golden file of the quantization methods (tests/golden/quantize/README.md)."""

import csv
from functools import cache
from pathlib import Path

import numpy as np
import torch

FOLDER = Path(__file__).parents[1] / "golden" / "quantize"


@cache
def arrays(name):
    with np.load(FOLDER / f"{name}.npz") as data:
        return {key: torch.from_numpy(data[key]) for key in data.files}


def inputs(case):
    """Weight [48, 192] and inputs [512, 192]."""
    return arrays("inputs")[f"{case}.W"], arrays("inputs")[f"{case}.X"]


@cache
def output_errors():
    """auto-gptq's mean of (X (Q - W)^T)^2, by case."""
    with (FOLDER / "auto_gptq.csv").open(encoding="utf-8", newline="") as lines:
        return {row["case"]: float(row["output_mse"]) for row in csv.DictReader(lines)}
