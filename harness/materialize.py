"""An arm as an ordinary whole model: for what needs more than log-probabilities, such as writing text.

    with materialized(model, arm, weigher, calibration) as module:
        module.generate(...)

Every layer's weights are put in place and quantized as the engine does it, by the same `Weigher`; on the way out the
model is as it was. All layers are held at once (of a model that is in memory anyway: copies of them).
Statistics for calibrated methods are those that scoring left on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from harness.calibration import Calibration
from harness.config import CalibConfig, CalibInputs
from harness.errors import UserError
from harness.live import computing
from harness.model.load import Model
from harness.model.outline import Outline
from harness.model.room import free_memory, gib, parameter_bytes
from harness.model.sites import substituted
from harness.plan import Arm, Splice
from harness.weigh import Weigher


@contextmanager
def materialized(
    model: Model, arm: Arm, weigher: Weigher, calibration: Calibration | None = None
) -> Iterator[PreTrainedModel]:
    """The model with the arm's weights in it. UserError where its statistics are not on disk."""
    with ExitStack() as stack:
        layers = [stack.enter_context(model.layer(i)) for i in range(len(model.layers))]
        places: list[tuple[int, nn.Module]] = [(-1, model.module), *enumerate(layers), (len(layers), model.module)]
        for index, module in places:
            stats = _statistics(arm, calibration, index, module)
            treatment = arm.treatment(index)
            stack.enter_context(substituted(module, weigher.weights(treatment, module, stats)))
            stack.enter_context(computing(module, weigher.forwards(treatment, module)))
        yield model.module


def check_materialize(model: Outline, arms: Sequence[Arm], calib: CalibConfig) -> None:
    """UserError, before anything is scored, for arms that cannot be made as a whole: for want of room or statistics."""
    needed, free = parameter_bytes(model.layers), max(0, free_memory(model.device) - model.pending_bytes)
    if needed > free:
        raise UserError(
            f"Tasks that write text need all layers at once: {gib(needed)}, {gib(free)} of memory are free on "
            f"{model.device}. Leave such tasks out, set model.dtype=bfloat16, or use a larger machine."
        )
    calibrated = [arm for arm in arms if arm.calibrated]
    spliced = [arm for arm in arms if any(isinstance(recipe, Splice) for recipe in arm.plan.values())]
    if spliced or (calibrated and (calib.inputs is CalibInputs.quantized or not calib.keep)):
        name = (spliced or calibrated)[0].name
        raise UserError(
            f"Arm {name} cannot write text: its weights exist only while layers are scored. For tasks that write text "
            "set calib.inputs=float and calib.keep=true, or use a method without calibration."
        )


def _statistics(arm: Arm, calibration: Calibration | None, index: int, layer: nn.Module) -> dict[int, Any]:
    """By draw, for a layer of an arm that looks at inputs. Embedding and head have none."""
    inside = 0 <= index < len(calibration.model.layers) if calibration else False
    if calibration is None or not inside or not arm.calibrated or not arm.treatment(index):
        return {}

    def absent() -> None:
        raise UserError(
            f"Calibration statistics of layer {index} are not in the cache folder any more: harness.force=true."
        )

    return {arm.draw: calibration.stats(index, layer, arm.draw, absent)}
