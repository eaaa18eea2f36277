"""Table formats: hand-worked values, ml_dtypes as an independent oracle, bitsandbytes' published results."""

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UserError
from harness.quantize import Scheme, quantize, table
from harness.quantize.bnb import DYNAMIC
from harness.quantize.formats import E2M1, FORMATS
from harness.scheme import Precision
from tests.quantize.golden import arrays, inputs

E4M3 = FORMATS[Precision.fp8_e4m3]
ORACLES = [(E4M3, ml_dtypes.float8_e4m3fn), (E2M1, ml_dtypes.float4_e2m1fn)]


def scheme(precision, group_size, **fields):
    method = "bnb" if precision in ("nf4", "fp4") else "rtn"
    return Scheme(
        **{"method": method, "precision": precision, "group_size": group_size, "scale_dtype": "float32", **fields}
    )


def rounded(x, dtype):
    """x as ml_dtypes rounds it."""
    return torch.from_numpy(x.numpy().astype(dtype).astype(np.float32))


@pytest.mark.parametrize(("form", "dtype"), ORACLES)
def test_every_code_means_what_ml_dtypes_says(form, dtype):
    codes = np.arange(2**form.bits, dtype=np.uint8)
    np.testing.assert_array_equal(np.array(form.values, np.float32), codes.view(dtype).astype(np.float32))


@pytest.mark.parametrize(("form", "dtype"), ORACLES)
def test_rounding_equals_ml_dtypes_at_values_midpoints_and_around(form, dtype):
    points = torch.tensor(sorted({value for value in form.values if value == value}))
    points = torch.cat([points, (points[1:] + points[:-1]) / 2])
    near = [torch.nextafter(points, torch.tensor(side)) for side in (-1e9, 1e9)]
    x = torch.cat([points, *near, torch.randn(20000) * form.top / 3]).clamp(-form.top, form.top)
    assert torch.equal(table.values(table.nearest(x, form), form), rounded(x, dtype))


TABLES = [E2M1, E4M3, FORMATS[Precision.nf4], FORMATS[Precision.fp4], DYNAMIC]


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False), st.sampled_from(TABLES))
def test_nearest_is_nearest(x, form):
    chosen = table.values(table.nearest(torch.tensor([x]), form), form).item()
    best = min(abs(value - x) for value in form.values if value == value)
    assert abs(chosen - x) <= best * (1 + 1e-6) + 1e-9


