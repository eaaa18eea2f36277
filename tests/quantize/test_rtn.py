"""Rounding to nearest on uniform grids: bounds by theory, special groups, stored scales, shapes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UserError
from harness.quantize import Scheme, quantize

RULES = [(True, "qmax"), (True, "half"), (False, "minmax"), (False, "with_zero")]
WIDTHS = ["int2", "int3", "int4", "int5", "int6", "int8"]


def scheme(precision="int4", rule=(True, "qmax"), group_size=16, scale_dtype="float32", **more):
    symmetric, name = rule
    return Scheme(
        precision=precision, symmetric=symmetric, range=name, group_size=group_size, scale_dtype=scale_dtype, **more
    )


def spread(group_OG, size, in_features):
    """Group values laid out over weights, [O, I]."""
    return group_OG.repeat_interleave(size, dim=1)[:, :in_features]


def random_weight(rows, columns, seed, scale):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * scale


weights = st.builds(
    random_weight, st.integers(1, 5), st.integers(1, 70), st.integers(0, 2**31), st.sampled_from([1e-6, 0.03, 1.0, 300])
)


@settings(deadline=None, max_examples=150)
@given(weights, st.sampled_from(WIDTHS), st.sampled_from(RULES), st.sampled_from([-1, 7, 16]),
       st.sampled_from(["float32", "float16", "bfloat16"]))  # fmt: skip
def test_error_is_at_most_half_a_step_where_the_code_is_not_clamped(w_OI, precision, rule, size, stored):
    before_OI = w_OI.clone()
    q = quantize(w_OI, scheme(precision, rule, size, stored), indivisible="tail")
    error_OI = (w_OI - q.dequantize()).abs()
    scale_OI = spread(q.scale_OG, q.group_size, w_OI.shape[1])
    inside_OI = (q.codes_OI > 0) & (q.codes_OI < q.form.levels)
    assert (error_OI <= scale_OI / 2 * (1 + 1e-4))[inside_OI].all()
    assert torch.equal(w_OI, before_OI)


@settings(deadline=None, max_examples=100)
@given(weights, st.sampled_from(WIDTHS), st.sampled_from(RULES[:2] + RULES[3:]))
def test_whole_range_is_covered_to_half_a_step(w_OI, precision, rule):
    """With float32 scales no weight is clamped by more than rounding, so the bound holds for all of them."""
    q = quantize(w_OI, scheme(precision, rule, -1))
    assert ((w_OI - q.dequantize()).abs() <= q.scale_OG / 2 * (1 + 1e-4)).all()


@settings(deadline=None, max_examples=100)
@given(weights, st.sampled_from(WIDTHS))
def test_qmax_of_its_own_output_changes_nothing(w_OI, precision):
    once_OI = quantize(w_OI, scheme(precision, group_size=8), indivisible="tail").dequantize()
    twice_OI = quantize(once_OI, scheme(precision, group_size=8), indivisible="tail").dequantize()
    torch.testing.assert_close(once_OI, twice_OI, rtol=1e-5, atol=0)


def test_int4_qmax_is_max_over_seven_with_codes_from_minus_eight():
    w_OI = torch.randn(6, 64)
    scale_OG1 = w_OI.unflatten(1, (2, 32)).abs().amax(-1, keepdim=True) / 7
    expected_OI = ((w_OI.unflatten(1, (2, 32)) / scale_OG1).round().clamp(-8, 7) * scale_OG1).flatten(1)
    assert torch.equal(quantize(w_OI, scheme(group_size=32)).dequantize(), expected_OI)


@pytest.mark.case("A9")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("precision", WIDTHS)
def test_group_minus_one_is_one_group_a_row(precision, rule):
    w_OI = torch.randn(5, 96)
    per_row, explicit = (quantize(w_OI, scheme(precision, rule, size)) for size in (-1, 96))
    assert torch.equal(per_row.dequantize(), explicit.dequantize())
    assert per_row.scale_OG.shape == (5, 1)
    assert per_row.bits_per_weight == explicit.bits_per_weight


@pytest.mark.case("A1")
def test_group_that_does_not_divide_is_an_error_that_names_what_does():
    with pytest.raises(
        UserError, match=r"group_size=64 .* in_features=96.*8, 12, 16, 24, 32, 48, 96.*indivisible=tail"
    ):
        quantize(torch.randn(4, 96), scheme(group_size=64))


@pytest.mark.case("A6")
def test_effective_group_is_recorded_and_a_wider_one_is_refused():
    with pytest.raises(UserError, match="group_size=128 does not divide in_features=96"):
        quantize(torch.randn(4, 96), scheme(group_size=128))
    q = quantize(torch.randn(4, 96), scheme(group_size=128), indivisible="tail")
    assert q.group_size == 96


def test_tail_is_a_group_of_its_own():
    w_OI = torch.randn(3, 40)
    q = quantize(w_OI, scheme(group_size=16), indivisible="tail")
    head, tail = quantize(w_OI[:, :32], scheme(group_size=16)), quantize(w_OI[:, 32:], scheme(group_size=8))
    assert torch.equal(q.dequantize(), torch.cat([head.dequantize(), tail.dequantize()], dim=1))


@pytest.mark.parametrize("size", [0, -2])
def test_impossible_group_size(size):
    with pytest.raises(UserError, match=f"group_size={size} is not a size"):
        quantize(torch.randn(2, 8), scheme(group_size=size))


@pytest.mark.case("D10")
@pytest.mark.case("D13")
@pytest.mark.parametrize("value", [9.0, -9.0, 0.37, -1e-3])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("precision", WIDTHS)
def test_constant_groups_are_exact_in_float32(precision, rule, value):
    w_OI = torch.full((2, 4), value)
    q = quantize(w_OI, scheme(precision, rule, 2))
    assert torch.equal(q.dequantize(), w_OI)
    assert q.facts["constant_groups"] == 4


@pytest.mark.case("D6")
@pytest.mark.parametrize("rule", RULES)
def test_all_zero_group_is_exact_and_counted(rule):
    w_OI = torch.randn(4, 64)
    w_OI[0, :16] = 0
    q = quantize(w_OI, scheme(rule=rule))
    assert (q.dequantize()[0, :16] == 0).all()
    assert q.dequantize().isfinite().all()
    assert q.facts["zero_groups"] == 1


@pytest.mark.case("D8")
@pytest.mark.parametrize("size", [1e-8, 1e-30, 1e-45])
@pytest.mark.parametrize("rule", RULES)
def test_tiny_rows_stay_finite_and_keep_their_scale_in_float32(rule, size):
    w_OI = torch.randn(4, 64)
    w_OI[1] *= size
    q = quantize(w_OI, scheme(rule=rule, scale_dtype="float16"))
    assert q.dequantize().isfinite().all()
    bound = w_OI[1].abs().max().item() / (3 if size > 1e-40 else 1)  # below, float32 itself has few digits left
    torch.testing.assert_close(q.dequantize()[1], w_OI[1], rtol=0, atol=bound)
    if size == 1e-8:
        assert q.facts["float32_scales"] == 4
        assert q.storage["scales"] == 16 * 16 + 4 * 16


@pytest.mark.case("D14")
@pytest.mark.parametrize("rule", RULES[:2])
def test_symmetric_codes_are_minus_eight_to_seven_around_an_exact_zero(rule):
    w_OI = torch.tensor([[-1.0, 0.0, 1.0, 0.4]])
    q = quantize(w_OI, scheme(rule=rule, group_size=-1))
    assert q.zero_OG.item() == 8
    assert q.codes_OI[0, 1] == 8
    assert q.dequantize()[0, 1] == 0
    # `half`: the largest positive weight lies half a step above the largest code; `qmax` holds both ends exactly.
    error = (1 - q.dequantize()[0, 2]).item()
    assert error == pytest.approx(0 if rule[1] == "qmax" else q.scale_OG.item() / 2, abs=1e-6)


@pytest.mark.case("D24")
@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
def test_scales_are_used_in_their_stored_type(stored):
    w_OI = torch.randn(8, 64)
    q = quantize(w_OI, scheme(scale_dtype=stored))
    exact = quantize(w_OI, scheme())
    assert torch.equal(q.scale_OG, exact.scale_OG.to(getattr(torch, stored)).float())
    assert not torch.equal(q.dequantize(), exact.dequantize())
    assert (q.bits_per_weight, exact.bits_per_weight) == (4 + 16 / 16, 4 + 32 / 16)


@pytest.mark.case("D21")
def test_bits_per_weight_counts_scales_and_zero_points():
    w_OI = torch.randn(8, 128)
    sizes = {rule: quantize(w_OI, scheme("int3", rule, 64, "float16")).bits_per_weight for rule in RULES}
    assert sizes[RULES[0]] == 3 + 16 / 64
    assert sizes[RULES[2]] == 3 + (16 + 3) / 64


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(bad):
    w_OI = torch.randn(2, 16)
    w_OI[1, 3] = bad
    with pytest.raises(UserError, match="not finite"):
        quantize(w_OI, scheme())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_taken_as_they_are(dtype):
    w_OI = torch.randn(4, 32).to(dtype)
    q = quantize(w_OI, scheme())
    assert q.dequantize().dtype == torch.float32
    assert torch.equal(q.dequantize(), quantize(w_OI.float(), scheme()).dequantize())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"method": "hqq", "precision": "int4", "rule": (False, "auto")},
        {"method": "bnb", "precision": "nf4", "group_size": 32, "rule": (True, "auto")},
    ],
)
def test_rows_taken_in_pieces_give_the_same_codes(monkeypatch, fields):
    w_OI = torch.randn(7, 64)
    whole = quantize(w_OI, scheme(**fields))
    for module in ("grid", "hqq", "table"):
        monkeypatch.setattr(f"harness.quantize.{module}.WEIGHTS_AT_ONCE", 128)
    pieces = quantize(w_OI, scheme(**fields))
    assert torch.equal(whole.dequantize(), pieces.dequantize())
    assert whole.storage == pieces.storage
