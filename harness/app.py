"""The command line: Hydra composes the configuration, here it becomes a typed one, and nothing behind knows Hydra.

Torch and everything that needs it is imported inside the run, so that `--help` and errors in the configuration answer
at once. A user's mistake ends with its message and a non-zero status; `harness.traceback=true` shows where it arose.
"""

from __future__ import annotations

import os
import sys
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import Any, get_type_hints

import hydra
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.check import check
from harness.config import GROUPS, RunConfig
from harness.errors import UserError


def config_folder() -> Path:
    """The shipped configs: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def typed(cfg: DictConfig) -> RunConfig:
    """The composed configuration as dataclasses, checked. UserError for a key that is no field, or a missing value."""
    _refuse_unknown(cfg, RunConfig, "")
    try:
        config = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {str(error).splitlines()[0]}") from error
    assert isinstance(config, RunConfig)
    check(config)
    return config


def _refuse_unknown(cfg: DictConfig, schema: type, where: str) -> None:
    """Hydra takes `+exq=name` for a new key when no group has that name: a typo must not pass for a setting."""
    known = {f.name for f in fields(schema)}
    hints = get_type_hints(schema)
    for key in cfg:
        name = f"{where}{key}"
        if key not in known:
            near = get_close_matches(str(key), [*known, *(("exp", *GROUPS) if not where else ())], n=1)
            hint = f" Did you mean {where}{near[0]}?" if near else ""
            raise UserError(
                f"{name}: there is no such setting or group.{hint} Settings here: {', '.join(sorted(known))}."
            )
        if is_dataclass(hints[str(key)]) and not OmegaConf.is_missing(cfg, str(key)):
            _refuse_unknown(cfg[key], hints[str(key)], f"{name}.")  # pyright: ignore


@hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")
def _task(cfg: DictConfig) -> Any:
    traceback = bool(OmegaConf.select(cfg, "harness.traceback"))
    try:
        config = typed(cfg)
        from harness.pipeline import run

        outcome = run(config, Path.cwd())
    except (UserError, ArithmeticError) as error:
        if traceback:
            raise
        raise CompactHydraException(f"error: {error}") from None
    except SystemExit as stop:  # would end a whole sweep
        raise CompactHydraException(f"error: a job called exit({stop.code})") from None
    print(f"{outcome.status}: {outcome.folder}" if outcome.folder else outcome.status, flush=True)
    return str(outcome.folder or "")


def main() -> None:
    """Entry of `python -m harness` and of the console script."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # other libraries' bars
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no character is worth a run
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    if null := [group for group in GROUPS if f"{group}=null" in sys.argv]:
        sys.exit(f"error: {null[0]}=null: a group cannot be left out. --help lists its choices.")
    _task()
