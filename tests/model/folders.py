"""Checkpoint folders of tiny random models, whole and broken, for tests of fetching and loading."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from gguf import GGMLQuantizationType, GGUFWriter, quants
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from harness.model.byte_tokenizer import byte_tokenizer
from tests.model.architectures import tiny

VOCABULARY = 260  # two rows more than the byte tokenizer has tokens


def save_tiny(
    folder: Path, name: str = "llama", dtype: torch.dtype = torch.float32, shards: str = "5GB", **changes
) -> PreTrainedModel:
    """Save a tiny model and a tokenizer; returns the model, in `dtype`."""
    module = tiny(name, vocab_size=VOCABULARY, **changes).to(dtype)
    module.save_pretrained(folder, max_shard_size=shards)
    byte_tokenizer().save_pretrained(folder)
    return module


def edit_tensors(file: Path, edit) -> None:
    """Rewrite a safetensors file after `edit(tensors)`."""
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file, {"format": "pt"})


def edit_config(folder: Path, **changes) -> None:
    """Set fields of config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), "utf-8")


def tensor_names(folder: Path) -> set[str]:
    """Names of all tensors in a folder."""
    return {name for file in folder.glob("*.safetensors") for name in safe_open(file, "pt").keys()}  # noqa: SIM118


def sparse_copy(folder: Path, shapes: dict[str, dict[str, tuple[int, ...]]]) -> None:
    """Safetensors shards {file: {tensor: shape}} of bfloat16 zeros that take no space on the disk."""
    for name, tensors in shapes.items():
        header, end = {}, 0
        for tensor, shape in tensors.items():
            start, end = end, end + 2 * int(torch.tensor(shape).prod())
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
        text = json.dumps(header).encode()
        with (folder / name).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)


def sparse_llama2_7b(folder: Path) -> None:
    """A checkpoint of Llama-2-7B's shape: 13 GB in 34 shards with an index, none of which takes space on the disk."""
    save_tiny(folder)  # for its tokenizer and config.json
    (folder / "model.safetensors").unlink()
    shape = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 4096}
    edit_config(folder, **shape, **heads)
    with torch.device("meta"):
        tensors = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).state_dict()
    files = [f"model-{i}.safetensors" for i in range(34)]
    index = {name: files[i % 34] for i, name in enumerate(tensors)}
    shapes = {file: {n: tuple(tensors[n].shape) for n, f in index.items() if f == file} for file in files}
    sparse_copy(folder, shapes)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}), "utf-8")
    assert sum(file.stat().st_size for file in folder.glob("*.safetensors")) > 13e9


def write_gguf(file: Path, kind: GGMLQuantizationType = GGMLQuantizationType.F32) -> None:
    """A one-layer LLaMA with a vocabulary of bytes as a GGUF file, its matrices stored as `kind`."""
    hidden, wide, heads, kv_heads = 64, 128, 2, 1
    vocabulary = byte_tokenizer().get_vocab()
    tokens = [*sorted(vocabulary, key=vocabulary.__getitem__), "he"]
    writer = GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_block_count(1)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(wide)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    kv = hidden * kv_heads // heads
    matrices = {
        "token_embd": (len(tokens), hidden),
        "output": (len(tokens), hidden),
        "blk.0.attn_q": (hidden, hidden),
        "blk.0.attn_k": (kv, hidden),
        "blk.0.attn_v": (kv, hidden),
        "blk.0.attn_output": (hidden, hidden),
        "blk.0.ffn_gate": (wide, hidden),
        "blk.0.ffn_up": (wide, hidden),
        "blk.0.ffn_down": (hidden, wide),
    }
    generator = torch.Generator().manual_seed(0)
    for name, shape in matrices.items():
        w_OI = torch.randn(shape, generator=generator).numpy()
        writer.add_tensor(f"{name}.weight", quants.quantize(w_OI, kind), raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", torch.ones(hidden).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
