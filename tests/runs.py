"""Runs composed as on the command line, for tests."""

from functools import cache
from pathlib import Path

import pandas as pd
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from harness.app import config_folder, typed
from harness.config import RunConfig
from harness.pipeline import run
from harness.report.tables import read_report

SHARED = Path(__file__).parents[2] / "shared"  # development data; a clone without it skips some golden tests


def composed(*overrides: str) -> RunConfig:
    """The typed configuration of a command line, without a page where none is asked for.

    The pictures of a page take longer than all the rest of a run of `tiny`.
    """
    return typed(_composed("harness.page=false", *overrides))


@cache
def _composed(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", list(overrides))


def ran(tmp_path: Path, *overrides: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """report.csv and items.parquet of a run in `tmp_path`."""
    folder = run(composed(*overrides), tmp_path).folder
    assert folder is not None
    return read_report(folder / "report.csv"), pd.read_parquet(folder / "items.parquet")
