"""What makes two runs the same: everything that can change a number, and nothing else.

Weights, data, protocol, plan, seeds, type, kind of device and the code that computes; not paths, names, memory
budgets or how loud the run is.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

from harness.config import RunConfig
from harness.files import key_of
from harness.makers import ROOT, source_hash

# Modules that only report, watch or wait cannot change a number.
NOT_NUMERIC = (
    "report", "ledger", "data", "__main__.py", "app.py", "check.py", "console.py", "errors.py", "files.py",
    "needs.py", "preflight.py", "failures.py", "jobs.py", "apart.py", "gpus.py", "stale.py",
    "sweep.py", "cache.py", "colours.py",
)  # fmt: skip

# Of those, what works out a column of a run's own tables.
TABLES = (
    "report/cells.py", "report/tables.py", "report/group_rows.py", "report/resampled.py", "report/sensitivity.py",
    "ledger/weights.py",
)  # fmt: skip


def run_id(config: RunConfig, facts: dict[str, Any]) -> str:
    """Sixteen hex digits. `facts`: what only the loaded model and data know (hashes, type, device class)."""
    settings = asdict(config)
    for name in ("experiment", "harness", "outputs", "model"):
        del settings[name]
    for name in ("memory_gib", "head_tokens"):
        del settings["engine"][name]
    # Hashes of texts, tasks and calibration tokens stand for where they come from.
    del settings["eval"]["perplexity"]["path"], settings["calib"]["path"], settings["calib"]["keep"]
    for name in config.eval.by_subset():
        del settings["eval"][name]
    return key_of([settings, facts, code_version()])


@cache
def code_version() -> str:
    """Hash of the modules that compute."""
    names = (path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
    numeric = (n.as_posix() for n in names if n.parts[0] not in NOT_NUMERIC or n.as_posix() in TABLES)
    return source_hash(numeric)[:16]
