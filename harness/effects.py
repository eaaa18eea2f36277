"""From a run's arms and measures to the games and scores that attribution reads.

Arms of the design are the coalitions of a game. Noise draws set the floor below which a loss means nothing; repeats of
an arm with another calibration draw are neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

import numpy as np

from harness.attribute import Game, Scores, contrasts
from harness.attribute.power import PRIORS, TEXT_PRIORS, Resolution, over_tasks, resolution
from harness.attribute.values import Order
from harness.config import AttributeConfig, DesignConfig
from harness.design import sampled_orders
from harness.errors import UserError
from harness.plan import Arm
from harness.scheme import BLOCKS
from harness.score.measure import WINDOW, Measure, Results, Scorable, in_band

READ_BY = ("acc", "exact_match", "nll", "kl")


def game_of(arms: Sequence[Arm], bits_per_weight: Mapping[str, float], orders: Sequence[Order] = ()) -> Game:
    """Players with their weights and the bytes that quantizing them saves; `bits_per_weight` by site name.

    `orders`: those that the arms are prefixes of, in sampled designs.
    """
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
        orders,
    )


def orders_of(arms: Sequence[Arm], design: DesignConfig) -> list[Order]:
    """The orders that a sampled design's arms are prefixes of; none in other designs."""
    return sampled_orders({player for arm in arms for player in arm.players}, design)


def check_effects(arms: Sequence[Arm], options: AttributeConfig, orders: Sequence[Order] = ()) -> None:
    """UserError, before anything is scored, for an effect that lacks its arms or a claim about no player."""
    game = game_of(arms, {site.name: 16.0 for arm in arms for site in arm.plan}, orders)
    if game.is_base and not options.effects:
        return
    contrasts(game, options.claims, options.effects)
    known = {*BLOCKS, *game.blocks, *(player for players in game.coalitions.values() for player in players)}
    if unknown := sorted(set(options.claims) - known):
        raise UserError(
            f"attribute.claims.{unknown[0]}: this design has no such player. It has {', '.join(sorted(known))}."
        )


def check_work(work: Sequence[Scorable], options: AttributeConfig, metrics: Sequence[str] = ()) -> None:
    """UserError, before anything is scored, for two tasks of one name, or a metric to attribute that no task has.

    `metrics`: those to attribute, all by default; the primary one is among them.
    """
    counts = Counter((task.subset, task.name) for task in work)
    if twice := [f"{name} in {subset}" for (subset, name), count in counts.items() if count > 1]:
        raise UserError(
            f"eval: {twice[0]} is two tasks. Give them different names: eval.perplexity.name, or task: in YAML."
        )
    known = list(dict.fromkeys(name for task in work for name in task.metrics))
    asked = [("attribute.primary_metric", options.primary_metric), *(("eval.attribute_metrics", m) for m in metrics)]
    for field, name in asked:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UserError(f"{field}={name}: nothing that is scored here has it.{hint} There are {', '.join(known)}.")
    if metrics and options.primary_metric not in metrics:
        raise UserError(
            f"attribute.primary_metric={options.primary_metric} is not among eval.attribute_metrics={list(metrics)}. "
            "Add it there, or attribute every metric: eval.attribute_metrics=[]."
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


def resolves(
    work: Sequence[Scorable], level: float, metrics: Sequence[str] = (), kept: Sequence[Results | None] = ()
) -> list[Resolution]:
    """Before a run, the smallest loss that each task, and each subset's mean over tasks, tells from zero.

    In the metrics that are attributed (all by default), and always in those a run is read by. `kept`: what earlier
    runs left of base, task by task.
    """
    shown = {*READ_BY, *metrics} if metrics else set(PRIORS)
    found: list[Resolution] = []
    for subset in dict.fromkeys(task.subset for task in work):
        tasks = [n for n, task in enumerate(work) if task.subset == subset]
        own = [one for n in tasks for one in _resolved(work[n], level, shown, kept[n] if kept else None)]
        found += own
        for metric in dict.fromkeys(one.metric for one in own):
            same = [one for one in own if one.metric == metric]
            documents = {work[n].name: set(work[n].item_documents) for n in tasks}
            found += [over_tasks(same, [documents[one.task] for one in same], level)] if len(same) > 1 else []
    return found


def _resolved(task: Scorable, level: float, shown: set[str], kept: Results | None) -> Iterator[Resolution]:
    priors = TEXT_PRIORS if task.is_text else PRIORS
    measures = {measure.metric: measure for measure in kept.measures} if kept else {}
    for metric in task.metrics:
        if metric.partition(",")[0] not in shown:
            continue
        own: dict[str, np.ndarray] = {}
        if base := measures.get(metric):
            chosen = in_band(base, "")
            own = {"base_N": base.values_AN[0, chosen], "weights_N": base.weights_N[chosen]}
        one = resolution(task.subset, task.name, metric, task.item_documents, level, priors, **own)
        if one is not None:
            yield one


def unclear_documents(work: Sequence[Scorable]) -> list[str]:
    """Texts that do not say what a document is."""
    return [task.name for task in work if task.is_text and task.item_documents[0].startswith(WINDOW)]


def scores_of(measure: Measure, arms: Sequence[Arm], band: str = "") -> Scores:
    """One measure, over the task or one band, as attribution takes it."""
    chosen = in_band(measure, band)
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
        bands_N=[own for own, kept in zip(measure.bands, chosen, strict=True) if kept],
    )
