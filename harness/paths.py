"""Relative paths in a configuration start where the run was started, and are absolute from there on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.config import CalibConfig, CalibSource, EvalConfig, ModelConfig, ModelSource, RunConfig


def anchored(config: RunConfig, start: Path) -> RunConfig:
    """The configuration with every local path absolute. Hub ids, names of tasks and shipped texts stay."""
    start = start.absolute()
    return replace(
        config,
        model=_model(config.model, start),
        calib=_calibration(config.calib, start),
        eval=_eval(config.eval, start),
        outputs=_from(start, config.outputs),
    )


def _from(start: Path, path: str) -> str:
    return str(start / Path(path).expanduser())


def _model(model: ModelConfig, start: Path) -> ModelConfig:
    path = _from(start, model.path)
    local = model.source is ModelSource.gguf or (model.source is ModelSource.hf and Path(path).is_dir())
    return replace(model, path=path) if local else model


def _calibration(calib: CalibConfig, start: Path) -> CalibConfig:
    local = calib.source in (CalibSource.text, CalibSource.jsonl)
    return replace(calib, path=_from(start, calib.path)) if local else calib


def _eval(config: EvalConfig, start: Path) -> EvalConfig:
    text = config.perplexity
    if text.path and not text.path.startswith("shipped:"):
        text = replace(text, path=_from(start, text.path))
    tasks = {
        subset: [_from(start, spec) if Path(spec).suffix in (".yaml", ".yml") else spec for spec in specs]
        for subset, specs in config.by_subset().items()
    }
    return replace(config, perplexity=text, **tasks)
