"""Models of the Hugging Face hub: downloaded, or taken from the local hub cache when there is no network."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import errors, snapshot_download

from harness.config import ModelConfig
from harness.errors import UserError

SMALL_FILES = ["*.json", "*.model", "*.txt", "*.jinja"]  # config, tokenizer, index of shards

# Read from the top: a gated repository is also one that was "not found".
_REASONS: dict[type[Exception], str] = {
    errors.GatedRepoError: (
        "asks for an accepted licence. Accept it at https://huggingface.co/{path}, then `hf auth login` or set HF_TOKEN"
    ),
    errors.RevisionNotFoundError: "has no revision {revision!r}. Set model.revision to one that exists, or to main",
    errors.RepositoryNotFoundError: "is neither a local folder nor a hub model that you may see. Check its spelling",
    errors.HFValidationError: "is neither a local folder nor a valid hub id (owner/name)",
    errors.LocalEntryNotFoundError: "is no local folder, the hub cannot be reached, its local cache does not hold it",
    OSError: "could not be downloaded",
}


def hub_snapshot(cfg: ModelConfig) -> Path:
    """The folder with a hub model's files. Pickled .bin weights are taken only where there are no safetensors."""
    folder = _snapshot(cfg, [*SMALL_FILES, "*.safetensors"])
    return folder if any(folder.glob("*.safetensors")) else _snapshot(cfg, [*SMALL_FILES, "pytorch_model*.bin"])


def _snapshot(cfg: ModelConfig, patterns: list[str]) -> Path:
    try:
        return Path(snapshot_download(cfg.path, revision=cfg.revision or None, allow_patterns=patterns))
    except tuple(_REASONS) as error:
        reason = next(text for kind, text in _REASONS.items() if isinstance(error, kind))
        licence = f" Its licence ({cfg.licence}) has to be accepted there first." if cfg.gated else ""
        details = (str(error).strip() or "no details").splitlines()[0]
        raise UserError(
            f"model.path={cfg.path!r} {reason.format(path=cfg.path, revision=cfg.revision)}.{licence}\n"
            f"A local copy works as well: model=hf model.path=FOLDER. ({type(error).__name__}: {details})"
        ) from error
