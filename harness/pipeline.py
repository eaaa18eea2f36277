"""One run, from a typed configuration to a folder of results."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import harness
from harness.calibrate import draw_samples
from harness.calibration import Calibration
from harness.config import CalibInputs, RunConfig
from harness.console import progress, show_plan, show_report
from harness.design import build_arms, with_draws
from harness.files import RunFolder, to_json, write_atomic, write_text
from harness.identity import code_version, run_id
from harness.model.cache import cache_folder
from harness.model.load import Model, open_model
from harness.packs import Pack, TokenSequence, batches, pack_plain, pack_trees, slots
from harness.plan import Arm, check_groups, resolve, trunk_counts
from harness.report.cells import arm_cells, peak_bytes, run_cells, site_rows, versions
from harness.report.tables import Sheet, read_report, to_csv
from harness.score.gather import gather
from harness.score.measure import Results, Scorable
from harness.stream import Scores, Stream
from harness.weigh import Weigher

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What became of a run: `done`, `already done`, `locked` or `planned`."""

    status: str
    folder: Path | None = None


def run(config: RunConfig, start: Path) -> Outcome:
    """Plan, score every arm in one pass, and write the reports. `start`: where relative paths begin."""
    model = open_model(config.model)
    rules = resolve(model.all_sites, config.quant)
    arms = with_draws(build_arms(rules.plan, config.design, len(model.layers)), len(config.calib.seeds))
    check_groups(rules.plan, config.quant.indivisible)
    if config.harness.plan_only:
        show_plan(arms, rules.notes)
        return Outcome("planned")
    work = gather(config.eval, model, start)
    folder = RunFolder(start / config.outputs / config.experiment / run_id(config, _facts(model, work)))
    with folder.locked(config.harness.on_locked) as mine:
        if not mine:
            return Outcome("locked", folder.path)
        if folder.done and not config.harness.force:
            show_report(read_report(folder.path / "report.csv"))
            return Outcome("already done", folder.path)
        with _logged(folder, config):
            _measure(config, model, arms, work, folder, start)
    return Outcome("done", folder.path)


def _measure(
    config: RunConfig, model: Model, arms: list[Arm], work: Sequence[Scorable], folder: RunFolder, start: Path
) -> None:
    begun = time.monotonic()
    weigher = Weigher(model.sites, config.quant.indivisible)
    calibration = calibrate(config, model, arms, start)
    scores = score(config, model, arms, work, weigher, calibration)
    results = _results(scores, work)
    seconds = time.monotonic() - begun
    sheet = Sheet(
        run_cells(config, model, folder.path.name, seconds),
        [arm_cells(arm, model, weigher) for arm in arms],
        results,
        config.attribute,
    )
    _write(folder, sheet, site_rows(arms, weigher))
    folder.finish(_summary(config, model, arms, seconds), ["report.csv", "items.parquet", "sites.csv"])
    show_report(read_report(folder.path / "report.csv"))


def score(
    config: RunConfig,
    model: Model,
    arms: Sequence[Arm],
    work: Sequence[Scorable],
    weigher: Weigher,
    calibration: Calibration | None,
) -> Scores:
    """Every arm's scores of every sequence, in the order of `work`."""
    sequences = [sequence for task in work for sequence in task.sequences]
    packs = form_packs(config, model, sequences)
    work_size = sum(len(p) for p in packs) * sum(trunk_counts(arms, len(model.layers)))
    computed, plain = sum(len(p) for p in packs), sum(len(s.tokens) - 1 for s in sequences)
    log.info("%d arms, %d sequences; %d tokens instead of %d", len(arms), len(sequences), computed, plain)
    with progress(work_size, "scoring") as advance:
        stream = Stream(model, arms, weigher, config.engine, calibration, advance)
        return stream.score(list(batches(packs, config.engine.batch_tokens)), int(slots(sequences)[-1]))


def calibrate(config: RunConfig, model: Model, arms: Sequence[Arm], start: Path) -> Calibration | None:
    """Calibration tokens where any arm's method looks at inputs."""
    if not any(arm.calibrated for arm in arms):
        return None
    draws = [draw_samples(config.calib, model.tokenizer, seed, start) for seed in config.calib.seeds]
    folder = cache_folder() / "statistics" if config.calib.keep else None
    sequential = config.calib.inputs is CalibInputs.quantized
    return Calibration(model, draws, sequential, config.engine.batch_tokens, folder)


def form_packs(config: RunConfig, model: Model, sequences: Sequence[TokenSequence]) -> list[Pack]:
    """Packed trees as far as the model can take their mask and it is asked for, else plain sequences."""
    tree = model.notes.tree
    if not config.engine.packing or tree.tokens == 0:
        return pack_plain(sequences)
    return pack_trees(sequences, config.engine.pack_tokens, tokens=tree.tokens, depth=tree.depth)


def _results(scores: Scores, work: Sequence[Scorable]) -> list[Results]:
    results, first = [], 0
    for task in work:
        stop = first + sum(sequence.scored for sequence in task.sequences)
        results.append(task.results(scores.part(slice(first, stop))))
        first = stop
    return results


def _facts(model: Model, work: Sequence[Scorable]) -> dict:
    return {
        "model": model.sha,
        "dtype": str(model.dtype),
        "device": model.device.type,
        "attention": model.module.config._attn_implementation,
        "sequences": [(task.subset, task.name, task.fingerprint) for task in work],
    }


def _write(folder: RunFolder, sheet: Sheet, sites) -> None:
    write_atomic(folder.path / "report.csv", lambda p: to_csv(sheet.report(), p, ("protocol", "config")))
    write_atomic(folder.path / "items.parquet", lambda p: sheet.items().to_parquet(p, index=False))
    write_atomic(folder.path / "sites.csv", lambda p: to_csv(sites, p))


def _summary(config: RunConfig, model: Model, arms: Sequence[Arm], seconds: float) -> dict:
    return {
        "status": "done",
        "experiment": config.experiment,
        "model": model.name,
        "model_sha": model.sha,
        "arms": [arm.name for arm in arms],
        "config": asdict(config),
        "seconds": seconds,
        "peak_bytes": peak_bytes(model.device),
        "code_version": code_version(),
        "harness_version": harness.__version__,
        "versions": versions(),
    }


@contextmanager
def _logged(folder: RunFolder, config: RunConfig) -> Iterator[None]:
    """This start's own folder: its configuration, and everything that is logged."""
    attempt = folder.attempt()
    write_text(attempt / "config.json", to_json(asdict(config)) + "\n")
    handler = logging.FileHandler(attempt / "run.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("harness")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    except BaseException:
        log.exception("run failed")
        raise
    finally:
        root.removeHandler(handler)
        handler.close()
