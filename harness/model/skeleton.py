"""Modules: a skeleton without weights, a model with random weights, or one that transformers loads as a whole.

The dtype is always given: transformers 5 would take the checkpoint's, others float32, and the two differ in the third
digit of a perplexity.
"""

from __future__ import annotations

import logging
import textwrap
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from accelerate import init_empty_weights
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.core_model_loading import build_glob_alternation

from harness.config import DType, ModelConfig
from harness.errors import UserError
from harness.model.checkpoint import GENERATION, Checkpoint, listed
from harness.model.fetch import no_progress_bars

log = logging.getLogger(__name__)

# Soft-capped or biased attention scores, and attention sinks, are right only in the plain implementation.
EAGER = ("gemma2", "gpt_oss", "bloom")


def find_device(name: str) -> torch.device:
    """The device called `name`; `auto` is cuda where there is one, else cpu."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        if torch.device(name).type == "meta":
            raise RuntimeError("it holds no numbers")
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = textwrap.shorten(str(error).split(". ")[0], 200)
        raise UserError(
            f"model.device={name!r} cannot be used here ({reason}). Set model.device=cpu or auto."
        ) from error


def find_dtype(dtype: DType, device: torch.device) -> torch.dtype:
    """The computing type; `auto` is float32 on the CPU and bfloat16 elsewhere."""
    if dtype is DType.auto:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return getattr(torch, dtype.value)


def build_skeleton(folder: Path, dtype: torch.dtype, attention: str = "auto") -> PreTrainedModel:
    """The model of a folder's config.json on the meta device, with real buffers (rotary tables)."""
    skeleton = _empty(read_config(folder), dtype, attention)
    # Some tensors stay in float32 whatever the model's type (the bias of DeepSeek's router, for instance).
    if wide := skeleton._get_dtype_plan(dtype):
        pattern, *_ = build_glob_alternation(list(wide))
        for name, tensor in skeleton.state_dict(keep_vars=True).items():
            if pattern.search(name):
                tensor.data = tensor.data.float()
    if skeleton.can_generate():
        skeleton.generation_config = read_generation_config(folder)
    return skeleton


def load_in_memory(folder: Path, dtype: torch.dtype, attention: str = "auto") -> PreTrainedModel:
    """The whole model on the CPU, by transformers' own loading. UserError where it had to invent a tensor."""
    how = {"dtype": dtype, "attn_implementation": _implementation(read_config(folder), attention)}
    try:
        with no_progress_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **how)
            module, info = loaded
    except UnpicklingError as error:
        raise UserError(
            f"{folder}: transformers could not load it: a .bin file is damaged, or holds more than weights."
        ) from error
    except (OSError, ValueError, RuntimeError, EOFError) as error:
        raise UserError(f"{folder}: transformers could not load it ({_short(error)}).") from error
    problems = [f"{name}: {kind.removesuffix('_keys')}" for kind, names in info.items() for name in map(str, names)]
    if problems:
        raise UserError(f"{folder} does not fit {type(module).__name__}:\n{listed(sorted(problems))}")
    return module.eval()


def random_skeleton(cfg: ModelConfig, dtype: torch.dtype) -> PreTrainedModel:
    """What `random_module` fills, on the meta device."""
    return _empty(_random_config(cfg), dtype, cfg.attention)


def random_module(cfg: ModelConfig, dtype: torch.dtype) -> PreTrainedModel:
    """Random weights of the shape in `cfg.config` ({model_type: llama, hidden_size: ...}); `cfg.seed` decides them."""
    config = _random_config(cfg)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cfg.seed)
        return from_config(config, dtype, cfg.attention).eval()


def _random_config(cfg: ModelConfig) -> PretrainedConfig:
    fields = dict(cfg.config)
    kind = fields.pop("model_type", "llama")
    try:
        default = AutoConfig.for_model(kind)
        if unknown := sorted(set(fields) - set(default.to_dict())):
            raise UserError(f"model.config: {', '.join(unknown)} unknown to model_type={kind!r}.")
        return AutoConfig.for_model(kind, **fields)
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise error if isinstance(error, UserError) else UserError(f"model.config: {_short(error)}") from error