def test_the_values_of_e2m1_by_hand():
    assert E2M1.values[:8] == (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    assert E2M1.values[8:] == (-0.0, -0.5, -1, -1.5, -2, -3, -4, -6)


def test_the_values_of_e4m3_by_hand():
    values = E4M3.values
    assert (values[1], values[8], values[0x7E], values[0x38]) == (2**-9, 2**-6, 448, 1)
    assert np.isnan(values[0x7F])
    assert np.isnan(values[0xFF])


def test_mxfp4_by_hand():
    """max 5 = 1.25 * 2^2: scale 2^(2 - 2) = 1. max 0.03 = 1.92 * 2^-6: scale 2^-8, and 0.03 * 2^8 = 7.68 saturates."""
    w_OI = torch.zeros(2, 32)
    w_OI[0, :6] = torch.tensor([5.0, -5.0, 2.5, 0.25, 0.75, 3.4])
    w_OI[1, :2] = torch.tensor([0.03, -0.01])
    q = quantize(w_OI, scheme("mxfp4", 32))
    assert q.scale_OG.tolist() == [[1.0], [2.0**-8]]
    assert q.dequantize()[0, :6].tolist() == [4.0, -4.0, 2.0, 0.0, 1.0, 3.0]
    assert q.dequantize()[1, :2].tolist() == [6 * 2.0**-8, -3 * 2.0**-8]  # 0.01 * 2^8 = 2.56
    assert q.bits_per_weight == 4 + 8 / 32


def test_nvfp4_by_hand():
    """Largest weight 2688: tensor scale 2688 / (6 * 448) = 1, so that block scales are e4m3(max / 6)."""
    w_OI = torch.zeros(1, 48)
    w_OI[0, :3] = torch.tensor([2688.0, -1000.0, 1344.0])  # scale 448: 6, -2.23 -> -2, 3
    w_OI[0, 16:18] = torch.tensor([7.0, 1.0])  # 7 / 6 = 1.1667 -> 1.125; 6.22 -> 6, 0.889 -> 1
    q = quantize(w_OI, scheme("nvfp4", 16))
    assert q.scale_OG.tolist() == [[448.0, 1.125, 1.0]]
    assert q.dequantize()[0, :3].tolist() == [2688.0, -896.0, 1344.0]
    assert q.dequantize()[0, 16:18].tolist() == [6.75, 1.125]
    assert q.facts["zero_groups"] == 1
    assert q.bits_per_weight == 4 + 8 / 16 + 32 / 48


def test_nvfp4_equals_ml_dtypes():
    w_OI = torch.randn(16, 64) * torch.logspace(-3, 1, 16).unsqueeze(1)
    whole = w_OI.abs().max() / (6 * 448)
    block_OG1 = w_OI.unflatten(1, (4, 16)).abs().amax(-1, keepdim=True)
    scale_OG1 = rounded(block_OG1 / 6 / whole, ml_dtypes.float8_e4m3fn) * whole
    expected_OI = (
        rounded((w_OI.unflatten(1, (4, 16)) / scale_OG1).clamp(-6, 6), ml_dtypes.float4_e2m1fn) * scale_OG1
    ).flatten(1)
    assert torch.equal(quantize(w_OI, scheme("nvfp4", 16)).dequantize(), expected_OI)


def test_a_group_far_below_the_largest_weight_vanishes_in_nvfp4_and_is_counted():
    w_OI = torch.zeros(1, 32)
    w_OI[0, 0], w_OI[0, 16] = 2688.0, 1e-3
    q = quantize(w_OI, scheme("nvfp4", 16))
    assert q.dequantize()[0, 16] == 0
    assert q.facts["vanished_groups"] == 1
    w_OI[0, 0], w_OI[0, 17] = 2.0**22, 3.0  # far above what a group without a scale could be read with
    assert quantize(w_OI, scheme("nvfp4", 16)).dequantize()[0, 16:].tolist() == [0.0] * 16


@pytest.mark.parametrize("size", [-1, 32])
def test_fp8_equals_ml_dtypes(size):
    w_OI = torch.randn(8, 64)
    groups_OGS = w_OI.unflatten(1, (-1, 64 if size == -1 else size))
    scale_OG1 = groups_OGS.abs().amax(-1, keepdim=True) / 448
    expected_OI = (rounded((groups_OGS / scale_OG1).clamp(-448, 448), ml_dtypes.float8_e4m3fn) * scale_OG1).flatten(1)
    q = quantize(w_OI, scheme("fp8_e4m3", size))
    assert torch.equal(q.dequantize(), expected_OI)
    assert q.bits_per_weight == 8 + 32 / groups_OGS.shape[-1]


BNB = [case for case in arrays("bnb_hqq") if case.startswith("bnb")]


@pytest.mark.parametrize("case", BNB)
def test_equals_bitsandbytes(case):
    _, data, precision, block, nested = case.split(".")
    w_OI, _ = inputs(data)
    q = quantize(w_OI, scheme(precision, int(block[5:]), double_quant=nested == "dq"))
    torch.testing.assert_close(q.dequantize(), arrays("bnb_hqq")[case], rtol=0, atol=1e-5)


@pytest.mark.case("D19")
@pytest.mark.parametrize("precision", ["nf4", "fp4"])
def test_double_quantization_costs_little(precision):
    w_OI = torch.randn(64, 512)
    errors = {}
    for nested in (False, True):
        q = quantize(w_OI, scheme(precision, 64, double_quant=nested))
        errors[nested] = (q.dequantize() - w_OI).pow(2).mean().sqrt().item()
        # 8-bit scales, one float32 for 256 of them, one for the matrix
        assert q.bits_per_weight == 4 + ((8 / 64 + 32 / (64 * 256) + 32 / w_OI.numel()) if nested else 32 / 64)
    assert errors[False] < errors[True] < 1.02 * errors[False]


@pytest.mark.case("D17")
@pytest.mark.parametrize("precision", ["nf4", "fp4"])
def test_error_grows_smoothly_with_block_size(precision):
    w_OI = torch.randn(8, 4096)
    blocks = [32, 64, 128, 256, 512, 1024, 2048, 4096]
    errors = [(quantize(w_OI, scheme(precision, size)).dequantize() - w_OI).pow(2).mean().item() for size in blocks]
    assert all(1 < later / earlier < 1.4 for earlier, later in pairwise(errors))


@pytest.mark.case("D17")
@pytest.mark.parametrize("size", [16, 48, 8192])
def test_block_sizes_that_bitsandbytes_lacks_are_refused(size):
    with pytest.raises(UserError, match=r"no block size of bitsandbytes\. Use 32, 64, 128"):
        quantize(torch.randn(2, 8192), scheme("nf4", size))


@pytest.mark.case("A12")
@pytest.mark.parametrize("name", ["nf4", "hqq"])
def test_groups_never_cross_rows(name):
    """2 x 96 with groups of 64: a second row x1000 must not touch the tail of the first."""
    fields = (
        {"method": "hqq", "precision": "int4", "symmetric": False}
        if name == "hqq"
        else {"method": "bnb", "precision": "nf4"}
    )
    asked = Scheme(**fields, group_size=64, scale_dtype="float32")
    w_OI = torch.randn(2, 96)
    with pytest.raises(UserError, match="group_size=64 does not divide in_features=96"):
        quantize(w_OI, asked)
    alone = quantize(w_OI[:1], asked, indivisible="tail").dequantize()
    w_OI[1] *= 1000
    both = quantize(w_OI, asked, indivisible="tail").dequantize()
    error = (both[0, 64:] - w_OI[0, 64:]).abs().max()
    assert error < 0.4
    if name == "nf4":  # hqq stops by the error of the whole matrix
        assert torch.equal(both[:1], alone)


@pytest.mark.case("D6")
@pytest.mark.parametrize(
    ("precision", "size"), [("nf4", 32), ("fp4", 32), ("fp8_e4m3", 32), ("mxfp4", 32), ("nvfp4", 16)]
)
def test_all_zero_groups_and_matrices_are_exact(precision, size):
    w_OI = torch.randn(4, 64)
    w_OI[0, :32] = 0
    q = quantize(w_OI, scheme(precision, size))
    assert (q.dequantize()[0, :32] == 0).all()
    assert q.dequantize().isfinite().all()
    assert q.facts["zero_groups"] == 32 // size
    assert (quantize(torch.zeros(2, 64), scheme(precision, size)).dequantize() == 0).all()


@pytest.mark.case("D8")
@pytest.mark.parametrize(
    ("precision", "size"), [("nf4", 32), ("fp4", 32), ("fp8_e4m3", 32), ("mxfp4", 32), ("nvfp4", 16)]
)
def test_tiny_matrices_are_finite(precision, size):
    w_OI = torch.randn(4, 64) * 1e-8
    q = quantize(w_OI.bfloat16(), scheme(precision, size, scale_dtype="float16"))
    torch.testing.assert_close(q.dequantize(), w_OI, rtol=0, atol=w_OI.abs().max().item() / 3)


@pytest.mark.case("A9")
@pytest.mark.parametrize("precision", ["nf4", "fp4", "fp8_e4m3"])
def test_group_minus_one_is_one_group_a_row(precision):
    w_OI = torch.randn(4, 64)
    per_row, explicit = (quantize(w_OI, scheme(precision, size)) for size in (-1, 64))
    assert torch.equal(per_row.dequantize(), explicit.dequantize())
    assert per_row.bits_per_weight == explicit.bits_per_weight


@pytest.mark.parametrize(("precision", "size"), [("nf4", 32), ("fp8_e4m3", 32), ("mxfp4", 32), ("nvfp4", 16)])
def test_weights_that_are_not_finite_are_refused(precision, size):
    with pytest.raises(UserError, match="not finite"):
        quantize(torch.full((2, 64), float("nan")), scheme(precision, size))
