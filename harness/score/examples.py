"""Prompts as asked: how many examples, how they are drawn, in which dress; and a note of which rows were shown.

lm-eval draws a question's examples while it builds its prompt. The sampler is wrapped, so that what it drew is known
afterwards: row numbers among the rows that examples are drawn from. They stand in questions.parquet, their hash in the
column `protocol`.

With a chat template, the tokenizer's own is used as lm-eval's HF backend does it: every example is a user's and an
assistant's turn, a task's description the system's, and choices follow without `target_delimiter`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lm_eval.api.samplers import get_sampler

from harness.config import EvalConfig, TaskOptions
from harness.errors import UserError
from harness.score.measure import digest

log = logging.getLogger(__name__)

Chat = Callable[..., str]


@dataclass(frozen=True)
class Prompting:
    """How a task's prompts are made; None leaves the task's own."""

    num_fewshot: int | None
    sampler: str | None
    limit: int | None
    chat_template: bool
    seed: int

    @classmethod
    def of(cls, config: EvalConfig, task: str, its_shots: int | None = None) -> Prompting:
        """A run's settings with those of one task over them. `its_shots`: `num_fewshot` of the task's own file."""
        own = config.task_options.get(task, TaskOptions())
        return cls(
            _for_all(config, task, its_shots) if own.num_fewshot is None else own.num_fewshot,
            own.sampler or config.sampler,
            config.limit if own.limit is None else own.limit,
            config.chat_template if own.chat_template is None else own.chat_template,
            config.seed if own.seed is None else own.seed,
        )

    def build(self, task: Any, tokenizer: Any) -> list[tuple[int, ...]]:
        """Make the task's requests; the examples of every question, in order. Raises whatever lm-eval does."""
        if self.num_fewshot is not None:
            task.set_config("num_fewshot", self.num_fewshot)
        if self.sampler:
            task.sampler = get_sampler(self.sampler)(list(task.fewshot_docs()))
        task.set_fewshot_seed(self.seed)
        noted = _Noted(getattr(task, "sampler", None))
        task.sampler = noted
        chat = {"chat_template": chat_of(tokenizer), "fewshot_as_multiturn": True} if self.chat_template else {}
        task.build_all_requests(limit=self.limit, apply_chat_template=self.chat_template, **chat)
        task.sampler = noted.sampler
        return noted.drawn

    def dress(self, tokenizer: Any) -> str:
        """`off`, or a hash of the chat template: a part of what a number was made under."""
        return f"{digest(tokenizer.chat_template)}, examples as turns" if self.chat_template else "off"


def _for_all(config: EvalConfig, task: str, its_shots: int | None) -> int | None:
    """The number of examples asked of all tasks. As in lm-eval, it is not for one whose own file says 0."""
    if its_shots == 0 and config.num_fewshot:
        log.warning(
            "%s: its own num_fewshot is 0, so eval.num_fewshot=%d is not for it; eval.task_options is",
            task,
            config.num_fewshot,
        )
        return None
    return config.num_fewshot


def chat_of(tokenizer: Any) -> Chat:
    """Messages to text by the tokenizer's template. UserError where it has none."""
    if not getattr(tokenizer, "chat_template", None):
        raise UserError("eval.chat_template=true: this model's tokenizer has no chat template. Set it to false.")

    def render(messages: Sequence[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    return render


class _Noted:
    """A sampler of lm-eval that notes which rows it gave, one entry a question."""

    def __init__(self, sampler: Any) -> None:
        self.sampler, self.drawn = sampler, []

    def sample(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As the sampler itself."""
        found = list(self.sampler.sample(*args, **kwargs))
        self.drawn.append(tuple(self._row[id(doc)] for doc in found))
        return found

    @cached_property
    def _row(self) -> dict[int, int]:
        return {id(doc): n for n, doc in enumerate(self.sampler.df)}
