"""What is wrong with plan, tasks or calibration text is said before a weight is read, wherever weights come from."""

import json

import pytest

from harness import pipeline
from harness.errors import UserError
from harness.pipeline import run
from tests.model.folders import save_tiny
from tests.runs import composed
from tests.score.questions import ROWS, write_task

TEXT = (
    "+exp=int4_split", "eval=perplexity", "eval.perplexity.window=48", "eval.perplexity.max_windows=2",
    "eval.perplexity.max_chars=9000", "attribute.resamples=200",
    "quant.ffn.group_size=32", "quant.attention.group_size=32",
)  # fmt: skip
TASK = (*TEXT, "eval.perplexity.path=''", "eval.general=[own.yaml]")
GPTQ = (*TEXT, "quant.ffn.method=gptq", "quant.ffn.range=half", "calib.samples=8", "calib.length=32")
READERS = ("load.load_in_memory", "load.random_module", "load.file_reader", "load.fill_outside_layers",
           "stored.safe_open")  # fmt: skip


def read(*args, **kwargs):
    pytest.fail("a weight was read")


@pytest.fixture(params=["files", "whole", "random"])
def model(request, tmp_path, monkeypatch):
    """A model whose weights are read layer by layer, as a whole, or made up: none of these may happen."""
    if request.param != "random":
        save_tiny(tmp_path / "model", "llama" if request.param == "files" else "mixtral")
    for reader in READERS:
        monkeypatch.setattr(f"harness.model.{reader}", read)
    shape = ("model=tiny", "model.config.hidden_size=64", "model.config.intermediate_size=96",
             "model.config.max_position_embeddings=64")  # fmt: skip
    return shape if request.param == "random" else ("model=hf", "model.path=model")


def refusal(tmp_path, *settings):
    """Why a run is refused, by itself and when only its plan is asked for."""
    messages = []
    for plan_only in ("false", "true"):
        with pytest.raises(UserError) as caught:
            run(composed(*settings, f"harness.plan_only={plan_only}"), tmp_path)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and not (tmp_path / "outputs").exists()
    return messages[0]


@pytest.mark.case("A1")
@pytest.mark.case("B6")
@pytest.mark.case("E3")
@pytest.mark.case("F21")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((*TEXT, "quant.ffn.group_size=64"), "in_features 96, group_size 64"),
        ((*TEXT, "quant.overrides=[{match:mlp,method:keep}]"), "'mlp' matches no site"),
        ((*TEXT, "quant.ffn.keep_columns=100"), "layers.0.ffn.gate"),
        ((*TEXT, "+attribute.claims.nobody=0.5"), "attribute.claims.nobody"),
        ((*TEXT, "eval.general=[qh_nothing]"), "no task is called 'qh_nothing'"),
        ((*TEXT, "eval.perplexity.window=100"), "eval.perplexity.window=100: the model has 64 positions"),
        ((*TEXT, "eval.context_suite.lengths=[96]"), "eval.context_suite.lengths=[96]: the model has 64 positions"),
        ((*TEXT, "attribute.primary_metric=bleu"), "attribute.primary_metric=bleu"),
    ],
)
def test_plan_and_what_is_scored(tmp_path, model, settings, words):
    assert words in refusal(tmp_path, *settings, *model)


@pytest.mark.case("F4")
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"gold": 3}, "own, item 2: right answer 3 is not among 3 choices"),
        ({"choices": ["red"], "gold": 0}, "own, item 2: 1 choice, but at least two are needed"),
        ({"choices": ["red", " ", "blue"]}, "one of its choices is empty"),
        ({"query": "word " * 30}, "positions. Use fewer examples"),
    ],
)
def test_questions(tmp_path, model, row, words):
    write_task(tmp_path, rows=[*ROWS[:2], ROWS[2] | row, *ROWS[3:]])
    assert words in refusal(tmp_path, *TASK, *model)


@pytest.mark.case("E2")
@pytest.mark.case("E3")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("calib.source=text", "calib.path=nothing.txt"), "nothing.txt': no such file"),
        (("calib.source=text", "calib.path=short.txt"), "0 usable samples of 1 texts, 8 asked (each needs 32 tokens)"),
        (("calib.source=jsonl", "calib.path=rows.jsonl"), "rows.jsonl; it has body"),
        (("calib.length=100",), "calib.length=100: the model has 64 positions"),
    ],
)
def test_calibration_text(tmp_path, model, settings, words):
    (tmp_path / "short.txt").write_text("a word", encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"body": "a word"}) + "\n", encoding="utf-8")
    assert words in refusal(tmp_path, *GPTQ, *settings, *model)


def test_memory(tmp_path, model, monkeypatch):
    monkeypatch.setattr("harness.preflight.free_memory", lambda device: 2**20)
    assert "The run needs" in refusal(tmp_path, *TEXT, *model)


def test_a_plan_alone_needs_no_weight(tmp_path, model, capsys):
    assert run(composed(*GPTQ, *model, "harness.plan_only=true"), tmp_path).status == "planned"
    assert "layers.0-1.attention.q" in capsys.readouterr().out


def test_a_sound_run_does_read_weights(tmp_path, model):
    """The tests above would see it."""
    with pytest.raises(pytest.fail.Exception, match="a weight was read"):
        run(composed(*TEXT, *model), tmp_path)


def test_a_base_on_a_grid_is_refused_before_a_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.model.load.common_lattice", lambda matrices: "int4 symmetric groups of 32")
    monkeypatch.setattr(pipeline, "Scoring", None)
    with pytest.raises(UserError, match="already sit on a grid"):
        run(composed("model=tiny", *TEXT), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tie", [False, True])
def test_what_is_printed_counts_a_tied_table_once(tmp_path, capsys, tie):
    module = save_tiny(tmp_path / "model", "llama", tie_word_embeddings=tie)
    run(composed(*TEXT, "model=hf", "model.path=model", "harness.plan_only=true"), tmp_path)
    assert f" {sum(p.numel() for p in module.parameters()):,} parameters" in capsys.readouterr().out
