"""Input channels kept in 16 bits."""

import pytest
import torch

from harness.errors import UserError
from harness.quantize import InputStats, Scheme, factorize, quantize


def scheme(**fields):
    return Scheme(**{"precision": "int3", "group_size": 16, "scale_dtype": "float16", **fields})


def error(w_OI, q):
    return (q.dequantize() - w_OI).pow(2).mean().item()


def test_by_weight_magnitude_without_statistics():
    w_OI = torch.randn(8, 64)
    w_OI[3, 5] = w_OI[1, 60] = 40
    q = quantize(w_OI, scheme(keep_columns=2))
    assert q.kept_K.tolist() == [5, 60]
    assert torch.equal(q.dequantize()[:, [5, 60]], w_OI[:, [5, 60]].half().float())
    assert error(w_OI, q) < 0.6 * error(w_OI, quantize(w_OI, scheme()))


def test_by_activation_magnitude_with_statistics():
    w_OI, x_TI = torch.randn(8, 64), torch.randn(50, 64)
    x_TI[7, 20] = -30
    assert quantize(w_OI, scheme(keep_columns=1), InputStats.from_inputs(x_TI)).kept_K.tolist() == [20]


@pytest.mark.parametrize(("keep", "count"), [(0.25, 16), (0.001, 1), (1, 1), (5, 5), (64, 64)])
def test_a_share_or_a_count(keep, count):
    q = quantize(torch.randn(8, 64), scheme(keep_columns=keep))
    assert len(q.kept_K) == q.facts["kept_columns"] == count


def test_they_count_in_bits_per_weight():
    w_OI = torch.randn(8, 64)
    plain, kept = (quantize(w_OI, scheme(keep_columns=keep)).bits_per_weight for keep in (0, 4))
    assert kept - plain == 4 * (16 * 8 + 32) / w_OI.numel()


def test_too_many():
    with pytest.raises(UserError, match="keep_columns=65 is more than the 64 inputs"):
        quantize(torch.randn(8, 64), scheme(keep_columns=65))


def test_bfloat16_columns_stay_exact():
    w_OI = (torch.randn(8, 64) * 1e-8).bfloat16()
    q = quantize(w_OI, scheme(keep_columns=64))
    assert torch.equal(q.dequantize(), w_OI.float())


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_calibrated_methods_see_kept_inputs_as_gone(method):
    """Whatever the kept columns hold, the others come out the same: nobody tries to make up for them."""
    w_OI, x_TI = torch.randn(8, 64), torch.randn(100, 64)
    x_TI[:, 9] += 10 * x_TI[:, 10]
    stats = InputStats.from_inputs(x_TI)
    q = quantize(w_OI, scheme(method=method, keep_columns=1), stats)
    changed_OI = w_OI.clone()
    changed_OI[:, 9] = 100
    other = quantize(changed_OI, scheme(method=method, keep_columns=1), stats)
    assert q.kept_K.tolist() == [9]
    assert (q.dequantize() != other.dequantize()).nonzero()[:, 1].unique().tolist() == [9]
    if method == "gptq":
        assert q.facts["dead_inputs"] == 0
        factor = factorize(stats, scheme(method=method, keep_columns=1))
        shared = quantize(w_OI, scheme(method=method, keep_columns=1), stats, factor=factor)
        assert torch.equal(shared.dequantize(), q.dequantize())


@pytest.mark.parametrize(("precision", "gain"), [("nf4", 0.1), ("fp8_e4m3", 0.95)])  # floats mind outliers little
def test_other_formats(precision, gain):
    w_OI = torch.randn(8, 64)
    w_OI[:, 5] *= 50
    fields = {"method": "bnb" if precision == "nf4" else "rtn", "precision": precision, "group_size": 64}
    kept, plain = (quantize(w_OI, scheme(**fields, keep_columns=keep)) for keep in (1, 0))
    assert error(w_OI, kept) < gain * error(w_OI, plain)
