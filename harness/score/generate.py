"""Tasks that write text: every arm as a whole model, greedy, in batches, by lm-eval's own HF backend.

Prompts are cut, padded on the left and stopped as lm-eval does it; what it returns is played back into the task's
filters and metrics (harness.score.tasks). Sampling is refused: two arms would differ by luck. A greedy answer may flip
where two tokens are all but equal, so batches are the same in every arm: of one prompt where an arm is LLM.int8, which
would take its outlier columns from pads and neighbours as well. Where memory runs out they are halved, for all arms.

What an arm wrote for a task is kept as soon as it is there (harness.score.answers), and taken by later runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import normalize_gen_kwargs

from harness.calibration import Calibration
from harness.config import BosUse, CalibConfig
from harness.errors import TooLongError, UserError
from harness.materialize import check_materialize, materialized
from harness.model.load import Model
from harness.model.outline import Outline
from harness.plan import Arm
from harness.score.answers import Answers
from harness.score.measure import Scorable
from harness.score.tasks import TaskItems
from harness.stream import out_of_memory
from harness.weigh import Weigher

log = logging.getLogger(__name__)
MOST_TOKENS = 256  # of an answer, where the task names no bound: lm-eval's own default


def writing(work: Sequence[Scorable]) -> list[TaskItems]:
    """The tasks that ask for text."""
    return [task for task in work if isinstance(task, TaskItems) and task.writes]


def check_writing(work: Sequence[Scorable], model: Outline, arms: Sequence[Arm], calib: CalibConfig) -> None:
    """UserError for text that cannot be had of an arm or a model: it cannot be whole in memory."""
    if writing(work):
        check_materialize(model, arms, calib)


def check_answers(task: TaskItems) -> None:
    """UserError for a task whose text cannot be had of any arm: sampled, or too long."""
    for request in task.writes:
        _check(task, *request.args)


def _check(task: TaskItems, prompt: str, settings: dict[str, Any]) -> None:
    asked = _asked(settings)
    if asked.get("do_sample") or asked.get("num_beams", 1) > 1:
        raise UserError(f"eval: task {task.name} samples its answers. Set generation_kwargs.do_sample: false.")
    length, room = len(task.encoder.encode(prompt)), task.encoder.max_length - asked["max_gen_toks"]
    if length > room:
        raise TooLongError(
            f"{task.name}: a prompt of {length} tokens and an answer of {asked['max_gen_toks']}, but the model has "
            f"{task.encoder.max_length} positions. Lower generation_kwargs.max_gen_toks or the number of examples."
        )


def write_answers(
    work: Sequence[Scorable],
    model: Model,
    arms: Sequence[Arm],
    weigher: Weigher,
    calibration: Calibration | None,
    batch_tokens: int,
    keeps: bool = False,
) -> None:
    """Fill `answers` of every task that writes text: a list for each arm. `keeps`: in the cache folder as well."""
    tasks = writing(work)
    at_once = 1 if any(arm.is_live for arm in arms) else batch_tokens
    writers = [_Writer(model, task, at_once) for task in tasks]  # here: it ties the head to the embedding
    while tasks:
        kept = [Answers(model, w.task, w.at_once, weigher.indivisible, calibration, keeps) for w in writers]
        try:
            texts = [
                _texts(arm, writers, kept, partial(materialized, model, arm, weigher, calibration)) for arm in arms
            ]
        except _HalvedError as error:
            log.warning("%s", error)  # and all arms again: their batches are to be the same
            continue
        for task, own in zip(tasks, zip(*texts, strict=True), strict=True):
            task.answers = list(own)
        return


def _texts(
    arm: Arm, writers: Sequence[_Writer], kept: Sequence[Answers], made: Callable[[], AbstractContextManager[Any]]
) -> list[list[str]]:
    """What an arm writes, task by task; it is made only where that is not known."""
    taken = [answers.take(arm) for answers in kept]
    texts = []
    with made() if None in taken else nullcontext():
        for writer, answers, own in zip(writers, kept, taken, strict=True):
            if own is None:
                own = writer.write()
                answers.keep(arm, own)
                log.info("%s: arm %s wrote %d answers", writer.task.name, arm.name, len(own))
            texts.append(own)
    return texts


class _HalvedError(Exception):
    """Memory ran out, and fewer answers are to be written at once."""


class _Writer:
    """lm-eval's backend around the model, with as many answers at once as fit `batch_tokens`, at least one."""

    def __init__(self, model: Model, task: TaskItems, batch_tokens: int) -> None:
        encoder, asked = task.encoder, [request.args for request in task.writes]
        longest = max(len(encoder.encode(prompt)) + _asked(settings)["max_gen_toks"] for prompt, settings in asked)
        backend: Any = HFLM  # being registered hides its signature
        self.task = task
        self.requests = [_Request((encoder.bos_text + prompt, settings)) for prompt, settings in asked]
        self.backend = backend(
            pretrained=model.module,
            tokenizer=encoder.tokenizer,
            batch_size=max(1, min(len(asked), batch_tokens // longest)),
            max_length=encoder.max_length,
            add_bos_token={BosUse.auto: None, BosUse.always: not encoder.bos_text, BosUse.never: False}[encoder.bos],
        )

    @property
    def at_once(self) -> int:
        """Answers in a batch."""
        return self.backend.batch_size

    def write(self) -> list[str]:
        """What the model, as it now is, writes."""
        try:
            return self.backend.generate_until(self.requests, disable_tqdm=True)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            name, most = self.task.name, self.at_once
            if most == 1:
                raise UserError(
                    f"{name}: out of memory while a single answer is written ({error}). Lower "
                    "generation_kwargs.max_gen_toks or the number of examples, or set model.dtype=bfloat16."
                ) from error
            self.backend.batch_size_per_gpu = most // 2
            raise _HalvedError(
                f"{name}: out of memory with {most} answers at once: going on with {most // 2}"
            ) from error


@dataclass(frozen=True)
class _Request:
    """What lm-eval's backend looks at of an instance."""

    args: tuple[str, dict[str, Any]]


def _asked(settings: dict[str, Any]) -> Any:
    return normalize_gen_kwargs(settings, MOST_TOKENS)
