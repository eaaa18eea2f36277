"""What is kept in the cache folder is not taken once the code or a library that made it has changed."""

import shutil

import pytest

from harness import makers
from harness.makers import MAKERS, ROOT, maker_version, source_hash
from tests.test_flow import imports

MODULES = [(kind, name) for kind, maker in MAKERS.items() for name in maker.modules]
LIBRARIES = [(kind, name) for kind, maker in MAKERS.items() for name in maker.libraries]

# What statistics are made with, and why it is not among their makers.
ELSEWHERE = {
    "config", "scheme", "overrides", "supported", "plan", "workers", "quantize",  # of arms, which float inputs have not
    "errors", "files", "entries", "makers", "live",
    "text",  # makes the tokens, whose hash is in the key
    "model.cache", "model.checkpoint", "model.fetch", "model.hub", "model.offgrid",  # make weights, hashed as well
    "model.byte_tokenizer", "model.lattice", "model.room",
}  # fmt: skip


@pytest.fixture
def copy(tmp_path):
    """The package's sources, to be changed."""
    shutil.copytree(ROOT, tmp_path / "harness", ignore=shutil.ignore_patterns("data", "__pycache__"))
    yield tmp_path / "harness"
    maker_version.cache_clear()


def change(path):
    path.write_text(path.read_text() + "# changed\n")
    maker_version.cache_clear()


@pytest.mark.parametrize(("kind", "module"), MODULES)
def test_a_change_of_a_module_that_makes_it_changes_the_key(copy, kind, module):
    before = maker_version(kind, copy)
    assert before == maker_version(kind) and len(before) == 12
    change(copy / "report" / "tables.py")
    assert maker_version(kind, copy) == before
    change(copy / module)
    assert maker_version(kind, copy) != before


@pytest.mark.parametrize(
    ("kind", "library"), [(kind, name) for kind, maker in MAKERS.items() for name in maker.libraries]
)
def test_so_does_another_version_of_a_library(monkeypatch, kind, library):
    before = maker_version(kind)
    known = makers.version
    monkeypatch.setattr(makers, "version", lambda name: "9.9" if name == library else known(name))
    maker_version.cache_clear()
    assert maker_version(kind) != before
    maker_version.cache_clear()


def test_the_order_in_which_modules_are_listed_does_not_matter():
    assert source_hash(["text.py", "packs.py"]) == source_hash(["packs.py", "text.py"]) != source_hash(["text.py"])


def test_all_that_statistics_are_made_with_is_listed_or_known_not_to_matter():
    todo, seen = ["calibration.py", "stream.py"], set()
    while todo:
        name = todo.pop()
        if name in seen or not (ROOT / name).is_file() or is_elsewhere(name):
            continue
        seen.add(name)
        todo += [f"{module.removeprefix('harness.').replace('.', '/')}.py" for module in imports(ROOT / name)]
    assert seen == set(MAKERS["statistics"].modules) - {"quantize/stats.py"}


def is_elsewhere(name):
    dotted = name.removesuffix(".py").replace("/", ".")
    return any(dotted == known or dotted.startswith(f"{known}.") for known in ELSEWHERE)
