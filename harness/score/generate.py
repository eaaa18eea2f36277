"""Tasks that write text: every arm as a whole model, greedy, in batches, by lm-eval's own HF backend.

Prompts are cut, padded on the left and stopped as lm-eval does it; what it returns is played back into the task's
filters and metrics (harness.score.tasks). Sampling is refused: two arms would differ by luck. A greedy answer may flip
where two tokens are all but equal, so batches are the same in every arm: of one prompt where an arm is LLM.int8, which
would take its outlier columns from pads and neighbours as well. Only where memory runs out are they halved.

What an arm wrote for a task is kept as soon as it is there (harness.score.answers), and taken by later runs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
    writers = [_writer(model, task, at_once) for task in tasks]  # here: it ties the head to the embedding
    kept = [
        Answers(model, task, writer.batch_size, weigher.indivisible, calibration, keeps)
        for task, writer in zip(tasks, writers, strict=True)
    ]
    for task in tasks:
        task.answers = []
    for arm in arms if tasks else ():
        found = [answers.take(arm) for answers in kept]
        if None in found:
            with materialized(model, arm, weigher, calibration):
                for n, texts in enumerate(found):
                    if texts is None:
                        found[n] = _written(writers[n], tasks[n])
                        kept[n].keep(arm, found[n])
                        log.info("%s: arm %s wrote %d answers", tasks[n].name, arm.name, len(found[n]))
        for task, texts in zip(tasks, found, strict=True):
            task.answers.append(texts)


def _written(writer: Any, task: TaskItems) -> list[str]:
    """What the model, as it now is, writes. With less memory than expected, fewer prompts at once from here on."""
    while True:
        try:
            return writer.generate_until(task.writes, disable_tqdm=True)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            if writer.batch_size == 1:
                raise UserError(
                    f"{task.name}: out of memory while a single answer is written ({error}). Lower "
                    "generation_kwargs.max_gen_toks or the number of examples, or set model.dtype=bfloat16."
                ) from error
            writer.batch_size_per_gpu //= 2
            log.warning("%s: out of memory: going on with %d answers at once", task.name, writer.batch_size)


def _writer(model: Model, task: TaskItems, batch_tokens: int) -> Any:
    """lm-eval's backend around the model, with as many answers at once as fit `batch_tokens`, at least one."""
    backend: Any = HFLM  # being registered hides its signature
    encoder = task.encoder
    longest = max(len(encoder.encode(prompt)) + _asked(settings)["max_gen_toks"] for prompt, settings in
                  (request.args for request in task.writes))  # fmt: skip
    return backend(
        pretrained=model.module,
        tokenizer=encoder.tokenizer,
        batch_size=max(1, min(len(task.writes), batch_tokens // longest)),
        max_length=encoder.max_length,
        add_bos_token={BosUse.auto: None, BosUse.always: True, BosUse.never: False}[encoder.bos],
    )


def _asked(settings: dict[str, Any]) -> Any:
    return normalize_gen_kwargs(settings, MOST_TOKENS)
