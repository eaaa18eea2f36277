"""Results of the same settings that no longer hold are listed, and made anew, refused or used as asked."""

import pytest

from harness.errors import UserError
from harness.pipeline import run
from tests.runs import composed

TEXT = (
    "+exp=int4_ffn_only", "model=tiny", "eval=perplexity", "eval.perplexity.window=32",
    "eval.perplexity.max_windows=1", "attribute.resamples=100", "design.noise_draws=0", "eval.perplexity.path=a.txt",
)  # fmt: skip


@pytest.fixture
def start(tmp_path):
    (tmp_path / "a.txt").write_text("word and word " * 30, encoding="utf-8")
    return tmp_path


def other_code(monkeypatch, version="other"):
    for module in ("identity", "pipeline", "stale", "keys"):
        monkeypatch.setattr(f"harness.{module}.code_version", lambda: version)


@pytest.mark.case("H6")
def test_a_result_of_other_code_is_listed_and_made_anew(start, monkeypatch, capsys):
    old = run(composed(*TEXT), start)
    assert "no longer hold" not in capsys.readouterr().out
    other_code(monkeypatch)
    new = run(composed(*TEXT), start)
    assert new.status == "done" and new.folder != old.folder
    assert f"{old.folder} (other code)" in capsys.readouterr().out
    run(composed(*TEXT), start)
    assert "no longer hold" not in capsys.readouterr().out  # done: nothing to be made anew


@pytest.mark.case("H6")
def test_it_is_refused_when_asked(start, monkeypatch):
    old = run(composed(*TEXT), start)
    other_code(monkeypatch)
    with pytest.raises(UserError, match=r"on_stale=refuse.*\n.*other code.*\n.*recompute, or use"):
        run(composed(*TEXT, "harness.on_stale=refuse"), start)
    assert [p.name for p in (start / "outputs" / "int4_ffn_only").iterdir() if (p / "result.json").exists()] == [
        old.folder.name  # pyright: ignore
    ]
    assert run(composed(*TEXT, "harness.on_stale=refuse", "harness.force=true"), start).status == "done"


def test_it_is_used_when_asked_and_only_the_code_differs(start, monkeypatch, capsys):
    old = run(composed(*TEXT), start)
    other_code(monkeypatch)
    assert run(composed(*TEXT, "harness.on_stale=use"), start) == type(old)("already done", old.folder)
    assert f"{old.folder} stands in" in capsys.readouterr().out


def test_other_data_never_stands_in(start, capsys):
    old = run(composed(*TEXT), start)
    (start / "a.txt").write_text("other words " * 30, encoding="utf-8")
    new = run(composed(*TEXT, "harness.on_stale=use"), start)
    assert new.status == "done" and new.folder != old.folder
    assert f"{old.folder} (other scored data)" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["quant.ffn.group_size=32", "model.dtype=bfloat16", "eval.perplexity.path=b.txt"])
def test_another_experiment_is_not_stale(start, capsys, change):
    (start / "b.txt").write_text("word and word " * 30 + "more", encoding="utf-8")
    run(composed(*TEXT), start)
    run(composed(*TEXT, change, "harness.on_stale=refuse"), start)
    assert "no longer hold" not in capsys.readouterr().out


def test_a_setting_that_the_old_code_did_not_know_is_at_its_default(start, monkeypatch):
    import json

    old = run(composed(*TEXT), start).folder
    assert old is not None
    result = json.loads((old / "result.json").read_text(encoding="utf-8"))
    del result["config"]["quant"]["ffn"]["damp"], result["config"]["design"]["layer_groups"]
    (old / "result.json").write_text(json.dumps(result), encoding="utf-8")
    other_code(monkeypatch)
    with pytest.raises(UserError, match="other code"):
        run(composed(*TEXT, "harness.on_stale=refuse"), start)
