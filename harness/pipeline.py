"""One run, from a typed configuration to a folder of results."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

import harness
from harness import ranks
from harness.attribute import attribute, read_effects, to_frame
from harness.calibrate import Draw, draw_samples
from harness.calibration import Calibration
from harness.config import ArmsRule, CalibInputs, RunConfig
from harness.console import (
    show_attribution,
    show_between,
    show_plan,
    show_preflight,
    show_report,
    show_resolutions,
    show_spreads,
)
from harness.controls import control_arms
from harness.design import build_arms, with_draws
from harness.effects import check_effects, check_work, game_of, orders_of, resolves, scores_of, unclear_documents
from harness.errors import UserError
from harness.failures import logged
from harness.files import RunFolder
from harness.identity import code_version, run_id
from harness.model.cache import cache_folder
from harness.model.load import Model, find_model
from harness.model.outline import Outline
from harness.model.sites import Site
from harness.overlap import SCORED_TOO, describe
from harness.paths import anchored
from harness.plan import Arm, check_groups, check_lattice, resolve
from harness.preflight import preflight
from harness.report.cells import arm_cells, peak_bytes, reset_peak, run_cells, site_rows, versions
from harness.report.group_rows import group_report
from harness.report.run_page import write_run_report
from harness.report.tables import Sheet, read_report, write_table
from harness.scheme import Scheme
from harness.score.gather import find, gather
from harness.score.generate import check_writing, write_answers
from harness.score.measure import Measure, Results, Scorable
from harness.scoring import Scoring, results_of
from harness.stale import finished
from harness.weigh import Weigher
from harness.workers import TOOLS, require

log = logging.getLogger(__name__)

LIBRARIES = ("torch", "transformers", "lm_eval")  # whose code the numbers pass through


@dataclass(frozen=True)
class Outcome:
    """What became of a run: `done`, `already done`, `locked`, `planned` or (all ranks but the first) `assisted`."""

    status: str
    folder: Path | None = None


def run(
    config: RunConfig,
    start: Path,
    begun: Callable[[Path], None] = lambda folder: None,
    asked: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Plan, score every arm in one pass, and write the reports.

    `start`: where relative paths begin. `begun` is told the run's folder when its work begins. `asked`: files to keep
    beside this start's log, on how it was asked for.
    """
    config = anchored(config, start)
    sources = find(config.eval, start)
    outline = find_model(config.model)
    rules = resolve(outline.all_sites, config.quant)
    arms = all_arms(config, outline, rules.plan)
    check_plan(config, rules.plan)
    check_effects(arms, config.attribute, orders_of(arms, config.design))
    if config.harness.plan_only:
        show_plan(arms, rules.notes)
    work = gather(sources, config.eval, outline, config.harness.reuse and not config.harness.force)
    check_work(work, config.attribute, config.eval.attribute_metrics)
    check_writing(work, outline, arms, config.calib)
    draws = draw_all(config, outline, arms, start)
    ready = preflight(config, outline, arms, [sequence for task in work for sequence in task.sequences])
    if config.harness.plan_only:
        show_preflight(ready.lines)
        show_resolved(config, work)
        return Outcome("planned")
    config = replace(config, engine=ready.engine)
    model = outline.open()  # only here weights begin to be read
    check_lattice(rules.plan, model.base_lattice, config.model.allow_lattice)
    facts = _facts(model, rules.plan, work, draws)
    folder = RunFolder(Path(config.outputs) / config.experiment / run_id(config, facts))
    if ranks.rank():
        return _assist(config, model, arms, work, draws)
    with folder.locked(config.harness.on_locked) as mine:
        settled = _settled(folder, config, facts) if mine else Outcome("locked", folder.path)
        ranks.agreed(settled is None)
        if settled:
            return settled
        begun(folder.path)
        with logged(folder, config, asked):
            show_preflight(ready.lines)
            scoring = Scoring(config, model, arms, work, ready.cut)
            show_resolved(config, work, scoring.kept_results())
            _measure(config, scoring, draws, folder, facts)
    return Outcome("done", folder.path)


def _measure(
    config: RunConfig, scoring: Scoring, draws: Sequence[Draw], folder: RunFolder, facts: Mapping[str, Any]
) -> None:
    model, arms, work = scoring.model, scoring.arms, scoring.work
    begun = time.monotonic()
    reset_peak(model.device)
    weigher = Weigher(model.sites, config.quant.indivisible)
    calibration = calibrate(config, model, draws)
    scores = scoring.scores(weigher, calibration)
    write_answers(work, model, arms, weigher, calibration, config.engine.batch_tokens, scoring.reuses)
    results = results_of(scores, work)
    seconds = time.monotonic() - begun
    seeds = config.calib.seeds if draws else []
    drawn = describe(draws, seeds, [sequence.tokens for task in work for sequence in task.sequences], model.tokenizer)
    calib = [calib_cells(config, draw) for draw in drawn]
    sheet = Sheet(
        run_cells(config, model, folder.path.name, seconds, [draw.digest for draw in draws]),
        arms,
        [arm_cells(arm, model, weigher, calib) for arm in arms],
        results,
        config.attribute,
    )
    tables = {"report.csv": sheet.report(), "sites.csv": site_rows(arms, weigher), "items.parquet": sheet.items()}
    tables |= {"questions.parquet": sheet.questions(), "sensitivity.csv": sheet.sensitivity()}
    tables["attribution.csv"] = attribution(arms, sheet.measures, weigher, config)
    if len(groups := group_report(sheet, work)):
        tables["groups.csv"] = groups
    for name, table in tables.items():
        write_table(table, folder.path / name)
    said = {"facts": facts, "calibration": drawn}
    folder.finish({**_summary(config, model, arms, seconds), **said}, list(tables))
    if config.harness.page:
        _write_page(folder)
    _show(folder)


