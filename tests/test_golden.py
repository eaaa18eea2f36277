"""Real numbers of a real model, against published libraries: SmolLM2-135M, float32, CPU.

tests/golden/smollm2 holds what transformers and lm-eval's own HF backend gave (versions in its README). Tests that
need text or questions which may not travel with the project are skipped where ../shared is not.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.attribute import read_effects
from harness.cut import form_packs
from harness.model.load import open_model
from harness.packs import batches, slots
from harness.plan import base_arm
from harness.score.gather import find, gather
from harness.stream import Stream
from harness.weigh import Weigher
from tests.runs import SHARED, composed, ran

GOLDEN = Path(__file__).parent / "golden" / "smollm2"
WIKITEXT = SHARED / "data" / "benchmarks" / "wikitext-2-raw" / "wiki.test.raw"
QUESTIONS = SHARED / "data" / "benchmarks" / "llm-foundry-eval"
wikitext = pytest.mark.skipif(not WIKITEXT.is_file(), reason="WikiText-2 is not shipped: no ../shared/data here")
questions = pytest.mark.skipif(
    not QUESTIONS.is_dir(), reason="public benchmarks are not shipped: no ../shared/data here"
)
AS_MADE = ("quant.ffn.scale_dtype=float32", "quant.attention.scale_dtype=float32", "design.noise_draws=0")


def check_windows(items, golden):
    for arm, want in golden["results"].items():
        own = items[(items["arm"] == arm) & (items["metric"] == "nll")]
        got = (own["value"] * own["n_tokens"]).to_numpy()
        np.testing.assert_allclose(got, want["window_nll"], rtol=1e-4, err_msg=arm)


def check_shares(outputs):
    """Whose loss it is, read off the run's own table: what tests/attribute/test_golden.py has from golden windows."""
    (path,) = outputs.rglob("attribution.csv")
    effects = {(e.metric, e.kind): e for e in read_effects(path) if e.player == "ffn"}
    nll, kl, contrast = (effects[key] for key in (("nll", "shapley"), ("kl", "shapley"), ("nll", "contrast")))
    assert nll.share == pytest.approx(0.648, abs=2e-3)
    assert (nll.share_lo, nll.share_hi) == pytest.approx((0.609, 0.687), abs=0.01)
    assert contrast.loss == pytest.approx(-0.019, abs=1e-3)
    assert kl.share_lo < kl.share < kl.share_hi
    assert kl.share_hi - kl.share_lo < (nll.share_hi - nll.share_lo) / 2


@pytest.mark.slow
def test_moby_dick_windows_of_all_four_arms(tmp_path):
    _, items = ran(
        tmp_path, "+exp=int4_split", "model=smollm2_135m_raw", "eval=perplexity", *AS_MADE,
        f"eval.perplexity.path={GOLDEN / 'moby_dick_30000.txt'}", "eval.perplexity.joiner=''",
        "eval.perplexity.window=1024", "eval.perplexity.max_windows=4",
    )  # fmt: skip
    check_windows(items, json.loads((GOLDEN / "moby_dick_ppl.json").read_text()))


@pytest.mark.slow
@wikitext
def test_wikitext_windows_of_all_four_arms(tmp_path):
    report, items = ran(
        tmp_path, "+exp=int4_split", "model=smollm2_135m_raw", "eval=perplexity", *AS_MADE,
        f"eval.perplexity.path={WIKITEXT}", "eval.perplexity.window=2048", "eval.perplexity.max_windows=6",
    )  # fmt: skip
    golden = json.loads((GOLDEN / "wikitext2_ppl.json").read_text())
    check_windows(items, golden)
    check_shares(tmp_path)
    shown = report[report["metric"] == "perplexity"].set_index("arm")["value"]
    for arm, want in golden["results"].items():
        assert shown[arm] == pytest.approx(want["ppl"], rel=1e-4)


def write_task(folder, name):
    rows = (QUESTIONS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[:120]
    (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    task = {
        "task": f"{name}_local", "dataset_path": "json", "test_split": "test", "output_type": "multiple_choice",
        "dataset_kwargs": {"data_files": {"test": f"{name}.jsonl"}}, "doc_to_text": "{{query}}",
        "doc_to_choice": "{{choices}}", "doc_to_target": "gold", "target_delimiter": " ",
        "metric_list": [
            {"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_norm")
        ],
    }  # fmt: skip
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(task))
    return str(folder / f"{name}.yaml")


@pytest.mark.slow
@questions
def test_questions_equal_lm_evals_own_backend_per_choice(tmp_path):
    golden = json.loads((GOLDEN / "lm_eval_hflm.json").read_text())
    names = [name.removesuffix("_local") for name in golden]
    config = composed("model=smollm2_135m_raw", "eval=none", "+exp=int4_ffn_only")
    config.eval.general = [write_task(tmp_path, name) for name in names]
    model = open_model(config.model)
    tasks = gather(find(config.eval, tmp_path), config.eval, model)
    sequences = [s for task in tasks for s in task.sequences]
    packs = form_packs(config, model, sequences)
    stream = Stream(model, [base_arm()], Weigher(), config.engine)
    scores = stream.score(list(batches(packs, config.engine.batch_tokens)), int(slots(sequences)[-1]))
    sums = np.add.reduceat(scores.logp_AS[0], slots(sequences)[:-1])
    first, first_slot = 0, 0
    for task in tasks:
        want = golden[task.name]
        choices = np.concatenate(want["loglik"])
        np.testing.assert_allclose(sums[first : first + len(choices)], choices, rtol=1e-6, atol=1e-3, err_msg=task.name)
        n_slots = sum(s.scored for s in task.sequences)
        results = task.results(scores.part(slice(first_slot, first_slot + n_slots)))
        for measure in results.measures:
            if measure.metric in ("acc", "acc_norm"):
                assert measure.values_AN[0].mean() == want["results"][f"{measure.metric},none"], task.name
        first, first_slot = first + len(choices), first_slot + n_slots
