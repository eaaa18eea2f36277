"""What is found out before any long work: lengths, memory, disk, device; in seconds, whatever the model's size."""

import shutil
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness import needs, pipeline, preflight
from harness.config import CalibInputs, EngineConfig
from harness.cut import cut_batches
from harness.errors import UserError
from harness.model.load import Model, find_model
from harness.packs import TokenSequence, pack_plain
from harness.pipeline import all_arms, run
from harness.plan import base_arm, resolve
from harness.score.gather import find, gather
from tests.model.architectures import tiny
from tests.model.folders import save_tiny, sparse_llama2_7b
from tests.runs import composed

TEXT = (
    "+exp=int4_split", "eval=perplexity", "eval.perplexity.window=48", "eval.perplexity.max_windows=3",
    "eval.perplexity.max_chars=9000", "attribute.resamples=200",
)  # fmt: skip
TINY = (*TEXT, "model=tiny")
SMALL_GROUPS = ("quant.ffn.group_size=32", "quant.attention.group_size=32")
GPTQ = ("quant.ffn.method=gptq", "quant.ffn.range=half", "calib.samples=8", "calib.length=64")
GIB = 2**30


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def free(monkeypatch):
    """Sets how much memory is free, `beside` what a model's weights will take."""

    def set_free(size, beside=None):
        taken = beside.pending_bytes if beside else 0
        monkeypatch.setattr(preflight, "free_memory", lambda device: size / preflight.SPARE + taken)

    return set_free


@pytest.fixture
def stop(monkeypatch):
    """Nothing after preflight runs."""
    monkeypatch.setattr("harness.model.load.random_module", None)
    monkeypatch.setattr("harness.model.load.file_reader", None)


def prepared(tmp_path, *changes):
    """A configuration, its model without weights, the arms, and what is scored."""
    config = composed(*TINY, *changes)
    model = find_model(config.model)
    arms = all_arms(config, model, resolve(model.all_sites, config.quant).plan)
    work = gather(find(config.eval, tmp_path), config.eval, model)
    return config, model, arms, [sequence for task in work for sequence in task.sequences]


# --- lengths -----------------------------------------------------------------------------------------------------


@pytest.mark.case("E3")
@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("eval.perplexity.window=100",), "eval.perplexity.window=100: the model has 64 positions"),
        ((*GPTQ, "calib.length=100"), "calib.length=100: the model has 64 positions"),
    ],
)
def test_lengths_beyond_the_models_positions(name, changes, words, tmp_path, stop):
    """Learned positions would crash, rotary ones would say nothing: both are told."""
    save_tiny(tmp_path / "model", name)
    with pytest.raises(UserError, match=words):
        run(composed(*TEXT, "model=hf", "model.path=model", *SMALL_GROUPS, *changes), tmp_path)


def test_a_calibration_length_that_nobody_uses_is_no_error(tmp_path):
    config = composed(*TINY, "calib.length=100000", "design.noise_draws=0")
    assert run(config, tmp_path).status == "done"


# --- memory ------------------------------------------------------------------------------------------------------


def test_needs_of_a_tiny_model_add_up(tmp_path):
    """hidden 64, intermediate 256, 4 heads of 16, vocabulary 258; float32. By hand."""
    config, model, arms, work = prepared(tmp_path, *GPTQ, "design.noise_draws=0", "engine.packing=false")
    shape = model.config
    hidden, inner, vocabulary = shape.hidden_size, shape.intermediate_size, shape.vocab_size
    ffn, attention = 3 * hidden * inner, 2 * hidden * hidden + 2 * hidden * hidden // 2
    if shape.num_key_value_heads == shape.num_attention_heads:
        attention = 4 * hidden * hidden
    found = needs.memory(config, model, arms, work)
    assert found == {
        "layer": 4 * (ffn + attention + 2 * hidden) + 4 * (2 + 1) * (ffn + attention) + 16 * hidden * inner,
        "statistics": (4 + 4) * (3 * hidden**2 + inner**2) + 3 * 8 * inner**2,  # summed in float64, 8 bytes
        "calibration": 8 * 64 * hidden * 4,
        "activations": 4 * 4 * 2048 * hidden + 3 * 4 * 2048 * inner,
        "logits": 5 * 4 * 512 * vocabulary,
        "states": 4 * 2048 * hidden * 5,
    }


def test_needs_grow_with_arms_draws_and_masks(tmp_path):
    def needed(*changes):
        return needs.memory(*prepared(tmp_path, *GPTQ, *changes))

    plain, draws = needed("design.noise_draws=0"), needed("design.noise_draws=0", "calib.seeds=[0,1]")
    assert draws["calibration"] == 2 * plain["calibration"] and draws["statistics"] > plain["statistics"]
    assert needed("design.noise_draws=3")["states"] > plain["states"]
    assert needed("engine.pack_tokens=768")["states"] > needed("engine.packing=false")["states"]
    assert needed("model.attention=eager")["activations"] > plain["activations"]
    sequential = needed("design.noise_draws=0", f"calib.inputs={CalibInputs.quantized}")
    assert sequential["calibration"] == 4 * plain["calibration"]


