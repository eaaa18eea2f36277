"""Cells that describe the run: the peak of memory, and what each block of an arm is quantized to."""

import random
import subprocess
import sys

import pytest

from harness.report.cells import peak_resident_bytes
from harness.report.rows import records
from tests.runs import ran


def test_peak_is_of_this_process_alone():
    """Not of the one that started it, which Linux's ru_maxrss begins with."""
    held = b"x" * 600_000_000
    code = "from harness.report.cells import peak_resident_bytes; print(peak_resident_bytes())"
    own = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    here = peak_resident_bytes()
    assert len(held) < here
    assert 50e6 < own < here - 100e6


@pytest.mark.parametrize("live", ["ffn", "attention"])
def test_w8a8_is_said_of_the_block_that_rounds_activations_and_of_no_other(tmp_path, live):
    other = {"ffn": "attention", "attention": "ffn"}[live]
    blocks = (
        f"quant.{live}.method=bnb", f"quant.{live}.precision=int8", f"quant.{live}.group_size=-1",
        f"quant.{other}.method=rtn", f"quant.{other}.precision=int4",
    )  # fmt: skip
    few = ("eval=none", "eval.general=[qh_city_country]", "eval.limit=3", "attribute.resamples=200")
    report, _ = ran(tmp_path, "+exp=int4_split", "model=tiny", "design.noise_draws=0", *few, *blocks)
    said = report.groupby("arm")[[f"{live}_precision", f"{other}_precision"]].first().fillna("").T.to_dict("list")
    assert said.pop("base") == said.pop("fp16_cast") == ["", ""]
    assert said == {live: ["w8a8", ""], other: ["", "int4"], "both": ["w8a8", "int4"]}


def test_a_block_that_is_w8a8_only_in_part_is_mixed(tmp_path):
    rule = 'quant.overrides=[{match:"layers.0.ffn.down",method:bnb,precision:int8,group_size:-1}]'
    few = ("eval=none", "eval.general=[qh_city_country]", "eval.limit=3", "attribute.resamples=200")
    report, _ = ran(tmp_path, "+exp=int4_split", "model=tiny", "design.noise_draws=0", *few, rule)
    both = report[report["arm"] == "both"]
    assert set(both["ffn_precision"]) == {"mixed"} and set(both["attention_precision"]) == {"int4"}


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """By arm, the cells of a 2 x 2 with GPTQ on some of the text that it is scored on, of which two draws see unlike
    much; each arm calibrated on its own quantized layers, and their weights put together."""
    start = tmp_path_factory.mktemp("start")
    letters = random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=480)
    (start / "text.txt").write_text("".join(letters), encoding="utf-8")
    text = ("eval=perplexity", "eval.perplexity.path=text.txt", "eval.perplexity.window=48")
    calib = ("calib.source=text", "calib.path=text.txt", "calib.samples=2", "calib.length=56", "calib.seeds=[0,3]")
    few = ("model=tiny", "attribute.resamples=200", "design.noise_draws=1", "calib.inputs=quantized")
    report, _ = ran(start, "+exp=gptq_int4_split", *few, *text, *calib)
    return {row["arm"]: row for row in records(report.drop_duplicates("arm"))}


def test_an_arm_has_in_common_with_the_scored_text_what_its_own_draw_has(calibrated):
    overlap = {arm: row["calib_overlap"] for arm, row in calibrated.items()}
    first, second = overlap["ffn"], overlap["ffn@1"]
    assert first != second and min(first, second) > 0
    assert overlap == {
        "base": None, "ffn": first, "attention": first, "both": first, "ffn@1": second, "attention@1": second,
        "both@1": second, "spliced": first, "noise.0": None,
    }  # fmt: skip


def test_spliced_weights_are_said_to_be_what_the_blocks_own_arms_made(calibrated):
    same = ["calib_inputs", "calib_overlap", "bits_per_weight", "quantized_share"]
    same += [f"{block}_{name}" for block in ("ffn", "attention") for name in ("method", "precision", "group_size")]
    spliced, both = ([calibrated[arm][name] for name in same] for arm in ("spliced", "both"))
    assert spliced == both and calibrated["spliced"]["ffn_method"] == "gptq"
    assert calibrated["noise.0"]["ffn_method"] == "keep" and calibrated["noise.0"]["calib_inputs"] is None
