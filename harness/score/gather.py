"""Everything that a run scores: found and read before a model is opened, tokenized before any layer is touched."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from harness.config import BosRule, BosUse, EvalConfig
from harness.errors import UserError
from harness.model.outline import Outline
from harness.score.context import context_tasks
from harness.score.encode import Encoder
from harness.score.library import Found, build_tasks, find_tasks
from harness.score.measure import Scorable
from harness.score.perplexity import cut_text, read_text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sources:
    """Tasks by subset, and the text for perplexity; no token yet."""

    tasks: list[Found]
    text: str = ""


def find(config: EvalConfig, start: Path) -> Sources:
    """All tasks and texts. UserError where one cannot be had, or where there is none."""
    text = read_text(config.perplexity, start) if config.perplexity.path else ""
    sources = Sources(find_tasks(config, start), text)
    if not sources.tasks and not sources.text and not config.context_suite.lengths:
        raise UserError(
            "eval: nothing to score. Choose eval=quick or eval=perplexity, or name tasks: eval.general=[arc_easy]."
        )
    return sources


def gather(sources: Sources, config: EvalConfig, model: Outline, reuse: bool = False) -> list[Scorable]:
    """Token sequences of all tasks and texts, with `reuse` from the cache folder. UserError for what does not fit."""
    _say_if_bos_is_left_out(config, sources, model)
    work: list[Scorable] = []
    if sources.text:
        window = config.perplexity.window
        if window > model.max_positions:
            raise UserError(f"eval.perplexity.window={window}: the model has {model.max_positions} positions.")
        work.append(cut_text(sources.text, config.perplexity, model.tokenizer, model.vocab_size))
    encoder = Encoder(model.tokenizer, config.bos, model.max_positions, reuse)
    work += build_tasks(sources.tasks, config, encoder, model.vocab_size)
    work += context_tasks(config.context_suite, config.too_long, encoder, model.vocab_size)
    if not work:
        raise UserError(f"eval: all tasks are too long for this model's {model.max_positions} positions. Name others.")
    return work


def _say_if_bos_is_left_out(config: EvalConfig, sources: Sources, model: Outline) -> None:
    """Some models are lost without the BOS that their tokenizer puts before every text."""
    bos = model.tokenizer.bos_token_id
    if bos is None or model.tokenizer("a")["input_ids"][0] != bos:
        return
    if sources.text and config.perplexity.bos is BosRule.none:
        log.warning("eval.perplexity.bos=none, but this tokenizer begins every text with a BOS")
    if sources.tasks and config.bos is BosUse.never:
        log.warning("eval.bos=never, but this tokenizer begins every text with a BOS")
