"""The command line: found from everywhere, quick to answer, one message for a mistake. Each test starts one process."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from harness import app
from harness.app import config_folder
from harness.report.tables import read_report

ROOT = Path(__file__).parents[1]
SCRIPT = Path(sys.executable).parent / "harness"
# Nothing of the user's locale: files default to ASCII, and so does the console.
ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SMALL = (
    "model=tiny", "eval.context_suite.lengths=[]",
    "eval.limit=3", "eval.perplexity.window=48", "eval.perplexity.max_windows=2",
    "attribute.resamples=200",
)  # fmt: skip


def harness(*arguments, start="/", script=None, **environment):
    """Run the command in a folder; its standard output, error and exit code."""
    command = [str(script)] if script else [sys.executable, "-m", "harness"]
    return subprocess.run(
        [*command, *arguments], cwd=start, env={**os.environ, **environment}, capture_output=True, check=False
    )


@pytest.mark.case("H11")
@pytest.mark.case("H15")
def test_a_run_on_a_console_of_ascii_only(tmp_path):
    """Odd file names and texts pass through; the path of the results is the last line."""
    (tmp_path / "π → text.txt").write_text("É → word " * 40, encoding="utf-8")
    done = harness("+exp=int4_ffn_only", *SMALL, "eval.perplexity.path='π → text.txt'",
                   "eval.perplexity.document_regex=''", start=tmp_path, **ASCII)  # fmt: skip
    out, error = done.stdout.decode("ascii"), done.stderr.decode("ascii")
    assert done.returncode == 0, error
    last = out.splitlines()[-1]
    folder = Path(last.removeprefix("done: "))
    assert last == f"done: {folder}" and folder.parent == tmp_path / "outputs" / "int4_ffn_only"
    assert json.loads((folder / "result.json").read_text(encoding="utf-8"))["status"] == "done"
    config = json.loads((folder / "attempts" / "0" / "config.json").read_text(encoding="utf-8"))
    assert config["eval"]["perplexity"]["path"] == str(tmp_path / "π → text.txt")
    attempt = {name: (folder / "attempts" / "0" / f"{name}.yaml").read_text("utf-8") for name in ("overrides", "hydra")}
    asked = ["+exp=int4_ffn_only", *SMALL, "eval.perplexity.path='π → text.txt'", "eval.perplexity.document_regex=''"]
    assert list(OmegaConf.create(attempt["overrides"])) == asked
    hydra = OmegaConf.create(attempt["hydra"]).hydra
    assert hydra.overrides.task[0] == asked[0] and hydra.runtime.cwd == str(tmp_path)
    assert set(read_report(folder / "report.csv")["arm"]) == {"base", "ffn"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outputs", "π → text.txt"]
    assert "it/s" not in error and "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["+exq=int4_ffn_only"], "error: exq: there is no such setting or group. Did you mean exp?"),
        (["quant.ffn.precision=int7"], "expected one of"),
        (["+exp=int4_splt"], "error: exp=int4_splt: there is no such choice. Did you mean int4_split?"),
        (["quant=null"], "quant=null: a group cannot be left out"),
        (["+exp=int4_ffn_only", "quant.ffn.group_size=0"], "error: quant.ffn: group_size=0 is not a size."),
    ],
)
def test_a_mistake_is_one_message_and_a_failed_exit(arguments, words):
    done = harness(*arguments)
    error = done.stderr.decode()
    assert done.returncode != 0 and not done.stdout
    assert words in error.replace("\n", " ") and "Traceback" not in error
    assert error.startswith("error: ") and len(error.strip().splitlines()) <= 3


@pytest.mark.case("H10")
def test_a_number_that_yaml_reads_as_another_is_a_mistake(tmp_path):
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "own.yaml").write_text("# @package _global_\neval:\n  limit: 010\n", encoding="utf-8")
    done = harness("+exp=own", f"hydra.searchpath=[file://{tmp_path}]", "harness.plan_only=true", start=tmp_path)
    assert done.returncode != 0 and not done.stdout
    assert done.stderr.decode().startswith(f"error: {tmp_path / 'exp' / 'own.yaml'}, line 3: YAML reads 010 as 8.")


def test_a_mistake_shows_where_it_arose_when_asked():
    done = harness("+exp=int4_ffn_only", "eval.limit=0", "harness.traceback=true")
    error = done.stderr.decode()
    assert done.returncode != 0 and "Traceback" in error and "eval.limit=0" in error


def test_a_folder_that_was_deleted_meanwhile_is_named_as_the_cause(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "no longer exists" in app._mistake(["+exp=int4_split"])


def test_help_is_quick_as_it_needs_no_large_library():
    heavy = {"torch", "transformers", "lm_eval", "pandas"}
    code = "import sys; sys.argv = ['harness', '--help']\nimport harness.app as app\n" + (
        f"try:\n    app.main()\nfinally:\n    print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd="/")
    out = done.stdout.decode()
    assert "python -m harness +exp=int4_ffn_only" in out and out.splitlines()[-1] == "[]"


@pytest.mark.case("H7")
@pytest.mark.parametrize("script", [None, SCRIPT])
def test_module_and_console_script_find_the_configs_from_anywhere(script):
    done = harness("--cfg", "job", "+exp=int4_split", "--package", "quant.ffn", start="/", script=script)
    assert done.returncode == 0, done.stderr.decode()
    assert "method: rtn" in done.stdout.decode()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A built wheel, unpacked where no checkout is near."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", "--wheel-dir", str(folder)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.case("H7")
def test_a_wheel_carries_configs_data_and_tasks(installed):
    def files(folder):
        return {
            p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts
        }

    assert files(config_folder()) == files(installed / "harness" / "conf")
    package = files(ROOT / "harness")
    assert package <= files(installed / "harness")
    assert {"data/suites/city_country.yaml", "data/suites/city_country.jsonl", "data/prose/moby_dick.txt"} <= package


@pytest.mark.case("H7")
def test_an_installed_wheel_finds_its_own_configs(installed, tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "import harness.app as app; print(app.config_folder())\n"
        "sys.argv = ['harness', '--cfg', 'job', '+exp=int4_ffn_only', '--package', 'quant.ffn']; app.main()"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, check=False)
    out = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert out.splitlines()[0] == str(installed / "harness" / "conf") and "precision: int4" in out
    assert list(tmp_path.iterdir()) == []
