"""Which method can do what: one clear error for the rest, without torch."""

import subprocess
import sys

import pytest
import torch

from harness.errors import UserError
from harness.quantize import InputStats, Scheme, quantize
from harness.scheme import Method, Precision
from harness.supported import FIXED_GROUPS, OPTIONS, SUPPORTED, check_scheme, is_live, needs_inputs
from harness.workers import TOOLS

EVERY = [(method, precision) for method, precisions in SUPPORTED.items() for precision in precisions]


def fitting(method, precision):
    """A scheme of this method and precision that is in order."""
    group = -1 if (method, precision) == (Method.bnb, Precision.int8) else FIXED_GROUPS.get(precision, 32)
    return Scheme(method=method, precision=precision, group_size=group, symmetric=method is not Method.hqq)


@pytest.mark.parametrize(("method", "precision"), EVERY)
def test_everything_supported_runs(method, precision):
    scheme = fitting(method, precision)
    check_scheme(scheme, "quant.ffn")
    if is_live(scheme) or method in TOOLS:  # tested with their own files
        return
    w_OI = torch.randn(4, 64)
    q = quantize(w_OI, scheme, InputStats.from_inputs(torch.randn(99, 64)) if needs_inputs(scheme) else None)
    assert (q.dequantize() - w_OI).pow(2).mean() < w_OI.pow(2).mean()
    assert q.form.bits <= q.bits_per_weight < q.form.bits + 2


@pytest.mark.parametrize("method", SUPPORTED)
def test_every_other_precision_is_refused_by_name(method):
    for precision in set(Precision) - set(SUPPORTED[method]):
        with pytest.raises(UserError, match=f"^quant.ffn: method={method} cannot do precision={precision}. It can do "):
            check_scheme(Scheme(method=method, precision=precision), "quant.ffn")


def test_keep_asks_for_nothing():
    check_scheme(Scheme(method="keep", precision="nf4", group_size=0), "quant.ffn")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"symmetric": False, "range": "qmax"}, "range=qmax does not go with symmetric=false in rtn. Use minmax or"),
        ({"range": "minmax"}, "range=minmax does not go with symmetric=true in rtn. Use qmax or half"),
        ({"method": "auto_gptq", "range": "qmax"}, "range=qmax does not go with symmetric=true in auto_gptq. Use half"),
        ({"method": "hqq"}, "hqq searches zero points .* Set symmetric=false"),
        ({"method": "bnb", "precision": "nf4", "symmetric": False}, "nf4 has no zero points"),
        ({"precision": "fp8_e4m3", "range": "half"}, "fp8_e4m3 has no zero points and no range rules"),
        ({"precision": "mxfp4"}, "mxfp4 has groups of 32 by definition, not 64. Set group_size=32"),
        ({"precision": "nvfp4", "group_size": -1}, "nvfp4 has groups of 16 by definition, not -1"),
        ({"method": "bnb", "precision": "nf4", "group_size": 48}, "no block size of bitsandbytes. Use 32, 64"),
        ({"method": "bnb", "precision": "int8"}, "LLM.int8 has one scale a row, not groups of 64. Set group_size=-1"),
        ({"group_size": 0}, "group_size=0 is not a size"),
        ({"method": "auto_gptq", "act_order": "group_aware"}, "act_order=group_aware is asked of gptq only"),
        ({"act_order": "static"}, "act_order=static means nothing to method=rtn. Leave it at none, or use gptq"),
        ({"method": "awq", "damp": 0.1}, "damp=0.1 means nothing to method=awq. Leave it at 0.01"),
        ({"method": "gptq", "awq_clip": False}, "awq_clip=False means nothing to method=gptq"),
        ({"method": "gptq", "damp": -0.1}, "damp=-0.1 is negative"),
        ({"keep_columns": 1.5}, "keep_columns=1.5 is neither a share below 1 nor a whole number"),
        ({"keep_columns": -1}, "keep_columns=-1 is neither"),
        ({"method": "bnb", "precision": "int8", "group_size": -1, "keep_columns": 2}, "Set outlier_threshold instead"),
        ({"method": "bnb", "precision": "int8", "group_size": -1, "double_quant": True}, "double_quant=true is for"),
        ({"method": "bnb", "precision": "int8", "group_size": -1, "outlier_threshold": -1}, "outlier_threshold=-1 is"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(fields, message):
    with pytest.raises(UserError, match=f"^quant.ffn: .*{message}"):
        check_scheme(Scheme(**fields), "quant.ffn")


def test_every_option_exists():
    assert all(hasattr(Scheme(), name) for name in OPTIONS)


def test_checks_need_no_torch():
    code = "import sys, harness.supported, harness.workers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_quantize_refuses_what_is_no_rounding():
    for scheme in (Scheme(method="keep"), fitting(Method.bnb, Precision.int8)):
        with pytest.raises(UserError, match=r"is no rounding of a weight\. Choose"):
            quantize(torch.randn(4, 64), scheme)
