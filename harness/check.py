"""What can be said against a configuration before any file is opened: bounds, and settings that do not go together.

Types, names and choices are checked when Hydra composes the configuration; what depends on the model is checked as
soon as its shape is known. Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

from harness.config import (
    ArmsRule,
    BosRule,
    CalibDraw,
    CalibInputs,
    CalibSource,
    ModelConfig,
    ModelSource,
    PerplexityConfig,
    Players,
    RunConfig,
)
from harness.errors import UserError
from harness.overrides import changed, read_rule
from harness.scheme import BLOCKS
from harness.supported import check_scheme

# Smallest value that means something. Unset (None) is always allowed where the type allows it.
AT_LEAST: dict[str, float] = {
    "calib.samples": 1,
    "calib.length": 2,
    "design.matched_noise": 0,
    "design.random_sets": 0,
    "design.noise_draws": 0,
    "design.layer_groups": 0,
    "design.permutations": 2,
    "eval.context_suite.documents": 1,
    "eval.limit": 1,
    "eval.num_fewshot": 0,
    "eval.perplexity.window": 2,
    "eval.perplexity.stride": 0,
    "eval.perplexity.max_windows": 0,
    "eval.perplexity.max_windows_per_document": 0,
    "eval.perplexity.max_chars": 0,
    "engine.memory_gib": 0.001,
    "engine.pack_tokens": 1,
    "engine.batch_tokens": 1,
    "engine.head_tokens": 1,
    "attribute.resamples": 100,
    "attribute.margin": 0,
    "harness.max_failures": 0,
    "harness.reuse_gib": 0,
    "model.off_grid.sigma": 0,
    **dict.fromkeys(("attribute.seed", "design.seed", "eval.seed", "model.seed", "model.off_grid.seed"), 0),
    "eval.context_suite.seed": 0,
}
IN_BLOCKS = (Players.roles, Players.block_layers, Players.role_layers)  # each player belongs to one block
IN_LAYERS = (Players.layers, Players.block_layers, Players.role_layers)
MOST_SIGMA = 2.0  # factors beyond e^2 either way push weights out of the types that hold them
MOST_RESAMPLES = 1_000_000  # each is kept for every effect


def check(config: RunConfig) -> None:
    """UserError for the first setting that cannot be meant."""
    _bounds(config)
    _model(config.model)
    _names(config)
    for block in (*BLOCKS, "embedding", "head"):
        check_scheme(getattr(config.quant, block), f"quant.{block}")
    for number, rule in enumerate(config.quant.overrides):
        changed(config.quant.ffn, read_rule(rule, number)[1], f"quant.overrides[{number}]")
    _calibration(config)
    _design(config)
    _perplexity(config.eval.perplexity)
    _attribution(config)


def _bounds(config: RunConfig) -> None:
    for name, least in AT_LEAST.items():
        _at_least(name, reduce(getattr, name.split("."), config), least)
    for task, options in config.eval.task_options.items():
        _at_least(f"eval.task_options.{task}.limit", options.limit, 1)
        _at_least(f"eval.task_options.{task}.num_fewshot", options.num_fewshot, 0)
        _at_least(f"eval.task_options.{task}.seed", options.seed, 0)


def _at_least(name: str, value: Any, least: float) -> None:
    if value is not None and not least <= value < float("inf"):  # NaN is not within bounds either
        raise UserError(f"{name}={value}: set it to {least} or more.")


def _names(config: RunConfig) -> None:
    """The experiment becomes one folder under outputs; a name of nothing would be an empty cell."""
    if not re.fullmatch(r"\w[\w.+=,@-]*", config.experiment):
        raise UserError(
            f"experiment={config.experiment!r} cannot name a folder. Use letters, digits and any of _ . - + = , @"
        )
    named = {"outputs": config.outputs, "model.name": config.model.name}
    named |= {f"eval.perplexity.{field}": getattr(config.eval.perplexity, field) for field in ("name", "subset")}
    if empty := [field for field, value in named.items() if not value.strip()]:
        raise UserError(f"{empty[0]} is empty: give it a name, or leave it out for the default.")


def _model(model: ModelConfig) -> None:
    if model.source is ModelSource.random:
        if "model_type" not in model.config:
            raise UserError("model.source=random: model.config.model_type is not set. Start from model=tiny.")
        if model.off_grid.sigma:
            raise UserError("model.off_grid: random weights sit on no grid. Set model.off_grid.sigma=0.")
        return
    if model.config:
        raise UserError(
            f"model.config.{next(iter(model.config))}: the config of weights that exist is what it is. "
            "model.config is for random ones: model=tiny."
        )
    if model.off_grid.sigma > MOST_SIGMA:
        raise UserError(f"model.off_grid.sigma={model.off_grid.sigma}: set it to {MOST_SIGMA} or less; 0.1 is usual.")
    if not model.path:
        raise UserError(f"model.path is empty. model.source={model.source} needs it: model.path=FOLDER_FILE_OR_ID.")
    if model.source is ModelSource.package and not model.file:
        raise UserError("model.file is empty. Set it to the GGUF file's path inside the package.")


def _calibration(config: RunConfig) -> None:
    calib = config.calib
    if negative := [seed for seed in calib.seeds if seed < 0]:
        raise UserError(f"calib.seeds: {negative[0]} is negative. Use 0 or more.")
    if not calib.seeds:
        raise UserError("calib.seeds=[]: give at least one, as in calib.seeds=[0].")
    if len(set(calib.seeds)) < len(calib.seeds):
        raise UserError(f"calib.seeds={calib.seeds}: each seed once, or its draw would be counted twice.")
    if calib.draw is CalibDraw.start and len(calib.seeds) > 1:
        raise UserError(
            f"calib.seeds={calib.seeds}: calib.draw=start takes the same samples whatever the seed. "
            "Give one seed, or set calib.draw=random."
        )
    if calib.source is not CalibSource.shipped and not calib.path:
        raise UserError(f"calib.path is empty. calib.source={calib.source} needs it: a file, or a data set's name.")
    if calib.source is CalibSource.shipped and calib.path:
        raise UserError(
            f"calib.path={calib.path}: calib.source=shipped reads no file. "
            "Set calib.source=text or jsonl, or calib.path=''."
        )
    in_order = [getattr(config.quant, block).true_sequential for block in BLOCKS]
    in_order += [rule.get("true_sequential", False) for rule in config.quant.overrides]
    if any(in_order) and calib.inputs is CalibInputs.float:
        raise UserError("true_sequential=true looks at quantized layers: set calib.inputs=quantized as well.")


def _design(config: RunConfig) -> None:
    design = config.design
    if design.arms is ArmsRule.owen and design.players not in IN_BLOCKS:
        raise UserError(
            f"design.arms=owen nests players in blocks, which design.players={design.players} does not do. "
            f"Use design.players={_either(IN_BLOCKS)}, or design.arms=all."
        )
    if design.layer_groups and design.players not in IN_LAYERS:
        raise UserError(
            f"design.layer_groups={design.layer_groups} means nothing to design.players={design.players}. "
            f"Leave it at 0, or use design.players={_either(IN_LAYERS)}."
        )
    if design.arms is ArmsRule.sampled and design.permutations % 2:
        raise UserError(
            f"design.permutations={design.permutations} is odd: orders are drawn with their reverses. "
            f"Set it to {design.permutations + 1}."
        )


def _either(players: Sequence[Players]) -> str:
    *others, last = players
    return f"{', '.join(others)} or {last}"


def _perplexity(text: PerplexityConfig) -> None:
    new = text.window - (text.bos is BosRule.window)
    if text.stride > new:
        raise UserError(
            f"eval.perplexity.stride={text.stride} is more than the {new} tokens of a window: those between windows "
            "would not be scored. Set it to 0 for windows side by side."
        )
    try:
        re.compile(text.document_regex)
    except re.error as error:
        raise UserError(f"eval.perplexity.document_regex={text.document_regex!r} is no pattern: {error}.") from error


def _attribution(config: RunConfig) -> None:
    options = config.attribute
    if options.resamples > MOST_RESAMPLES:
        raise UserError(f"attribute.resamples={options.resamples}: set it to {MOST_RESAMPLES} or less; 10000 is usual.")
    if not 0 < options.level < 1:
        raise UserError(f"attribute.level={options.level}: a confidence level lies between 0 and 1, as 0.95.")
    for player, share in options.claims.items():
        if not 0 < share < 1:
            raise UserError(f"attribute.claims.{player}={share}: a share of the total lies between 0 and 1, as 0.7.")
