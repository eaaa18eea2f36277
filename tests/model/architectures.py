"""One tiny random model of every architecture the harness names, for tests of all of them alike.

vocab 128, hidden 64, intermediate 96, 2 layers, 4 heads, 2 key/value heads, 64 positions, except where a table entry
says otherwise. All weights are random, norms and biases too, since a norm of ones and a bias of zeros hide mistakes.
"""

from __future__ import annotations

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

BASE = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
PLAIN_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"n_embd": 64, "n_inner": 96, "n_layer": 2, "n_head": 4, "n_positions": 64}
BLOOM = {"hidden_size": 64, "n_layer": 2, "n_head": 4}
FALCON = {"ffn_hidden_size": 96, "bias": True}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
DEEPSEEK = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
ONE_SLIDING = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}

# Name -> (model type, what differs from BASE). The 22 architectures of the engine's proof, and gemma2.
ARCHITECTURES: dict[str, tuple[str, dict]] = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 24}),
    "mistral": ("mistral", {"sliding_window": None}),
    "gemma3_text": ("gemma3_text", {"head_dim": 16, **ONE_SLIDING}),
    "phi3": ("phi3", {}),
    "gpt2": ("gpt2", GPT2),
    "gpt_neox": ("gpt_neox", {}),
    "mixtral": ("mixtral", EXPERTS),
    "qwen3_moe": (
        "qwen3_moe",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16},
    ),
    "deepseek_v3": ("deepseek_v3", DEEPSEEK),
    "gpt_oss": ("gpt_oss", {"intermediate_size": 32, "head_dim": 16, **EXPERTS, **ONE_SLIDING, **PLAIN_ROPE}),
    "olmo2": ("olmo2", {}),
    "falcon": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, **FALCON}),
    "llama4_text": (
        "llama4_text",
        {
            "intermediate_size": 48,
            "intermediate_size_mlp": 96,
            "num_local_experts": 4,
            "head_dim": 16,
            "interleave_moe_layer_step": 2,
            "no_rope_layers": [1, 0],
            "attention_chunk_size": 16,
        },
    ),
    "granite": ("granite", {}),
    "starcoder2": ("starcoder2", {"sliding_window": None}),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0]}),
    "opt": ("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "stablelm": ("stablelm", {}),
    "cohere2": ("cohere2", ONE_SLIDING),
    "glm4": ("glm4", {"head_dim": 16}),
    "gemma2": ("gemma2", {"head_dim": 16, "query_pre_attn_scalar": 16, **ONE_SLIDING}),
}

# Other layouts and masks of the same model types, and BLOOM.
VARIANTS: dict[str, tuple[str, dict]] = {
    "bloom": ("bloom", BLOOM),
    "deepseek_v3_plain_q": ("deepseek_v3", {**DEEPSEEK, "q_lora_rank": None}),
    "falcon_alibi": ("falcon", {"alibi": True, "new_decoder_architecture": False, "multi_query": False, **FALCON}),
    "falcon_multi_query": ("falcon", {"new_decoder_architecture": False, "multi_query": True, **FALCON}),
    "falcon_per_head": ("falcon", {"new_decoder_architecture": False, "multi_query": False, **FALCON}),
    "llama_biased": ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "mistral_window": ("mistral", {"sliding_window": 16}),
    "stablelm_qk_norm": ("stablelm", {"qk_layernorm": True, "use_parallel_residual": True}),
}
EVERY = ARCHITECTURES | VARIANTS


def tiny_config(name: str, **changes: object) -> PretrainedConfig:
    """The configuration of one table entry; `changes` win."""
    model_type, differs = EVERY[name]
    return AutoConfig.for_model(model_type, **{**BASE, **TOKENS, **differs, **changes})


def tiny(name: str, seed: int = 0, **changes: object) -> PreTrainedModel:
    """A seeded float32 model in eval mode, every parameter random."""
    config = tiny_config(name, **changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.15
            parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
    return model.requires_grad_(False)
