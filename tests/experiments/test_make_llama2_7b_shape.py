"""The benchmark checkpoint: its shape, and the memory that streaming from it takes."""

import subprocess
import sys

import pytest
import torch

from experiments.benchmarks.make_llama2_7b_shape import LLAMA_2_7B, write_checkpoint
from harness.config import ModelConfig
from harness.model.checkpoint import check_folder
from harness.model.load import open_model
from harness.model.skeleton import build_skeleton

TINY = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 3}

# Peak resident memory of opening a folder and filling every layer once, over what the libraries take once they have
# opened a tiny model.
STREAM = """
import sys
import psutil
from harness.config import ModelConfig
from harness.model.load import open_model
from harness.report.cells import peak_resident_bytes
open_model(ModelConfig(name="tiny", path=sys.argv[1], device="cpu"))
before = psutil.Process().memory_info().rss
model = open_model(ModelConfig(name="shape", path=sys.argv[2], device="cpu"))
for i in range(len(model.layers)):
    with model.layer(i) as layer:
        pass
print(peak_resident_bytes() - before)
"""


def test_a_tiny_one_opens(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    write_checkpoint(tmp_path, TINY)
    checkpoint = check_folder(tmp_path)
    assert len(checkpoint.weight_files) == 5
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {"BF16"}
    model = open_model(ModelConfig(name="tiny", path=str(tmp_path), device="cpu"))
    assert len(model.layers) == 3 and not model.tied and model.base_lattice == ""
    with model.layer(2) as layer:
        assert 0.015 < layer.mlp.up_proj.weight.std() < 0.025


def test_full_shape_is_llama_2_7b(tmp_path):
    write_checkpoint(tmp_path, TINY)
    config = build_skeleton(tmp_path, torch.bfloat16).config
    full = type(config)(**LLAMA_2_7B)
    hidden, wide = full.hidden_size, full.intermediate_size
    layer = 4 * hidden * hidden + 3 * hidden * wide + 2 * hidden
    assert full.num_hidden_layers * layer + 2 * full.vocab_size * hidden + hidden == 6_738_415_616


@pytest.mark.slow
def test_streaming_holds_one_layer(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    # glibc raises this limit as it goes, and then keeps what was freed where something small lies above it: by chance.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(2**20))
    hidden, wide, vocabulary = 2048, 5632, 16000
    shape = {"vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": wide, "num_hidden_layers": 2}
    folders = tmp_path / "tiny", tmp_path / "shape"
    write_checkpoint(folders[0], TINY)
    write_checkpoint(folders[1], {**shape, "num_attention_heads": 16, "tie_word_embeddings": False})
    done = subprocess.run([sys.executable, "-c", STREAM, *folders], capture_output=True, text=True, check=True)
    floats = 4 * hidden * hidden + 3 * hidden * wide + 2 * vocabulary * hidden
    assert 4 * floats < int(done.stdout) < 1.1 * 4 * floats, f"{int(done.stdout):,} bytes, {4 * floats:,} of weights"
