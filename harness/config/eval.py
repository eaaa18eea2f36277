"""Settings of the group `eval`: texts, tasks and generated questions, and how they are scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class BosRule(StrEnum):
    """Where a beginning-of-sequence token stands. It is never scored and never doubled."""

    none = "none"
    first = "first"  # once, at the start of the text
    window = "window"  # at the start of every window


class LastWindow(StrEnum):
    """A last window shorter than the others: dropped (as in papers) or scored."""

    drop = "drop"
    score = "score"


@dataclass
class PerplexityConfig:
    """A text scored in windows. `path` empty: off."""

    path: str = ""  # a file, or `shipped:moby_dick`
    name: str = "prose"
    subset: str = "general"
    window: int = 1024  # tokens
    stride: int = 0  # tokens between window starts; 0: window, so that no token is seen twice
    joiner: str = ""  # set: lines are rows, blank rows emptied, joined by this (papers: two newlines); empty: as it is
    bos: BosRule = BosRule.none
    last_window: LastWindow = LastWindow.drop
    max_windows: int = 0  # 0: all
    max_windows_per_document: int = 0  # 0: all
    max_chars: int = 0  # only this much of the text's beginning; 0: all
    document_regex: str = ""  # a match starts a new document, which no window crosses; empty: each window is one

    def __post_init__(self) -> None:
        """Newlines as a command line writes them."""
        self.joiner = self.joiner.replace("\\n", "\n")


class Sampler(StrEnum):
    """How few-shot examples are chosen."""

    default = "default"  # drawn anew for every question
    first_n = "first_n"  # the first ones, the same for every question


class BosUse(StrEnum):
    """A beginning-of-sequence token before a question's text: as the tokenizer does by itself, always, or never."""

    auto = "auto"
    always = "always"
    never = "never"


class TooLong(StrEnum):
    """What becomes of a task with texts longer than the model has positions."""

    error = "error"
    drop = "drop"  # left out: the task (of a group, all of them), the generated suite at that length; a warning says so


@dataclass
class TaskOptions:
    """Settings of one lm-eval task; an unset field leaves the run's (below), which leaves the task's own."""

    num_fewshot: int | None = None
    sampler: Sampler | None = None
    limit: int | None = None
    chat_template: bool | None = None
    seed: int | None = None  # few-shot draws


@dataclass
class ContextSuiteConfig:
    """Generated questions whose answer stands in the context (harness.data.context)."""

    lengths: list[int] = field(default_factory=list)  # tokens an item may have; empty: off
    documents: int = 30  # a task and length
    seed: int = 0


@dataclass
class EvalConfig:
    """What is scored. Subsets list lm-eval task names, or paths of task YAML files in lm-eval's format."""

    general: list[str] = field(default_factory=list)
    knowledge: list[str] = field(default_factory=list)
    context: list[str] = field(default_factory=list)
    perplexity: PerplexityConfig = field(default_factory=PerplexityConfig)
    context_suite: ContextSuiteConfig = field(default_factory=ContextSuiteConfig)
    limit: int | None = None  # questions a task, the first ones
    num_fewshot: int | None = None  # as in lm-eval not for a task whose own file says 0; task_options is
    sampler: Sampler | None = None
    chat_template: bool = False  # prompts in the dress of the tokenizer's chat template, examples as turns
    task_options: dict[str, TaskOptions] = field(default_factory=dict)  # {name: {limit: 9}}, over these four and seed
    bos: BosUse = BosUse.auto
    too_long: TooLong = TooLong.error
    seed: int = 1234  # few-shot draws
    # Metrics whose loss is split between players: those that so many items resolve; empty: every one with a mean over
    # items. report.csv has all metrics whatever stands here.
    attribute_metrics: list[str] = field(default_factory=list)

    def by_subset(self) -> dict[str, list[str]]:
        """Tasks by the subset they belong to."""
        return {"general": self.general, "knowledge": self.knowledge, "context": self.context}
