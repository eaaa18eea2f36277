"""LLM.int8 against bitsandbytes' own CPU implementation."""

import bitsandbytes as bnb
import pytest
import torch

from harness.errors import UserError
from harness.quantize.llm_int8 import cast_linear, int8_linear, int8_weight


def problem(tokens=10, outlier=True):
    w_OI, x_TI = torch.randn(24, 96) * 0.05, torch.randn(tokens, 96)
    if outlier:
        x_TI[:, 7] *= 20
        x_TI[tokens // 2, 50] = -9
    return w_OI, x_TI


@pytest.mark.parametrize("tokens", [1, 10])
@pytest.mark.parametrize("threshold", [0.0, 6.0, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_equals_bitsandbytes(dtype, threshold, tokens):
    w_OI, x_TI = (tensor.to(dtype) for tensor in problem(tokens))
    state = bnb.MatmulLtState()
    state.is_training = False  # in training mode its CPU path leaves activations alone
    theirs_TO = bnb.matmul(x_TI, w_OI, threshold=threshold, state=state)
    ours_TO = int8_linear(x_TI, int8_weight(w_OI), threshold)
    assert ours_TO.dtype == dtype
    # Its CPU path multiplies by 6.200124e-05 where 1 / 127^2 is 6.2000124e-05: 1.8e-5 off.
    rtol, atol = (2e-5, 4e-5) if dtype == torch.float32 else (1e-3, 4e-3)
    torch.testing.assert_close(ours_TO, theirs_TO, rtol=rtol, atol=atol)


def test_weights_equal_bitsandbytes():
    w_OI, _ = problem()
    codes_OI, top_O, _ = bnb.functional.int8_vectorwise_quant(w_OI.half())
    weight = int8_weight(w_OI)
    assert torch.equal(weight.codes_OI, codes_OI)
    assert torch.equal(weight.top_O, top_O)
    assert weight.bits_per_weight == 8 + 32 / 96


def test_outlier_channels_help():
    w_OI, x_TI = problem()
    exact_TO = x_TI @ w_OI.T
    error = {t: (int8_linear(x_TI, int8_weight(w_OI), t) - exact_TO).pow(2).mean() for t in (0.0, 6.0)}
    assert error[6.0] < 0.2 * error[0.0]
    assert (cast_linear(x_TI, w_OI) - exact_TO).pow(2).mean() < 0.1 * error[6.0]


def test_outliers_are_those_of_the_whole_batch():
    w_OI, x_TI = problem()
    alone_TO = int8_linear(x_TI[:1], int8_weight(w_OI))
    assert not torch.equal(int8_linear(x_TI, int8_weight(w_OI))[:1], alone_TO)


@pytest.mark.case("D6")
def test_zero_rows_and_zero_tokens():
    w_OI, x_TI = problem()
    w_OI[3], x_TI[2] = 0, 0
    y_TO = int8_linear(x_TI, int8_weight(w_OI))
    assert y_TO.isfinite().all()
    assert (y_TO[2] == 0).all()
    assert (y_TO[:, 3] == 0).all()


def test_weights_beyond_float16_are_refused():
    with pytest.raises(UserError, match="not finite in float16"):
        int8_weight(torch.full((2, 4), 1e6))


def test_leading_dimensions():
    w_OI, x_TI = problem()
    weight = int8_weight(w_OI)
    assert torch.equal(int8_linear(x_TI.view(2, 5, 96), weight), int8_linear(x_TI, weight).view(2, 5, 24))
