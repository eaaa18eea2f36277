"""Notes and group fits."""

import pytest

from harness.ledger.checks import group_fit, notes
from harness.ledger.config import LedgerOptions, ShapeNumbers
from harness.ledger.presets import choices, shape_of
from harness.ledger.shape import Shape, plain_shape


def fit(shape: Shape, role: str, **options: object) -> dict:
    return next(row for row in group_fit(shape, LedgerOptions(**options)) if row["role"] == role)


def plain(**numbers: object) -> Shape:
    return plain_shape(ShapeNumbers(**{"layers": 1, "d_model": 1024, "d_ff": 2816, "vocab": 8, **numbers}))


def test_a_usual_shape_has_little_to_say() -> None:
    assert notes(plain(d_ff=4096, matrices=2), LedgerOptions()) == []


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"d_ff": 2800}, "no multiple of 256"),
        ({"heads": 8, "head_dim": 64}, "heads x head_dim = 8 x 64 = 512 is not d_model = 1,024"),
        ({"d_ff": 2816}, "costs 3.1"),
        ({"d_ff": 4096}, "+50.0% off the 8/3 rule"),
        ({"d_ff": 2048, "matrices": 2}, "-50.0% off the 4 rule"),
        ({"vocab": 0}, "no embedding is counted"),
        ({"tied": True}, "one tied table"),
        ({"d_model": 576, "d_ff": 1536}, "Group size 128 does not divide in_features 576"),
    ],
)
def test_notes(numbers: dict, words: str) -> None:
    assert any(words in note for note in notes(plain(**numbers), LedgerOptions()))


def test_layers_that_differ_are_said() -> None:
    assert any("Layers differ" in note for note in notes(shape_of(choices()["deepseek_v3"]), LedgerOptions()))


@pytest.mark.case("A7")
def test_odd_number_of_groups_allows_no_cut() -> None:
    shape = plain_shape(ShapeNumbers(layers=2, d_model=64, d_ff=96, heads=4, kv_heads=2, vocab=128))
    assert fit(shape, "down", plan_group_size=32)["largest_degree"] == 1
    assert fit(shape, "down", plan_group_size=16)["largest_degree"] == 2
    assert fit(shape_of(choices()["qwen25_72b"]), "down", plan_group_size=128)["largest_degree"] == 1


@pytest.mark.case("A8")
def test_shards_that_groups_do_not_divide() -> None:
    row = fit(shape_of(choices()["qwen25_0_5b"]), "o")  # 896 / 2 = 448
    assert (row["tp1"], row["tp2"]) == ("32 64 128", "32 64")
    shape = plain_shape(ShapeNumbers(layers=2, d_model=96, d_ff=192, heads=4, vocab=128))
    assert (fit(shape, "o")["tp1"], fit(shape, "o")["tp2"]) == ("32", "per row")


def test_only_rows_are_cut_along_the_groups() -> None:
    shape = plain(heads=8, kv_heads=2)
    assert fit(shape, "up")["tp8"] == fit(shape, "up")["tp1"]
    assert (fit(shape, "k")["tp2"], fit(shape, "k")["tp4"]) == ("32 64 128 256", "uncut")
    assert fit(shape, "k")["largest_degree"] == 2
    assert fit(plain(d_model=576, d_ff=1536), "q")["largest_degree"] == 0  # 128 does not divide 576
