"""Shipped and other configs: totals as published, fields changed, mistakes named."""

import json
from pathlib import Path

import gguf
import pytest

from harness.app import config_folder
from harness.errors import UserError
from harness.ledger.config import ModelChoice, Source
from harness.ledger.params import summary, totals
from harness.ledger.presets import choices, shape_of, shipped

# Parameters of the published checkpoints (the safetensors index of each model's hub page).
PUBLISHED = {
    "llama2_7b": 6_738_415_616,
    "llama2_13b": 13_015_864_320,
    "llama2_70b": 68_976_648_192,
    "llama3_8b": 8_030_261_248,
    "llama31_8b": 8_030_261_248,
    "llama31_70b": 70_553_706_496,
    "llama32_1b": 1_235_814_400,
    "tinyllama_1b": 1_100_048_384,
    "smollm2_135m": 134_515_008,
    "smollm2_360m": 361_821_120,
    "smollm2_1_7b": 1_711_376_384,
    "qwen25_0_5b": 494_032_768,
    "qwen25_7b": 7_615_616_512,
    "qwen25_72b": 72_706_203_648,
    "qwen3_8b": 8_190_735_360,
    "qwen3_30b_a3b": 30_532_122_624,
    "mistral_7b": 7_248_023_552,
    "mixtral_8x7b": 46_702_792_704,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_are_the_published_ones(name: str) -> None:
    assert totals(shape_of(choices()[name]))["all"] == PUBLISHED[name]


def test_every_model_of_the_harness_has_a_shipped_shape() -> None:
    runnable = {path.stem for path in (config_folder() / "model").glob("*.yaml")} - {"hf", "gguf", "random"}
    assert runnable
    assert runnable <= set(shipped())


def test_tied_table_is_counted_once_and_said() -> None:
    counts = summary(shape_of(choices()["smollm2_135m"]))["params"]["embedding"]
    assert counts == {"input": 49152 * 576, "output": 0, "tied": True}


def test_latent_attention_and_dense_first_layers() -> None:
    deepseek = shape_of(choices()["deepseek_v3"])
    first, last = deepseek.layers[0], deepseek.layers[-1]
    assert {m.role for m in first if m.block == "attention"} == {"q_a", "q_b", "kv_a", "kv_b", "o"}
    assert {m.part for m in first if m.block == "ffn"} == {""}
    assert {(m.part, m.count, m.active) for m in last if m.block == "ffn"} == {("shared", 1, 1), ("expert", 256, 8)}


def llama(folder: Path, **fields: object) -> ModelChoice:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 128,
    }
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    return ModelChoice(source=Source.hf, path=str(folder))


def test_folder(tmp_path: Path) -> None:
    assert totals(shape_of(llama(tmp_path)))["ffn"] == 2 * 3 * 64 * 96


def test_changed_field_moves_what_depends_on_it(tmp_path: Path) -> None:
    choice = llama(tmp_path)
    choice.config = {"num_attention_heads": 8, "num_key_value_heads": 2}  # head_dim follows: 16 becomes 8
    assert totals(shape_of(choice))["attention"] == 2 * (2 * 64 * 64 + 2 * 64 * 16)


def test_changed_field_by_its_usual_name() -> None:
    choice = choices()["gpt3_175b"]
    choice.config = {"num_hidden_layers": 1, "hidden_size": 192}
    assert totals(shape_of(choice))["ffn"] == 2 * 4 * 192**2


def test_gguf_header(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(128)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    read = shape_of(ModelChoice(source=Source.gguf, path=str(tmp_path / "tiny.gguf")))
    assert totals(read)["ffn"] == 2 * 3 * 64 * 96
    assert totals(read)["attention"] == 2 * (2 * 64 * 64 + 2 * 64 * 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intermedate_size": 4}, "no such field. Did you mean intermediate_size"),
        ({"intermediate_size": -5}, "intermediate_size=-5"),
        ({"num_hidden_layers": 10**9}, "from 1 to 10,000"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers=2.5"),
        ({"hidden_size": 4100}, "4100.*multiple of the number of attention heads"),
        ({"num_key_value_heads": 5}, "cannot share 5 key-value heads"),
        ({"model_type": "lama"}, "lama is not known to transformers. Did you mean llama"),
        ({"model_type": "vit"}, "vit is no decoder-only language model"),
    ],
)
def test_bad_fields_are_named(changes: dict, message: str) -> None:
    choice = choices()["llama2_7b"]
    choice.config = changes
    with pytest.raises(UserError, match=message) as error:
        shape_of(choice)
    assert len(str(error.value).splitlines()) == 1


def test_more_active_experts_than_there_are() -> None:
    choice = choices()["mixtral_8x7b"]
    choice.config = {"num_experts_per_tok": 9}
    with pytest.raises(UserError, match="num_experts_per_tok=9"):
        shape_of(choice)


def test_plain_shape_has_no_config_fields() -> None:
    choice = choices()["palm_540b"]
    choice.config = {"hidden_size": 4}
    with pytest.raises(UserError, match=r"Set model\.shape"):
        shape_of(choice)


@pytest.mark.parametrize(
    ("source", "path", "message"),
    [
        (Source.hf, "", "model.path is missing"),
        (Source.hf, "/no/such/folder", "no such folder"),
        (Source.gguf, "/no/such/file.gguf", "no such file"),
    ],
)
def test_bad_paths_are_named(source: Source, path: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        shape_of(ModelChoice(source=source, path=path))


def test_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json with a model_type"):
        shape_of(ModelChoice(source=Source.hf, path=str(tmp_path)))


def test_a_model_without_attention(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(UserError, match="model_type=mamba has no attention heads"):
        shape_of(ModelChoice(source=Source.hf, path=str(tmp_path)))


def test_file_that_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "junk.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UserError, match=r"junk\.gguf"):
        shape_of(ModelChoice(source=Source.gguf, path=str(tmp_path / "junk.gguf")))
