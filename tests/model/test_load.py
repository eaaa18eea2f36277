"""Loaded models: the weights of the files, one layer at a time, in a type that was chosen."""

import json
import shutil

import pytest
import torch
from lm_eval.models.huggingface import HFLM
from torch import nn
from transformers import AutoModelForCausalLM

from harness.config import DType, ModelConfig, ModelSource
from harness.errors import UserError
from harness.materialize import materialized
from harness.model.byte_tokenizer import byte_tokenizer
from harness.model.load import Model, open_model
from harness.model.skeleton import check_tokenizer, find_device, find_dtype
from harness.plan import base_arm
from harness.weigh import Weigher
from tests.model.architectures import tiny
from tests.model.folders import edit_config, edit_tensors, save_tiny

IDS = torch.arange(60).view(2, 30)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path_factory.mktemp("cache")))


def opened(folder, **fields):
    return open_model(ModelConfig(name="tiny", path=str(folder), device="cpu", **fields))


def run(model, ids=IDS):
    """The model's own forward with each layer filled as it is reached, and emptied behind it."""

    def streamed(i, layer):
        plain = layer.forward

        def forward(*args, **kwargs):
            with model.layer(i):
                return plain(*args, **kwargs)

        return forward

    for i, layer in enumerate(model.layers):
        layer.forward = streamed(i, layer)
    try:
        with torch.inference_mode():
            return model.module(ids, use_cache=False).logits
    finally:
        for layer in model.layers:
            del layer.forward


def plain(folder, dtype=torch.float32, attention="sdpa"):
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()
    with torch.inference_mode():
        return module(IDS, use_cache=False).logits


def on_meta(module):
    return all(parameter.is_meta for parameter in module.parameters())


# --- from files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "llama_biased", "qwen3", "gpt2", "gpt_neox", "phi3", "llama4_text"])
def test_streamed_equals_plain_bit_for_bit(name, tmp_path):
    save_tiny(tmp_path, name)
    model = opened(tmp_path)
    assert on_meta(model.layers)
    assert torch.equal(run(model), plain(tmp_path))
    assert on_meta(model.layers)


@pytest.mark.parametrize(("dtype", "name"), [("bfloat16", "llama"), ("float16", "gpt_oss"), ("bfloat16", "smollm3")])
def test_other_types(dtype, name, tmp_path):
    save_tiny(tmp_path, name)
    model = opened(tmp_path, dtype=DType(dtype))
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=getattr(torch, dtype)).eval()
    assert {n: p.dtype for n, p in model.module.named_parameters()} == {
        n: p.dtype for n, p in reference.named_parameters()
    }
    assert model.dtype is getattr(torch, dtype)
    assert torch.equal(run(model), plain(tmp_path, model.dtype, model.config._attn_implementation))


