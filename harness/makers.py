"""What makes the things that are kept in the cache folder: a part of their keys.

A key names all that its content depends on, the code that made it too. Scores hang on nearly all of the package
(harness.identity.code_version); what is listed here on a few modules, so that it outlives changes of all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent


@dataclass(frozen=True)
class Maker:
    """Modules of this package whose source, and libraries whose version, can change what is made."""

    modules: tuple[str, ...]
    libraries: tuple[str, ...]


MAKERS = {
    "models": Maker(("model/fetch.py", "model/offgrid.py"), ("transformers", "gguf")),
    "statistics": Maker(
        (
            "calibrate.py", "calibration.py", "expert_inputs.py", "quantize/stats.py",
            "packs.py", "replay.py", "stream.py", "trunks.py",
            "model/layouts.py", "model/load.py", "model/names.py", "model/notes.py", "model/outline.py",
            "model/sites.py", "model/skeleton.py", "model/stored.py",
        ),
        ("torch", "transformers"),
    ),
    "tokens": Maker(("score/encode.py", "score/tokens.py", "text.py"), ("tokenizers", "transformers", "lm_eval")),
}  # fmt: skip


@cache
def maker_version(kind: str, root: Path = ROOT) -> str:
    """Twelve hex digits that change with whatever makes things of this kind."""
    maker = MAKERS[kind]
    versions = [f"{name} {version(name)}" for name in maker.libraries]
    return hashlib.sha256("\n".join([source_hash(maker.modules, root), *versions]).encode()).hexdigest()[:12]


def source_hash(modules: Iterable[str], root: Path = ROOT) -> str:
    """sha256 of the names and sources of these modules, in whichever order they are given."""
    digest = hashlib.sha256()
    for name in sorted(modules):
        digest.update(name.encode() + b"\0" + (root / name).read_bytes())
    return digest.hexdigest()
