"""SmolLM2, six windows of WikiText-2: int4 in the FFN, the attention, both. Losses by an independent implementation."""

import json
from pathlib import Path

import numpy as np
import pytest

from harness.attribute import Game, Scores, attribute
from harness.config import AttributeConfig

GOLDEN = Path(__file__).parents[1] / "golden" / "smollm2" / "wikitext2_ppl.json"


@pytest.fixture(scope="module")
def effects():
    results = json.loads(GOLDEN.read_text())["results"]
    arms = {"base": frozenset(), "ffn": frozenset({"ffn"}), "attention": frozenset({"attention"})}
    arms["both"] = arms["ffn"] | arms["attention"]
    values_AN = np.array([results[arm]["window_nll"] for arm in arms]) / 2047
    scores = Scores("general", "wikitext", "nll", list(arms), values_AN, np.arange(6), False, worst=np.log(49152))
    return {(e.kind, e.player): e for e in attribute([scores], Game(arms), AttributeConfig())}


def test_share_of_the_ffn_and_its_interval(effects):
    ffn = effects["shapley", "ffn"]
    assert ffn.share == pytest.approx(0.648, abs=5e-4)
    assert (ffn.share_lo, ffn.share_hi) == pytest.approx((0.609, 0.687), abs=0.01)
    assert effects["alone", "ffn"].share < ffn.share < effects["restored", "ffn"].share


def test_contrast_with_seventy_percent(effects):
    contrast = effects["contrast", "ffn"]
    assert contrast.loss == pytest.approx(-0.019, abs=5e-4)
    assert contrast.lo < contrast.loss < contrast.hi < 0
    assert contrast.verdict == "exploratory"