def test_a_run_that_does_not_fit_is_refused_with_figures_and_a_way_out(tmp_path, free, stop):
    config, model, arms, work = prepared(tmp_path)
    total = sum(needs.memory(config, model, arms, work).values())
    assert model.pending_bytes > 0
    free(total - 1, beside=model)
    with pytest.raises(UserError) as caught:
        run(config, tmp_path)
    message = str(caught.value)
    assert "The run needs" in message and "Lower engine.batch_tokens" in message
    assert all(part in message for part in ("layer", "logits", "states", "MiB"))
    assert not (tmp_path / "outputs").exists()


def test_less_memory_than_the_budget_means_more_waves_and_the_same_numbers(tmp_path, free, caplog):
    config, model, arms, work = prepared(tmp_path)
    needed = needs.memory(config, model, arms, work)
    free(sum(needed.values()) + 1, beside=model)
    ready = preflight.preflight(config, model, arms, work)
    assert ready.engine.memory_gib == pytest.approx(needed["states"] / GIB)
    assert replace(ready.engine, memory_gib=EngineConfig().memory_gib) == EngineConfig()
    assert "engine.memory_gib=4 is more than is free" in caplog.text
    free(100 * GIB)
    assert preflight.preflight(config, model, arms, work).engine == config.engine


# --- disk --------------------------------------------------------------------------------------------------------


def test_statistics_that_do_not_fit_on_the_disk(tmp_path, monkeypatch, stop):
    config, model, arms, _ = prepared(tmp_path, *GPTQ)
    needed = needs.kept_statistics(config, model, arms)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=needed - 1))
    with pytest.raises(UserError, match=r"Calibration statistics take .* MiB in .*cache, .* Set calib.keep=false"):
        run(composed(*TINY, *GPTQ), tmp_path)
    for change in ("calib.keep=false", "calib.inputs=quantized"):
        assert needs.kept_statistics(composed(*TINY, *GPTQ, change), model, arms) == 0


def test_kept_statistics_are_as_large_as_said(tmp_path):
    changes = (*GPTQ, "model.config.hidden_size=128", "model.config.intermediate_size=512")
    config, model, arms, _ = prepared(tmp_path, *changes)
    run(config, tmp_path)
    written = sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*.safetensors"))
    assert written == pytest.approx(needs.kept_statistics(config, model, arms), rel=0.1)


# --- device, summary, speed --------------------------------------------------------------------------------------


def test_a_device_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.model.load.fetch", None)
    with pytest.raises(UserError, match=r"model.device='cuda:99' cannot be used here .*Set model.device=cpu or auto"):
        run(composed(*TEXT, "model=hf", "model.path=model", "model.device='cuda:99'"), tmp_path)


def test_what_is_about_to_run_is_printed(tmp_path, capsys):
    run(composed(*TINY), tmp_path)
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "llama, 2 layers" in lines["model"] and "parameters" in lines["model"]
    assert "cpu, float32, sdpa attention" in lines["device"]
    assert "9: base ffn attention both noise.0" in lines["arms"]
    assert "3 sequences, 141 tokens" in lines["scored"]
    assert "of matrix products" in lines["time"] and "layer" in lines["memory"]


def test_work_is_counted_once_for_every_different_state(tmp_path, monkeypatch):
    """2 FLOPs a weight and token; base, ffn, attention, both leave four different states in every layer."""
    monkeypatch.setattr(needs, "_speed", lambda model: 1.0)
    config, model, arms, work = prepared(tmp_path, "design.noise_draws=0")
    weights = sum(site.weights for site in model.sites)
    head = model.hidden_size * model.vocab_size
    assert needs.seconds(model, arms, pack_plain(work)) == 4 * 2 * 3 * 47 * (weights + head)
    twice = [pack for batch in cut_batches(config, model, arms, [*work, *work]) for pack in batch]
    assert needs.seconds(model, arms, twice) == needs.seconds(model, arms, pack_plain(work))  # shared tokens once


def test_only_the_experts_that_a_token_uses_are_counted(monkeypatch):
    monkeypatch.setattr(needs, "_speed", lambda model: 1.0)
    model = Model.from_module(tiny("mixtral"))  # 2 of 4 experts of 64 x 96 x 3, attention 64 x 64 x 3
    used = 2 * (2 * 3 * 64 * 96 + 3 * 64 * 64)
    packs = pack_plain([TokenSequence((1, 2, 3, 4), 2)])
    assert needs.seconds(model, [base_arm()], packs) == 2 * (3 * used + 2 * 64 * 128)


@pytest.mark.case("G1")
@pytest.mark.slow
def test_13_gb_are_looked_over_in_seconds(tmp_path, monkeypatch):
    """From the configuration to the first hash; of weights, embedding, head and for the lattice two layers are read."""

    def enough(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "_facts", enough)
    sparse_llama2_7b(tmp_path / "model")
    config = composed(*TEXT, "model=hf", "model.path=model", "model.device=cpu", "model.dtype=bfloat16")
    start = time.process_time()
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path)
    assert time.process_time() - start < 10
