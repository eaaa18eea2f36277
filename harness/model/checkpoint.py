"""Checking a checkpoint folder in seconds: file names, sizes and headers; no weight is read.

A safetensors file is `8 bytes: header length n | n bytes of JSON | data`, and the JSON gives every tensor's type, shape
and place in the data. So the size that a file must have is known from its first bytes, and a broken download is found
before anything is loaded, with its name (transformers 5 reports a bare "invalid header", without saying whose).

What is looked for, each from a public bug report: missing, empty and truncated files, Git LFS pointers and web pages
saved in a file's place, an index that names tensors its shards do not hold, weights that are already quantized.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from harness.errors import UserError
from harness.model.cache import file_digest

FLOAT_TYPES = ("F64", "F32", "F16", "BF16")
PLAIN_TYPES = (*FLOAT_TYPES, "BOOL", "I64", "I32")  # integers: position tables
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
TOKENIZER_PATTERNS = ("tokenizer*", "vocab*", "merges*", "special_tokens_map.json", "added_tokens.json")
GENERATION = "generation_config.json"  # how the model writes text: penalties, stop tokens; not every checkpoint has it
INTERRUPTED = "an interrupted download, or a disk that was full"


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies, and what its header says of it."""

    file: Path
    dtype: str  # safetensors' names: F32, BF16, ...
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A folder whose files are whole. `tensors` is empty where the weights are pickled (.bin)."""

    folder: Path
    config: dict[str, Any]
    weight_files: tuple[Path, ...]
    tensors: dict[str, StoredTensor]


class BrokenFileError(Exception):
    """What is wrong with one file, in words that follow its name."""


def check_folder(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`. UserError names every missing or broken file, and what probably happened to it."""
    config = _read_config(folder)
    _refuse_quantized(folder, config)
    names, index = _weight_names(folder)
    problems: list[str] = []
    tensors: dict[str, StoredTensor] = {}
    for name in [*names, *_tokenizer_names(folder)]:
        try:
            tensors |= _read_file(folder / name)
        except BrokenFileError as problem:
            problems.append(f"{name} {problem}")
    if not problems:
        problems = _against_index(tensors, index)
    if problems:
        raise UserError(f"{folder} is not a whole checkpoint. Fetch these files anew:\n" + listed(problems))
    if packed := [f"{name} ({t.dtype})" for name, t in tensors.items() if t.dtype not in PLAIN_TYPES]:
        raise UserError(f"{folder} holds quantized weights, a float checkpoint is needed:\n{listed(packed)}")
    return Checkpoint(folder, config, tuple(folder / name for name in names), tensors)


def check_file(file: Path) -> None:
    """UserError where a file is missing, empty, a Git LFS pointer or a web page."""
    try:
        _size_and_head(file)
    except BrokenFileError as problem:
        raise UserError(f"{file} {problem}.") from problem


def weights_sha(checkpoint: Checkpoint) -> str:
    """xxh3_128 of names and contents of all files that can change a number: weights, configs, the tokenizer's."""
    folder = checkpoint.folder
    tokenizer = {file for pattern in TOKENIZER_PATTERNS for file in folder.glob(pattern)}
    files = sorted({*checkpoint.weight_files, folder / "config.json", *folder.glob(GENERATION), *tokenizer})
    return xxhash.xxh3_128_hexdigest("".join(f"{file.name} {file_digest(file)}\n" for file in files).encode())


def listed(lines: list[str], most: int = 10) -> str:
    """One indented line each, at most `most`."""
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    return "\n".join(f"  {line}" for line in lines[:most] + more)


# --- files -------------------------------------------------------------------------------------------------------


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise UserError(f"model.path: {folder} is not a folder.")
    try:
        config = _read_json(folder / "config.json")
        if not isinstance(config, dict):
            raise BrokenFileError("is no mapping of fields")
        return config
    except BrokenFileError as problem:
        raise UserError(
            f"{folder}/config.json {problem}. model.path must be the folder of a transformers model."
        ) from problem


def _refuse_quantized(folder: Path, config: dict[str, Any]) -> None:
    for part in (config, config.get("text_config") or {}):
        if how := part.get("quantization_config"):
            method = how.get("quant_method", "unknown") if isinstance(how, dict) else how
            raise UserError(
                f"{folder} is already quantized (config.json, quantization_config: quant_method={method}). "
                "Losses are measured against float weights: give the checkpoint that it was made from."
            )