def _empty(config: PretrainedConfig, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    with init_empty_weights(include_buffers=False):
        return from_config(config, dtype, attention).eval()


def from_config(config: PretrainedConfig, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """An uninitialized or random causal language model. UserError where transformers has none for this config."""
    try:
        return AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=_implementation(config, attention)
        )
    except (ValueError, ImportError, ZeroDivisionError) as error:
        which = f"{config.model_type}: no causal language model to be had"
        if attention != "auto":
            which += f" with model.attention={attention}, which may be auto, sdpa or eager"
        raise UserError(f"{which} ({_short(error)}).") from error


def read_config(folder: Path) -> PretrainedConfig:
    """The folder's config.json, typed. Code that comes with a checkpoint is never run."""
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError, StrictDataclassError) as error:
        raise UserError(
            f"{folder}/config.json: {_short(error)}. Is it a transformers model of a known type?"
        ) from error


def read_generation_config(folder: Path) -> GenerationConfig:
    """How the model writes, as `from_pretrained` takes it: of older checkpoints, what their config.json says."""
    name = GENERATION if (folder / GENERATION).is_file() else "config.json"
    more: dict[str, Any] = {} if name == GENERATION else {"_from_model_config": True}
    try:
        return GenerationConfig.from_pretrained(folder, config_file_name=name, **more)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(f"{folder / name}: {_short(error)}. Fetch it anew, or take it away.") from error


def embedding_of(module: PreTrainedModel) -> torch.Tensor:
    """The input embedding, `embedding_VD`."""
    return module.get_input_embeddings().get_parameter("weight")


def check_tokenizer(tokenizer: Any, module: PreTrainedModel) -> None:
    """UserError where the vocabulary is larger than the embedding; added tokens without a row are logged."""
    rows = embedding_of(module).shape[0]
    if tokenizer.vocab_size > rows:
        raise UserError(
            f"The tokenizer has {tokenizer.vocab_size} tokens, the embedding {rows} rows: they belong to different "
            "models. Take both from one checkpoint."
        )
    if beyond := [token for token, i in tokenizer.get_added_vocab().items() if i >= rows]:
        log.warning("Tokens without a row in the embedding, fatal if a text holds them: %s", ", ".join(beyond))


def refuse_narrow(checkpoint: Checkpoint, dtype: torch.dtype) -> None:
    """UserError for bfloat16 weights in float16: small rows would become 0, and large ones infinite."""
    if dtype is torch.float16 and any(tensor.dtype == "BF16" for tensor in checkpoint.tensors.values()):
        raise UserError(
            f"model.dtype=float16 cannot hold the range of the bfloat16 weights in {checkpoint.folder}. "
            "Set model.dtype=bfloat16 or float32."
        )


def refuse_unusable(module: PreTrainedModel) -> None:
    """UserError for a model in memory whose weights are elsewhere (offloaded) or no floats (already quantized)."""
    offloaded = [name for name, weight in module.named_parameters() if weight.is_meta]
    if offloaded:
        raise UserError(
            "These weights are offloaded, only placeholders are in memory. Load the model without device_map, or give "
            f"its folder (model=hf model.path=FOLDER):\n{listed(offloaded)}"
        )
    packed = [
        f"{name} ({weight.dtype})" for name, weight in module.named_parameters() if not weight.is_floating_point()
    ]
    if packed or getattr(module.config, "quantization_config", None):
        raise UserError(
            f"The model is already quantized, a float one is needed:\n{listed(packed or ['see its config'])}"
        )


def _implementation(config: PretrainedConfig, attention: str) -> str | None:
    """Attention implementation; None lets transformers choose (sdpa where the architecture has it)."""
    if attention != "auto":
        return attention
    return "eager" if config.model_type in EAGER else None


def _short(error: Exception) -> str:
    return textwrap.shorten(str(error) or type(error).__name__, 300).rstrip(".")