def _write_page(folder: RunFolder) -> None:
    """report.html. The run is done by now, with or without it."""
    try:
        write_run_report(folder.path)
    except (OSError, UserError) as error:
        log.warning("no page: %s", error)
        print(f"no page ({error}); python -m harness.report {folder.path} writes it", flush=True)


def _settled(folder: RunFolder, config: RunConfig, facts: dict[str, Any]) -> Outcome | None:
    """The end of a run that needs no work: its result is there, or one that stands in for it."""
    found = None if config.harness.force else finished(folder, config, facts)
    if found is None:
        return None
    _show(found)
    return Outcome("already done", found.path)


def _assist(
    config: RunConfig, model: Model, arms: list[Arm], work: Sequence[Scorable], draws: Sequence[Draw]
) -> Outcome:
    """What all ranks but the first do: their part of the scores, if there is work."""
    if ranks.agreed(True):
        weigher = Weigher(model.sites, config.quant.indivisible)
        Scoring(config, model, arms, work).scores(weigher, calibrate(config, model, draws))
    return Outcome("assisted")


def _show(folder: RunFolder) -> None:
    report = read_report(folder.path / "report.csv")
    show_report(report)
    if (groups := folder.path / "groups.csv").is_file():
        show_report(read_report(groups), "loss in groups of tasks")
    show_spreads(report)
    show_attribution(read_report(folder.path / "attribution.csv"))
    show_between(read_effects(folder.path / "attribution.csv"))


def all_arms(config: RunConfig, model: Outline, plan: dict[Site, Scheme]) -> list[Arm]:
    """The design's arms, each calibrated one once per draw, and the controls."""
    arms = with_draws(build_arms(plan, config.design, len(model.layers)), len(config.calib.seeds))
    sequential = config.calib.inputs is CalibInputs.quantized
    return arms + control_arms(plan, model.sites, config.design, sequential)


def check_plan(config: RunConfig, plan: dict[Site, Scheme]) -> None:
    """UserError for a plan that this model's shapes, or this machine, do not allow as asked."""
    check_groups(plan, config.quant.indivisible)
    for method in {scheme.method for scheme in plan.values()} & set(TOOLS):
        require(method)


def calib_cells(config: RunConfig, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """What calibration saw in one draw, as it is described, and how much of that is scored as well."""
    return {"calib_inputs": config.calib.inputs.value, "calib_overlap": drawn[SCORED_TOO]}


def show_resolved(config: RunConfig, work: Sequence[Scorable], kept: Sequence[Results | None] = ()) -> None:
    """The smallest losses that the run can tell from zero, by what earlier runs left of base where they did."""
    if config.design.arms is ArmsRule.base:
        return  # nothing is compared
    level = config.attribute.level
    show_resolutions(resolves(work, level, config.eval.attribute_metrics, kept), level, unclear_documents(work))


def draw_all(config: RunConfig, model: Outline, arms: Sequence[Arm], start: Path) -> list[Draw]:
    """Calibration tokens of every seed; none where no arm's method looks at inputs. UserError for too long ones."""
    if not any(arm.calibrated for arm in arms):
        return []
    if config.calib.length > model.max_positions:
        raise UserError(f"calib.length={config.calib.length}: the model has {model.max_positions} positions.")
    return [draw_samples(config.calib, model.tokenizer, seed, start) for seed in config.calib.seeds]


def calibrate(config: RunConfig, model: Model, draws: Sequence[Draw]) -> Calibration | None:
    """What the engine needs to gather statistics of the draws."""
    if not draws:
        return None
    folder = cache_folder() / "statistics" if config.calib.keep else None
    sequential = config.calib.inputs is CalibInputs.quantized
    return Calibration(model, draws, sequential, config.engine.batch_tokens, folder)


def _facts(model: Model, plan: Mapping[Site, Scheme], work: Sequence[Scorable], draws: Sequence[Draw]) -> dict:
    """What can change a number and is not in the configuration."""
    tools = {scheme.method for scheme in plan.values()} & set(TOOLS)
    return {
        "model": model.sha,
        "dtype": str(model.dtype),
        "device": model.device.type,
        "attention": model.module.config._attn_implementation,
        "sequences": [(task.subset, task.name, task.group, task.fingerprint) for task in work],
        "calibration": [draw.digest for draw in draws],
        "libraries": {name: version(name) for name in LIBRARIES} | {m.value: TOOLS[m].identity() for m in tools},
    }


def attribution(arms: Sequence[Arm], measures: Sequence[Measure], weigher: Weigher, config: RunConfig) -> pd.DataFrame:
    """attribution.csv: every effect that the design's arms allow, by task, subset and metric."""
    bits = {name: fact["bits_per_weight"] for arm in arms for name, fact in weigher.facts_of(arm).items()}
    noise = [arm.name for arm in arms if arm.is_noise]
    scores, game = [scores_of(m, arms) for m in measures], game_of(arms, bits, orders_of(arms, config.design))
    return to_frame(attribute(scores, game, config.attribute, noise, config.eval.attribute_metrics))


def _summary(config: RunConfig, model: Model, arms: Sequence[Arm], seconds: float) -> dict:
    return {
        "status": "done",
        "experiment": config.experiment,
        "model": model.name,
        "model_sha": model.sha,
        "model_commit": model.commit,
        "arms": [arm.name for arm in arms],
        "config": asdict(config),
        "seconds": seconds,
        "peak_bytes": peak_bytes(model.device),
        "code_version": code_version(),
        "harness_version": harness.__version__,
        "versions": versions(),
    }
