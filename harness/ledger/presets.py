"""Architecture configs: shipped ones by name, others from a hub id, a folder or a GGUF header; with fields changed."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from harness.errors import UserError
from harness.ledger.config import ModelChoice, ShapeNumbers, Source
from harness.ledger.shape import Shape, check_size, plain_shape

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

SIZES = {  # fields of a config that decide its shape, under their usual names, with a limit far above every model
    "num_hidden_layers": 10_000,
    "hidden_size": 10**6,
    "intermediate_size": 10**7,
    "moe_intermediate_size": 10**7,
    "num_attention_heads": 10**5,
    "num_key_value_heads": 10**5,
    "head_dim": 10**5,
    "vocab_size": 10**8,
    "num_local_experts": 10**5,
    "num_experts": 10**5,
    "n_routed_experts": 10**5,
    "num_experts_per_tok": 10**5,
}


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """Shipped presets: name -> fields of its config.json, or a plain shape under `shape`."""
    text = files("harness.ledger").joinpath("presets.yaml").read_text(encoding="utf-8")
    return OmegaConf.to_container(OmegaConf.create(text))  # pyright: ignore[reportReturnType]


def choices() -> dict[str, ModelChoice]:
    """Everything that `model=` accepts."""
    presets = {
        name: ModelChoice(name=name, source=Source.shape, shape=ShapeNumbers(**fields["shape"]))
        if "shape" in fields
        else ModelChoice(name=name)
        for name, fields in shipped().items()
    }
    open_ones = {source: ModelChoice(name=source, source=source) for source in (Source.hf, Source.gguf, Source.shape)}
    family = ModelChoice(
        name="family",
        source=Source.family,
        shape=ShapeNumbers(ratio="8/3", multiple_of=256),
        members=[[12, 768], [24, 1536], [32, 4096], [80, 8192]],
    )
    return {**presets, **open_ones, "family": family}


def preset(name: str, field: str) -> ModelChoice:
    """The choice of this name; `field` is what the user set."""
    known = choices()
    if name not in known:
        raise UserError(f"{field}={name} is no preset. {nearest(name, known)}")
    return known[name]


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that names what was probably meant."""
    known = list(known)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(known)}."


def shape_of(choice: ModelChoice) -> Shape:
    """The shape that a choice stands for. UserError names the field, what was found and the way out."""
    if choice.source is Source.shape:
        if choice.config:
            raise UserError(f"model.config does not act on the plain shape {choice.name}. Set model.shape.<number>.")
        return plain_shape(choice.shape, choice.name)
    from harness.ledger.anatomy import shape_of_config  # torch and transformers take seconds to import

    name = choice.name if choice.source is Source.preset else Path(choice.path).name or choice.source
    return shape_of_config(load_config(choice), name)


def load_config(choice: ModelChoice) -> PreTrainedConfig:
    """The model's own config with the asked fields changed. No network for presets, folders and GGUF files."""
    fields = dict(shipped()[choice.name]) if choice.source is Source.preset else _read_fields(choice)
    return _typed(fields, choice.config)


def _read_fields(choice: ModelChoice) -> dict[str, Any]:
    """config.json as it is written, or what a GGUF header says in the same words."""
    from transformers import PreTrainedConfig

    if not choice.path:
        raise UserError(f"model.path is missing. model={choice.source} needs a hub id, a folder or a GGUF file.")
    path, kwargs = choice.path, {"revision": choice.revision} if choice.revision else {}
    if choice.source is Source.hf and path.startswith(("/", ".", "~")) and not Path(path).expanduser().is_dir():
        raise UserError(f"model.path={path}: no such folder.")
    if choice.source is Source.gguf:
        if not Path(path).is_file():
            raise UserError(f"model.path={path}: no such file.")
        path, kwargs = str(Path(path).parent), {"gguf_file": Path(path).name}
    try:
        fields, _ = PreTrainedConfig.get_config_dict(
            str(Path(path).expanduser()) if path.startswith("~") else path, **kwargs
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"model.path={choice.path}: no config could be read there: {reason}") from error
    if "model_type" not in fields:
        raise UserError(f"model.path={choice.path}: no config.json with a model_type was found there.")
    return fields


def _typed(fields: dict[str, Any], changes: dict[str, Any]) -> PreTrainedConfig:
    """A config of the architecture's own class, its sizes checked."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    model_type = changes.get("model_type", fields["model_type"])
    if model_type not in CONFIG_MAPPING:
        raise UserError(f"model_type={model_type} is not known to transformers. {nearest(model_type, CONFIG_MAPPING)}")
    config_class = CONFIG_MAPPING[model_type]
    if config_class not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(f"model_type={model_type} is no decoder-only language model. Choose one that predicts text.")
    aliases = config_class.attribute_map
    known = {*config_class().to_dict(), *aliases, *fields}
    for name in changes:
        if name not in known:
            raise UserError(f"model.config.{name}: {model_type} has no such field. {nearest(name, sorted(known))}")
    renamed = {aliases.get(name, name): value for name, value in changes.items()}
    _check_sizes({**fields, **renamed}, {target: usual for usual, target in aliases.items()})
    try:
        config = config_class.from_dict({**fields, **renamed})
    except (StrictDataclassError, ValueError, TypeError, ZeroDivisionError) as error:
        raise UserError(f"model.config: {str(error).strip().splitlines()[-1].strip()}") from error
    _check_heads(config.get_text_config())
    return config


def _check_sizes(fields: dict[str, Any], usual_names: dict[str, str]) -> None:
    for name, value in fields.items():
        limit = SIZES.get(usual_names.get(name, name))
        if limit and value is not None:
            check_size(f"model.config.{name}", value, limit)


def _check_heads(text: PreTrainedConfig) -> None:
    heads = getattr(text, "num_attention_heads", None)
    if not heads:
        raise UserError(f"model_type={text.model_type} has no attention heads. Choose a transformer of text.")
    shared = getattr(text, "num_key_value_heads", None)
    if shared and heads % shared:
        raise UserError(
            f"model.config: {heads} attention heads cannot share {shared} key-value heads evenly. "
            "Choose num_key_value_heads that divides num_attention_heads."
        )
    if getattr(text, "head_dim", None) is None and text.hidden_size % heads:
        raise UserError(f"model.config: hidden_size={text.hidden_size} does not divide into {heads} attention heads.")
    experts = [getattr(text, f, None) for f in ("num_local_experts", "num_experts", "n_routed_experts")]
    chosen = getattr(text, "num_experts_per_tok", None)
    if chosen and any(count and chosen > count for count in experts):
        raise UserError(f"model.config.num_experts_per_tok={chosen}: the model has fewer experts. Give at most all.")
