"""Pages of runs and sweeps."""

import json
import subprocess
import sys
import time
from itertools import product

import pandas as pd
import pytest

from harness.errors import UserError
from harness.report.__main__ import main
from harness.report.run_page import write_run_report
from harness.report.stored import read_report, write_table
from harness.report.sweep_page import write_sweep_report
from tests.report.pages import check_page
from tests.report.synthetic import write_failed, write_partial, write_run

EVIL = "<script>alert('$x^$')</script>&amp;"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A sweep with all that can go wrong."""
    folder = tmp_path_factory.mktemp("outputs") / "group size"
    for number, (precision, group) in enumerate([("int3", 32), ("int3", 128), ("int4", 32), ("int4", 128)]):
        write_run(folder / f"{number:016x}", precision, group)
    write_failed(folder / "f", f"ValueError: {EVIL}", "int4", -1)
    write_partial(folder / "p", "int3", -1)
    return folder


def test_page_of_a_run(sweep):
    page = check_page(write_run_report(sweep / f"{2:016x}"))
    for words in ("In short", "What each part costs", "Whose loss it is", "Protocol", "How to read this"):
        assert words in page.words
    assert "general \N{MIDDLE DOT} moby_dick, nll (nats/token)" in page.words
    assert "worse" in page.words and "window 384" in page.words and "torch" in page.words
    assert {path.name for path in (sweep / f"{2:016x}" / "figures").iterdir()} >= {
        "waterfall_nll.svg",
        "shares_nll.png",
    }


def test_the_difference_of_differences_is_on_the_page_and_those_within_subsets_where_they_were(sweep):
    page = check_page(write_run_report(sweep / f"{2:016x}"))
    assert "What one subset loses more than another" in page.words
    assert page.words.count("general-knowledge ffn-attention difference of differences") == 1
    assert page.words.count("general-knowledge ffn difference") == 1
    assert page.words.count(" ffn-attention difference ") == 1 + 2, "each subset's own beside it"


def test_page_of_a_sweep(sweep):
    out = write_sweep_report([sweep], sweep)
    page = check_page(out)
    for words in ("What to do", "Loss against bits", "Group size", "Whose loss it is", "All losses", "Runs"):
        assert words in page.words
    assert "1 failed, 1 incomplete of 6 runs" in page.words and "int4 g32 in the FFN" in page.words
    assert out == sweep / "report.html" and len(pd.read_csv(sweep / "sweep.csv")) == 4 * 8 + 2
    names = {path.name for path in (sweep / "figures").iterdir()}
    assert {"loss_bits_general-moby_dick.png", "group_size_knowledge-capitals.svg", "shares_general.svg"} <= names


def test_a_sweeps_table_says_the_settings_of_a_run_once(sweep):
    write_sweep_report([sweep], sweep)
    table = pd.read_csv(sweep / "sweep.csv", dtype=str)
    done = table[table["status"] == "done"]
    assert len(done) > done["run_id"].nunique() == 4
    assert (done["config"].notna() == ~done.duplicated("run_id")).all()


def test_pages_are_the_same_when_made_again(sweep):
    first = write_sweep_report([sweep], sweep).read_bytes(), (sweep / "sweep.csv").read_bytes()
    assert (write_sweep_report([sweep], sweep).read_bytes(), (sweep / "sweep.csv").read_bytes()) == first


def test_a_sweep_links_to_the_pages_of_its_runs(sweep, tmp_path):
    write_run_report(sweep / f"{0:016x}")
    page = check_page(write_sweep_report([sweep], tmp_path))
    links = [a["href"] for a in page.all("a") if a["href"].endswith("report.html")]
    assert any((tmp_path / link).resolve() == (sweep / f"{0:016x}" / "report.html").resolve() for link in links)


@pytest.mark.parametrize("make", [write_run_report, lambda folder: write_sweep_report([folder], folder)])
def test_what_results_say_is_escaped(tmp_path, make):
    cells = {"model": EVIL, "data_hash": EVIL, "protocol": {EVIL: EVIL}}
    folder = write_run(tmp_path / EVIL.replace("/", "_") / "1", cells=cells, **{"model.name": EVIL})
    page = check_page(make(folder))
    assert "<script>alert" not in page.source and "alert('$x^$')" in page.words


@pytest.mark.case("H1")
def test_runs_without_result_get_a_page_that_says_so(tmp_path):
    page = check_page(write_run_report(write_failed(tmp_path / "f", f"MemoryError {EVIL}")))
    assert f"failed: MemoryError {EVIL}" in page.words and "<script>alert" not in page.source
    page = check_page(write_run_report(write_partial(tmp_path / "p")))
    assert "incomplete: no result.json" in page.words and "In short" not in page.words


def test_a_sweep_of_failures_only_is_still_a_page(tmp_path):
    write_failed(tmp_path / "x" / "1", "no memory")
    write_failed(tmp_path / "x" / "2", "no memory", "int3")
    page = check_page(write_sweep_report([tmp_path], tmp_path))
    assert "2 failed of 2 runs" in page.words and "Loss against bits" not in page.words


def test_mixed_versions_and_protocols_are_named(tmp_path):
    write_run(tmp_path / "1", "int4", 32)
    write_run(tmp_path / "2", "int4", 64, cells={"harness_version": "0.2.0", "protocol": {"window": 1024}})
    page = check_page(write_sweep_report([tmp_path], tmp_path))
    assert "Runs differ in harness_version (0.1.0, 0.2.0)" in page.words
    assert "differ in protocol on general" in page.words and "(scored otherwise, 2)" in page.words


def test_several_models_are_reported_apart(tmp_path):
    for name in ("small", "large"):
        write_run(tmp_path / name, **{"model.name": name})
    page = check_page(write_sweep_report([tmp_path], tmp_path))
    assert "small: No setting" in page.words and "large: No setting" in page.words


def test_a_run_without_attribution_or_sites_has_its_losses(tmp_path):
    folder = write_run(tmp_path / "1")
    for name in ("attribution.csv", "sites.csv"):
        (folder / name).unlink()
    result = (folder / "result.json").read_text(encoding="utf-8")
    kept = "\n".join(line for line in result.splitlines() if "attribution.csv" not in line and "sites.csv" not in line)
    (folder / "result.json").write_text(kept, encoding="utf-8")
    page = check_page(write_run_report(folder))
    assert "What each part costs" in page.words and "Whose loss it is" not in page.words


def write_base(folder, value=3.0, **changes):
    """A run of base alone, with a band and a metric that base has of itself."""
    write_run(folder, **changes)
    (folder / "attribution.csv").unlink()
    (folder / "sites.csv").unlink()
    report = read_report(folder / "report.csv")
    base = report[report["arm"] == "base"].assign(value=value)
    more = [base.head(1).assign(band="early", value=4.5), base.head(1).assign(metric="kl", value=0.0)]
    write_table(pd.concat([base, *more]), folder / "report.csv")
    write_table(base.head(1).assign(task="all tasks, by item", value=2.5), folder / "groups.csv")
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    result["files"] = {name: (folder / name).stat().st_size for name in ("report.csv", "groups.csv")}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return folder


def test_a_run_of_base_alone_shows_what_it_scores_and_no_empty_table(tmp_path):
    page = check_page(write_run_report(write_base(tmp_path / "1", value=3.14159265)))
    assert "What base scores" in page.words and "What each part costs" not in page.words
    assert "general \N{MIDDLE DOT} moby_dick nll 3.1416 nats/token 60" in page.words
    assert "general \N{MIDDLE DOT} moby_dick \N{MIDDLE DOT} early nll 4.5 nats/token 60" in page.words
    assert "general \N{MIDDLE DOT} all tasks, by item nll 2.5 nats/token 60" in page.words
    assert not any(words in page.words for words in (" kl 0 ", "Other metrics and bands", "Groups of tasks"))
    assert "<tbody></tbody>" not in "".join(page.source.split())


def test_a_sweep_of_base_alone_shows_what_each_run_scores(tmp_path):
    for seed, value in enumerate((3.25, 3.5)):
        write_base(tmp_path / str(seed), value=value, **{"model.seed": seed})
    page = check_page(write_sweep_report([tmp_path], tmp_path))
    first, second = (f"moby_dick nll {seed} {value} nats/token 60" for seed, value in enumerate((3.25, 3.5)))
    assert f"{first} general \N{MIDDLE DOT} {second}" in page.words


def test_base_has_no_table_of_its_own_beside_arms(sweep):
    assert "What base scores" not in check_page(write_run_report(sweep / f"{1:016x}")).words
    assert "What base scores" not in check_page(write_sweep_report([sweep], sweep)).words


def test_a_table_of_base_ends_somewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.report.base_tables.MOST_ROWS", 1)
    assert "the first 1 of 2; all are in the CSV file" in check_page(write_run_report(write_base(tmp_path / "1"))).words


def test_matrices_that_fell_back_are_counted_with_their_reasons(tmp_path):
    folder = write_run(tmp_path / "1")
    sites = pd.read_csv(folder / "sites.csv")
    first = sites["site"] == sites["site"][0]
    sites.loc[first, ["fallback", "fallback_reason"]] = ["rtn", "every input is zero in calibration"]
    (folder / "sites.csv").write_text(sites.to_csv(index=False), encoding="utf-8")
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    result["files"]["sites.csv"] = (folder / "sites.csv").stat().st_size
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    page = check_page(write_run_report(folder))
    assert "1 of 28 matrices fell back to rtn: every input is zero in calibration" in page.words


def test_command(tmp_path, capsys):
    folder = write_run(tmp_path / "x" / "1")
    write_failed(tmp_path / "x" / "2", "no memory", "int3")
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert main([str(tmp_path / "x"), "--out", str(tmp_path / "out"), "--runs"]) == 0
    assert (tmp_path / "out" / "sweep.csv").is_file() and (tmp_path / "x" / "2" / "report.html").is_file()
    assert main([str(tmp_path / "none")]) == 1
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "x"), "--out", str(tmp_path / "file" / "under")]) == 1
    assert "error: " in capsys.readouterr().err


def test_reports_import_no_model_and_no_torch():
    code = "import harness.report.__main__, harness.report.callback, sys; "
    code += "print({'torch', 'harness.model'} & set(sys.modules))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "set()"


def test_no_run_no_report(tmp_path):
    with pytest.raises(UserError, match="no run here"):
        write_sweep_report([tmp_path], tmp_path)


@pytest.mark.slow
def test_two_hundred_runs_in_twenty_seconds_and_three_megabytes(tmp_path):
    settings = list(product(range(8), ("int2", "int3", "int4", "int5", "int8"), (16, 32, 64, 128, -1)))
    for number, (seed, precision, group) in enumerate(settings):
        write_run(tmp_path / f"{number:016x}", precision, group, seed=seed, resamples=100, **{"design.seed": seed})
    begun = time.process_time()
    page = write_sweep_report([tmp_path], tmp_path)
    assert time.process_time() - begun < 20 and page.stat().st_size < 3e6
    check_page(page)
