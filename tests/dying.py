"""Jobs that end badly, for processes that tests start: importable, and torch-free."""

import os
import signal

from omegaconf import OmegaConf


def runner(cfg, start, begun):
    """Does what `experiment` says."""
    folder = start / cfg.outputs / "begun"
    if "begun" in cfg.experiment:
        begun(folder)
    if "kill" in cfg.experiment:
        os.kill(os.getpid(), signal.SIGKILL)
    if "exit" in cfg.experiment:
        os._exit(3)
    if "raise" in cfg.experiment:
        raise RuntimeError("broken")
    return "done", folder


def job(experiment, outputs="."):
    """A configuration for `runner`."""
    return OmegaConf.create({"outputs": outputs, "experiment": experiment, "model": {"name": "tiny"}})
