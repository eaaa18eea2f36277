"""Golden figures of model arithmetic: exact where counts are exact, else to the digits that were published."""

import pytest

from harness.ledger.checks import notes
from harness.ledger.config import LedgerOptions, ShapeNumbers
from harness.ledger.costs import (
    cache_elements,
    ffn_activation_bytes,
    forward_flops,
    gpu_days,
    score_flops,
    training_flops,
    training_state_bytes,
)
from harness.ledger.decode import decode_ms
from harness.ledger.family import family_rows
from harness.ledger.params import by_role, ffn_share, ratio_for_share, summary, totals, usual_layer
from harness.ledger.presets import choices, shape_of
from harness.ledger.shape import Shape, plain_shape
from harness.ledger.storage import by_precision


def shape(name: str, **changes: object) -> Shape:
    choice = choices()[name]
    choice.config = changes
    return shape_of(choice)


def layer(of: Shape) -> tuple[int, int]:
    return usual_layer(of).weights("attention"), usual_layer(of).weights("ffn")


def bytes_row(of: Shape, precision: str, group_size: object) -> dict:
    rows = by_precision(of, LedgerOptions())
    return next(r for r in rows if (r["precision"], r["group_size"]) == (precision, group_size))


def test_gpt3_175b() -> None:
    gpt3 = shape("gpt3_175b")
    counts = summary(gpt3)
    assert layer(gpt3) == (603_979_776, 1_207_959_552)
    assert counts["share"]["layer_ffn"] == pytest.approx(2 / 3, abs=1e-12)
    total = counts["params"]["total"]
    assert total["ffn"] + total["attention"] == 173_946_175_488  # 173.95 B
    assert total["matrices"] == 175_181_291_520  # 175.18 B
    assert counts["params"]["other"]["position"] == 2048 * 12288
    assert {row["role"] for row in by_role(gpt3) if row["block"] == "ffn"} == {"up", "down"}


def test_gpt3_tied_as_gpt2_ties() -> None:
    assert summary(shape("gpt3_175b", tie_word_embeddings=True))["params"]["total"]["matrices"] == 174_563_733_504


def test_llama2_7b() -> None:
    llama = shape("llama2_7b")
    counts = summary(llama)
    assert layer(llama) == (67_108_864, 135_266_304)
    assert counts["share"]["layer_ffn"] == pytest.approx(0.668, abs=5e-4)
    assert counts["params"]["total"]["ffn"] == 4_328_521_728
    assert counts["params"]["total"]["all"] == 6_738_415_616
    assert counts["share"]["total_ffn"] == pytest.approx(0.642, abs=5e-4)


def test_llama2_70b() -> None:
    assert layer(shape("llama2_70b")) == (150_994_944, 704_643_072)
    assert summary(shape("llama2_70b"))["share"]["layer_ffn"] == pytest.approx(0.824, abs=5e-4)


def test_llama1_65b_ratio() -> None:
    assert summary(shape("llama1_65b"))["share"]["ratio"] == 2.6875


def test_palm_540b() -> None:
    palm = shape("palm_540b")
    assert totals(palm)["all"] == 540_354_281_472  # 540.35 B
    assert "heads x head_dim = 48 x 256 = 12,288 is not d_model = 18,432." in notes(palm, LedgerOptions())


def test_palm_with_the_articles_width() -> None:
    numbers = choices()["palm_540b"].shape
    numbers.d_ff = 49_152
    assert totals(plain_shape(numbers))["all"] == pytest.approx(380e9, rel=2e-3)


@pytest.mark.parametrize(
    ("matrices", "ratio", "multiple_of", "weights"),
    [(2, "4", 1, 134_217_728), (3, "4", 1, 201_326_592), (3, "8/3", 256, 135_266_304)],
)
def test_one_ffn_at_4096(matrices: int, ratio: str, multiple_of: int, weights: int) -> None:
    numbers = ShapeNumbers(layers=1, d_model=4096, ratio=ratio, matrices=matrices, multiple_of=multiple_of)
    assert plain_shape(numbers).weights("ffn") == weights


def test_rounding_costs_under_one_percent() -> None:
    over = 135_266_304 / (8 * 4096**2) - 1
    assert over == pytest.approx(0.0078, abs=5e-5)
    assert any("costs 0.78% more" in note for note in notes(shape("llama2_7b"), LedgerOptions()))


def test_scaling_family() -> None:
    rows = family_rows(choices()["family"])
    assert [(r["layers"], r["d_model"]) for r in rows] == [(12, 768), (24, 1536), (32, 4096), (80, 8192)]
    assert [r["d_ff"] for r in rows] == [2048, 4096, 11008, 22016]
    assert all(0.6666 < r["layer_ffn_share"] < 0.6685 for r in rows)


def test_share_follows_from_the_ratio() -> None:
    assert ffn_share(4, 2) == pytest.approx(2 * 4 / (2 * 4 + 4))
    assert ffn_share(2.6875, 3) == pytest.approx(summary(shape("llama2_7b"))["share"]["layer_ffn"])
    assert ffn_share(3.5, 3, 2.25) == pytest.approx(summary(shape("llama2_70b"))["share"]["layer_ffn"])


