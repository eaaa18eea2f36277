"""What a person sees at the end of a run."""

import pandas as pd
import pytest

from harness.attribute.shares import NO_SHARE
from harness.console import show_attribution, show_report


def report():
    same = {"subset": "knowledge", "task": "qh_country_currency", "metric": "token_perplexity", "band": None}
    base = {**same, "arm": "base", "n_items": 1000, "value": 1234.5}
    loss = {"loss": 1234.5678, "loss_lo": 1000.1234, "loss_hi": 2000.1234, "verdict": "exploratory"}
    return pd.DataFrame([base, *({**base, "arm": arm, **loss} for arm in ("ffn", "attention", "both"))])


def effects(reason):
    same = {"subset": "knowledge", "task": "qh_country_currency", "metric": "nll"}
    cells = {"loss": 0.12345, "lo": 0.1, "hi": 0.2, "share": None, "share_lo": None, "share_hi": None, "reason": reason}
    kinds = ("alone", "restored", "shapley")
    return pd.DataFrame([{**same, "player": p, "kind": k, **cells} for p in ("ffn", "attention") for k in kinds])


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_number_is_cut_whatever_the_width(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    show_report(report())
    show_attribution(effects(NO_SHARE + "total not told from zero"))
    said = capsys.readouterr().out
    assert said.count("+1234.6 [+1000.1, +2000.1]") == 3 and said.count("exploratory") == 3
    assert said.count("+0.1235") >= 6, "alone and restored stand beside their mean"
    assert "\N{HORIZONTAL ELLIPSIS}" not in said and max(map(len, said.splitlines())) <= width


def test_why_a_share_is_withheld_is_said(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "150")
    show_attribution(effects(NO_SHARE + "total not told from zero"))
    assert "withheld, total not told from zero: knowledge qh_country_currency nll" in capsys.readouterr().out
    show_attribution(effects("mean of alone and restored"))
    assert "withheld" not in capsys.readouterr().out
