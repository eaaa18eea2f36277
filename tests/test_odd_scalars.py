"""Numbers that YAML reads as others are refused in a user's files, wherever they stand."""

from pathlib import Path

import pytest

from harness.app import config_folder
from harness.config import GROUPS
from harness.odd_scalars import odd_scalar, odd_scalars
from tests.runs import composed

pytestmark = pytest.mark.case("H10")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 4:30", ["4:30"]), ("a: 010", ["010"]), ("a: -1:04", ["-1:04"]), ("a: [1, 007]", ["007"]),
        ("a: {b: 1:30.5}", ["1:30.5"]), ("a: 0_10", ["0_10"]), ("4:30: x", ["4:30"]), ("a:\n- 1\n- 1:1:1\n", ["1:1:1"]),
        ("a: '4:30'", []), ('a: "010"', []), ("a: 0", []), ("a: 0.5", []), ("a: 1e-3", []), ("a: 00.5", []),
        ("a: 089", []), ("a: 4:75", []), ("a: 10:00 to 11:00", []), ("a: file:010", []), ("a: |\n  4:30\n", []),
        ("# 4:30", []), ("a: 2024-01-01", []), ("a: [", []), ("", []),
    ],
)  # fmt: skip
def test_what_is_found(text, found):
    assert [scalar for _, scalar in odd_scalars(text)] == found


def test_no_shipped_file_has_one():
    assert [p for p in config_folder().rglob("*.yaml") if [*odd_scalars(p.read_text(encoding="utf-8"))]] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["+exp=own", "hydra.searchpath=[file://{0}]"],
        ["+exp=own", "hydra.searchpath=[pkg://x,'{0}']"],
        ["--config-dir", "{0}", "+exp=own"],
        ["--config-dir={0}", "-m", "+exp=int4_split,own"],
        ["-cd", "mine", "+exp=own"],
        ["hydra.searchpath=[file://mine]", "+exp=own"],
    ],
)
@pytest.mark.parametrize(("line", "words"), [("limit: 4:30", "4:30 as 270"), ("limit: 010", "010 as 8")])
def test_a_file_of_the_users_is_refused_with_line_and_way_out(tmp_path, arguments, line, words):
    (tmp_path / "mine" / "exp").mkdir(parents=True)
    path = tmp_path / "mine" / "exp" / "own.yaml"
    path.write_text(f"# @package _global_\neval:\n  {line}\n", encoding="utf-8")
    asked = [argument.format(tmp_path / "mine") for argument in arguments]
    said = odd_scalar(asked, ["exp", *GROUPS], tmp_path)
    assert said.startswith(f"{path}, line 3: YAML reads {words}.") and "in quotes" in said
    path.write_text("# @package _global_\neval:\n  limit: 10\n", encoding="utf-8")
    assert odd_scalar(asked, ["exp", *GROUPS], tmp_path) == ""


@pytest.mark.parametrize("place", ["mine.yaml", "exp/sub/own.yaml"])
def test_the_first_file_and_folders_below_a_group_are_looked_at_too(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("attribute: {seed: 4:30}\n", encoding="utf-8")
    said = odd_scalar([f"--config-dir={tmp_path}", "--config-name=mine"], ["exp"], tmp_path)
    assert said.startswith(f"{path}, line 1: YAML reads 4:30 as 270.")


def test_nothing_is_read_where_no_folder_is_named():
    assert odd_scalar(["+exp=int4_split", "eval.limit=010"], ["exp"], Path("/nonexistent")) == ""


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("eval.limit=010", 10),  # as typed, not octal
        ("experiment=010", "010"),
        ("eval.perplexity.name=010", "010"),
        ("eval.perplexity.name=4:30", "4:30"),
        ("quant.ffn.group_size=064", 64),
        ("eval.general=[010,4:30]", ["010", "4:30"]),
    ],
)
def test_on_the_command_line_they_are_what_was_typed(override, value):
    found = composed("+exp=int4_split", "eval=none", "eval.knowledge=[qh_grammar]", override)
    for part in override.partition("=")[0].split("."):
        found = getattr(found, part)
    assert found == value
