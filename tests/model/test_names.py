"""Every tensor of the model has one in the files and the other way round, or the folder is refused by name."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.errors import UserError
from harness.model.checkpoint import check_folder
from harness.model.names import match_tensors
from harness.model.skeleton import build_skeleton
from tests.model.architectures import EVERY
from tests.model.folders import edit_tensors, save_tiny

CONVERTED = ("mixtral", "qwen3_moe", "deepseek_v3", "deepseek_v3_plain_q")  # their files hold experts one by one


def match(folder):
    return match_tensors(build_skeleton(folder, torch.float32), check_folder(folder))


def refusal(folder):
    with pytest.raises(UserError) as caught:
        match(folder)
    return str(caught.value)


@pytest.mark.parametrize("name", EVERY)
def test_every_architecture(name, tmp_path):
    module = save_tiny(tmp_path, name)
    sources = match(tmp_path)
    if name in CONVERTED:
        assert sources is None
    else:
        tied = set(module.all_tied_weights_keys)
        assert sources is not None and set(sources) | tied == set(module.state_dict())


@pytest.mark.case("G2")
@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("llama", "model.layers.1.mlp.down_proj.weight"),
        ("llama", "lm_head.weight"),
        ("llama_biased", "model.embed_tokens.weight"),
        ("mixtral", "model.layers.1.block_sparse_moe.experts.2.w1.weight"),
        ("mixtral", "model.layers.0.input_layernorm.weight"),
        ("deepseek_v3", "model.layers.1.mlp.experts.3.down_proj.weight"),
    ],
)
def test_missing(name, tensor, tmp_path):
    save_tiny(tmp_path, name)
    edit_tensors(tmp_path / "model.safetensors", lambda tensors: tensors.pop(tensor))
    message = refusal(tmp_path)
    place = tensor.split(".weight")[0].replace("block_sparse_moe.experts.2.w1", "mlp.experts.gate_up_proj")
    assert place.replace("experts.3.down_proj", "experts.down_proj") in message, message


@pytest.mark.case("G2")
def test_a_layer_too_few(tmp_path):
    save_tiny(tmp_path)
    drop = [name for name in load_file(tmp_path / "model.safetensors") if ".layers.1." in name]
    edit_tensors(tmp_path / "model.safetensors", lambda tensors: [tensors.pop(name) for name in drop])
    assert refusal(tmp_path).count("is missing") == len(drop) == 9


@pytest.mark.case("G2")
def test_not_expected(tmp_path):
    save_tiny(tmp_path)
    edit_tensors(
        tmp_path / "model.safetensors", lambda t: t.update({"model.layers.0.mlp.up_proj.bias": torch.ones(96)})
    )
    assert "model.layers.0.mlp.up_proj.bias is not expected" in refusal(tmp_path)


@pytest.mark.case("G2")
def test_another_shape(tmp_path):
    save_tiny(tmp_path)
    name = "model.layers.0.mlp.up_proj.weight"
    edit_tensors(tmp_path / "model.safetensors", lambda t: t.update({name: t[name].T.contiguous()}))
    assert f"{name} has shape (96, 64), the file holds [(64, 96)]" in refusal(tmp_path)


def test_old_rotary_tables_are_ignored(tmp_path):
    save_tiny(tmp_path)
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    edit_tensors(tmp_path / "model.safetensors", lambda tensors: tensors.update(table))
    assert match(tmp_path) is not None


def test_names_without_their_prefix(tmp_path):
    save_tiny(tmp_path, "gpt2")
    tensors = load_file(tmp_path / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    assert bare.keys() != tensors.keys()
    save_file(bare, tmp_path / "model.safetensors", {"format": "pt"})
    sources = match(tmp_path)
    assert sources is not None and sources["transformer.h.0.mlp.c_fc.weight"] == "h.0.mlp.c_fc.weight"
