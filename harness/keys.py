"""What all that an arm says depends on, to be hashed: the model, who computes, and what the arm does to it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import transformers

from harness.calibration import Calibration
from harness.files import key_of
from harness.identity import code_version
from harness.model.load import Model
from harness.plan import Arm, looks_at_inputs
from harness.scheme import Scheme
from harness.workers import TOOLS


def computed_by(model: Model) -> dict[str, Any]:
    """What all that a model says depends on, whatever it is asked."""
    return {
        "model_sha": model.sha,
        "dtype": str(model.dtype),
        "device": model.device_name,
        "attention": model.module.config._attn_implementation,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "code_version": code_version(),
    }


def arm_key(arm: Arm | None, indivisible: str, calibration: Calibration | None) -> str:
    """Hash of what an arm does to the model, of the tokens it calibrates on, and of published tools that make its
    weights: the same for arms that do the same. Base, or None, does nothing.
    """
    if arm is None:
        return key_of([[], indivisible, []])
    does = [
        (site.name, type(recipe).__name__, asdict(recipe), _samples(recipe, draw, calibration))
        for site, recipe, draw in arm.key
    ]
    methods = {recipe.method for recipe in arm.plan.values() if isinstance(recipe, Scheme)}
    tools = sorted(TOOLS[method].identity() for method in methods & set(TOOLS))
    return key_of([does, indivisible, tools])


def _samples(recipe: Any, draw: int, calibration: Calibration | None) -> str:
    if calibration is None or not looks_at_inputs(recipe):
        return ""
    return f"{calibration.draws[draw].digest} {calibration.batch_tokens}"
