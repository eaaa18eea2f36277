"""What a row says, computed by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from harness.config import AttributeConfig
from harness.model.sites import Site
from harness.plan import Arm, Noise, base_arm
from harness.report.stored import COLUMNS, read_report, write_table
from harness.report.tables import NO_MEAN, Sheet
from harness.scheme import Scheme
from harness.score.measure import Measure, Results, Summary

SITE = Site("layers.0.ffn.up", 0, "ffn", "up", "mlp.up_proj", "weight", 8, 8)
ARMS = [
    base_arm(),
    Arm("ffn", frozenset({"ffn"}), {SITE: Scheme(group_size=8)}),
    Arm("noise.0", frozenset(), {SITE: Noise(0)}),
]
N = 30


def measure(metric, values_AN, *, up, bands=("",), weights=None, is_text=False, documents=None):
    rng = np.random.default_rng(1)
    arms, items = values_AN.shape
    return Measure(
        subset="general", task="t", metric=metric, unit="unit", higher_is_better=up, values_AN=values_AN,
        items=[f"i{n}" for n in range(items)], documents=documents or [f"d{n}" for n in range(items)],
        bands=[bands[n % len(bands)] for n in range(items)], n_tokens=np.arange(1, items + 1),
        weights_N=np.ones(items) if weights is None else weights, is_text=is_text,
        kl_AN=rng.gamma(1.0, size=(arms, items)), agree_AN=rng.random((arms, items)),
    )  # fmt: skip


def sheet(*measures, summaries=()):
    cells = [{"arm": arm.name, "quantized_share": share} for arm, share in zip(ARMS, (None, 1.0, None), strict=True)]
    run = {"experiment": "e", "run_id": "0" * 16, "seed": 0, "seconds": 1.5}
    results = Results(list(measures), list(summaries), {"window": 64}, data_hash="d", template_hash="p")
    return Sheet(run, ARMS, cells, [results], AttributeConfig(resamples=200))


def values(seed=0):
    return np.random.default_rng(seed).normal(size=(3, N)) + np.array([[0.0], [0.5], [0.0]])


def row(report, arm, metric, band=None):
    found = report[(report["arm"] == arm) & (report["metric"] == metric)]
    found = found[found["band"] == band] if band else found[found["band"].isin(["", None])]
    (one,) = found.to_dict("records")
    return one


def test_loss_is_positive_when_worse_whichever_way_the_metric_goes():
    x = values()
    report = sheet(measure("nll", x, up=False), measure("margin", x, up=True)).report()
    down, up = row(report, "ffn", "nll"), row(report, "ffn", "margin")
    assert down["loss"] == pytest.approx(x[1].mean() - x[0].mean()) == pytest.approx(-up["loss"])
    assert down["base_value"] == pytest.approx(x[0].mean()) and down["value"] == pytest.approx(x[1].mean())
    assert down["loss_lo"] < down["loss"] < down["loss_hi"] and down["loss_lo"] == pytest.approx(-up["loss_hi"])


def test_base_has_a_value_and_no_loss():
    base = row(sheet(measure("nll", values(), up=False)).report(), "base", "nll")
    assert base["value"] == base["base_value"] and pd.isna(base["loss"]) and pd.isna(base["p_value"])


def test_bands_come_beside_the_whole_and_cover_it():
    x = values()
    report = sheet(measure("nll", x, up=False, bands=("a", "b", "c"))).report()
    for n, band in enumerate("abc"):
        one = row(report, "ffn", "nll", band)
        assert one["value"] == pytest.approx(x[1, n::3].mean()) and one["n_items"] == one["n_documents"] == 10
    assert row(report, "ffn", "nll")["n_items"] == N


def test_weights_make_the_mean_one_over_tokens():
    x, weights = values(), np.arange(1.0, N + 1)
    report = sheet(measure("nll", x, up=False, weights=weights, is_text=True)).report()
    mean = np.average(x, axis=1, weights=weights)
    one, shown = row(report, "ffn", "nll"), row(report, "ffn", "perplexity")
    assert one["value"] == pytest.approx(mean[1]) and one["loss"] == pytest.approx(mean[1] - mean[0])
    assert one["n_tokens"] == shown["n_tokens"] == N * (N + 1) // 2
    assert shown["value"] == pytest.approx(np.exp(mean[1]))
    assert shown["loss"] == pytest.approx(np.exp(mean[1]) - np.exp(mean[0]))


@pytest.mark.case("H16")
def test_what_is_no_mean_over_items_has_no_interval_and_says_why():
    summary = Summary("general", "t", "f1", "", True, np.array([0.75, 0.5, 0.75]), N)
    text = measure("nll", values(), up=False, is_text=True)
    report = sheet(text, summaries=[summary]).report()
    one = row(report, "ffn", "f1")
    assert one["loss"] == 0.25 and one["n_items"] == N
    for found in (one, row(report, "ffn", "perplexity")):
        assert pd.isna(found["loss_lo"]) and pd.isna(found["p_value"]) and found["reason"] == NO_MEAN


@pytest.mark.case("H16")
def test_a_single_document_gives_no_interval_and_says_why():
    one = row(sheet(measure("nll", values(), up=False, documents=["same"] * N)).report(), "ffn", "nll")
    assert one["n_documents"] == 1 and pd.isna(one["loss_lo"]) and "document" in one["reason"]


def test_flips_are_counted_in_both_directions():
    right = np.zeros((3, 10))
    right[0, :6] = 1  # base: 6 of 10
    right[1, 4:9] = 1  # four lost, three won
    names = ["acc", "exact_match", "exact_match,strict"]
    report = sheet(*(measure(name, right, up=True) for name in names)).report()
    for one in (row(report, "ffn", name) for name in names):
        assert (one["flips_to_wrong"], one["flips_to_right"], one["loss"]) == (4, 3, pytest.approx(0.1))
    assert pd.isna(row(report, "base", "acc")["flips_to_wrong"])


def test_only_right_or_wrong_answers_flip():
    prob = np.clip(np.abs(values()), 0, 1)
    prob[:, 0] = [0.5, 0, 1]
    report = sheet(measure("prob", prob, up=True), measure("errors", np.zeros((3, N)), up=False)).report()
    assert report["flips_to_wrong"].isna().all()


def test_kl_is_shown_and_never_tested_against_zero():
    kl = np.abs(values())
    kl[0] = 0
    one = row(sheet(measure("kl", kl, up=False)).report(), "ffn", "kl")
    assert one["loss"] == pytest.approx(kl[1].mean()) and one["loss_lo"] < one["loss"] < one["loss_hi"]
    assert pd.isna(one["p_value"]) and pd.isna(one["p_adjusted"])


def test_noise_arms_set_the_floor_and_are_not_tested():
    x = values()
    x[1] = x[0] + 1e-6  # far below what noise does
    report = sheet(measure("nll", x, up=False)).report()
    noise, ffn = row(report, "noise.0", "nll"), row(report, "ffn", "nll")
    assert noise["loss"] == pytest.approx(x[2].mean() - x[0].mean()) and pd.isna(noise["p_value"])
    assert ffn["below_noise"] is True or ffn["below_noise"] == np.True_


def test_kl_and_agreement_stand_beside_every_metric():
    made = measure("nll", values(), up=False)
    one = row(sheet(made).report(), "ffn", "nll")
    assert made.kl_AN is not None and made.agree_AN is not None
    assert one["kl_mean"] == pytest.approx(made.kl_AN[1].mean())
    assert one["top1_agreement"] == pytest.approx(made.agree_AN[1].mean())


def test_items_hold_every_value_of_every_arm():
    x, y = values(0), values(1)
    items = sheet(measure("nll", x, up=False, bands=("a", "")), measure("margin", y, up=True)).items()
    assert len(items) == 2 * 3 * N and not items.duplicated(["arm", "metric", "item_id"]).any()
    own = items[(items["arm"] == "ffn") & (items["metric"] == "margin")]
    np.testing.assert_array_equal(own["value"], y[1])
    assert list(own["n_tokens"]) == list(range(1, N + 1)) and not items["control"].any()


def test_items_without_controls_give_the_value_in_the_report():
    x = values()
    one = replace(measure("nll", x, up=False, bands=("first", "second")), controls=frozenset({"first"}))
    made = sheet(one)
    own = made.items().query("arm == 'ffn'")
    assert list(own["control"]) == [True, False] * (N // 2) and own["control"].dtype == bool
    reported = row(made.report(), "ffn", "nll")["value"]
    assert own.loc[~own["control"], "value"].mean() == pytest.approx(reported, rel=1e-12)


@pytest.mark.case("H14")
def test_a_report_read_back_is_the_report(tmp_path):
    report = sheet(
        measure("nll", values(), up=False, bands=("NA", "None"), is_text=True),
        measure("acc", 1.0 * (values() > 0), up=True),
    ).report()
    assert list(report) == COLUMNS
    write_table(report, tmp_path / "report.csv")
    back = read_report(tmp_path / "report.csv")
    assert back["band"].dropna().unique().tolist() == ["NA", "None"]
    for name in set(COLUMNS) - {"protocol"}:
        want = [None if pd.isna(cell) or cell == "" else cell for cell in report[name]]
        assert [None if pd.isna(cell) else cell for cell in back[name]] == want, name
