"""A run's id changes with what can change a number, and with nothing else."""

import ast
from pathlib import Path

import pytest

import harness
from harness.config import RunConfig
from harness.identity import NOT_NUMERIC, TABLES, code_version, run_id
from tests.test_check import settings

FACTS = {"model": "abc", "dtype": "torch.float32", "device": "cpu", "sequences": [("general", "t", "123")]}
PLAN = ("quant.ffn.method=rtn",)


def identity(*changes, facts=FACTS):
    return run_id(settings(*PLAN, *changes), facts)


@pytest.mark.parametrize(
    "change",
    [
        "experiment=another", "outputs=elsewhere", "model.name=label", "model.path=/another/copy",
        "model.licence=Apache-2.0", "model.allow_lattice=true", "engine.memory_gib=1.0", "engine.head_tokens=64",
        "harness.force=true", "harness.traceback=true", "harness.on_locked=skip", "eval.perplexity.path=/copy.txt",
        "eval.general=[/a/copy.yaml]", "calib.path=/copy.txt", "calib.keep=false",
    ],
)  # fmt: skip
def test_paths_labels_and_manners_are_not_part_of_it(change):
    assert identity(change) == identity()


@pytest.mark.parametrize(
    "change",
    [
        "quant.ffn.group_size=32", "quant.ffn.precision=int3", "quant.ffn.scale_dtype=float32",
        "quant.attention.method=rtn", "quant.indivisible=tail", "quant.overrides=[{match: '*', precision: int8}]",
        "design.arms=all", "design.noise_draws=5", "design.seed=1", "calib.samples=64", "calib.seeds=[0, 1]",
        "eval.limit=9", "eval.num_fewshot=5", "eval.seed=1", "eval.perplexity.window=64", "eval.perplexity.bos=first",
        "engine.packing=false", "engine.batch_tokens=64", "engine.pack_tokens=64", "attribute.resamples=500",
        "attribute.seed=1", "attribute.margin=0.5",
    ],
)  # fmt: skip
def test_what_can_change_a_number_is_part_of_it(change):
    assert identity(change) != identity()


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"dtype": "torch.bfloat16"}, {"device": "cuda"}, {"sequences": []}]
)
def test_weights_data_type_and_device_are_part_of_it(change):
    assert identity(facts=FACTS | change) != identity()


def test_it_is_the_same_in_every_process_and_short_enough_to_read():
    assert identity() == identity() and len(identity()) == 16
    assert set(identity()) <= set("0123456789abcdef")


def test_the_code_that_computes_is_part_of_it(monkeypatch):
    before = identity()
    monkeypatch.setattr("harness.identity.code_version", lambda: "other")
    assert identity() != before


def test_what_is_left_out_of_the_code_version_is_not_imported_by_what_computes():
    """A module that only reports may change freely; one that the numbers pass through may not."""
    root = Path(harness.__file__).parent
    reports = {f"harness.{name.removesuffix('.py')}" for name in NOT_NUMERIC}
    allowed = {"pipeline.py", "scoring.py", "app.py", "__main__.py"}  # where everything comes together
    for path in root.rglob("*.py"):
        name = path.relative_to(root)
        if name.parts[0] in NOT_NUMERIC or name.name in allowed:
            continue
        found = {m for m in imported(path) if any(m == r or m.startswith(f"{r}.") for r in reports)}
        found -= {"harness.errors", "harness.files"}
        # What harness.data makes is hashed with the questions and texts of a run.
        assert all(module.startswith("harness.data") for module in found), f"{name} imports {found}"


def test_what_makes_a_runs_tables_is_part_of_the_code_version():
    """What a run calls for its tables, and all that this imports of its own packages; `stored` only writes."""
    root = Path(harness.__file__).parent
    found = {module for name in TABLES for module in imported(root / name)}
    found |= set(imported(root / "pipeline.py")) - {"harness.report.run_page"}
    own = {m.removeprefix("harness.").replace(".", "/") + ".py" for m in found if m.startswith("harness.report")}
    assert own - {"report/stored.py"} <= set(TABLES)


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_code_version_is_stable():
    assert code_version() == code_version() and isinstance(settings(), RunConfig)
