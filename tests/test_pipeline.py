"""Whole runs of a tiny model: what they write, when they run at all, and what stops them."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock

from harness import pipeline, scoring
from harness.config import QuantConfig
from harness.design import build_arms
from harness.errors import UserError
from harness.files import RunFolder
from harness.model.byte_tokenizer import byte_tokenizer
from harness.model.load import Model, find_model, open_model
from harness.model.sites import read_site
from harness.model.skeleton import random_module
from harness.pipeline import run
from harness.plan import resolve
from harness.quantize import quantize
from harness.report.run_page import write_run_report
from harness.report.sweep_page import write_sweep_report
from harness.report.tables import read_report
from harness.scheme import Scheme
from harness.score.gather import find, gather
from harness.scoring import Scoring
from harness.weigh import Weigher
from tests.runs import composed

SMALL = (
    "model=tiny", "eval.context_suite.lengths=[]",
    "eval.limit=4", "eval.perplexity.window=48", "eval.perplexity.max_windows=3",
    "attribute.resamples=200", "design.noise_draws=1",
)  # fmt: skip
# The smallest run: one text, no lm-eval task.
TEXT = (
    "model=tiny", "eval=perplexity", "eval.perplexity.window=48", "eval.perplexity.max_windows=2",
    "attribute.resamples=200",
)  # fmt: skip

# Section 9 of the design: the contract with whoever reads the files.
REPORT = """
experiment run_id model model_sha base_lattice arm subset task band metric unit n_items n_documents n_tokens value
stderr base_value loss loss_lo loss_hi p_value p_adjusted verdict below_noise flips_to_wrong flips_to_right kl_mean
top1_agreement ffn_method ffn_precision ffn_group_size attention_method attention_precision attention_group_size
calib_inputs calib_overlap quantized_share bits_per_weight weight_bytes ffn_bytes_saved attention_bytes_saved protocol
config template_hash data_hash seed dtype device batch_tokens seconds peak_bytes harness_version status reason
"""
ITEMS = "arm subset task doc_id item_id band control metric value n_tokens"
ATTRIBUTION = """
subset task metric player kind loss lo hi share share_lo share_hi p_adjusted verdict below_noise weights
loss_per_gweight bytes_saved loss_per_gib_saved n_items n_documents reason
"""


def shape(hidden, intermediate):
    """The tiny model with other widths."""
    return (f"model.config.hidden_size={hidden}", f"model.config.intermediate_size={intermediate}")


def read(folder, name):
    assert folder is not None
    return pd.read_parquet(folder / name) if name.endswith("parquet") else read_report(folder / name)


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """The 2 x 2 over all shipped quick data, once."""
    start = tmp_path_factory.mktemp("start")
    outcome = run(composed("+exp=int4_split", *SMALL, "harness.page=true"), start)
    assert outcome.status == "done" and outcome.folder is not None
    return outcome.folder


def test_tables_have_exactly_the_columns_of_the_contract(split):
    assert list(read(split, "report.csv")) == REPORT.split()
    assert list(read(split, "items.parquet")) == ITEMS.split()
    assert list(read(split, "attribution.csv")) == ATTRIBUTION.split()


@pytest.mark.case("H11")
def test_a_run_has_one_predictable_folder_and_leaves_nothing_else(split):
    assert sorted(p.name for p in split.iterdir() if not p.name.startswith(".")) == [
        "attempts", "attribution.csv", "figures", "items.parquet", "questions.parquet", "report.csv", "report.html",
        "result.json", "sensitivity.csv", "sites.csv",
    ]  # fmt: skip
    report = read(split, "report.csv")
    assert split.name == report["run_id"].unique().item() and split.parent.name == "int4_split"
    assert sorted(p.name for p in (split / "attempts" / "0").iterdir()) == ["config.json", "run.log"]
    assert sorted(p.name for p in split.parents[2].iterdir()) == ["outputs"]


def test_a_page_is_left_out_when_asked_and_written_later(tmp_path):
    folder = run(composed("+exp=int4_ffn_only", *TEXT, "harness.page=false"), tmp_path).folder
    assert folder is not None and (folder / "report.csv").is_file()
    assert not (folder / "report.html").exists() and not (folder / "figures").exists()
    assert write_run_report(folder) == folder / "report.html"


def test_one_row_for_every_arm_task_metric_and_band(split):
    report = read(split, "report.csv")
    assert not report.duplicated(["arm", "subset", "task", "metric", "band"]).any()
    assert list(dict.fromkeys(report["arm"])) == ["base", "ffn", "attention", "both", "noise.0"]
    per_arm = report.groupby("arm")[["subset", "task", "metric", "band"]].apply(
        lambda g: sorted(map(str, g.to_numpy()))
    )
    assert all(rows == per_arm.iloc[0] for rows in per_arm)
    city = report[report["task"] == "qh_city_country"]
    assert {"acc", "acc_norm", "nll", "kl", "margin", "prob", "ece"} == set(city["metric"])
    assert set(city["band"].dropna()) == {"large", "medium", "small"}


def test_items_and_report_agree(split):
    report, items = read(split, "report.csv"), read(split, "items.parquet")
    rows = report[~report["metric"].isin(["perplexity", "word_perplexity", "ece"]) & report["band"].isna()]
    for row in rows.to_dict("records"):
        own = items[
            (items[["arm", "subset", "task", "metric"]] == [row[n] for n in ("arm", "subset", "task", "metric")]).all(
                axis=1
            )
        ]
        weights = own["n_tokens"] if row["task"] == "moby_dick" else None
        assert row["value"] == pytest.approx(np.average(own["value"], weights=weights), rel=1e-12)
        assert (row["n_items"], row["n_tokens"]) == (len(own), own["n_tokens"].sum())
        assert row["n_documents"] == own["doc_id"].nunique()
    shown = report[report["metric"] == "perplexity"].set_index("arm")["value"]
    nll = rows[(rows["metric"] == "nll") & (rows["task"] == "moby_dick")].set_index("arm")["value"]
    np.testing.assert_allclose(shown, np.exp(nll[shown.index]))


def test_loss_is_positive_when_worse_in_every_metric(split):
    report = read(split, "report.csv")
    rows = report[report["arm"] != "base"]
    up = rows["metric"].isin(["acc", "acc_norm", "margin", "prob"])
    sign = np.where(up, -1.0, 1.0)
    np.testing.assert_allclose(rows["loss"], sign * (rows["value"] - rows["base_value"]), atol=1e-12)
    assert rows["loss"].notna().all() and report.loc[report["arm"] == "base", "loss"].isna().all()


def test_base_is_untouched_and_arms_say_what_they_quantize(split):
    arms = read(split, "report.csv").drop_duplicates("arm").set_index("arm")
    assert (arms.loc[["base", "attention"], "ffn_method"] == "keep").all()
    assert (arms.loc[["ffn", "both"], "ffn_precision"] == "int4").all()
    assert arms.loc["base", "bits_per_weight"] == 16 and arms.loc["both", "bits_per_weight"] == 4.25
    assert arms.loc["both", "weight_bytes"] == arms.loc["base", "weight_bytes"] - (
        arms.loc["both", "ffn_bytes_saved"] + arms.loc["both", "attention_bytes_saved"]
    )
    assert (arms.loc[["ffn", "attention", "both"], "quantized_share"] == 1).all()


@pytest.mark.case("A4")
@pytest.mark.case("B7")
def test_every_asked_matrix_is_quantized_and_no_other(split):
    sites = pd.read_csv(split / "sites.csv")
    roles = {"ffn": {"gate", "up", "down"}, "attention": {"q", "k", "v", "o"}}
    for arm, blocks in {"ffn": ["ffn"], "attention": ["attention"], "both": ["ffn", "attention"]}.items():
        want = {f"layers.{i}.{b}.{r}" for i in range(2) for b in blocks for r in roles[b]}
        assert set(sites.loc[sites["arm"] == arm, "site"]) == want
    assert "base" not in set(sites["arm"])
    assert sites["relative_weight_error"].between(0.02, 0.3).all()


@pytest.mark.case("F12")
def test_the_protocol_is_in_every_row_of_a_text(split):
    report = read(split, "report.csv")
    protocol = json.loads(report.loc[report["task"] == "moby_dick", "protocol"].unique().item())
    assert {k: protocol[k] for k in ("window", "stride", "joiner", "bos", "last_window", "unit")} == {
        "window": 48, "stride": 0, "joiner": "", "bos": "none", "last_window": "score", "unit": "token",
    }  # fmt: skip
    assert report["data_hash"].str.fullmatch("[0-9a-f]{16}").all()


@pytest.mark.case("F1")
def test_how_the_work_is_cut_is_in_every_row(split):
    report = read(split, "report.csv")
    assert (report["batch_tokens"] == 2048).all()
    assert json.loads(report["config"].iloc[0])["engine"]["packing"] is True


@pytest.mark.case("D20")
def test_along_which_axis_groups_lie_is_in_every_row(split):
    cells = read(split, "report.csv")["config"].map(json.loads)
    assert all(cell["quant"]["axis"] == 1 for cell in cells)


@pytest.mark.case("E7")
def test_which_samples_were_calibrated_on_is_in_every_row(tmp_path):
    own = ("calib.seeds=[0,1]", "calib.samples=4", "calib.length=32")
    folder = run(composed("+exp=gptq_int4_split", *TEXT, *own, "design.noise_draws=0"), tmp_path).folder
    assert folder is not None
    said = [draw["sample_hash"] for draw in RunFolder(folder).result()["calibration"]]
    assert len(set(said)) == 2
    for cell in read(folder, "report.csv")["config"].map(json.loads):
        assert cell["calib"]["sample_hashes"] == said


def test_base_alone_is_scored_and_reported_without_losses(tmp_path, capsys):
    options = (*SMALL, "design.noise_draws=0", "experiment=alone")
    folder = run(composed(*options, "design.arms=base", "harness.page=true"), tmp_path).folder
    both = run(composed("+exp=int4_split", *options), tmp_path).folder
    assert folder is not None and both is not None
    report, split = read(folder, "report.csv"), read(both, "report.csv")
    assert list(report) == REPORT.split() and set(report["arm"]) == {"base"}
    assert report["loss"].isna().all() and (report["bits_per_weight"] == 16).all()
    of_base = split.loc[split["arm"] == "base"]
    np.testing.assert_array_equal(report["value"], of_base["value"])
    assert list(read(folder, "attribution.csv")) == ATTRIBUTION.split()
    assert not len(read(folder, "attribution.csv")) and not len(read(folder, "sensitivity.csv"))
    assert "moby_dick" in capsys.readouterr().out
    assert "How each task was scored" in (folder / "report.html").read_text(encoding="utf-8")
    assert write_sweep_report([folder], tmp_path / "own").is_file()
    assert write_sweep_report([folder.parent], tmp_path / "all").is_file()
    assert len(read(tmp_path / "all", "sweep.csv")) == len(report) + len(split)


def test_base_alone_quantizes_nothing_and_is_asked_nothing_of(tmp_path):
    with pytest.raises(UserError, match=r"design.arms=base quantizes nothing, and quant quantizes layers\.0\.ffn"):
        run(composed("+exp=int4_ffn_only", *TEXT, "design.arms=base"), tmp_path)
    with pytest.raises(UserError, match="effect alone"):
        run(composed(*TEXT, "design.arms=base", "attribute.effects=[alone]"), tmp_path)


@pytest.mark.case("H8")
def test_the_saved_configuration_is_the_one_that_ran_with_absolute_paths(split):
    saved = json.loads((split / "attempts" / "0" / "config.json").read_text(encoding="utf-8"))
    assert saved["outputs"] == str(split.parents[1])
    assert saved["quant"]["ffn"]["precision"] == "int4"
    assert "5 arms" in (split / "attempts" / "0" / "run.log").read_text(encoding="utf-8")


def test_a_second_start_finds_the_result_and_computes_nothing(split, monkeypatch, capsys):
    monkeypatch.setattr(pipeline, "Scoring", None)
    outcome = run(composed("+exp=int4_split", *SMALL), split.parents[2])
    assert (outcome.status, outcome.folder) == ("already done", split)
    assert "loss against base" in capsys.readouterr().out
    assert not (split / "attempts" / "1").exists()


@pytest.mark.case("H5")
def test_a_run_at_work_elsewhere_is_left_alone(split, monkeypatch):
    monkeypatch.setattr(pipeline, "Scoring", None)
    with FileLock(split / ".lock"):
        outcome = run(composed("+exp=int4_split", *SMALL, "harness.on_locked=skip"), split.parents[2])
    assert (outcome.status, outcome.folder) == ("locked", split)


@pytest.mark.case("H5")
def test_of_two_starts_at_once_one_computes_and_the_other_waits_for_its_result(tmp_path, monkeypatch):
    config = composed("+exp=int4_ffn_only", *TEXT)
    found = find_model(config.model)
    model = found.open()  # once: random weights come from the process's own generator
    found.open = lambda: model
    monkeypatch.setattr(pipeline, "find_model", lambda _: found)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: run(config, tmp_path), range(2))
    assert {first.status, second.status} == {"done", "already done"} and first.folder == second.folder
    assert [p.name for p in (first.folder / "attempts").iterdir()] == ["0"]  # pyright: ignore


def test_force_runs_again_and_gives_the_same_numbers(tmp_path):
    config = composed("+exp=int4_ffn_only", *TEXT)
    first = run(config, tmp_path)
    before = read(first.folder, "items.parquet")
    config.harness.force = True
    again = run(config, tmp_path)
    assert again == first and first.folder is not None
    assert sorted(p.name for p in (first.folder / "attempts").iterdir()) == ["0", "1"]
    pd.testing.assert_frame_equal(read(first.folder, "items.parquet"), before)


@pytest.mark.case("H6")
def test_a_run_that_died_half_way_is_no_result_and_the_next_start_makes_one(tmp_path, monkeypatch):
    def dies(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "finish", dies)
    config = composed("+exp=int4_ffn_only", *TEXT)
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path)
    folder = next((tmp_path / "outputs" / "int4_ffn_only").iterdir())
    assert (folder / "report.csv").is_file() and not (folder / "result.json").exists()
    assert "KeyboardInterrupt" in (folder / "attempts" / "0" / "run.log").read_text(encoding="utf-8")
    monkeypatch.undo()
    outcome = run(config, tmp_path)
    assert (outcome.status, outcome.folder) == ("done", folder)
    assert RunFolder(folder).done


def test_progress_ends_where_it_was_said_to_end(tmp_path):
    """The whole of it is known before it starts: layers, head, and a head that is itself quantized."""
    config = composed("+exp=int4_split", *SMALL, "quant.head.method=rtn", "quant.head.group_size=32")
    passes = []

    @contextmanager
    def progress(total, what):
        passes.append((total, amounts := []))
        yield lambda amount, note: amounts.append(amount)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "progress", progress)
        run(config, tmp_path)
    assert len(passes) == 2  # base, then what is compared with it
    for total, amounts in passes:
        assert sum(amounts) == pytest.approx(total, rel=0.02)


@pytest.mark.case("B10")
def test_plan_only_prints_arms_and_every_site_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pipeline, "Scoring", None)
    monkeypatch.setenv("COLUMNS", "80")
    rules = 'quant.overrides=[{match:"layers.*.ffn.gate",precision:int8},{match:"layers.0.ffn.*",group_size:32}]'
    outcome = run(composed("+exp=int4_split", *SMALL, rules, "harness.plan_only=true"), tmp_path)
    assert (outcome.status, outcome.folder) == ("planned", None)
    assert list(tmp_path.iterdir()) == []
    lines = {
        line.split()[0]: line.split() for line in capsys.readouterr().out.replace("│", " ").splitlines() if line.strip()
    }
    assert {"base", "ffn", "attention", "both"} <= set(lines)
    assert sum(name.startswith("layers.") for name in lines) == 2 * 3 + 4
    assert "layers.0-1.attention.q" in lines and "memory" in lines and "scored" in lines
    assert {"rtn", "int4", "32"} <= set(lines["layers.0.ffn.gate"]) and "int8" in lines["layers.1.ffn.gate"]
    assert lines["override"][:6] == ["override", "1", "(layers.0.ffn.*)", "shadows", "override", "0"]


@pytest.mark.case("A3")
@pytest.mark.case("A5")
@pytest.mark.case("A6")
@pytest.mark.parametrize(
    ("widths", "group", "fails"),
    [
        ((144, 384), 32, "ffn.gate: in_features 144"),
        ((64, 100), 32, "ffn.down: in_features 100"),
        ((64, 96), 128, "in_features 96"),
    ],
)
def test_groups_that_do_not_divide_stop_the_run_before_any_result_or_cut_short_when_asked(
    tmp_path, monkeypatch, widths, group, fails
):
    asked = ("+exp=int4_ffn_only", *TEXT, *shape(*widths), f"quant.ffn.group_size={group}")
    with monkeypatch.context() as patch, pytest.raises(UserError, match=fails):
        patch.setattr(pipeline, "Scoring", None)
        run(composed(*asked), tmp_path)
    assert list(tmp_path.iterdir()) == []
    folder = run(composed(*asked, "quant.indivisible=tail"), tmp_path).folder
    report, sites = read(folder, "report.csv"), pd.read_csv(folder / "sites.csv")
    assert (report.loc[report["arm"] == "ffn", "quantized_share"] == 1).all()
    assert len(sites) == 6 and (sites["relative_weight_error"] > 0.02).all()
    assert [name for name in sites if name.endswith("group_size")] == ["requested_group_size", "realised_group_size"]
    assert (sites["requested_group_size"] == group).all()
    assert (sites["realised_group_size"] == np.minimum(group, sites["in_features"])).all()


@pytest.mark.case("A4")
def test_a_width_below_the_group_is_quantized_all_the_same_and_counted(tmp_path):
    folder = run(
        composed("+exp=int4_split", *TEXT, *shape(72, 144), "quant.indivisible=tail"), tmp_path
    ).folder  # head_dim 18
    sites = pd.read_csv(folder / "sites.csv")  # pyright: ignore
    assert sites.groupby("arm").size().to_dict() == {"ffn": 6, "attention": 8, "both": 14}
    assert (sites["relative_weight_error"] > 0.02).all()


def test_columns_kept_in_16_bits_are_not_counted_as_quantized(tmp_path):
    folder = run(composed("+exp=int4_ffn_only", *TEXT, "quant.ffn.keep_columns=0.25"), tmp_path).folder
    report = read(folder, "report.csv")
    assert report.loc[report["arm"] == "ffn", "quantized_share"].unique() == pytest.approx(0.75)


@pytest.mark.case("B9")
def test_a_rule_for_the_head_is_applied_and_shown_among_the_matrices(tmp_path):
    rules = "quant.overrides=[{match:head,method:rtn,precision:int8,group_size:32}]"
    folder = run(composed("+exp=int4_ffn_only", *TEXT, rules), tmp_path).folder
    head = pd.read_csv(folder / "sites.csv").query("site == 'head'").squeeze()
    assert (head["requested_precision"], head["realised_group_size"]) == ("int8", 32)
    assert 0 < head["relative_weight_error"] < 0.01


@pytest.mark.case("B6")
def test_a_rule_without_a_match_stops_the_run_and_names_what_there_is(tmp_path):
    with pytest.raises(UserError, match=r"'mlp' matches no site.*layers.0.attention.q"):
        run(composed("+exp=int4_split", *TEXT, "quant.overrides=[{match:mlp,method:keep}]"), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.case("C20")
@pytest.mark.parametrize(("asked", "used"), [("auto", "float32"), ("bfloat16", "bfloat16")])
def test_the_type_is_explicit_in_every_row_whatever_the_checkpoint_has(tmp_path, asked, used):
    model = open_model(composed("model=tiny").model)
    model.module.half().save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    changes = ("model=hf", "model.path=model", f"model.dtype={asked}", *TEXT[1:])
    report = read(run(composed("+exp=int4_ffn_only", *changes), tmp_path).folder, "report.csv")
    assert (report["dtype"] == used).all()


def test_the_commit_of_a_hub_model_stands_in_the_results(tmp_path):
    commit = "0123456789abcdef" * 2 + "01234567"
    snapshot = tmp_path / "models--owner--name" / "snapshots" / commit
    open_model(composed("model=tiny").model).module.save_pretrained(snapshot)
    byte_tokenizer().save_pretrained(snapshot)
    options = ("model=hf", f"model.path={snapshot}", *TEXT[1:], "harness.page=true")
    folder = run(composed("+exp=int4_ffn_only", *options), tmp_path).folder
    assert folder is not None
    assert json.loads((folder / "result.json").read_text("utf-8"))["model_commit"] == commit
    assert json.loads(read(folder, "report.csv")["config"].unique().item())["model"] == {"commit": commit}
    assert commit in (folder / "report.html").read_text("utf-8")


@pytest.mark.case("F21")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("eval.general=[qh_nothing]", "no task is called 'qh_nothing'"),
        ("eval.general=[nothing.yaml]", "nothing.yaml does not exist"),
        ("eval.perplexity.path=nothing.txt", "nothing.txt: no such file"),
        ("eval.perplexity.path=''", "nothing to score"),
    ],
)
def test_what_is_to_be_scored_is_found_before_the_model_is_opened(tmp_path, monkeypatch, change, words):
    monkeypatch.setattr(pipeline, "find_model", None)
    monkeypatch.setattr("harness.score.library._all_tasks", lambda: type("Index", (), {"all_tasks": ["arc_easy"]}))
    with pytest.raises(UserError, match=words):
        run(composed("+exp=int4_ffn_only", *TEXT, change), tmp_path)


@pytest.mark.case("H8")
def test_relative_paths_begin_where_the_run_was_started(tmp_path, monkeypatch):
    start = tmp_path / "start"
    start.mkdir()
    (start / "text.txt").write_text("word and word " * 30, encoding="utf-8")
    monkeypatch.chdir("/")
    changes = ("eval.perplexity.path=text.txt", "outputs=results")
    here = run(composed("+exp=int4_ffn_only", *TEXT, *changes), start)
    assert here.folder is not None and here.folder.is_relative_to(start / "results" / "int4_ffn_only")
    absolute = f"eval.perplexity.path={start / 'text.txt'}"
    assert (
        run(composed("+exp=int4_ffn_only", *TEXT, absolute, "outputs=start/results"), tmp_path).status == "already done"
    )


@pytest.mark.case("G7")
def test_outputs_that_cannot_be_written_are_a_plain_message(tmp_path):
    (tmp_path / "outputs").write_text("a file")
    with pytest.raises(UserError, match=r"cannot be written.*outputs to another folder"):
        run(composed("+exp=int4_ffn_only", *TEXT), tmp_path)


@pytest.mark.case("F20")
def test_a_model_in_memory_is_scored_as_it_is_and_stays_as_it_is(tmp_path):
    """Public functions on a user's own object: no path, no reload."""
    config = composed("+exp=int4_ffn_only", *TEXT)
    module = open_model(config.model).module
    with torch.no_grad():
        module.lm_head.weight.mul_(2.0)  # what no file holds
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    model = Model.from_module(module, byte_tokenizer())
    arms = build_arms(resolve(model.all_sites, QuantConfig(ffn=Scheme(group_size=64))).plan, config.design, 2)
    work = gather(find(config.eval, tmp_path), config.eval, model)
    scores = Scoring(config, model, arms, work).scores(Weigher(model.sites), None)
    tokens = torch.tensor([sequence.tokens for sequence in work[0].sequences])
    nll = [loss(module, tokens)]
    with torch.no_grad():
        for site in (s for s in model.sites if s.block == "ffn"):
            layer = model.layers[site.layer]
            weight = layer.get_submodule(site.module).get_parameter(site.parameter)
            weight.copy_(quantize(read_site(layer, site), Scheme(group_size=64)).dequantize())
    nll.append(loss(module, tokens))
    np.testing.assert_allclose(-scores.logp_AS.mean(axis=1), nll, rtol=1e-5)
    module.load_state_dict(before)


