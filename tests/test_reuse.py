"""What other runs scored is taken as it is, equals what would be computed, and is made once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
import torch

from harness.attribute.power import resolution
from harness.model.cache import cache_folder
from harness.model.load import find_model, open_model
from harness.pipeline import run
from harness.plan import Arm
from harness.report.stored import read_report
from harness.reuse import Reuse
from harness.scheme import Scheme
from harness.stream import Stream
from harness.weigh import Weigher
from harness.workers import Tool
from tests.runs import composed

SPLIT = (
    "+exp=int4_split", "model=tiny", "eval=perplexity", "eval.perplexity.window=48", "eval.perplexity.max_windows=2",
    "eval.perplexity.max_chars=9000", "attribute.resamples=100", "design.noise_draws=1",
)  # fmt: skip
GPTQ = (*SPLIT, "quant.ffn.method=gptq", "calib.samples=2", "calib.length=32")
QUESTIONS = (
    "+exp=int4_split", "model=tiny", "eval=none", "eval.general=[qh_adjective_order]", "eval.limit=6",
    "attribute.resamples=100", "design.noise_draws=1",
)  # fmt: skip
TABLES = ("report.csv", "attribution.csv", "sites.csv", "items.parquet")
OWN = ["seconds", "peak_bytes"]  # of a start, not of a run
FIRST = [["base"], ["ffn", "attention", "both", "noise.0"]]


@pytest.fixture
def passes(monkeypatch):
    """Names of the arms of every pass of the engine, in order."""
    seen, score, lock = [], Stream.score, threading.Lock()

    def spy(self, *args):
        with lock:
            seen.append([arm.name for arm in self.arms])
        return score(self, *args)

    monkeypatch.setattr(Stream, "score", spy)
    return seen


def tables(start, *overrides):
    folder = run(composed(*overrides), start).folder
    assert folder is not None
    found = {n: pd.read_parquet(folder / n) if n.endswith("parquet") else read_report(folder / n) for n in TABLES}
    found["report.csv"] = found["report.csv"].drop(columns=OWN)
    return found


def assert_same(one, other):
    for name in TABLES:
        pd.testing.assert_frame_equal(one[name], other[name], check_exact=True)


@pytest.mark.parametrize("overrides", [SPLIT, GPTQ, QUESTIONS], ids=["rtn", "gptq", "questions"])
def test_a_sweep_computes_only_what_the_swept_setting_changes_and_finds_the_same(tmp_path, passes, overrides):
    tables(tmp_path / "one", *overrides)
    assert passes == FIRST
    passes.clear()
    taken = tables(tmp_path / "one", *overrides, "quant.ffn.group_size=32")
    assert passes == [["ffn", "both"]]
    passes.clear()
    alone = tables(tmp_path / "two", *overrides, "quant.ffn.group_size=32", "harness.reuse=false")
    assert passes == [["base", "ffn", "attention", "both", "noise.0"]]
    assert_same(taken, alone)


def test_a_run_whose_arms_are_all_known_pushes_nothing(tmp_path, passes):
    first = tables(tmp_path / "one", *SPLIT)
    passes.clear()
    again = tables(tmp_path / "two", *SPLIT)
    assert passes == []
    assert_same(first, again)


def test_what_a_run_can_resolve_is_told_from_the_scores_that_another_one_left_of_base(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")

    def resolved(folder, *overrides):
        capsys.readouterr()
        assert run(composed(*QUESTIONS, *overrides), tmp_path / folder).status in ("done", "planned")
        header, line = (
            next(line.split() for line in said if name in line)
            for said in [capsys.readouterr().out.splitlines()]
            for name in ("documents", "qh_adjective_order")
        )
        return dict(zip(header, line, strict=True))

    assert "*" not in "".join(resolved("first").values())
    cells = resolved("second", "quant.ffn.group_size=32")
    (folder,) = (tmp_path / "first" / "outputs" / "int4_split").iterdir()
    items = pd.read_parquet(folder / "items.parquet").query("arm == 'base' and metric == 'nll'")
    known = resolution("general", "t", "nll", items["doc_id"], 0.95, base_N=items["value"])
    assert cells["nll"].startswith(f"{known.smallest:.2g}*") and "*" in cells["acc"] and "*" not in cells["kl"]
    others = ("harness.reuse=false", "harness.force=true", "eval.limit=5", "model.seed=1", "harness.plan_only=true")
    for n, other in enumerate(others):
        assert "*" not in "".join(resolved(f"other{n}", other).values())


def test_a_method_that_looks_at_inputs_brings_its_statistics_with_base(tmp_path, passes):
    tables(tmp_path, *SPLIT)
    passes.clear()
    tables(tmp_path, *GPTQ)
    assert passes == [["base"], ["ffn", "both"]]
    passes.clear()
    tables(tmp_path, *GPTQ, "calib.seeds=[1]")
    assert passes == [["base"], ["ffn", "both"]]


@pytest.mark.parametrize(
    "change", ["engine.pack_tokens=40", "engine.head_tokens=16", "model.dtype=bfloat16", "eval.perplexity.window=40"]
)
def test_what_can_change_a_bit_of_a_score_is_in_the_key(tmp_path, passes, change):
    tables(tmp_path / "one", *SPLIT)
    passes.clear()
    tables(tmp_path / "two", *SPLIT, change)
    assert passes == FIRST


@pytest.mark.parametrize("change", ["harness.force=true", "harness.reuse=false"])
def test_nothing_is_taken_or_left_when_it_is_not_wanted(tmp_path, passes, change):
    tables(tmp_path, *SPLIT, change)
    assert passes == [["base", "ffn", "attention", "both", "noise.0"]]
    assert not (cache_folder() / "scores").exists()


@pytest.mark.parametrize(
    ("change", "kept"), [("harness.reuse=true", 1), ("harness.reuse=false", 0), ("harness.force=true", 0)]
)
def test_so_it_is_with_token_ids(tmp_path, monkeypatch, change, kept):
    monkeypatch.setattr("harness.score.tokens.LEAST_CHARACTERS", 0)
    run(composed(*QUESTIONS, "harness.plan_only=true", change), tmp_path)
    assert len(list((cache_folder() / "tokens").rglob("*.safetensors"))) == kept


@pytest.mark.parametrize("change", ["harness.reuse_gib=0", "calib.keep=false"])
def test_base_goes_along_where_its_states_or_statistics_are_not_kept(tmp_path, passes, change):
    tables(tmp_path / "one", *GPTQ, change)
    assert passes == [["base", "ffn", "attention", "both", "noise.0"]]
    passes.clear()
    taken = tables(tmp_path / "one", *GPTQ, change, "quant.ffn.group_size=32")
    assert passes == [["base", "ffn", "both"]]
    assert_same(taken, tables(tmp_path / "two", *GPTQ, change, "quant.ffn.group_size=32", "harness.reuse=false"))


@pytest.mark.parametrize("change", ["calib.inputs=quantized"])
def test_arms_with_statistics_of_their_own_are_never_shared(tmp_path, passes, change):
    tables(tmp_path, *GPTQ, change)
    assert len(passes) == 1 and not (cache_folder() / "scores").exists()


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_scores_of_another_version_of_a_library_are_not_taken(tmp_path, passes, monkeypatch, library):
    tables(tmp_path / "one", *SPLIT)
    passes.clear()
    monkeypatch.setattr(f"harness.keys.{library}.__version__", "0.0")
    tables(tmp_path / "two", *SPLIT)
    assert passes == FIRST


def test_arms_of_a_tool_are_those_of_its_environment(monkeypatch):
    """Base, and arms that the tool has no part in, are the same with every version of it."""
    model, schemes = open_model(composed("model=tiny").model), {"ffn": "auto_gptq", "attention": "rtn"}
    arms = [
        Arm(b, frozenset({b}), {s: Scheme(method=m) for s in model.sites if s.block == b}) for b, m in schemes.items()
    ]
    keys = []
    for version in ("0.7.1", "0.7.1", "0.8.0"):
        monkeypatch.setattr(Tool, "identity", lambda self, version=version: f"/bin/python, auto_gptq {version}")
        reuse = Reuse(model, Weigher(), None, {}, 0, 0.0, lambda *args, **states: pytest.fail("nothing is run"), bool)
        keys.append([reuse._key(arm) for arm in arms])
    assert keys[0] == keys[1]
    assert keys[0][0] != keys[2][0] and keys[0][1] == keys[2][1]


@pytest.mark.case("F10")
def test_another_model_gets_no_scores_of_this_one(tmp_path, passes):
    tables(tmp_path, *SPLIT)
    passes.clear()
    tables(tmp_path, *SPLIT, "model.seed=1")
    assert passes == FIRST


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("base", [["base"], ["ffn", "both"]]), ("statistics", [["base"], ["ffn", "both"]]), ("scores", FIRST)],
)
def test_a_damaged_entry_is_made_again_and_changes_nothing(tmp_path, passes, kind, expected):
    tables(tmp_path / "one", *GPTQ)
    for n, path in enumerate((cache_folder() / kind).rglob("*.safetensors")):
        data = path.read_bytes()
        path.write_bytes((b"", data[:100], data[:-1] + bytes([data[-1] ^ 1]))[n % 3])
    passes.clear()
    again = tables(tmp_path / "one", *GPTQ, "quant.ffn.group_size=32")
    assert passes == expected
    assert_same(again, tables(tmp_path / "two", *GPTQ, "quant.ffn.group_size=32", "harness.reuse=false"))


@pytest.mark.case("G7")
@pytest.mark.parametrize("overrides", [SPLIT, GPTQ, QUESTIONS], ids=["rtn", "gptq", "questions"])
def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(tmp_path, monkeypatch, overrides):
    first = tables(tmp_path / "one", *overrides, "harness.reuse=false")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file"))
    assert_same(first, tables(tmp_path / "two", *overrides))


@pytest.mark.case("G7")
def test_a_cache_on_a_full_disk_costs_time_and_nothing_else(tmp_path, monkeypatch, passes):
    first = tables(tmp_path / "one", *GPTQ, "harness.reuse=false")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("harness.entries.write_atomic", full)
    passes.clear()
    assert_same(first, tables(tmp_path / "two", *GPTQ))
    assert passes == [["base"], ["base", "ffn", "attention", "both", "noise.0"]]


def full(path, write):
    raise OSError(28, "No space left on device")


def test_two_runs_at_once_make_every_arm_once(tmp_path, passes, monkeypatch):
    sizes, together, opening = (32, 64), threading.Barrier(2), threading.Lock()
    configs = {size: composed(*GPTQ, f"quant.ffn.group_size={size}") for size in sizes}

    def one_at_a_time(config):
        with opening:  # random weights come from the one generator of the process
            found = find_model(config)
            model = found.open()
        found.open = lambda: model
        return found

    def one(size):
        together.wait()
        return run(configs[size], tmp_path / f"g{size}").status

    monkeypatch.setattr("harness.pipeline.find_model", one_at_a_time)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, sizes)) == ["done", "done"]
    made = sorted(name for names in passes for name in names)
    assert made == ["attention", "base", "both", "both", "ffn", "ffn", "noise.0"]
    passes.clear()
    again = [tables(tmp_path / "again", *GPTQ, f"quant.ffn.group_size={size}", "harness.reuse=false") for size in sizes]
    for size, fresh in zip(sizes, again, strict=True):
        assert_same(tables(tmp_path / f"g{size}", *GPTQ, f"quant.ffn.group_size={size}"), fresh)


@pytest.mark.case("F14")
def test_scores_of_halved_batches_are_not_left_for_runs_that_need_not_halve(tmp_path, monkeypatch):
    """They are those of whole batches but for rounding, and what is taken equals what would be computed to the bit."""
    own = Stream._wave

    def raises_above(self, wave, scores):
        if sum(len(batch) for batch in wave) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        own(self, wave, scores)

    monkeypatch.setattr(Stream, "_wave", raises_above)
    run(composed(*QUESTIONS), tmp_path)
    assert [path for kind in ("scores", "base") for path in (cache_folder() / kind).rglob("*.safetensors")] == []
