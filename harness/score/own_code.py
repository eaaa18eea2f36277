"""The Python that a task brings along: its template names functions (`!function utils.process_results`).

Such a function calls others of its file, so what is hashed is the file. A task that is a class of its own is hashed in
the same way; any other is lm-eval's, whose version is hashed with it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any


def own_code(task: Any) -> list[str]:
    """Hashes of the files that hold a task's functions, whatever the files are called."""
    functions = [type(task).process_results, *_functions(vars(task.config))]
    files = {file for function in functions if (file := inspect.getsourcefile(function))}
    return sorted({hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] for file in files})


def _functions(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _functions(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _functions(inner)
    elif isinstance(value, partial):
        yield from _functions(value.func)
    elif inspect.isfunction(value):
        yield value
