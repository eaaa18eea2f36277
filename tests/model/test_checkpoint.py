"""Broken, incomplete and quantized folders are named in seconds, from names, sizes and headers."""

import shutil
import time

import pytest
import torch

from harness.errors import UserError
from harness.model import cache
from harness.model.checkpoint import check_folder, weights_sha
from harness.model.names import match_tensors
from harness.model.skeleton import build_skeleton
from tests.model.folders import edit_config, edit_tensors, save_tiny, sparse_llama2_7b, tensor_names

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123456\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    save_tiny(folder)
    return folder


@pytest.fixture(scope="module")
def saved_shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    save_tiny(folder, shards="60KB")
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


@pytest.fixture
def shards(saved_shards, tmp_path):
    return shutil.copytree(saved_shards, tmp_path / "shards")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))


def refusal(folder):
    with pytest.raises(UserError) as caught:
        check_folder(folder)
    return str(caught.value)


def test_whole_folders(folder, shards):
    for path in (folder, shards):
        checkpoint = check_folder(path)
        assert set(checkpoint.tensors) == tensor_names(path)
        assert checkpoint.tensors["model.norm.weight"].shape == (64,)
        assert checkpoint.tensors["model.norm.weight"].dtype == "F32"
    assert len(checkpoint.weight_files) > 2


@pytest.mark.case("G3")
@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (lambda data: data[: len(data) // 2], ["is truncated", "interrupted download"]),
        (lambda data: data[:-1], ["is truncated", "interrupted download"]),
        (lambda data: data[:100], ["ends inside its header"]),
        (lambda data: data[:5], ["ends inside its header"]),
        (lambda data: b"", ["is empty (0 bytes)"]),
        (lambda data: POINTER.encode(), ["Git LFS pointer", "git lfs pull", f"{len(POINTER)} bytes"]),
        (lambda data: b"<!DOCTYPE html><html>Please log in</html>", ["web page"]),
        (lambda data: data + b"\0", ["is too long"]),
        (lambda data: data[:8] + b"x" + data[9:], ["no safetensors header"]),
    ],
)
def test_broken_weight_file(folder, breaks, words):
    file = folder / "model.safetensors"
    file.write_bytes(breaks(file.read_bytes()))
    message = refusal(folder)
    assert "model.safetensors" in message and "Fetch these files anew" in message
    assert all(word in message for word in words), message


def test_truncation_gives_both_sizes(folder):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1000])
    assert f"{len(whole) - 1000:,} bytes, its header says {len(whole):,}" in refusal(folder)


@pytest.mark.case("G1")
def test_missing_shards(shards):
    gone = [f"model-0000{i}-of" for i in (2, 3)]
    for prefix in gone:
        next(shards.glob(f"{prefix}*")).unlink()
    message = refusal(shards)
    assert all(f"{prefix}-" in message for prefix in gone) and message.count("is missing") == 2


@pytest.mark.case("G1")
def test_stale_shard(shards):
    shard = next(shards.glob("model-00002-of*"))
    edit_tensors(shard, lambda tensors: tensors.pop(sorted(tensors)[0]))
    message = refusal(shards)
    assert shard.name in message and "another version" in message


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"weight_map": []}', POINTER])
def test_broken_index(shards, content):
    (shards / "model.safetensors.index.json").write_text(content)
    assert "model.safetensors.index.json" in refusal(shards)


def test_no_weights(folder):
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    assert "has no weights" in refusal(folder) and "consolidated.safetensors" in refusal(folder)


@pytest.mark.parametrize("content", [None, "", "{broken", "[]", POINTER])
def test_config(folder, content):
    file = folder / "config.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    assert "config.json" in refusal(folder) and "folder of a transformers model" in refusal(folder)


def test_no_such_folder(tmp_path):
    assert "nowhere is not a folder" in refusal(tmp_path / "nowhere")


def test_tokenizer(folder):
    (folder / "tokenizer.json").write_text(POINTER)
    assert "tokenizer.json" in refusal(folder) and "Git LFS pointer" in refusal(folder)
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer" in refusal(folder)


def test_truncated_pickle(folder):
    torch.save({"x": torch.zeros(1000)}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert check_folder(folder).tensors == {}
    file = folder / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:-500])
    assert "pytorch_model.bin" in refusal(folder) and "is truncated" in refusal(folder)


@pytest.mark.case("G4")
@pytest.mark.parametrize("method", ["fp8", "bitsandbytes", "gptq", "no_such_method"])
@pytest.mark.parametrize("nested", [False, True])
def test_quantized_config(folder, method, nested):
    how = {"quantization_config": {"quant_method": method}}
    edit_config(folder, **({"text_config": how} if nested else how))
    assert f"already quantized (config.json, quantization_config: quant_method={method})" in refusal(folder)


@pytest.mark.case("G4")
def test_quantized_tensors_without_a_word_in_the_config(folder):
    def pack(tensors):
        name = "model.layers.0.mlp.up_proj.weight"
        tensors[name] = tensors[name].to(torch.float8_e4m3fn)

    edit_tensors(folder / "model.safetensors", pack)
    assert "model.layers.0.mlp.up_proj.weight (F8_E4M3)" in refusal(folder)


def test_long_lists_are_cut(tmp_path):
    save_tiny(tmp_path, shards="10KB")
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    message = refusal(tmp_path)
    assert len(message.splitlines()) == 12 and "more" in message.splitlines()[-1]


@pytest.mark.case("G1")
def test_13_gb_take_seconds(tmp_path):
    sparse_llama2_7b(tmp_path)
    start = time.process_time()
    checkpoint = check_folder(tmp_path)
    sources = match_tensors(build_skeleton(tmp_path, torch.float32), checkpoint)
    assert time.process_time() - start < 5
    assert sources is not None and len(sources) == 3 + 32 * 9


# --- the hash ----------------------------------------------------------------------------------------------------


def test_sha_is_of_contents_not_places(folder, saved):
    assert weights_sha(check_folder(folder)) == weights_sha(check_folder(saved))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json"])
def test_sha_changes_with_what_changes_numbers(folder, name):
    before = weights_sha(check_folder(folder))
    file = folder / name
    data = bytearray(file.read_bytes())
    spot = data.rindex(b'"') if name.endswith("json") else len(data)
    data[spot - 1] ^= 1
    file.write_bytes(data)
    assert weights_sha(check_folder(folder)) != before


def test_sha_does_not_change_with_a_readme(folder):
    before = weights_sha(check_folder(folder))
    (folder / "README.md").write_text("hello")
    assert weights_sha(check_folder(folder)) == before


def test_unchanged_files_are_not_read_again(folder, monkeypatch):
    checkpoint = check_folder(folder)
    before = weights_sha(checkpoint)
    monkeypatch.setattr(cache, "read_digest", lambda file: pytest.fail(f"{file} was read again"))
    assert weights_sha(checkpoint) == before
