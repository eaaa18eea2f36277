"""Jobs that end badly, for processes that tests start: importable, and torch-free."""

import os
import signal
from pathlib import Path

from omegaconf import OmegaConf


def runner(cfg, begun):
    """Does what `experiment` says."""
    folder = Path(cfg.outputs) / "begun"
    if "begun" in cfg.experiment:
        begun(folder)
    if "kill" in cfg.experiment:
        os.kill(os.getpid(), signal.SIGKILL)
    if "exit" in cfg.experiment:
        os._exit(3)
    if "raise" in cfg.experiment:
        raise RuntimeError("broken")
    return "done", folder


def job(outputs, experiment):
    """A configuration for `runner`."""
    return OmegaConf.create({"outputs": str(outputs), "experiment": experiment, "model": {"name": "tiny"}})
