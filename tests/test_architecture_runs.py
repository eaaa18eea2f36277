"""`+exp=int4_split model=hf model.path=FOLDER` on a saved checkpoint of every architecture."""

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from harness.errors import UserError
from harness.expert_inputs import FEW_TOKENS
from harness.model.byte_tokenizer import byte_tokenizer
from harness.model.sites import find_sites
from harness.pipeline import run
from harness.report.tables import read_report
from tests.model.architectures import BASE, EVERY
from tests.model.folders import VOCABULARY, save_tiny
from tests.runs import composed

SPLIT = (
    "+exp=int4_split", "model=hf", "model.path=model", "design.noise_draws=1", "attribute.resamples=200",
    "quant.ffn.group_size=8", "quant.attention.group_size=8", "eval=perplexity", "eval.perplexity.path=text.txt",
    "eval.perplexity.joiner=''", "eval.perplexity.window=48", "eval.perplexity.max_windows=2",
)  # fmt: skip
TEXT = "The quick brown fox jumps over the lazy dog. " * 3


@pytest.fixture(autouse=True)
def start(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")


def plain_nll(folder):
    """Mean negative log-likelihood of the two windows by transformers alone."""
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor(byte_tokenizer()(TEXT).input_ids[:96]).view(2, 48)
    with torch.no_grad():
        logp_BTV = module(ids[:, :-1], use_cache=False).logits.log_softmax(-1)
    return -logp_BTV.gather(2, ids[:, 1:, None]).mean().item()


def sites_of(outcome):
    assert outcome.status == "done" and outcome.folder is not None
    return pd.read_csv(outcome.folder / "sites.csv")


@pytest.mark.parametrize("name", EVERY)
def test_the_split_runs_on_a_saved_checkpoint(name, tmp_path):
    sites = find_sites(save_tiny(tmp_path / "model", name))
    outcome = run(composed(*SPLIT), tmp_path)
    report = read_report(outcome.folder / "report.csv")
    nll = report[report["metric"] == "nll"].set_index("arm")
    assert list(nll.index) == ["base", "ffn", "attention", "both", "noise.0"]
    assert nll.loc["base", "value"] == pytest.approx(plain_nll(tmp_path / "model"), abs=1e-5)
    assert (nll.loc[["ffn", "attention", "both"], "quantized_share"] == 1).all()
    assert (nll.loc[["ffn", "attention", "both"], "kl_mean"] > nll.loc["noise.0", "kl_mean"]).all()
    facts = sites_of(outcome)
    for block, arm in (("ffn", "ffn"), ("attention", "attention"), (("ffn", "attention"), "both")):
        assert set(facts.loc[facts["arm"] == arm, "site"]) == {s.name for s in sites if s.block in block}
    assert np.isfinite(facts["relative_weight_error"]).all()


@pytest.mark.case("C4")
@pytest.mark.parametrize("name", ["mixtral", "llama4_text"])
def test_calibrated_methods_count_the_tokens_of_every_expert(name, tmp_path, monkeypatch):
    """64 calibration tokens over 4 experts: some get enough, some are rounded to nearest, all are in sites.csv."""
    save_tiny(tmp_path / "model", name)
    calib = ("calib.samples=4", "calib.length=16", "quant.ffn.method=gptq", "quant.ffn.range=half")
    facts = sites_of(run(composed(*SPLIT, *calib), tmp_path))
    monkeypatch.setattr("harness.calibration.gather", None)  # statistics are on disk from now on
    pd.testing.assert_frame_equal(sites_of(run(composed(*SPLIT, *calib, "harness.force=true"), tmp_path)), facts)
    facts = facts[facts["arm"] == "ffn"].set_index("site")
    tokens = facts.loc[facts.index.str.contains("layers.1.ffn.down.expert"), "calibration_tokens"]
    assert len(tokens) == 4 and tokens.sum() == 64 * (1 if name == "llama4_text" else 2)
    routed = facts[facts.index.str.contains("expert")]
    assert ((routed["fallback"] == "rtn") == (routed["calibration_tokens"] < FEW_TOKENS)).all()
    assert facts.loc[~facts.index.str.contains("expert"), "fallback"].isna().all()


UNKNOWN = {
    "mamba": ({"hidden_size": 64, "num_hidden_layers": 2}, "layers.0.mixer.in_proj.weight"),
    "gptj": ({"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8}, "layers.0.mlp.fc_in.weight"),
    "granitemoe": ({**BASE, "num_local_experts": 2}, "layers.0.block_sparse_moe.experts.gate_up_proj"),
}


@pytest.mark.case("C9")
@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_layout_that_is_not_known_is_refused_with_its_names(kind, tmp_path):
    fields, words = UNKNOWN[kind]
    module = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**fields, "vocab_size": VOCABULARY}))
    module.save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match=rf"(?s){kind}: the layout of its decoder layers is not understood.*{words}"):
        run(composed(*SPLIT), tmp_path)
    assert not (tmp_path / "outputs").exists()
