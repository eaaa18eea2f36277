"""A tool in its own environment: how it is asked, what comes back, and what is said when it cannot."""

import sys
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from harness.errors import UserError
from harness.quantize import InputStats, Scheme, quantize, worker
from harness.scheme import Method
from harness.workers import SCRIPTS, TOOLS, require
from tests.quantize.golden import arrays, inputs

ROUNDING = {"method": "rtn", "range": "half"}


def scheme(**fields):
    return Scheme(**{"method": "auto_gptq", "group_size": 16, "scale_dtype": "float32", **fields})


def stats(in_features=64):
    return InputStats.from_inputs(torch.eye(in_features))


@pytest.fixture
def fake(monkeypatch):
    """The worker script around a tool that rounds. Its process ends with the test."""
    tool = replace(TOOLS[Method.auto_gptq], script=Path(__file__).with_name("fake_tool.py"))
    monkeypatch.setitem(TOOLS, Method.auto_gptq, tool)
    monkeypatch.setenv(tool.variable, sys.executable)
    worker.start.cache_clear()
    yield tool
    running = worker.start(tool.python(), tool.script)
    running.close()
    worker.start.cache_clear()


def test_the_result_comes_back_as_codes(fake):
    w_OI = torch.randn(6, 64)
    for fields in ({}, {"group_size": -1}, {"precision": "int3", "act_order": "static"}):
        q = quantize(w_OI, scheme(**fields), stats())
        plain_fields = {key: value for key, value in fields.items() if key != "act_order"}
        plain = quantize(w_OI, scheme(**ROUNDING, **plain_fields))
        assert torch.equal(q.dequantize(), plain.dequantize())
        assert torch.equal(q.codes_OI, plain.codes_OI)
        assert q.bits_per_weight == plain.bits_per_weight
        assert q.facts["damp"] == 0.01 and q.facts["damp_over_median"] > 0


@pytest.mark.case("D15")
def test_regrouped_columns_need_their_group_index(fake):
    w_OI = torch.randn(6, 64)
    q = quantize(w_OI, scheme(act_order="regroup"), stats())
    plain = quantize(w_OI.flip(1), scheme(**ROUNDING))
    assert torch.equal(q.dequantize(), plain.dequantize().flip(1))
    assert q.storage["group_index"] == 32 * 64


@pytest.mark.case("D24")
def test_scales_are_stored_as_the_scheme_says(fake):
    w_OI = torch.randn(6, 64)
    q = quantize(w_OI, scheme(scale_dtype="float16"), stats())
    assert torch.equal(q.scale_OG, q.scale_OG.half().float())
    assert q.bits_per_weight == 4 + 16 / 16


def test_a_failure_of_the_tool_is_told_in_its_words_and_the_worker_lives_on(fake):
    w_OI = torch.randn(6, 64)
    with pytest.raises(UserError, match="RuntimeError: not positive-definite"):
        quantize(w_OI, scheme(damp=2.0), stats())
    assert quantize(w_OI, scheme(), stats()).dequantize().isfinite().all()


def test_a_worker_that_dies_is_told(fake):
    with pytest.raises(UserError, match="ended by itself: out of memory"):
        quantize(torch.randn(6, 64), scheme(damp=1.0), stats())
    assert quantize(torch.randn(6, 64), scheme(), stats()).dequantize().isfinite().all()


@pytest.mark.case("D4")
def test_inputs_that_are_all_zero_never_reach_the_tool(fake):
    """It would take every input for dead and set the whole weight to 0."""
    w_OI = torch.randn(6, 64)
    q = quantize(w_OI, scheme(), InputStats.from_inputs(torch.zeros(5, 64)))
    assert torch.equal(q.dequantize(), quantize(w_OI, scheme(**ROUNDING)).dequantize())
    assert q.facts["fallback_reason"] == "every input is zero in calibration"


@pytest.mark.case("C19")
@pytest.mark.parametrize(
    ("method", "command", "variable"),
    [
        ("auto_gptq", "make auto-gptq", "HARNESS_AUTO_GPTQ_PYTHON"),
        ("gptqmodel", "make gptqmodel", "HARNESS_GPTQMODEL_PYTHON"),
    ],
)
def test_a_missing_environment_says_how_to_make_it(monkeypatch, tmp_path, method, command, variable):
    monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    message = f"method={method} runs in its own environment.* none at .*nowhere.*`{command}`, or set {variable}"
    with pytest.raises(UserError, match=message):
        quantize(torch.randn(2, 64), scheme(method=method), stats())
    with pytest.raises(UserError, match=message):
        require(Method(method))
    require(Method.gptq)


def test_inputs_made_up_for_gptqmodel_have_the_same_sum(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    x_TI = torch.randn(20, 48)
    x_TI[:, [3, 7]] = 0
    hessian_II = x_TI.T @ x_TI
    root_II = import_module("gptqmodel_worker").square_root(hessian_II)
    torch.testing.assert_close(root_II.T @ root_II, hessian_II, rtol=1e-4, atol=1e-4)
    assert (root_II[:, [3, 7]] == 0).all()


def test_an_environment_is_known_by_its_interpreter_and_its_versions(monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_AUTO_GPTQ_PYTHON", sys.executable)
    tool = TOOLS[Method.auto_gptq]
    assert tool.identity() == f"{sys.executable}, torch {version('torch')}"  # auto_gptq is not in this one
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    monkeypatch.setenv("HARNESS_AUTO_GPTQ_PYTHON", str(other))
    assert tool.identity().split(", ")[0] == str(other)


def test_an_interpreter_without_the_tool_says_what_it_lacks(monkeypatch):
    monkeypatch.setenv("HARNESS_AUTO_GPTQ_PYTHON", sys.executable)
    with pytest.raises(UserError, match=r"ended by itself: .*No module named 'auto_gptq'"):
        quantize(torch.randn(2, 64), scheme(), stats())


@pytest.mark.slow
def test_the_real_tool_gives_its_published_results_where_it_is_installed():
    try:
        TOOLS[Method.auto_gptq].python()
    except UserError as error:
        assert "make auto-gptq" in str(error)
        return
    w_OI, x_TI = inputs("plain")
    q = quantize(w_OI, scheme(precision="int3", group_size=32, act_order="regroup"), InputStats.from_inputs(x_TI))
    torch.testing.assert_close(q.dequantize(), arrays("auto_gptq")["plain.b3.g32.sym.act"], rtol=1e-5, atol=1e-6)
