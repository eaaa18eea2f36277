"""Hydra's end of a sweep: the report of its experiment, written in the folder that holds all its runs.

    hydra:
      callbacks:
        report:
          _target_: harness.report.callback.SweepReport

A report that cannot be written is said and does not turn a finished sweep into a failed one.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

log = logging.getLogger(__name__)


class SweepReport(Callback):
    """Writes sweep.csv, report.html and figures/ for the experiments of a multirun."""

    def __init__(self) -> None:
        self.folders: dict[Path, None] = {}

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Remember where a job's runs go."""
        self._remember(config)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Report each experiment of the sweep; jobs that ran in other processes are known by the sweep's own name."""
        if not self.folders:
            self._remember(config)
        from harness.report.sweep_page import write_sweep_report

        for folder in self.folders:
            try:
                print(f"report: {write_sweep_report([folder], folder)}", flush=True)
            except (ValueError, OSError) as error:  # UserError: no run was left
                log.warning("no report of %s: %s", folder, error)
                print(f"no report of {folder}: {error}", flush=True)

    def _remember(self, config: DictConfig) -> None:
        outputs, experiment = (OmegaConf.select(config, name) for name in ("outputs", "experiment"))
        if outputs and experiment:
            self.folders[Path.cwd() / str(outputs) / str(experiment)] = None
