"""The spread over calibration draws."""

import pandas as pd
import pytest

from harness.console import show_spreads
from harness.report import run_page
from harness.report.rows import records
from harness.report.run_page import write_run_report
from harness.report.spread import spread_table, spreads
from tests.report.pages import check_page
from tests.report.synthetic import write_run

LOSSES = {"base": None, "ffn": 0.1, "ffn@1": 0.2, "ffn@2": 0.3, "attention": 0.1}


def report(band=None):
    cells = {"subset": "general", "task": "prose", "metric": "nll", "band": band}
    return pd.DataFrame([{"arm": arm, "loss": loss, **cells} for arm, loss in LOSSES.items()])


def test_of_arms_with_several_draws(capsys):
    (found,) = spreads(records(report()))
    assert (found.arm, found.losses, found.deviation) == ("ffn", (0.1, 0.2, 0.3), pytest.approx(0.1))
    assert [cell.text for cell in spread_table([found]).rows[0]][3:] == ["3", "+0.2000", "0.1000", "+0.1000", "+0.3000"]
    show_spreads(report())
    assert "+0.3000" in capsys.readouterr().out


def test_bands_and_single_draws_have_none(capsys):
    assert spreads(records(report(band="large"))) == []
    show_spreads(report(band="large"))
    assert capsys.readouterr().out == ""


def test_on_a_runs_page(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "e" / "0")
    assert "Other calibration text" not in check_page(write_run_report(folder)).words
    own = run_page.records
    monkeypatch.setattr(run_page, "records", lambda frame: [*own(frame), *({**r, "arm": "ffn@1"} for r in own(frame))])
    words = check_page(write_run_report(folder)).words
    assert "Other calibration text" in words and "Loss over calibration draws" in words