def loss(module, tokens):
    with torch.no_grad():
        return module(tokens, labels=tokens).loss.item()


@pytest.mark.case("F11")
def test_a_broken_weight_stops_the_run_and_leaves_no_result(tmp_path, monkeypatch):
    def broken(*args):
        module = random_module(*args)
        with torch.no_grad():
            module.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
        return module

    monkeypatch.setattr("harness.model.load.random_module", broken)
    with pytest.raises(ArithmeticError, match="layer 1 in arm"):
        run(composed("+exp=int4_ffn_only", *TEXT), tmp_path)
    assert not list(tmp_path.rglob("result.json")) and not list(tmp_path.rglob("report.csv"))


PROSE = (
    "model=tiny", "eval=perplexity", "eval.perplexity.window=48", "eval.perplexity.max_windows=4",
    "attribute.resamples=100",
)  # fmt: skip


def test_roles_by_layers_end_in_a_heat_map_on_the_page_and_beside_it(tmp_path):
    layers = ("model.config.num_hidden_layers=4", "design.layer_groups=2")
    folder = run(composed("+exp=int4_role_layers", *PROSE, *layers, "harness.page=true"), tmp_path).folder
    effects = read(folder, "attribution.csv").query("metric == 'nll' and kind == 'alone'")
    roles = {f"ffn.{role}" for role in ("gate", "up", "down")} | {f"attention.{role}" for role in "qkvo"}
    assert set(effects["player"]) == {f"{role}.layers.{group}" for role in roles for group in ("0-1", "2-3")}
    total = read(folder, "attribution.csv").query("metric == 'nll' and kind == 'total'")
    assert effects["weights"].sum() == total["weights"].item()
    assert {"layers_nll.png", "layers_nll.svg"} <= {path.name for path in (folder / "figures").iterdir()}
    assert all(f">{role}<" in (folder / "figures" / "layers_nll.svg").read_text() for role in roles)
    assert all(f">{role}</text>" in (folder / "report.html").read_text(encoding="utf-8") for role in roles)
    page = write_sweep_report([folder], tmp_path / "sweep")
    assert list((page.parent / "figures").glob("layers*.svg")) and ">ffn.down</text>" in page.read_text(
        encoding="utf-8"
    )


def test_sampled_orders_split_the_whole_loss_and_say_how_far_they_differ(tmp_path):
    sampled = ("+exp=int4_roles", "design.arms=sampled", "design.permutations=4", "design.noise_draws=0")
    folder = run(composed(*sampled, *PROSE), tmp_path).folder
    for _, effects in read(folder, "attribution.csv").groupby("metric"):
        parts = effects[effects["kind"] == "shapley"]
        assert len(parts) == 7
        assert parts["loss"].sum() == pytest.approx(effects.loc[effects["kind"] == "total", "loss"].item(), abs=1e-9)
        assert parts["reason"].str.match("mean over sampled orders; orders' standard error [.0-9e-]+").all()


def test_quick_attributes_what_so_few_items_resolve_and_reports_every_metric(split):
    assert set(read(split, "attribution.csv")["metric"]) == {"nll", "kl"}
    assert {"acc", "acc_norm", "margin", "prob"} <= set(read(split, "report.csv")["metric"])
    assert composed().eval.attribute_metrics == ["nll", "kl"] and composed("eval=standard").eval.attribute_metrics == []