def _weight_names(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Names of the weight files, in the order of preference that transformers has, and the index {tensor: file}."""
    for single in ("model.safetensors", "pytorch_model.bin"):
        if (folder / single).exists():
            return [single], {}
        if (file := folder / f"{single}.index.json").exists():
            try:
                index = _read_json(file)["weight_map"]
                return sorted(set(index.values())), index
            except (BrokenFileError, KeyError, TypeError, AttributeError) as problem:
                raise UserError(f"{file} cannot be used as an index of shards: {problem}. Fetch it anew.") from problem
    others = [file.name for pattern in ("*.safetensors", "*.bin", "*.gguf", "*.pth") for file in folder.glob(pattern)]
    raise UserError(
        f"{folder} has no weights: looked for model.safetensors, pytorch_model.bin and their .index.json; "
        f"other weight files: {', '.join(sorted(others)) or 'none'}. A GGUF file is read by model=gguf model.path=FILE."
    )


def _tokenizer_names(folder: Path) -> list[str]:
    names = [name for name in TOKENIZER_FILES if (folder / name).exists()]
    if not names:
        raise UserError(
            f"{folder} has no tokenizer: none of {', '.join(TOKENIZER_FILES)}. Copy them beside the weights."
        )
    return names


def _read_file(file: Path) -> dict[str, StoredTensor]:
    """The tensors that a file declares (none unless safetensors). BrokenFileError if it is not whole."""
    size, head = _size_and_head(file)
    if file.suffix == ".safetensors":
        return _read_header(file, size, head)
    if file.suffix == ".json":
        _read_json(file)
    if file.suffix == ".bin" and head.startswith(b"PK") and not zipfile.is_zipfile(file):
        raise BrokenFileError(f"({size:,} bytes) is truncated: {INTERRUPTED}")
    return {}


def _size_and_head(file: Path) -> tuple[int, bytes]:
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            head = stream.read(200)
    except FileNotFoundError:
        raise BrokenFileError("is missing: it was never downloaded, or deleted since") from None
    except OSError as error:
        raise BrokenFileError(f"cannot be read ({error.strerror})") from error
    if size == 0:
        raise BrokenFileError(f"is empty (0 bytes): {INTERRUPTED}")
    if head.startswith(b"version https://git-lfs"):
        raise BrokenFileError(f"({size:,} bytes) is a Git LFS pointer, not the file itself: run `git lfs pull`")
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise BrokenFileError(f"({size:,} bytes) is a web page: the server answered with an error or a login form")
    return size, head


def _read_json(file: Path) -> dict[str, Any]:
    size, _ = _size_and_head(file)
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise BrokenFileError(f"({size:,} bytes) is not valid JSON ({error}): {INTERRUPTED}") from error


def _read_header(file: Path, size: int, head: bytes) -> dict[str, StoredTensor]:
    length = int.from_bytes(head[:8], "little")
    if size < 8 or length > size - 8:
        raise BrokenFileError(f"({size:,} bytes) ends inside its header, or is no safetensors file: {INTERRUPTED}")
    try:
        with file.open("rb") as stream:
            header = json.loads(stream.read(8 + length)[8:])
        header.pop("__metadata__", None)
        needed = 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0)
        tensors = {name: StoredTensor(file, e["dtype"], tuple(e["shape"])) for name, e in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenFileError(f"({size:,} bytes) has no safetensors header: damaged, or another format") from error
    if size != needed:
        what = "is truncated" if size < needed else "is too long"
        raise BrokenFileError(f"{what}: {size:,} bytes, its header says {needed:,}: {INTERRUPTED}")
    return tensors


def _against_index(tensors: dict[str, StoredTensor], index: dict[str, str]) -> list[str]:
    """What the index promises and its shards do not hold: a shard of another version of the model."""
    wrong = {
        shard: sorted(name for name, where in index.items() if where == shard and _file_of(tensors, name) != shard)
        for shard in sorted(set(index.values()))
        if shard.endswith(".safetensors")
    }
    return [
        f"{shard} lacks {len(names)} tensors that the index puts there ({names[0]}): from another version of the model?"
        for shard, names in wrong.items()
        if names
    ]


def _file_of(tensors: dict[str, StoredTensor], name: str) -> str | None:
    return tensors[name].file.name if name in tensors else None
