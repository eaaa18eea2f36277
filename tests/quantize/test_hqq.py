"""HQQ: equal to the library, exact where it should be."""

import pytest
import torch

from harness.quantize import Scheme, quantize
from tests.quantize.golden import arrays, inputs

HQQ = [case for case in arrays("bnb_hqq") if case.startswith("hqq")]


def scheme(precision="int4", group_size=32, **fields):
    return Scheme(
        **{"method": "hqq", "precision": precision, "group_size": group_size, "symmetric": False,
           "scale_dtype": "float32", **fields}
    )  # fmt: skip


@pytest.mark.parametrize("case", HQQ)
def test_equals_the_library(case):
    _, data, bits, group, _ = case.split(".")
    w_OI, _ = inputs(data)
    q = quantize(w_OI, scheme(f"int{bits[1:]}", int(group[1:])))
    torch.testing.assert_close(q.dequantize(), arrays("bnb_hqq")[case], rtol=0, atol=1e-5)


def test_search_lowers_the_error_norm_of_plain_rounding():
    w_OI, _ = inputs("plain")
    norm = {
        method: (quantize(w_OI, scheme("int3", method=method)).dequantize() - w_OI).abs().pow(0.7).mean()
        for method in ("hqq", "rtn")
    }
    assert norm["hqq"] < 0.98 * norm["rtn"]


@pytest.mark.case("D10")
def test_constant_groups_are_exact():
    w_OI = torch.tensor([[9.0, 9.0, -9.0, -9.0], [-9.0, -9.0, 0.37, 0.37]])
    q = quantize(w_OI, scheme(group_size=2))
    assert torch.equal(q.dequantize(), w_OI)
    assert q.facts["constant_groups"] == 4


@pytest.mark.case("D6")
@pytest.mark.case("D8")
def test_zero_and_tiny_groups():
    w_OI = torch.randn(4, 64)
    w_OI[0, :32] = 0
    w_OI[1] *= 1e-8
    q = quantize(w_OI, scheme(scale_dtype="float16"))
    assert (q.dequantize()[0, :32] == 0).all()
    assert (q.dequantize()[1] - w_OI[1]).abs().max() < 0.2 * w_OI[1].abs().max()


@pytest.mark.case("D20")
@pytest.mark.case("D21")
def test_axis_is_told_and_zero_points_are_counted_in_full():
    q = quantize(torch.randn(4, 64), scheme(scale_dtype="float16"))
    assert q.facts["axis"] == 1
    assert q.bits_per_weight == 4 + (16 + 16) / 32


@pytest.mark.case("A9")
def test_group_minus_one_is_one_group_a_row():
    w_OI = torch.randn(4, 96)
    per_row, explicit = (quantize(w_OI, scheme(group_size=size)) for size in (-1, 96))
    assert torch.equal(per_row.dequantize(), explicit.dequantize())


@pytest.mark.case("D24")
def test_zero_points_are_used_in_their_stored_type():
    q = quantize(torch.randn(4, 64), scheme(scale_dtype="float16"))
    assert torch.equal(q.zero_OG, q.zero_OG.half().float())
    assert torch.equal(q.scale_OG, q.scale_OG.half().float())


def test_tail_group():
    w_OI = torch.randn(3, 72)
    q = quantize(w_OI, scheme(), indivisible="tail")
    assert q.scale_OG.shape == (3, 3)
    assert ((q.dequantize() - w_OI).abs() < 0.5).all()
