"""The command line: three formats, pictures, and mistakes in one line."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.ledger.__main__ import compose, run, usage
from harness.ledger.config import Format


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    run(arguments)
    return capsys.readouterr().out


def test_json_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(printed(capsys, "model=llama2_7b", "ledger.format=json"))
    assert content["params"]["layer"]["ffn"] == 135_266_304
    assert content["params"]["layer"]["attention"] == 67_108_864
    assert {"ffn", "attention", "embedding", "other", "all"} <= set(content["params"]["total"])
    total = content["params"]["total"]
    assert total["all"] == total["ffn"] + total["attention"] + total["embedding"] + total["other"]
    assert content["share"]["layer_ffn"] == pytest.approx(0.6684, abs=1e-4)
    assert content["share"]["total_ffn"] == pytest.approx(0.6424, abs=1e-4)
    assert content["kv_cache"]["bytes_a_token"] == 524_288


def test_csv_tells_what_json_tells(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "model=mixtral_8x7b", "ledger.format=csv")
    content = json.loads(printed(capsys, "model=mixtral_8x7b", "ledger.format=json"))
    rows = list(csv.DictReader(io.StringIO(text)))
    values = {(row["table"], row["row"], row["field"]): row["value"] for row in rows}
    assert len(values) == len(rows), "every value has a name of its own"
    assert int(values["params", "active", "all"]) == content["params"]["active"]["all"]
    assert float(values["share", "layer_ffn", ""]) == content["share"]["layer_ffn"]
    int4 = next(row for row in content["bytes"] if (row["precision"], row["group_size"]) == ("int4", 128))
    assert int(values["bytes", "int4 128", "ffn_bytes"]) == int4["ffn_bytes"]
    assert int(values["roles", "ffn up expert 14336 4096", "active"]) == 2 * 32 * 14336 * 4096


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "model=llama2_7b")
    assert "6,738,415,616 parameters. FFN: 66.8% of a layer, 64.2% of the model." in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", ["deepseek_v3", "palm_540b", "smollm2_135m", "family", "gpt3_175b"])
def test_every_kind_of_model_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert name in printed(capsys, f"model={name}")
    assert json.loads(printed(capsys, f"model={name}", "ledger.format=json"))["model"] == name


def test_empty_lists_leave_their_tables_out(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "model=tiny", "ledger.accelerators=[]", "ledger.batch_sizes=[]", "ledger.precisions=[]")
    assert "Decode bound" not in text


def test_family_in_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["model=family", "model.members=[[2,64],[4,128]]", "model.shape.multiple_of=1", "ledger.format=json"]
    assert [row["d_model"] for row in json.loads(printed(capsys, *command))["family"]] == [64, 128]


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_field_of_the_models_own_config(prefix: str) -> None:
    assert compose([f"{prefix}model.config.intermediate_size=4096"]).model.config == {"intermediate_size": 4096}


def test_settings_are_typed() -> None:
    config = compose(["ledger.format=csv", "model=shape", "model.shape.ratio=8/3", "model.shape.layers=2"])
    assert config.ledger.format is Format.csv
    assert (config.model.shape.ratio, config.model.shape.layers) == ("8/3", 2)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("model=lama2_7b", "is no preset. Did you mean llama2_7b"),
        ("+exq=int4", "there is no setting exq"),
        ("ledger.formt=json", "no setting formt. Did you mean format"),
        ("ledger.format=xml", "ledger.format=xml.*table, csv, json"),
        ("ledger.precisions=[int9]", "int9.*int8"),
        ("model.shape.layers=two", "model.shape.layers=two"),
        ("ledger.batch_sizes=[1", "[1"),
        ("ledger.batch_sizes=[0]", "batch_sizes=0"),
        ("ledger.length=-4", "length=-4"),
        ("ledger.group_sizes=[0]", "group size 0"),
        ("ledger.train_tokens=0", "train_tokens"),
        ("ledger.ratios=[-1]", "ratios"),
        ("ledger.accelerators=[h1]", "h1 is not known"),
        ("ledger.picture=/proc/no/such", "cannot be written"),
    ],
)
def test_mistakes_are_named_in_one_line(argument: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("[1", r"\[1")) as error:
        run([argument, "ledger.format=json"])
    assert len(str(error.value).splitlines()) == 1


def test_beside_names_an_unknown_preset() -> None:
    with pytest.raises(UserError, match=r"ledger\.beside=lama is no preset"):
        run(["model=tiny", "ledger.picture=x", "ledger.beside=[lama]"])


def test_family_has_no_picture() -> None:
    with pytest.raises(UserError, match="no single picture"):
        run(["model=family", "ledger.picture=x"])


@pytest.mark.parametrize("beside", ["[]", "[palm_540b]"])
def test_picture(beside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stem = tmp_path / "new" / "v1.0"
    printed(capsys, "model=tiny", f"ledger.picture={stem}", f"ledger.beside={beside}", "ledger.format=json")
    assert (tmp_path / "new" / "v1.0.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "new" / "v1.0.svg").read_text()


def test_usage_names_presets_and_settings() -> None:
    for word in ("llama2_7b", "palm_540b", "plan_group_size", "model.config"):
        assert word in usage()


def test_module_ends_with_a_line_and_status_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness.ledger", "model=lama2_7b"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: model=lama2_7b")
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


MEASURE = """
import sys, time
from harness.ledger.__main__ import run
from harness.report.cells import peak_resident_bytes
run(["model=tiny"])  # transformers imports most of itself when a first model is made
begun = time.process_time()
run([f"model={sys.argv[1]}", "ledger.format=json"])
print(time.process_time() - begun, peak_resident_bytes(), file=sys.stderr)
"""


@pytest.mark.parametrize(("name", "seconds"), [("gpt3_175b", 3), ("deepseek_v3", 20)])
def test_large_models_are_quick_and_small(name: str, seconds: float) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE, name], capture_output=True, text=True, check=True)
    cpu_seconds, peak_bytes = map(float, done.stderr.split()[-2:])
    assert cpu_seconds < seconds
    assert peak_bytes < 2e9
