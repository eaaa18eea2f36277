"""Tables read back as they were written, by this package and by anyone's strict reader."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from harness.errors import UserError
from harness.report.stored import COLUMNS, WHOLE_NUMBERS, WORDS, read_report, write_table

LOST_ELSEWHERE = ["None", "null", "NA", "n/a", "nan", "NaN", "<NA>", "#N/A", "-", "True"]


def frame(**columns):
    table = pd.DataFrame(columns, dtype=object).reindex(columns=COLUMNS)
    return table.astype({name: "Int64" for name in WHOLE_NUMBERS if name in table})


def there_and_back(table, folder):
    write_table(table, folder / "report.csv")
    return read_report(folder / "report.csv")


def rows(folder):
    """As a strict reader of RFC 4180 sees them."""
    with (folder / "report.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, strict=True))


@pytest.mark.case("H14")
def test_words_that_readers_take_for_missing_stay_words(tmp_path):
    back = there_and_back(frame(task=LOST_ELSEWHERE, ffn_method=LOST_ELSEWHERE), tmp_path)
    assert list(back["task"]) == LOST_ELSEWHERE == list(back["ffn_method"])


@pytest.mark.case("H14")
@pytest.mark.parametrize("word", ["0012", "12e34", "1234567890123456", "00000000", "1.0", "64"])
def test_hashes_of_digits_stay_text(tmp_path, word):
    back = there_and_back(frame(run_id=[word, "a"], model_sha=[word, None], data_hash=[word, word]), tmp_path)
    assert back["run_id"][0] == back["model_sha"][0] == back["data_hash"][1] == word
    assert pd.isna(back["model_sha"][1])


@pytest.mark.case("H14")
def test_whole_numbers_stay_whole_beside_empty_cells(tmp_path):
    back = there_and_back(frame(ffn_group_size=[128, None, -1], weight_bytes=[2**53 + 1, 1, None]), tmp_path)
    assert back["ffn_group_size"].dtype == "Int64" and back["ffn_group_size"][0] == 128
    assert back["weight_bytes"][0] == 2**53 + 1 and back["weight_bytes"].isna().tolist() == [False, False, True]
    assert "128.0" not in (tmp_path / "report.csv").read_text()


def test_numbers_are_equal_to_the_last_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=100) * 10.0 ** np.arange(-50, 50)
    back = there_and_back(frame(value=values), tmp_path)
    assert (back["value"] == values).all()


@pytest.mark.case("H16")
def test_what_is_no_number_is_an_empty_cell(tmp_path):
    write_table(frame(value=[1.0, np.nan], verdict=["worse", None]), tmp_path / "report.csv")
    row = rows(tmp_path)[2]
    assert row[COLUMNS.index("value")] == row[COLUMNS.index("verdict")] == ""
    back = read_report(tmp_path / "report.csv")
    assert back["value"].isna().tolist() == [False, True] and pd.isna(back["verdict"][1])


def test_dictionaries_are_strict_json_with_their_texts_as_they_are(tmp_path):
    protocol = {
        "joiner": "\n\n",
        "regex": "a  b \u00a0c",
        "says": 'a "word", and more',
        "nothing": None,
        "nan": float("nan"),
    }
    back = there_and_back(frame(task=["t"], protocol=[protocol], config=[{}]), tmp_path)
    assert json.loads(back["protocol"][0]) == protocol | {"nan": None}
    assert json.loads(back["config"][0]) == {}


@pytest.mark.case("H15")
def test_the_file_is_rfc_4180_in_utf8(tmp_path):
    write_table(frame(task=["π → ±", 'a,"b"\nc'], value=[1.0, 2.0]), tmp_path / "report.csv")
    text = (tmp_path / "report.csv").read_bytes().decode("utf-8")
    assert text.endswith("\r\n") and text.splitlines()[0] == ",".join(COLUMNS)
    assert [row[COLUMNS.index("task")] for row in rows(tmp_path)[1:]] == ["π → ±", 'a,"b"\nc']
    assert {len(row) for row in rows(tmp_path)} == {len(COLUMNS)}


def test_parquet_keeps_every_type(tmp_path):
    table = pd.DataFrame({"arm": ["None", "ffn"], "value": [np.nan, 1.5], "n_tokens": [1, 2]})
    write_table(table, tmp_path / "items.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "items.parquet"), table)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00", b'a,b\n1,"2\n3'])
def test_a_file_that_is_no_report_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "report.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"report\.csv: not a report"):
        read_report(tmp_path / "report.csv")


def test_every_column_is_a_word_a_whole_number_or_a_number():
    numbers = {
        "value", "stderr", "base_value", "loss", "loss_lo", "loss_hi", "p_value", "p_adjusted", "below_noise",
        "kl_mean", "top1_agreement", "calib_overlap", "quantized_share", "bits_per_weight", "seconds",
    }  # fmt: skip
    assert not set(WORDS) & set(WHOLE_NUMBERS)
    assert set(COLUMNS) == (set(WORDS) | set(WHOLE_NUMBERS) | numbers) & set(COLUMNS)
    assert not numbers & (set(WORDS) | set(WHOLE_NUMBERS))