def test_gqa_needs_a_narrower_ffn_for_two_thirds() -> None:
    assert ratio_for_share(2 / 3, 3, 2.25) == pytest.approx(1.5)  # the article says 4.7
    assert ffn_share(1.5, 3, 2.25) == pytest.approx(2 / 3)
    assert summary(shape("llama2_70b"))["share"]["ratio_for_two_thirds"] == pytest.approx(1.5)


def test_bytes_of_precisions() -> None:
    llama = shape("llama2_7b")
    ffn = totals(llama)["ffn"]
    sizes = {"16 bit": ("", 2.0), "int8": ("codes", 1.0), "int4": ("codes", 0.5)}
    for precision, (group, each) in sizes.items():
        assert bytes_row(llama, precision, group)["ffn_bytes"] == ffn * each
    with_scales = bytes_row(llama, "int4", 128)["ffn_bytes"]
    assert with_scales == ffn * (0.5 + 2 / 128)
    assert with_scales / (ffn / 2) - 1 == pytest.approx(0.031, abs=5e-4)


def test_saved_bytes_in_both_scopes() -> None:
    llama = shape("llama2_7b")
    codes, scaled = bytes_row(llama, "int4", "codes"), bytes_row(llama, "int4", 128)
    assert codes["everything_saved_bytes"] == pytest.approx(10.1e9, abs=0.05e9)
    assert codes["ffn_saved_bytes"] == pytest.approx(6.49e9, abs=0.005e9)
    assert codes["blocks_saved_bytes"] == pytest.approx(9.71e9, abs=0.005e9)
    assert scaled["blocks_saved_bytes"] == pytest.approx(9.61e9, abs=0.005e9)
    assert scaled["ffn_saved_bytes"] == pytest.approx(6.43e9, abs=0.005e9)
    assert scaled["attention_saved_bytes"] == pytest.approx(3.19e9, abs=0.005e9)


@pytest.mark.parametrize(("gigabytes", "ms"), [(14, 4.18), (140, 41.8), (35, 10.4)])
def test_decode_bound(gigabytes: float, ms: float) -> None:
    assert decode_ms(gigabytes * 1e9, 3350) == pytest.approx(ms, rel=5e-3)


def test_decode_bound_in_tokens() -> None:
    assert 1000 / decode_ms(14e9, 3350) == pytest.approx(239, abs=0.5)


def test_kv_cache() -> None:
    a_token = cache_elements(shape("llama2_7b")) * 2
    assert a_token == 2 * 32 * 32 * 128 * 2 == 524_288
    assert a_token * 4096 == pytest.approx(2.15e9, abs=0.005e9)
    assert cache_elements(shape("llama2_70b")) == 2 * 80 * 8 * 128


def test_training_state() -> None:
    assert training_state_bytes(7e9, "adamw_mixed") == 112e9
    assert training_state_bytes(1, "adamw_8bit") == 10


@pytest.mark.parametrize(("parameters", "flops", "days"), [(7e9, 4.2e22, 1215), (70e9, 4.2e23, 12_153)])
def test_training_flops(parameters: float, flops: float, days: float) -> None:
    assert training_flops(parameters, 1e12) == pytest.approx(flops)  # the article says ten times as many
    assert gpu_days(training_flops(parameters, 1e12), 400) == pytest.approx(days, abs=1)


def test_forward_flops() -> None:
    assert forward_flops(7e9) == 14e9
    llama = shape("llama2_7b")
    assert score_flops(llama, 4096) == 4 * 4096 * 4096 * 32
    assert score_flops(llama, 8192) == 2 * score_flops(llama, 4096)


def test_ffn_activations() -> None:
    assert ffn_activation_bytes(1, 2048, 49_152) == pytest.approx(201e6, rel=5e-3)
    assert ffn_activation_bytes(8, 8192, 32_768) == pytest.approx(4.29e9, rel=5e-3)
    assert ffn_activation_bytes(1, 1, 1, held=2) == 2 * ffn_activation_bytes(1, 1, 1)


def test_experts_of_the_dense_width() -> None:
    numbers = {"layers": 2, "d_model": 512, "d_ff": 2048, "heads": 8, "vocab": 1000}
    dense = plain_shape(ShapeNumbers(**numbers))
    sparse = plain_shape(ShapeNumbers(**numbers, experts=64, active_experts=6))
    assert sparse.weights("ffn") == 64 * dense.weights("ffn")
    assert sparse.weights("ffn", active=True) == 6 * dense.weights("ffn")
    assert sparse.others == {"router": 2 * 512 * 64}


@pytest.mark.parametrize(
    ("name", "stored", "active"),
    [
        ("mixtral_8x7b", 46_702_792_704, 12.88e9),
        ("qwen3_30b_a3b", 30_532_122_624, 3.35e9),
        ("deepseek_v3", 671_026_404_352, 37.55e9),
    ],
)
def test_experts_stored_and_used(name: str, stored: int, active: float) -> None:
    counts = summary(shape(name))["params"]
    assert counts["total"]["all"] == stored
    assert counts["active"]["all"] == pytest.approx(active, rel=2e-3)
    assert counts["other"]["router"] > 0


def test_narrow_llama() -> None:
    assert totals(shape("llama2_7b", intermediate_size=4096))["all"] == pytest.approx(4.02e9, abs=0.005e9)
