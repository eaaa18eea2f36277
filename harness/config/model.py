"""Settings of the group `model`: which weights, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from omegaconf import MISSING


class ModelSource(StrEnum):
    """Where weights come from."""

    hf = "hf"  # hub id or local folder
    gguf = "gguf"  # a GGUF file
    package = "package"  # a GGUF file inside a Python package
    random = "random"  # random weights of a given shape


class DType(StrEnum):
    """Computing type. `auto`: float32 on the CPU, bfloat16 on a GPU."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


@dataclass
class OffGrid:
    """Exact re-parameterization by log-normal factors (harness.model.offgrid). sigma 0: off."""

    sigma: float = 0.0
    seed: int = 0


@dataclass
class ModelConfig:
    """Which weights, and how they are read."""

    name: str = MISSING  # label in reports
    source: ModelSource = ModelSource.hf
    path: str = ""  # hub id, folder, GGUF file, or package requirement
    revision: str = ""  # branch, tag or commit on the hub; empty: the default branch. Only a commit never moves
    file: str = ""  # GGUF file inside the package
    sha256: str = ""  # of that file; empty: not checked
    licence: str = ""
    gated: bool = False  # the hub asks for an accepted licence and a token
    dtype: DType = DType.auto
    device: str = "auto"  # auto: cuda when present, else cpu
    attention: str = "auto"  # auto: sdpa, or eager where the architecture needs it
    off_grid: OffGrid = field(default_factory=OffGrid)
    allow_lattice: bool = False  # quantize a base whose weights already sit on a grid that the arms' groups nest in
    config: dict[str, Any] = field(default_factory=dict)  # fields of the model's own config to set (random models)
    seed: int = 0  # of random weights
