"""Packed codes: exact at every width and shape, and as large as bits_per_weight says."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.quantize import Scheme, quantize
from harness.quantize.pack import pack, packed_bits, unpack

WIDTHS = [2, 3, 4, 5, 6, 8]


@given(st.sampled_from(WIDTHS), st.integers(0, 5), st.integers(1, 70), st.integers(0, 2**31))
def test_round_trip(bits, rows, columns, seed):
    codes_OI = torch.randint(
        0, 2**bits, (rows, columns), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    packed_OB = pack(codes_OI, bits)
    assert packed_OB.dtype == torch.uint8
    assert 8 * packed_OB.numel() == packed_bits(rows, columns, bits)
    assert torch.equal(unpack(packed_OB, bits, columns), codes_OI)


def test_layout_is_a_stream_of_bits_least_significant_first():
    codes_OI = torch.tensor([[0b101, 0b011, 0b110]], dtype=torch.uint8)
    assert pack(codes_OI, 3).tolist() == [[0b10_011_101, 0b1]]


def test_codes_that_do_not_fit_are_a_bug():
    with pytest.raises(AssertionError, match="do not fit 2 bits"):
        pack(torch.tensor([[4]], dtype=torch.uint8), 2)


@pytest.mark.case("A10")
@pytest.mark.case("D11")
@pytest.mark.parametrize("group_size", [-1, 16])
@pytest.mark.parametrize("bits", WIDTHS)
def test_weights_from_packed_codes_and_zero_points_are_the_same(bits, group_size):
    w_OI = torch.randn(6, 48) + 0.5
    q = quantize(w_OI, Scheme(precision=f"int{bits}", group_size=group_size, symmetric=False))
    codes_OI = unpack(pack(q.codes_OI, bits), bits, 48)
    zero_OG = unpack(pack(q.zero_OG.to(torch.uint8), bits), bits, q.zero_OG.shape[1]).float()
    spread = 48 // q.zero_OG.shape[1]
    again_OI = (codes_OI - zero_OG.repeat_interleave(spread, 1)) * q.scale_OG.repeat_interleave(spread, 1)
    assert torch.equal(again_OI, q.dequantize())
    assert q.dequantize().abs().sum() > 0
    assert q.storage["codes"] == 8 * pack(q.codes_OI, bits).numel()


@pytest.mark.case("D11")
@pytest.mark.parametrize("zero", [0, 8])
def test_zero_points_are_packed_as_they_are(zero):
    zero_OG = torch.full((2, 3), zero, dtype=torch.uint8)
    assert torch.equal(unpack(pack(zero_OG, 4), 4, 3), zero_OG)
    assert pack(zero_OG, 4).tolist() == [[zero | zero << 4, zero]] * 2


def test_odd_widths_pay_for_padding():
    q = quantize(torch.randn(4, 5), Scheme(precision="int3", group_size=-1))
    assert q.storage["codes"] == 4 * 16
    assert q.bits_per_weight == (16 + 16) / 5
