"""Published tools that cannot share an environment with this package, and the scripts that run in theirs.

    method       environment                    interpreter, unless the variable names another
    auto_gptq    `make auto-gptq`               .venv-auto-gptq/bin/python, HARNESS_AUTO_GPTQ_PYTHON
    gptqmodel    `make gptqmodel` (5 GB)        .venv-gptqmodel/bin/python, HARNESS_GPTQMODEL_PYTHON

A script is started by `harness.quantize.worker` with that interpreter and imports nothing from here but `protocol.py`,
which lies beside it. Imports no torch, so that a missing environment is known before a model is opened.
"""

from __future__ import annotations

import os
import subprocess
from ast import literal_eval
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.errors import UserError
from harness.scheme import Method


@dataclass(frozen=True)
class Tool:
    """A tool's environment and the script that answers for it."""

    method: Method
    variable: str
    folder: str
    command: str
    script: Path

    def python(self) -> Path:
        """Its interpreter. UserError saying how to get one where there is none."""
        named = os.environ.get(self.variable)
        project = Path(__file__).parents[2]
        places = [Path(named)] if named else [at / self.folder / "bin" / "python" for at in (Path.cwd(), project)]
        for place in places:
            if place.is_file():
                return place
        raise UserError(
            f"method={self.method} runs in its own environment, and there is none at {places[0]}. "
            f"Make it with `{self.command}`, or set {self.variable} to the interpreter of one that has it."
        )

    def identity(self) -> str:
        """Its interpreter, and the versions there of what decides a result."""
        python = self.python()
        return ", ".join([str(python), *_installed(python, (self.method.value, "torch"))])


ASK = """
import sys
from importlib.metadata import distributions
print([f"{d.name} {d.version}" for d in distributions() if d.name.lower().replace("-", "_") in sys.argv[1:]])
"""


@cache
def _installed(python: Path, packages: tuple[str, ...]) -> list[str]:
    """Name and version of those packages that an interpreter has; nothing where it cannot be asked."""
    asked = subprocess.run([str(python), "-sE", "-c", ASK, *packages], capture_output=True, text=True, check=False)
    return sorted(literal_eval(asked.stdout)) if asked.returncode == 0 else []


SCRIPTS = Path(__file__).parent

TOOLS = {
    Method.auto_gptq: Tool(
        Method.auto_gptq,
        "HARNESS_AUTO_GPTQ_PYTHON",
        ".venv-auto-gptq",
        "make auto-gptq",
        SCRIPTS / "auto_gptq_worker.py",
    ),
    Method.gptqmodel: Tool(
        Method.gptqmodel,
        "HARNESS_GPTQMODEL_PYTHON",
        ".venv-gptqmodel",
        "make gptqmodel",
        SCRIPTS / "gptqmodel_worker.py",
    ),
}


def require(method: Method) -> None:
    """UserError if the method runs in another environment and that is not there."""
    if method in TOOLS:
        TOOLS[method].python()
