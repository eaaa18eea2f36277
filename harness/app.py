"""The command line: Hydra composes the configuration, here it becomes a typed one, and nothing behind knows Hydra.

Torch and everything that needs it is imported inside the run, so that `--help` and errors in the configuration answer
at once. A user's mistake ends with its message and a non-zero status; `harness.traceback=true` shows where it arose.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.apart import attempt_apart, isolated
from harness.check import check
from harness.config import GROUPS, RunConfig
from harness.errors import UserError
from harness.failures import foreseen, reason_of
from harness.gpus import gpu_count, one_gpu
from harness.jobs import NOT_RUN, Begun, Job, attempt, release
from harness.odd_scalars import odd_scalar
from harness.refusals import in_words, misspelt, odd_task_options, refuse_unknown
from harness.sweep import Sweep, abandon, conclude, ended_with_headline, sweep_folder

# For conf/hydra; cached, so that all jobs of a sweep find the same.
OmegaConf.register_new_resolver("sweep_folder", sweep_folder, use_cache=True, replace=True)
OmegaConf.register_new_resolver("gpu_count", gpu_count, use_cache=True, replace=True)
# That conf/hydra/launcher/* is checked against the plugins' schemas of the same names is just what is wanted.
warnings.filterwarnings("ignore", message=r"\s*'hydra/launcher/\w+' is validated against ConfigStore schema")


LAUNCHERS = {  # and the plugins that they are
    "joblib": "hydra_joblib_launcher",
    "submitit_local": "hydra_submitit_launcher",
    "submitit_slurm": "hydra_submitit_launcher",
    "ray": "hydra_ray_launcher",
}


def config_folder() -> Path:
    """The shipped configs: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def typed(cfg: DictConfig) -> RunConfig:
    """The composed configuration as dataclasses, checked. UserError for a key that is no field, or a missing value."""
    refuse_unknown(cfg)
    try:
        config = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {str(error).splitlines()[0]}") from error
    assert isinstance(config, RunConfig)
    check(config)
    return config


@hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")
def _task(cfg: DictConfig) -> Any:
    if HydraConfig.get().mode is RunMode.MULTIRUN:
        return _member(cfg)
    traceback = bool(OmegaConf.select(cfg, "harness.traceback"))
    try:
        status, folder = perform(cfg, Path.cwd(), asked=_asked())
    except (Exception, SystemExit) as error:
        if traceback or not foreseen(error):
            raise
        raise SystemExit(f"error: {error if isinstance(error, UserError) else reason_of(error)}") from None
    print(f"{status}: {folder}" if folder else status, flush=True)
    return status


def _asked() -> dict[str, str]:
    """What Hydra knows of this job, by file name; they go into the run's folder instead of one of Hydra's own.

    Where the locale is ASCII, Python hands over the bytes of other letters one by one: they are put together again.
    """
    given = HydraConfig.get().overrides.task
    overrides = [text.encode(errors="surrogateescape").decode(errors="surrogateescape") for text in given]
    return {
        "overrides.yaml": OmegaConf.to_yaml(OmegaConf.create(overrides)),
        "hydra.yaml": OmegaConf.to_yaml(HydraConfig.instance().cfg),
    }


def perform(
    cfg: DictConfig, start: Path, begun: Begun = lambda folder: None, asked: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, Path | None]:
    """Run a composed configuration; its status and folder. `begun` is told the folder when the work begins."""
    config = typed(cfg)
    from harness.pipeline import run
    from harness.ranks import together

    with together():
        outcome = run(config, start, begun, asked)
    return outcome.status, outcome.folder


def _perform_on_one_gpu(
    cfg: DictConfig, start: Path, begun: Begun, asked: Mapping[str, str]
) -> tuple[str, Path | None]:
    with one_gpu():
        return perform(cfg, start, begun, asked)


def _member(cfg: DictConfig) -> str:
    """A job of a sweep. Returns its status and never raises, so that the others run."""
    hydra_config = HydraConfig.get()
    sweep, number = Sweep(Path(hydra_config.sweep.dir)), hydra_config.job.num
    start, options = Path(hydra_config.runtime.cwd), cfg.harness
    if sweep.full(options.max_failures):
        job = Job(NOT_RUN, reason=f"harness.max_failures={options.max_failures} reached")
    else:
        apart = isolated(options.isolate, hydra_config.launcher._target_)
        runner = partial(_perform_on_one_gpu, asked=_asked())
        job = ended_with_headline((attempt_apart if apart else attempt)(cfg, start, runner))
    sweep.end(number, job)
    print(sweep.line(number, job), flush=True)
    release()
    return job.status


def main() -> None:
    """Entry of `python -m harness` and of the console script."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # other libraries' bars
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra leaves its errors to `_run`
    for library in ("TRANSFORMERS", "HF_HUB", "DATASETS"):  # what goes wrong is told by us, once
        os.environ.setdefault(f"{library}_VERBOSITY", "critical" if library == "DATASETS" else "error")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no character is worth a run
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    if mistake := _mistake(sys.argv[1:]):
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(1)
    sys.exit(_run())


def _mistake(arguments: list[str]) -> str:
    """What Hydra would take without a word, or refuse in many that do not help."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return "the folder that this was started in no longer exists. Change to one that does."
    for group in GROUPS:
        if f"{group}=null" in arguments:
            return f"{group}=null: a group cannot be left out. --help lists its choices."
    for name, plugin in LAUNCHERS.items():
        missing = not any((Path(place) / "hydra_plugins" / plugin).is_dir() for place in sys.path)
        if f"hydra/launcher={name}" in arguments and missing:
            also = ", then pip install --no-deps hydra-ray-launcher" if name == "ray" else ""
            return f"hydra/launcher={name} needs {plugin}: pip install 'quant-harness[launchers]'{also}."
    if os.environ.get("WORLD_SIZE", "1") != "1" and {"-m", "--multirun"} & set(arguments):
        return "torchrun shares one run among processes. For a sweep use a launcher: hydra/launcher=joblib."
    return misspelt(arguments) or odd_task_options(arguments) or odd_scalar(arguments, ["exp", *GROUPS], Path.cwd())


def _run() -> int:
    """Hydra's run or sweep, and the sweep's summary however it ended; the exit status."""
    status = 0
    try:
        _task()
    except KeyboardInterrupt:
        print("stopped by Ctrl-C", file=sys.stderr)
        status = 130
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except (HydraException, OmegaConfBaseException) as error:
        if "harness.traceback=true" in sys.argv:
            raise
        print(f"error: {in_words(error)}", file=sys.stderr)
        status = 1
        abandon()
    return max(status, conclude())