def test_sharded_and_tied(tmp_path):
    save_tiny(tmp_path, "llama_biased", shards="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    model = opened(tmp_path)
    assert model.tied
    assert torch.equal(run(model), plain(tmp_path))


def test_only_the_asked_layer_is_there(tmp_path):
    saved = save_tiny(tmp_path)
    model = opened(tmp_path)
    with model.layer(1) as layer:
        assert layer is model.layers[1] and on_meta(model.layers[0])
        for name, parameter in layer.named_parameters():
            assert torch.equal(parameter, saved.model.layers[1].get_parameter(name)) and not parameter.requires_grad
    assert on_meta(model.layers)


def test_layer_is_freed_when_its_use_fails(tmp_path):
    save_tiny(tmp_path)
    model = opened(tmp_path)
    with pytest.raises(ZeroDivisionError), model.layer(0):
        _ = 1 / 0
    assert on_meta(model.layers)


def test_layer_is_freed_when_a_file_is_gone(tmp_path):
    save_tiny(tmp_path)
    model = opened(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors could not be read"), model.layer(0):
        pytest.fail("filled from nothing")
    assert on_meta(model.layers)


def test_changed_weights_do_not_last(tmp_path):
    save_tiny(tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    model = opened(tmp_path)
    with model.layer(0) as layer:
        for parameter in layer.parameters():
            parameter.zero_()
    assert torch.equal(run(model), plain(tmp_path))
    assert (tmp_path / "model.safetensors").read_bytes() == data


def test_rotary_tables_are_real(tmp_path):
    saved = save_tiny(tmp_path, dtype=torch.bfloat16)
    buffers = dict(opened(tmp_path).module.named_buffers())
    assert buffers and all(not buffer.is_meta for buffer in buffers.values())
    table = buffers["model.rotary_emb.inv_freq"]
    assert table.dtype is torch.float32
    torch.testing.assert_close(table, 10000.0 ** (-torch.arange(0, 16, 2) / 16))
    assert saved.model.rotary_emb.inv_freq.dtype is torch.bfloat16  # what a cast of the whole module would do


def test_what_a_model_tells(tmp_path):
    save_tiny(tmp_path)
    model = opened(tmp_path)
    assert (model.name, model.layers_path, len(model.layers), len(model.sites)) == ("tiny", "model.layers", 2, 14)
    assert (model.device, model.dtype, model.base_lattice) == (torch.device("cpu"), torch.float32, "")
    assert model.tokenizer("a").input_ids == byte_tokenizer()("a").input_ids
    assert len(model.sha) == 32 and model.sha == opened(shutil.copytree(tmp_path, tmp_path / "copy")).sha


# --- types -------------------------------------------------------------------------------------------------------


@pytest.mark.case("C20")
def test_type_never_comes_from_the_checkpoint(tmp_path):
    save_tiny(tmp_path, dtype=torch.float16)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).dtype is torch.float16
    model = opened(tmp_path)
    assert model.dtype is torch.float32
    assert {parameter.dtype for parameter in model.module.parameters()} == {torch.float32}
    with model.layer(0) as layer:
        assert {parameter.dtype for parameter in layer.parameters()} == {torch.float32}


def test_automatic_type_goes_with_the_device():
    assert find_dtype(DType.auto, torch.device("cpu")) is torch.float32
    assert find_dtype(DType.auto, torch.device("cuda")) is torch.bfloat16
    assert find_dtype(DType.float16, torch.device("cpu")) is torch.float16


@pytest.mark.case("D8")
def test_tiny_bfloat16_rows_survive(tmp_path):
    name = "model.layers.0.mlp.up_proj.weight"
    save_tiny(tmp_path, dtype=torch.bfloat16)
    edit_tensors(tmp_path / "model.safetensors", lambda t: t[name][:8].fill_(1e-8))
    for dtype in (DType.float32, DType.bfloat16, DType.auto):
        model = opened(tmp_path, dtype=dtype)
        with model.layer(0) as layer:
            assert (layer.mlp.up_proj.weight[:8] > 0).all()
        assert run(model).isfinite().all()
    with pytest.raises(UserError, match=r"model.dtype=float16 .*Set model.dtype=bfloat16 or float32"):
        opened(tmp_path, dtype=DType.float16)


def test_devices():
    assert find_device("cpu") == torch.device("cpu")
    for name in ("cuda:99", "no_such_device", "meta"):
        with pytest.raises(UserError, match=f"model.device='{name}' cannot be used here"):
            find_device(name)


# --- tied embeddings ---------------------------------------------------------------------------------------------


@pytest.mark.case("B1")
def test_tied_is_told(tmp_path):
    for name, tied in (("llama", False), ("llama_biased", True)):
        save_tiny(tmp_path, name)
        for model in (opened(tmp_path), Model.from_module(tiny(name))):
            assert model.tied is tied
            assert model.parameters == sum(p.numel() for p in model.module.parameters())  # a tied table once


@pytest.mark.case("B2")
@pytest.mark.parametrize("change", [0.0, 1.0])
def test_both_stored_are_tied_only_if_equal(change, tmp_path):
    save_tiny(tmp_path, "llama_biased")

    def add_head(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + change

    edit_tensors(tmp_path / "model.safetensors", add_head)
    model = opened(tmp_path)
    assert model.tied is (change == 0)
    assert torch.equal(run(model), plain(tmp_path))


# --- through memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_converted_checkpoints(name, tmp_path):
    save_tiny(tmp_path, name)
    model = opened(tmp_path)
    assert not any(parameter.is_meta for parameter in model.module.parameters())
    assert torch.equal(run(model), plain(tmp_path))


def test_pickled_checkpoint(tmp_path):
    saved = save_tiny(tmp_path)
    torch.save(saved.state_dict(), tmp_path / "pytorch_model.bin")
    expected = plain(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert torch.equal(run(opened(tmp_path)), expected)


@pytest.mark.case("G2")
def test_pickled_checkpoint_that_lacks_a_tensor(tmp_path):
    state = save_tiny(tmp_path).state_dict()
    del state["model.layers.1.mlp.down_proj.weight"]
    (tmp_path / "model.safetensors").unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"model.layers.1.mlp.down_proj.weight: missing"):
        opened(tmp_path)


@pytest.mark.case("G3")
def test_pickled_checkpoint_of_garbage(tmp_path):
    save_tiny(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(range(256)) * 4)
    with pytest.raises(UserError, match="transformers could not load it"):
        opened(tmp_path)


@pytest.mark.case("F20")
def test_a_live_model_stays_as_it_is():
    module = tiny("llama").train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    expected = module.eval()(IDS, use_cache=False).logits
    model = Model.from_module(module.train(), byte_tokenizer())
    assert model.module is module and not module.training
    with model.layer(0) as layer:
        for parameter in layer.parameters():
            parameter.zero_()
    assert torch.equal(run(model), expected)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_sha_of_a_live_model():
    module = tiny("llama")
    sha = Model.from_module(module).sha
    assert sha == Model.from_module(tiny("llama")).sha
    module.model.norm.weight[0] += 1
    assert Model.from_module(module).sha != sha
    assert Model.from_module(tiny("llama", rope_theta=5000.0)).sha != sha


@pytest.mark.case("G6")
def test_offloaded_weights_are_refused():
    module = tiny("llama")
    module.model.layers[1].to("meta")
    with pytest.raises(UserError, match=r"offloaded[\s\S]*model.layers.1.self_attn.q_proj.weight"):
        Model.from_module(module)


@pytest.mark.case("G6")
def test_device_map_does_not_leave_placeholders_behind(tmp_path):
    save_tiny(tmp_path)
    devices = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
    devices |= {"model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    module = AutoModelForCausalLM.from_pretrained(tmp_path, device_map=devices, offload_folder=tmp_path / "offload")
    with pytest.raises(UserError, match=r"Load the model without device_map[\s\S]*model.layers.1"):
        Model.from_module(module)


@pytest.mark.case("C21")
def test_packed_weights_are_refused():
    module = tiny("llama")
    packed = nn.Parameter(torch.zeros(3072, 1, dtype=torch.uint8), requires_grad=False)
    module.model.layers[0].mlp.up_proj.weight = packed
    with pytest.raises(UserError, match=r"already quantized[\s\S]*layers.0.mlp.up_proj.weight \(torch.uint8\)"):
        Model.from_module(module)


@pytest.mark.case("C21")
def test_reload_of_a_quantized_folder_names_its_method(tmp_path):
    save_tiny(tmp_path)
    edit_config(tmp_path, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    with pytest.raises(UserError, match="quant_method=bitsandbytes"):
        opened(tmp_path)


# --- random weights, tokenizers, attention ---------------------------------------------------------------------------

SHAPE = {
    "model_type": "llama",
    "vocab_size": 258,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def random_weights(seed=0, **changes):
    return open_model(
        ModelConfig(name="tiny", source=ModelSource.random, device="cpu", seed=seed, config=SHAPE | changes)
    )


def test_random_weights_come_from_the_seed():
    state = torch.random.get_rng_state()
    first, again, other = random_weights(), random_weights(), random_weights(seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(run(first), run(again)) and not torch.equal(run(first), run(other))
    assert first.sha == again.sha != other.sha
    assert first.tokenizer("hi").input_ids and first.base_lattice == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hiden_size": 64}, "model.config: hiden_size unknown"),
        ({"model_type": "no_such_type"}, "model.config: .*no_such_type"),
        ({"vocab_size": 100}, "258 tokens, the embedding 100 rows"),
        ({"num_attention_heads": 5}, "model.config: .*not a multiple of the number of attention heads"),
    ],
)
def test_impossible_shapes(changes, words):
    with pytest.raises(UserError, match=words):
        random_weights(**changes)


def test_tokenizer_of_another_model(tmp_path, caplog):
    save_tiny(tmp_path)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<a>", "<b>", "<c>"])
    check_tokenizer(tokenizer, tiny("llama", vocab_size=261))
    assert not caplog.records
    check_tokenizer(tokenizer, tiny("llama", vocab_size=260))
    assert "<c>" in caplog.text and "<b>" not in caplog.text
    with pytest.raises(UserError, match="258 tokens, the embedding 257 rows"):
        check_tokenizer(tokenizer, tiny("llama", vocab_size=257))


def test_byte_tokenizer():
    for text in ("Hello, world", "naïve café\n", "日本"):
        assert byte_tokenizer().decode(byte_tokenizer()(text).input_ids) == text
        assert len(byte_tokenizer()(text).input_ids) == len(text.encode())
    assert byte_tokenizer(add_bos=True)("a").input_ids == [0, *byte_tokenizer()("a").input_ids]


def test_attention(tmp_path):
    save_tiny(tmp_path)
    assert opened(tmp_path).config._attn_implementation == "sdpa"
    assert opened(tmp_path, attention="eager").config._attn_implementation == "eager"
    with pytest.raises(UserError, match=r"model\.attention=no_such, which may be auto, sdpa or eager"):
        opened(tmp_path, attention="no_such")
    save_tiny(tmp_path, "gemma2")
    assert opened(tmp_path).config._attn_implementation == "eager"


def test_unknown_model_type(tmp_path):
    save_tiny(tmp_path)
    edit_config(tmp_path, model_type="no_such_type")
    with pytest.raises(UserError, match="no_such_type"):
        opened(tmp_path)


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    save_tiny(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('was run')")
    edit_config(
        tmp_path, model_type="evil", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    )
    with pytest.raises(UserError, match=r"config\.json"):
        opened(tmp_path)


# --- how a model writes ------------------------------------------------------------------------------------------


WRITES = {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "eos_token_id": [5, 6], "do_sample": True, "top_p": 0.9}


def written(module, tokenizer):
    """By lm-eval, which asks for greedy text whatever the file says of sampling."""
    backend = HFLM(pretrained=module, tokenizer=tokenizer, batch_size=2)
    asked = {"until": ["no such text"], "max_gen_toks": 12}
    requests = [type("Request", (), {"args": (prompt, asked)}) for prompt in ("abc", "the sea", "x")]
    return backend.generate_until(requests, disable_tqdm=True)


@pytest.mark.parametrize("where", ["generation_config.json", "config.json", None])
def test_a_model_writes_by_the_file_that_says_how(tmp_path, where):
    """As transformers takes it: older checkpoints say it in config.json."""
    save_tiny(tmp_path)
    file = tmp_path / "generation_config.json"
    file.unlink()
    if where:
        edit = json.loads((tmp_path / where).read_text("utf-8")) if (tmp_path / where).exists() else {}
        (tmp_path / where).write_text(json.dumps(edit | WRITES), "utf-8")
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    model = opened(tmp_path)
    assert model.module.generation_config.to_dict() == reference.generation_config.to_dict()
    assert (model.module.generation_config.repetition_penalty == 1.7) == bool(where)
    with materialized(model, base_arm(), Weigher(model.sites)) as module:
        got = written(module, model.tokenizer)
    assert got == written(reference, model.tokenizer)


def test_a_damaged_generation_config_is_told(tmp_path):
    save_tiny(tmp_path)
    (tmp_path / "generation_config.json").write_text("{", "utf-8")
    with pytest.raises(UserError, match=r"generation_config\.json"):
        opened(tmp_path)


def test_how_a_model_in_memory_writes_is_in_its_hash():
    module = tiny("llama", vocab_size=260)
    before = Model.from_module(module, byte_tokenizer()).sha
    module.generation_config.repetition_penalty = 1.7
    assert Model.from_module(module, byte_tokenizer()).sha != before
