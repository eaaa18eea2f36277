"""Room for weights: asked before any is read."""

import pytest
import torch

from harness.config import DType, ModelConfig
from harness.errors import UserError
from harness.model import load, room
from harness.model.skeleton import build_skeleton
from tests.model.architectures import tiny
from tests.model.folders import save_tiny

CPU = torch.device("cpu")


@pytest.fixture
def free(monkeypatch):
    """Sets how much memory is free."""
    return lambda size: monkeypatch.setattr(room, "free_memory", lambda device: size)


def opened(folder, **fields):
    return load.open_model(ModelConfig(name="tiny", path=str(folder), device="cpu", **fields))


@pytest.mark.parametrize("name", ["llama", "llama_biased"])
def test_a_streamed_model_needs_its_tables_and_one_layer(name, tmp_path, free):
    module = save_tiny(tmp_path, name)
    layer = sum(p.numel() for p in module.model.layers[0].parameters())
    outside = sum(p.numel() for p in module.parameters()) - 2 * layer  # a tied table once
    assert room.outside_bytes(module) == room.outside_bytes(build_skeleton(tmp_path, torch.float32)) == 4 * outside
    free(4 * (outside + layer))
    opened(tmp_path)
    free(4 * (outside + layer) - 1)
    with pytest.raises(UserError, match=r"(?s)Embedding and head take .* MiB, the largest layer .*dtype=bfloat16"):
        opened(tmp_path)
    opened(tmp_path, dtype=DType.bfloat16)


def test_a_model_that_is_loaded_as_a_whole_needs_all_of_it(tmp_path, free, monkeypatch):
    module = save_tiny(tmp_path, "mixtral")
    free(room.parameter_bytes(module))
    opened(tmp_path)
    free(room.parameter_bytes(module) - 1)
    monkeypatch.setattr(load, "load_in_memory", None)
    with pytest.raises(UserError, match=r"loaded as a whole.*in float32, .* of memory are free"):
        opened(tmp_path)


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    machine = room.free_memory(CPU)
    assert machine > 2**20
    monkeypatch.setattr(room, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 1000000\ninactive_file 200000\n")
    assert room.free_memory(CPU) == 700_000
    (tmp_path / "memory.max").write_text("max\n")
    assert room.free_memory(CPU) > 2**20


def test_sizes_are_readable():
    assert [room.gib(n) for n in (0, 3 * 2**20, 2**30, 140.5 * 2**30)] == ["0.0 MiB", "3.0 MiB", "1.0 GiB", "140.5 GiB"]


def test_layers_differ():
    module = tiny("deepseek_v3")  # the first layer is dense, the second a mixture
    layers = [room.parameter_bytes(layer) for layer in module.model.layers]
    assert room.largest_layer_bytes(module) == max(layers) > min(layers)
