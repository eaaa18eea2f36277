"""From a run's arms and measures to the games and scores that attribution reads.

Arms of the design are the coalitions of a game. Noise draws set the floor below which a loss means nothing; repeats of
an arm with another calibration draw are neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import numpy as np

from harness.attribute import Game, Scores, contrasts
from harness.attribute.power import TEXT_NLL, resolution
from harness.config import AttributeConfig
from harness.errors import UserError
from harness.plan import Arm
from harness.scheme import BLOCKS
from harness.score.measure import WINDOW, Measure, Scorable


def game_of(arms: Sequence[Arm], bits_per_weight: Mapping[str, float]) -> Game:
    """Players with their weights and the bytes that quantizing them saves; `bits_per_weight` by site name."""
    design = [arm for arm in arms if not arm.control and not arm.draw]
    owner = _owners(design)
    weights: dict[str, int] = {}
    saved: dict[str, float] = {}
    blocks: dict[str, set[str]] = {}
    for arm in design:
        for site in arm.plan:
            player = owner.get(site.name)
            if player is None:
                continue
            weights[player] = weights.get(player, 0) + site.weights
            saved[player] = saved.get(player, 0) + site.weights * (16 - bits_per_weight[site.name]) / 8
            if site.block in BLOCKS and player.startswith(f"{site.block}."):
                blocks.setdefault(site.block, set()).add(player)
            del owner[site.name]
    return Game(
        {arm.name: arm.players for arm in design},
        {block: frozenset(own) for block, own in blocks.items()},
        weights,
        {player: round(size) for player, size in saved.items()},
    )


def check_effects(arms: Sequence[Arm], options: AttributeConfig) -> None:
    """UserError, before anything is scored, for an effect that lacks its arms or a claim about no player."""
    game = game_of(arms, {site.name: 16.0 for arm in arms for site in arm.plan})
    contrasts(game, options.claims, options.effects)
    known = {*BLOCKS, *game.blocks, *(player for players in game.coalitions.values() for player in players)}
    if unknown := sorted(set(options.claims) - known):
        raise UserError(
            f"attribute.claims.{unknown[0]}: this design has no such player. It has {', '.join(sorted(known))}."
        )


def check_work(work: Sequence[Scorable], options: AttributeConfig) -> None:
    """UserError, before anything is scored, for two tasks of one name, or a primary metric that no task has."""
    counts = Counter((task.subset, task.name) for task in work)
    if twice := [f"{name} in {subset}" for (subset, name), count in counts.items() if count > 1]:
        raise UserError(
            f"eval: {twice[0]} is two tasks. Give them different names: eval.perplexity.name, or task: in YAML."
        )
    known = list(dict.fromkeys(name for task in work for name in task.metrics))
    if options.primary_metric not in known:
        near = get_close_matches(options.primary_metric, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UserError(
            f"attribute.primary_metric={options.primary_metric}: nothing that is scored here has it.{hint} "
            f"There are {', '.join(known)}."
        )


def _owners(design: Sequence[Arm]) -> dict[str, str]:
    """The player of each site: the one that is on in every arm that quantizes the site, and off in all others."""
    owner = {}
    for site in {site for arm in design for site in arm.plan}:
        with_site = [arm.players for arm in design if site in arm.plan]
        others = [arm.players for arm in design if site not in arm.plan]
        candidates = frozenset.intersection(*with_site).difference(*others)
        if len(candidates) == 1:
            owner[site.name] = next(iter(candidates))
    return owner


def resolves(work: Sequence[Scorable], level: float) -> dict[str, str]:
    """Lines to print before a run: the smallest loss in nll that each task's items can tell from zero.

    A line warns where a typical int4 loss is smaller.
    """
    lines = {}
    for w in work:
        found = resolution(w.subset, w.name, "nll", w.item_documents, level, TEXT_NLL if w.is_text else None)
        if found is not None:
            said = [f"{found.n_documents} documents resolve a loss of {found.smallest:.2g} nats/token"]
            if found.warning:
                said.append(f"a typical int4 loss is smaller ({found.typical:.2g}): score more items")
            if w.is_text and w.item_documents[0].startswith(WINDOW):
                said.append("windows count as independent; eval.perplexity.document_regex says what a document is")
            lines[w.name] = "; ".join(said)
    return lines


def scores_of(measure: Measure, arms: Sequence[Arm], band: str = "") -> Scores:
    """One measure, over all items or one band, as attribution takes it."""
    chosen = np.array([band in ("", own) for own in measure.bands])
    return Scores(
        subset=measure.subset,
        task=measure.task,
        metric=measure.metric,
        arms=[arm.name for arm in arms],
        values_AN=measure.values_AN[:, chosen],
        documents_N=np.array(measure.documents)[chosen],
        higher_is_better=measure.higher_is_better,
        weights_N=measure.weights_N[chosen],
        worst=measure.worst,
        divergence=measure.metric == "kl",
    )
