"""The cache's own command: what is there, whether it is whole, and making room without touching what is in use."""

import os
import time

import pytest
from filelock import FileLock

from harness.cache import items, main
from harness.entries import Entry
from harness.model.cache import NOTE, damage, made_once


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Three entries, one of them long unused, and a converted model."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    facts = {"model": "tiny", "dtype": "torch.float32", "model_sha": "abc"}
    for kind, key in (("base", "b0"), ("scores", "s0"), ("scores", "old")):
        Entry(tmp_path / kind / key / "a.safetensors", facts).write(lambda path: path.write_bytes(b"x" * 1000))
    age(tmp_path / "scores" / "old", days=40)
    monkeypatch.setattr("harness.model.cache.maker_version", lambda kind: "0")
    made_once("m", lambda folder: (folder / "model.safetensors").write_bytes(b"y" * 5000))
    return tmp_path


def age(folder, days):
    for path in folder.iterdir():
        os.utime(path, (time.time() - days * 86_400,) * 2)


def keys():
    return {f"{item.kind}/{item.path.name}" for item in items() if item.kind != "digests"}


def test_it_lists_what_is_there_and_what_it_was_made_from(cache, capsys):
    assert main(["ls"]) == 0
    said = capsys.readouterr().out
    line = next(line for line in said.splitlines() if "old" in line)
    assert line.split()[:2] == ["scores", "old"] and "40.0" in line and "tiny float32" in line
    assert "m-0" in said and "in all" in said
    assert main(["ls", "models"]) == 0 and "scores" not in capsys.readouterr().out


def test_it_reads_everything_afresh_and_names_what_is_damaged(cache, capsys):
    assert main(["verify"]) == 0 and "everything is whole" in capsys.readouterr().out
    path = cache / "base" / "b0" / "a.safetensors"
    state = path.stat()
    path.write_bytes(b"x" * 999 + b"z")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # the disk's fault: nothing was written
    (cache / "scores" / "s0" / "a.json").unlink()
    assert main(["verify"]) == 1
    said = capsys.readouterr().out
    assert f"{path} is not what was written" in said and "s0/a.safetensors has no note beside it" in said
    assert "2 damaged" in said and main(["verify", "models"]) == 0


@pytest.mark.case("G3")
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda model: (model / "model.safetensors").write_bytes(b"y" * 2500), "has 2500 bytes, not 5000"),
        (lambda model: (model / "model.safetensors").write_bytes(b"y" * 4999 + b"z"), "is not what was written"),
        (lambda model: (model / "model.safetensors").unlink(), "cannot be read (No such file"),
        (lambda model: (model / NOTE).write_text("{"), f"{NOTE} cannot be read"),
    ],
)
def test_a_damaged_model_is_named_and_removed_however_new(cache, capsys, harm, words):
    harm(cache / "models" / "m-0")
    assert main(["verify"]) == 1
    said = capsys.readouterr().out
    assert words in said and "m-0" in said and "1 damaged" in said
    assert main(["prune", "--days", "1000"]) == 0
    assert f"in {cache}\n" in capsys.readouterr().out
    assert "models/m-0" not in keys() and len(keys()) == 3


@pytest.mark.parametrize("options", [[], ["--days", "0"], ["--days", "1000", "--keep-gib", "0"]])
@pytest.mark.parametrize("place", ["models/my precious llama", "tokens/mine", "scores/mine", "base/mine"])
def test_what_the_harness_did_not_make_is_named_and_left_alone(cache, capsys, place, options):
    mine = cache / place
    (mine / "deep").mkdir(parents=True)
    (mine / "deep" / "config.json").write_text("{}")
    (mine / "config.json").write_text('{"vocab_size": 3}')
    (mine / "model.safetensors").write_bytes(b"z" * 9000)
    age(mine, days=400)
    assert main(["prune", *options, "--dry-run"]) == 0 and main(["prune", *options]) == 0
    said = capsys.readouterr().out
    assert (mine / "model.safetensors").stat().st_size == 9000 and (mine / "deep" / "config.json").is_file()
    assert f"left alone: {mine} has no " in said and "not the harness's, or from before it kept notes" in said
    assert f"rm -r '{mine}'" in said or f"rm -r {mine}" in said
    assert f"removed {mine}" not in said and f"would remove {mine}" not in said


