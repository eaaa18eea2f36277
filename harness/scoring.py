"""All arms scored in one pass over the layers, with what earlier runs left of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from harness import ranks
from harness.calibration import Calibration
from harness.config import RunConfig
from harness.console import progress
from harness.cut import cut_batches
from harness.model.cache import cache_folder
from harness.model.load import Model
from harness.packs import Pack, slots
from harness.plan import Arm, trunk_counts
from harness.reuse import Reuse, kept_base, protocol, reusable
from harness.score.generate import writing
from harness.score.measure import Results, Scorable
from harness.stream import Scores, Stream, head_cost
from harness.weigh import Weigher

log = logging.getLogger(__name__)


class Scoring:
    """One cut of the work into batches, the same for all arms, and the scores made of it or kept from earlier runs."""

    def __init__(
        self,
        config: RunConfig,
        model: Model,
        arms: Sequence[Arm],
        work: Sequence[Scorable],
        cut: list[list[Pack]] | None = None,  # where it is known already
    ) -> None:
        self.config, self.model, self.arms, self.work = config, model, arms, work
        self.sequences = [sequence for task in work for sequence in task.sequences]
        self.cut = cut_batches(config, model, arms, self.sequences) if cut is None else cut
        options = config.harness
        self.reuses = options.reuse and not options.force and ranks.ranks() == 1

    @cached_property
    def made_from(self) -> dict[str, Any]:
        """What base's scores depend on."""
        return protocol(self.model, self.cut, self.config.engine.head_tokens)

    def kept_results(self) -> list[Results | None]:
        """Of each task, base's results from kept scores; none where there are none, or they are not to be taken.

        A task that writes text has none: what base wrote lies elsewhere (harness.score.answers).
        """
        if not self.reuses or not (cache_folder() / "scores").is_dir():
            return []
        scores = kept_base(self.made_from, self.config.quant.indivisible)
        if scores is None:
            return []
        written = [task.name for task in writing(self.work)]
        return [None if task.name in written else task.results(own) for task, own in _by_task(scores, self.work)]

    def scores(self, weigher: Weigher, calibration: Calibration | None) -> Scores:
        """Every arm's scores of every sequence, in the order of the work."""
        model, arms, engine = self.model, self.arms, self.config.engine
        total = int(slots(self.sequences)[-1])
        computed = sum(len(pack) for batch in self.cut for pack in batch)
        plain = sum(len(sequence.tokens) - 1 for sequence in self.sequences)
        log.info("%d arms, %d sequences; %d tokens instead of %d", len(arms), len(self.sequences), computed, plain)
        own = ranks.dealt(self.cut)

        halved: list[bool] = []

        def one_pass(arms: Sequence[Arm], calibration: Calibration | None, **states: Tensor | None) -> Scores:
            *trunks, ends = trunk_counts(arms, len(model.layers) + 1)  # the head may split them once more
            tokens = sum(len(batch) * max(map(len, batch)) for batch in own)
            places = sum(len(set(pack.at)) for batch in own for pack in batch)
            amount = tokens * sum(trunks) + head_cost(model) * places * ends
            with progress(round(amount), "scoring") as advance:
                stream = Stream(model, arms, weigher, engine, calibration, advance, **states)
                found = ranks.gathered(lambda: stream.score(own, total))
                halved.append(stream.halved)
                return found

        if not self.reuses or not reusable(arms, calibration):
            return one_pass(arms, calibration)
        most_bytes = self.config.harness.reuse_gib * 2**30

        def keeps() -> bool:
            return not any(halved)

        return Reuse(model, weigher, calibration, self.made_from, total, most_bytes, one_pass, keeps).score(arms)


def results_of(scores: Scores, work: Sequence[Scorable]) -> list[Results]:
    """Each task's results from its part of the scores."""
    return [task.results(own) for task, own in _by_task(scores, work)]


def _by_task(scores: Scores, work: Sequence[Scorable]) -> Iterator[tuple[Scorable, Scores]]:
    first = 0
    for task in work:
        stop = first + sum(sequence.scored for sequence in task.sequences)
        yield task, scores.part(slice(first, stop))
        first = stop
