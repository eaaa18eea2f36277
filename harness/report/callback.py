"""Hydra's end of a sweep: the report of its experiment, in the folder that holds all its runs, and its own.

    hydra:
      callbacks:
        report:
          _target_: harness.report.callback.SweepReport

A report that cannot be written is said and does not turn a finished sweep into a failed one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from harness.files import read_object

log = logging.getLogger(__name__)


class SweepReport(Callback):
    """Writes sweep.csv, report.html and figures/ for the experiments of a multirun."""

    def __init__(self) -> None:
        self.folders: dict[Path, None] = {}

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Remember where a job's runs go."""
        self._remember(config)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Report each experiment of the sweep; jobs that ran in other processes are known by the sweep's own name.

        Where those folders hold other runs as well, or several experiments were swept, the sweep's own jobs get a page
        in the sweep's folder.
        """
        if not self.folders:
            self._remember(config)
        own = _folders_of_jobs(config)
        everything = {path.parent for folder in self.folders for path in folder.glob("*/result.json")}
        elsewhere = any(self.folders.keys().isdisjoint(folder.parents) for folder in own)
        if own and (len(self.folders) > 1 or elsewhere or everything - set(own)):
            _write("report of this sweep", own, Path(config.hydra.sweep.dir))
        for folder in self.folders:
            _write(f"report of all runs in {folder.name}", [folder], folder)

    def _remember(self, config: DictConfig) -> None:
        outputs, experiment = (OmegaConf.select(config, name) for name in ("outputs", "experiment"))
        if outputs and experiment:
            self.folders[Path.cwd() / str(outputs) / str(experiment)] = None


def _folders_of_jobs(config: DictConfig) -> list[Path]:
    """The run folders that the sweep's jobs ended in."""
    sweep = OmegaConf.select(config, "hydra.sweep.dir")
    jobs = [read_object(path) for path in Path(sweep).glob("jobs/*.json")] if sweep else []
    folders = {Path(job["folder"]) for job in jobs if job.get("folder")}
    return sorted(folder for folder in folders if folder.is_dir())


def _write(what: str, folders: Sequence[Path], out: Path) -> None:
    from harness.report.sweep_page import write_sweep_report

    try:
        print(f"{what}: {write_sweep_report(folders, out)}", flush=True)
    except (ValueError, OSError) as error:  # UserError: no run was left
        log.warning("no %s: %s", what, error)
        print(f"no {what}: {error}", flush=True)
