"""The generated context suite, scored: items whose answer stands in the text before them (harness.data.context).

Items come as token ids, so nothing is tokenized twice and a sequence of random tokens is exactly that. Each task at
each length is a task of its own (`passkey_512`): accuracy, prob, margin and ece where there are several choices, nll
and KL of the right answer as for other questions. Where the tokenizer (or `eval.bos`) puts a BOS before every text,
items begin with it, one token beyond their length. The first pass of `induction_copy` stands behind a prefix anyway.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from harness.config import ContextSuiteConfig, TooLong
from harness.data.context import ContextItem, make_suite
from harness.errors import UserError
from harness.packs import TokenSequence, slots
from harness.score.choices import PROTOCOL, Choices
from harness.score.encode import Encoder
from harness.score.measure import Measure, Results, Summary, by_sequence, digest
from harness.stream import Scores
from harness.text import bare_ids

log = logging.getLogger(__name__)
SUBSET = "context"


@dataclass
class ContextTask:
    """One generated task at one length."""

    name: str
    items: Sequence[ContextItem]
    encoder: Encoder
    vocab_size: int
    settings: dict[str, Any]
    subset: str = SUBSET
    group: str = ""
    is_text: bool = False
    sequences: list[TokenSequence] = field(default_factory=list)

    def __post_init__(self) -> None:
        lead = self.encoder.lead
        for item in self.items:
            context = (*lead, *item.context) or (self.encoder.prefix,)
            self.sequences += [TokenSequence((*context, *choice), len(context)) for choice in item.choices]

    @property
    def controls(self) -> frozenset[str]:
        """Bands without any context, such as a first pass: there to compare with, and no measure of context."""
        return frozenset(item.band for item in self.items if not item.context)

    @property
    def item_documents(self) -> list[str]:
        """The document of every item but controls."""
        controls = self.controls
        return [item.document for item in self.items if item.band not in controls]

    @property
    def metrics(self) -> list[str]:
        """What an item has; right or wrong, and by how much, only where there are choices."""
        of_choices = ["acc", "prob", "margin"] if min(len(item.choices) for item in self.items) > 1 else []
        return ["nll", "kl", *of_choices]

    @property
    def fingerprint(self) -> str:
        """Hash of all token ids, and of what turns their scores into rows."""
        facts = [(len(item.choices), item.gold, item.document, item.band) for item in self.items]
        return digest([[(s.tokens, s.start) for s in self.sequences], facts, sorted(self.controls)])

    def results(self, scores: Scores) -> Results:
        """Accuracy, nll, margin and KL by item."""
        starts = slots(self.sequences)
        first_N = np.cumsum([0, *(len(item.choices) for item in self.items)], dtype=np.int64)[:-1]
        gold = first_N + np.array([item.gold for item in self.items], dtype=np.int64)
        tokens_N = np.diff(starts)[gold]
        logp_AS = by_sequence(scores.logp_AS, starts)
        kl_AN = by_sequence(scores.kl_AS, starts)[:, gold] / tokens_N
        shared: dict[str, Any] = {
            "subset": self.subset,
            "task": self.name,
            "items": [str(n) for n in range(len(self.items))],
            "documents": [item.document for item in self.items],
            "bands": [item.band for item in self.items],
            "controls": self.controls,
            "n_tokens": tokens_N,
            "weights_N": np.ones(len(self.items)),
            "kl_AN": kl_AN,
            "agree_AN": by_sequence(scores.agree_AS.astype(float), starts)[:, gold] / tokens_N,
        }
        nll = Measure(
            metric="nll",
            unit="nats/token",
            higher_is_better=False,
            values_AN=-logp_AS[:, gold] / tokens_N,
            worst=float(np.log(self.vocab_size)),
            **shared,
        )
        kl = Measure(metric="kl", unit="nats/token", higher_is_better=False, values_AN=kl_AN, **shared)
        own, summaries = self._choices(logp_AS, shared)
        protocol = self.settings | (PROTOCOL if own else {})
        return Results([*own, nll, kl], summaries, protocol, self.fingerprint, digest("token ids"))

    def _choices(self, logp_AS: np.ndarray, shared: dict[str, Any]) -> tuple[list[Measure], list[Summary]]:
        """What choices say (harness.score.choices), where there is more than one."""
        sizes = [len(item.choices) for item in self.items]
        if min(sizes) < 2:
            return [], []
        choices = Choices(np.split(logp_AS, np.cumsum(sizes)[:-1], axis=1), [[item.gold] for item in self.items])
        chance = float(np.mean([1 / size for size in sizes]))

        def measure(metric: str, unit: str, values_AN: np.ndarray, worst: float = float("nan")) -> Measure:
            return Measure(metric=metric, unit=unit, higher_is_better=True, values_AN=values_AN, worst=worst, **shared)

        return [
            measure("acc", "share of items", choices.right_AN, chance),
            measure("prob", "probability", choices.prob_AN),
            measure("margin", "nats", choices.margin_AN),
        ], choices.calibration(shared["documents"], shared["bands"], subset=self.subset, task=self.name)


def context_tasks(
    config: ContextSuiteConfig, too_long: TooLong, encoder: Encoder, vocab_size: int
) -> list[ContextTask]:
    """Every generated task at every length. UserError where a length exceeds the model's positions; where it may be
    dropped, only if none is left."""
    lead = len(encoder.lead)
    lengths = _fitting(config.lengths, too_long, lead, encoder.max_length)
    groups: dict[str, list[ContextItem]] = defaultdict(list)
    try:
        items = make_suite(partial(bare_ids, encoder.tokenizer), lengths, config.documents, config.seed)
    except UserError as error:
        asked = f"eval.context_suite.lengths={lengths}"
        raise UserError(f"{asked}: {error} (tokens of this tokenizer), or turn the suite off with [].") from None
    for item in items:
        groups[f"{item.task}_{item.length}"].append(item)
    settings = {"documents": config.documents, "seed": config.seed, "bos": bool(lead)}
    return [ContextTask(name, items, encoder, vocab_size, settings) for name, items in groups.items()]


def _fitting(lengths: Sequence[int], too_long: TooLong, lead: int, positions: int) -> list[int]:
    """The lengths that a model has positions for."""
    over = [length for length in lengths if length + lead > positions]
    if not over:
        return list(lengths)
    bos = " and each item begins with a BOS" if lead else ""
    message = f"eval.context_suite.lengths={over}: the model has {positions} positions{bos}."
    if too_long is TooLong.error or len(over) == len(lengths):
        raise UserError(message)
    log.warning("eval.too_long=drop leaves lengths out: %s", message)
    return [length for length in lengths if length not in over]
