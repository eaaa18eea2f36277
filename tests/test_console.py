"""What a person sees at the end of a run."""

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from harness.attribute import Effect
from harness.attribute.power import TEXT_PRIORS, over_tasks, resolution
from harness.attribute.shares import NO_SHARE
from harness.console import show_attribution, show_between, show_plan, show_report, show_resolutions
from harness.model.sites import Site
from harness.plan import Arm
from harness.scheme import Scheme


def report(*arms):
    same = {"subset": "knowledge", "task": "qh_country_currency", "metric": "token_perplexity", "band": None}
    base = {**same, "arm": "base", "n_items": 1000, "value": 1234.5}
    loss = {"loss": 1234.5678, "loss_lo": 1000.1234, "loss_hi": 2000.1234, "verdict": "exploratory"}
    return pd.DataFrame([base, *({**base, "arm": arm, **loss} for arm in arms or ("ffn", "attention", "both"))])


def effects(reason, *players):
    same = {"subset": "knowledge", "task": "qh_country_currency", "metric": "nll"}
    cells = {"loss": 0.12345, "lo": 0.1, "hi": 0.2, "share": None, "share_lo": None, "share_hi": None, "reason": reason}
    kinds = ("alone", "restored", "shapley")
    return pd.DataFrame(
        [{**same, "player": p, "kind": k, **cells} for p in players or ("ffn", "attention") for k in kinds]
    )


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_number_is_cut_whatever_the_width(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    show_report(report())
    show_attribution(effects(NO_SHARE + "total not told from zero"))
    said = capsys.readouterr().out
    assert said.count("+1234.6 [+1000.1, +2000.1]") == 3 and said.count("exploratory") == 3
    assert said.count("+0.1235") >= 6, "alone and restored stand beside their mean"
    assert "\N{HORIZONTAL ELLIPSIS}" not in said and max(map(len, said.splitlines())) <= width


def test_long_names_have_their_figures_on_their_lines(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"attention.o.layers.2{n}-29" for n in range(4)]
    for show, figures, last in (
        (lambda: show_report(report(*names)), "+1234.6 [+1000.1, +2000.1]", "exploratory"),
        (lambda: show_attribution(effects(NO_SHARE + "negative", *names)), "+0.1235 [+0.100, +0.200]", "withheld"),
    ):
        show()
        said = capsys.readouterr().out
        assert max(map(len, said.splitlines())) <= 80 and "knowledge qh_country_currency" in said
        for name in names:
            (line,) = (line for line in said.splitlines() if name in line)
            assert figures in line and line.rstrip().endswith(last)


def test_a_plan_keeps_its_figures_whatever_the_names(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    site = Site("layers.0.ffn.down", 0, "ffn", "down", "mlp.down_proj", "weight", 3072, 3072)
    players = frozenset(f"{block}.layers.{n}-29" for block in ("ffn.down", "attention.o") for n in range(20, 24))
    show_plan([Arm("+".join(sorted(players)), players, {site: Scheme(method="rtn")})], [])
    said = capsys.readouterr().out
    assert "9,437,184" in said and "attention.o.layers.23-29" in said and max(map(len, said.splitlines())) <= 80


def test_why_a_share_is_withheld_is_said(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "150")
    show_attribution(effects(NO_SHARE + "total not told from zero"))
    assert "withheld, total not told from zero: knowledge qh_country_currency nll" in capsys.readouterr().out
    show_attribution(effects("mean of alone and restored"))
    assert "withheld" not in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 190])
def test_the_difference_of_differences_is_said_with_its_interval(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    rest = dict.fromkeys(field.name for field in fields(Effect)) | {"task": "all", "kind": "difference", "reason": ""}
    known = {"loss": -0.12345, "lo": -0.2, "hi": -0.1, "verdict": "exploratory"}
    subsets, players = ("knowledge", "context", "knowledge-context"), ("ffn", "ffn-attention")
    places = [
        {"subset": subset, "player": player, "metric": metric}
        for subset in subsets for player in players for metric in ("nll", "acc") if "-" in subset + player
    ]  # fmt: skip
    show_between([Effect(**{**rest, **known, **place}) for place in places])
    said = capsys.readouterr().out
    (line,) = (line for line in said.splitlines() if "knowledge-context" in line)
    assert line.split() == [
        "knowledge-context",
        "nll",
        "ffn-attention",
        "-0.1235",
        "[-0.200,",
        "-0.100]",
        "exploratory",
    ]
    assert max(map(len, said.splitlines())) <= width and "difference of differences" in said
    show_between([Effect(**{**rest, **known, **places[0]})])
    assert capsys.readouterr().out == ""


def resolutions(tasks=2):
    """Of a text, of questions whose base is known, and of their mean."""
    base, at = np.arange(60) % 5 > 0, np.arange(60)
    found = [resolution("knowledge", "prose", m, at[:30], 0.95, TEXT_PRIORS) for m in ("nll", "kl")]
    for n in range(tasks):
        task = f"qh_country_currency_{n}"
        metrics = ("acc", "acc_norm", "exact_match", "nll", "kl", "margin")
        found += [resolution("knowledge", task, m, at, 0.95, base_N=base if m == "acc" else None) for m in metrics]
    same = [one for one in found if one.metric == "nll"]
    documents = [{f"{n} {at}" for at in range(one.n_documents)} for n, one in enumerate(same)]
    return [*found, over_tasks(same, documents, 0.95)]


@pytest.mark.parametrize("width", [80, 200])
def test_what_a_run_can_resolve_fits_the_terminal_and_says_where_it_is_known_from(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    show_resolutions(resolutions(), 0.95, ["prose"])
    said = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in said and max(map(len, said.splitlines())) <= width
    lines = [line.split() for line in said.splitlines()]
    assert "80 % power at level 0.95" in said and ("margin" in said) is (width == 200)
    (prose,) = (line for line in lines if line[:2] == ["knowledge", "prose"])
    assert prose[2:] == ["30", "30", "0.041", "0.032"]
    (known,) = (line for line in lines if "qh_country_currency_0" in line)
    assert known[2:5] == ["60", "60", "0.13*!"]  # two marks: from base's scores, and more than a typical loss
    assert ["knowledge", "all", "3", "tasks", "150", "150"] in [line[:6] for line in lines]
    words = " ".join(said.split())
    assert "* from kept scores of base; others from a stated prior" in words
    assert "WARNING: a typical int4 loss is smaller (acc 0.02, " in words and "prose: windows count" in words


def test_of_many_tasks_only_the_mean_is_shown(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    show_resolutions(resolutions(12), 0.95)
    said = capsys.readouterr().out
    assert "all 13 tasks" in said and "currency" not in said
    show_resolutions([], 0.95)
    assert capsys.readouterr().out == ""


def test_a_plan_of_base_alone_has_no_empty_table_of_sites(capsys):
    show_plan([Arm("base", frozenset(), {})], ["a note"])
    shown = capsys.readouterr().out
    assert "base" in shown and "a note" in shown
    assert "precision" not in shown and "range" not in shown