def test_a_model_whose_note_is_lost_is_named_and_left_alone(cache, capsys):
    (cache / "models" / "m-0" / NOTE).unlink()
    assert main(["verify"]) == 1 and "has no note of what its files must be" in capsys.readouterr().out
    assert main(["prune", "--days", "0"]) == 0
    assert keys() == {"models/m-0"} and f"m-0 has no {NOTE}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["ls", "verify", "prune"])
def test_a_cache_that_is_not_there_is_not_called_whole(tmp_path, monkeypatch, capsys, command):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "none"))
    assert main([command]) == (1 if command == "verify" else 0)
    said = capsys.readouterr().out
    assert f"nothing is there: {tmp_path / 'none'} does not exist" in said and "whole" not in said
    (tmp_path / "none").mkdir()
    assert main(["verify"]) == 0
    said = capsys.readouterr().out
    assert f"nothing is there: {tmp_path / 'none'} holds no models" in said and "whole" not in said


@pytest.mark.parametrize("command", ["ls", "verify", "prune"])
def test_a_cache_that_is_no_folder_is_refused(tmp_path, monkeypatch, capsys, command):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file"))
    with pytest.raises(SystemExit) as stop:
        main([command])
    assert stop.value.code == 2 and f"{tmp_path / 'file'} is no folder" in capsys.readouterr().err


def test_a_model_that_is_being_made_is_neither_damaged_nor_removed(cache):
    (cache / "models" / ".making-m1" / "model").mkdir(parents=True)
    (cache / "models" / ".making-m1" / "model" / "model.safetensors").write_bytes(b"y")
    assert main(["verify"]) == 0
    with FileLock(cache / "models" / "m1.lock"):
        assert main(["prune", "--days", "0"]) == 0
    assert keys() == {"models/.making-m1"}
    assert main(["prune", "--days", "0"]) == 0 and keys() == set()


def test_it_removes_what_was_not_used_for_long(cache, capsys):
    assert main(["prune", "--dry-run"]) == 0
    assert "would remove" in capsys.readouterr().out and "scores/old" in keys()
    assert main(["prune"]) == 0
    assert keys() == {"base/b0", "scores/s0", "models/m-0"}


def test_looking_at_a_model_is_not_using_it(cache):
    model = cache / "models" / "m-0"
    age(model, days=40)
    assert damage(model) == []  # as a run does, which notes the digests
    for path in model.iterdir():
        os.utime(path, ns=(path.stat().st_mtime_ns,) * 2)
    assert main(["prune", "--dry-run"]) == 0 and "models/m-0" in keys()
    assert main(["prune"]) == 0 and "models/m-0" not in keys()


def test_it_makes_room_beginning_with_the_longest_unused(cache):
    age(cache / "base" / "b0", days=3)
    assert main(["prune", "--days", "365", "--keep-gib", str(6000 / 2**30)]) == 0
    assert keys() <= {"models/m-0", "scores/s0"} and "models/m-0" in keys()
    assert main(["prune", "scores", "base", "--days", "0"]) == 0
    assert keys() == {"models/m-0"}


def test_what_is_in_use_stays(cache, capsys):
    with FileLock(cache / "scores" / "old" / "b.lock"), FileLock(cache / "models" / "m-0.lock"):
        assert main(["prune", "--days", "0"]) == 0
    assert keys() == {"scores/old", "models/m-0"}
    assert capsys.readouterr().out.count("in use: ") == 2


@pytest.mark.parametrize("amount", ["-1", "nan", "x"])
@pytest.mark.parametrize("option", ["--days", "--keep-gib"])
def test_a_slip_does_not_empty_it(cache, capsys, option, amount):
    before = keys()
    with pytest.raises(SystemExit):
        main(["prune", f"{option}={amount}"])
    assert keys() == before and f"argument {option}: invalid amount value: '{amount}'" in capsys.readouterr().err


def test_an_unknown_kind_is_named(cache, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["ls", "score"])
    assert stop.value.code == 2 and "There are models, statistics" in capsys.readouterr().err
