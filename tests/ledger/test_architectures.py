"""Every architecture: the ledger of a saved folder counts what the model itself holds."""

from pathlib import Path

import pytest
import torch

from harness.ledger.anatomy import shape_of_model
from harness.ledger.build import build
from harness.ledger.config import LedgerConfig, ModelChoice, Source
from harness.ledger.costs import cache_elements
from harness.ledger.render import as_csv, as_json
from harness.ledger.weights import model_bytes
from harness.model.sites import find_extra_sites, find_sites
from tests.model.architectures import EVERY, tiny


@pytest.mark.parametrize("name", EVERY)
def test_counts_agree_with_the_model(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    model.config.save_pretrained(tmp_path)
    ledger = build(LedgerConfig(model=ModelChoice(source=Source.hf, path=str(tmp_path))))
    total = ledger.summary["params"]["total"]
    assert total["all"] == sum(p.numel() for p in model.parameters())
    sites = find_sites(model)
    assert total["ffn"] == sum(site.weights for site in sites if site.block == "ffn")
    assert total["attention"] == sum(site.weights for site in sites if site.block == "attention")
    assert as_json(ledger)
    assert as_csv(ledger)


# These cache more than they have to: Falcon each key-value head once per query head, DeepSeek expanded keys and values.
WASTEFUL = ("falcon", "deepseek_v3", "deepseek_v3_plain_q")


@pytest.mark.parametrize("name", [name for name in EVERY if name not in WASTEFUL])
def test_cache_is_what_the_model_keeps_of_a_token(name: str) -> None:
    model = tiny(name)
    with torch.inference_mode():
        cache = model(torch.tensor([[1]]), use_cache=True).past_key_values
    kept = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)
    assert cache_elements(shape_of_model(model, name)) == kept


def test_latent_attention_keeps_its_compressed_row() -> None:
    config = tiny("deepseek_v3").config
    elements = config.num_hidden_layers * (config.kv_lora_rank + config.qk_rope_head_dim)
    assert cache_elements(shape_of_model(tiny("deepseek_v3"), "deepseek_v3")) == elements


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "llama4_text"])
def test_a_token_uses_its_chosen_experts(name: str) -> None:
    model = tiny(name)
    chosen = {m.active / m.count for m in shape_of_model(model, name).matrices if m.part == "expert"}
    assert chosen == {model.config.num_experts_per_tok / 4}


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral", "deepseek_v3"])
def test_a_runs_bytes_and_the_ledgers_agree(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    model.config.save_pretrained(tmp_path)
    ledger = build(LedgerConfig(model=ModelChoice(source=Source.hf, path=str(tmp_path))))
    row = next(r for r in ledger.tables["bytes"] if (r["precision"], r["group_size"]) == ("int4", "codes"))
    extra, tied = find_extra_sites(model)
    sites = find_sites(model)
    bits = {site.name: 4.0 for site in sites}
    stored = model_bytes(sum(p.numel() for p in model.parameters()), [*sites, *extra], bits, tied=tied)
    assert stored.weight_bytes == row["model_blocks_bytes"]
    assert stored.ffn_bytes_saved == row["ffn_saved_bytes"]
    assert stored.attention_bytes_saved == row["attention_saved_bytes"]
