"""Write a checkpoint of Llama-2-7B's shape with random bfloat16 weights: 13 GB of files for memory and time benchmarks.

    python experiments/benchmarks/make_llama2_7b_shape.py FOLDER

One shard a layer, written as soon as it is drawn, so the process holds one layer at most. The tokenizer has one token a
byte. Weights are normal with LLaMA's initial standard deviation of 0.02: the outputs mean nothing, the sizes do.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from harness.model.byte_tokenizer import byte_tokenizer

LLAMA_2_7B = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


def write_checkpoint(folder: Path, shape: dict[str, object], seed: int = 0) -> None:
    """A LLaMA of this shape: config, index, one safetensors shard a layer and two for embedding and head, tokenizer."""
    config = LlamaConfig(**shape, dtype="bfloat16", architectures=["LlamaForCausalLM"], bos_token_id=0, eos_token_id=1)
    config.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    generator = torch.Generator().manual_seed(seed)
    count, index, size = config.num_hidden_layers + 2, {}, 0
    for number, shapes in enumerate(_shards(config), start=1):
        name = f"model-{number:05d}-of-{count:05d}.safetensors"
        tensors = {tensor: _draw(size_OI, generator) for tensor, size_OI in shapes.items()}
        save_file(tensors, folder / name, {"format": "pt"})
        index |= dict.fromkeys(tensors, name)
        size += sum(tensor.nbytes for tensor in tensors.values())
        print(f"\r{number}/{count} shards", end="", flush=True)
    print(f"\n{size:,} bytes of weights in {folder}")
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": index}, indent=2)
    (folder / "model.safetensors.index.json").write_text(text, "utf-8")


def _shards(config: LlamaConfig) -> Iterator[dict[str, tuple[int, ...]]]:
    """Names and shapes of the tensors, shard by shard."""
    hidden, wide = config.hidden_size, config.intermediate_size
    heads, kv = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
    yield {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for i in range(config.num_hidden_layers):
        layer = {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (heads, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, heads),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (wide, hidden),
            "mlp.up_proj": (wide, hidden),
            "mlp.down_proj": (hidden, wide),
        }
        yield {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    yield {"model.norm.weight": (hidden,), "lm_head.weight": (config.vocab_size, hidden)}


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    return torch.empty(shape, dtype=torch.bfloat16).normal_(std=0.02, generator=generator)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="empty or new folder for 13 GB of files")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(folder, LLAMA_2_7B)
