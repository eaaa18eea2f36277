"""Everything that a run scores, tokenized and checked before any layer is touched."""

from __future__ import annotations

from pathlib import Path

from harness.config import EvalConfig
from harness.errors import UserError
from harness.model.load import Model
from harness.score.encode import Encoder
from harness.score.library import SUBSETS, build_tasks
from harness.score.measure import Scorable
from harness.score.perplexity import read_windows


def gather(config: EvalConfig, model: Model, start: Path) -> list[Scorable]:
    """Tasks and text windows of a run. UserError where there is nothing, or where windows exceed the model."""
    work: list[Scorable] = []
    if config.perplexity.path:
        if config.perplexity.window > model.max_positions:
            raise UserError(
                f"eval.perplexity.window={config.perplexity.window}: the model has {model.max_positions} positions."
            )
        work.append(read_windows(config.perplexity, model.tokenizer, model.vocab_size, start))
    if any(getattr(config, subset) for subset in SUBSETS):
        encoder = Encoder(model.tokenizer, config.bos, model.max_positions)
        work += build_tasks(config, encoder, model.vocab_size, start)
    if not work:
        raise UserError(
            "eval: nothing to score. Choose eval=quick or eval=perplexity, or name tasks: eval.general=[arc_easy]."
        )
    return work
