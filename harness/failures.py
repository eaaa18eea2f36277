"""What a failed job leaves behind: why, with which settings, and where in the code. No reader takes it for a result.

failed.json     reason and configuration
failed.csv      the same as a row of report.csv, status `failed`
traceback.txt   Python's own
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.config import RunConfig
from harness.errors import NonFiniteError, UserError
from harness.files import FAILURE, RunFolder, key_of, to_json, write_text

log = logging.getLogger(__name__)

OUT_OF_MEMORY = (MemoryError.__name__, "OutOfMemoryError")  # torch's own is told by its name: torch may not be there


def reason_of(error: BaseException) -> str:
    """Why it failed, in one line."""
    words = " ".join(str(error).split())
    if isinstance(error, SystemExit):
        return f"called exit({error.code})"
    if isinstance(error, UserError | NonFiniteError):
        return words
    if type(error).__name__ in OUT_OF_MEMORY:
        return f"out of memory ({words or type(error).__name__}). Lower engine.memory_gib and engine.batch_tokens."
    return f"{type(error).__name__}: {words}"


def foreseen(error: BaseException) -> bool:
    """Whether its reason says all there is to know, so that nobody needs a traceback."""
    known = isinstance(error, UserError | NonFiniteError | SystemExit)
    return known or type(error).__name__ in OUT_OF_MEMORY


def record(folder: Path, settings: Mapping[str, Any], reason: str, trace: str) -> None:
    """Write a failure into `folder`. Where even that cannot be done, it is logged: the failure itself matters more."""
    config = json.loads(to_json(settings))
    cells = {
        "experiment": config.get("experiment"),
        "run_id": folder.name,
        "model": (config.get("model") or {}).get("name"),
        "config": config,
        "status": "failed",
        "reason": reason,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "traceback.txt", trace)
        _write_row(cells, folder / "failed.csv")
        write_text(folder / "failed.json", to_json({"reason": reason, "config": config}) + "\n")
    except (OSError, UserError) as error:
        log.warning("%s: the failure could not be recorded (%s)", folder, error)


def _write_row(cells: Mapping[str, Any], path: Path) -> None:
    import pandas as pd  # only here: it takes a quarter of the time of --help

    from harness.report.stored import COLUMNS, write_table

    write_table(pd.DataFrame([cells]).reindex(columns=COLUMNS), path)


def clear(folder: Path) -> None:
    """Take away what an earlier start left in a folder that holds nothing else."""
    if not folder.is_dir():
        return
    for name in FAILURE:
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def trace_of(error: BaseException) -> str:
    """Python's traceback, as text."""
    return "".join(traceback.format_exception(error))


def folder_without_id(settings: Mapping[str, Any]) -> Path:
    """Where a failure without a run_id goes, from where the run started: named by the settings, always the same."""
    what = {name: value for name, value in settings.items() if name not in ("harness", "outputs")}
    experiment = Path(str(settings.get("outputs", "outputs"))) / str(settings.get("experiment", "run"))
    return experiment / "failed" / key_of(what)


@contextmanager
def logged(folder: RunFolder, config: RunConfig, asked: Mapping[str, str]) -> Iterator[None]:
    """This start's own folder: its configuration, how it was `asked` for (texts by file name), and the log."""
    attempt = folder.attempt()
    for name, text in {"config.json": to_json(asdict(config)) + "\n", **asked}.items():
        write_text(attempt / name, text)
    handler = logging.FileHandler(attempt / "run.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("harness")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    except (Exception, SystemExit) as error:
        log.exception("run failed")
        record(folder.path, asdict(config), reason_of(error), trace_of(error))
        raise
    except KeyboardInterrupt:
        log.exception("stopped")
        raise
    finally:
        root.removeHandler(handler)
        handler.close()
