"""Texts that an arm wrote for a task, in the cache folder: a run that was stopped goes on behind the last of them.

    answers/<key>/<arm>.jsonl     a text a line, in the order of the task's requests

The key is a hash of weights, prompts as token ids, settings, batch size, type, device and the code that computes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import lm_eval

from harness.calibration import Calibration
from harness.entries import Entry, folder_of
from harness.keys import arm_key, computed_by
from harness.model.load import Model
from harness.plan import Arm
from harness.score.measure import digest
from harness.score.tasks import TaskItems


@dataclass
class Answers:
    """One task's texts by arm. Where they are not kept, none are found."""

    model: Model
    task: TaskItems
    batch_size: int
    indivisible: str
    calibration: Calibration | None
    keeps: bool

    def take(self, arm: Arm) -> list[str] | None:
        """What the arm wrote in an earlier run; None where that is not known."""
        entry = self._entry(arm)
        if not self.keeps or not entry.whole():
            return None
        return [json.loads(line) for line in entry.path.read_text("utf-8").splitlines()]

    def keep(self, arm: Arm, texts: Sequence[str]) -> None:
        """Leave what the arm wrote for later runs."""
        if self.keeps:
            lines = "".join(json.dumps(text) + "\n" for text in texts)  # in ASCII: no text can break a line
            self._entry(arm).write(lambda path: path.write_text(lines, "utf-8"))

    @cached_property
    def _made_from(self) -> dict[str, Any]:
        encoder = self.task.encoder
        prompts = [(encoder.encode(prompt), settings) for prompt, settings in (r.args for r in self.task.writes)]
        return {
            "requests": digest([prompts, encoder.bos.value, encoder.max_length]),
            "batch_size": self.batch_size,
            "lm_eval": lm_eval.__version__,
            **computed_by(self.model),
        }

    def _entry(self, arm: Arm) -> Entry:
        about = {"model": self.model.name, "arm": arm.name, "task": self.task.name, **self._made_from}
        name = arm_key(arm, self.indivisible, self.calibration)
        return Entry(folder_of("answers", self._made_from) / f"{name}.jsonl", about)
