"""Bytes by precision: as many as the quantizer itself counts, and parts that add up."""

import pytest
import torch

from harness.ledger.config import LedgerOptions, ShapeNumbers
from harness.ledger.params import totals
from harness.ledger.shape import plain_shape
from harness.ledger.storage import by_precision, plan_schemes, scheme_of, stored_bits
from harness.quantize import quantize
from harness.scheme import Method, Precision, ScaleDtype, Scheme

INTEGERS = [p for p in Precision if p.startswith("int")]


@pytest.mark.parametrize("scale_dtype", [ScaleDtype.float16, ScaleDtype.float32])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("group_size", [-1, 64, 40])
@pytest.mark.parametrize("precision", INTEGERS)
def test_integers_as_the_quantizer_counts(
    precision: Precision, group_size: int, symmetric: bool, scale_dtype: ScaleDtype
) -> None:
    w_OI = torch.randn(6, 100, generator=torch.Generator().manual_seed(0))
    scheme = Scheme(precision=precision, group_size=group_size, symmetric=symmetric, scale_dtype=scale_dtype)
    made = quantize(w_OI, scheme, indivisible="tail")
    assert stored_bits(6, 100, scheme) == sum(made.storage.values())


@pytest.mark.parametrize(
    ("method", "precision", "group_size"),
    [
        (Method.rtn, Precision.fp8_e4m3, 32),
        (Method.rtn, Precision.mxfp4, 32),
        (Method.rtn, Precision.nvfp4, 16),
        (Method.bnb, Precision.nf4, 64),
        (Method.bnb, Precision.fp4, 64),
    ],
)
def test_floats_as_the_quantizer_counts(method: Method, precision: Precision, group_size: int) -> None:
    w_OI = torch.randn(6, 128, generator=torch.Generator().manual_seed(0))
    scheme = Scheme(method=method, precision=precision, group_size=group_size)
    assert stored_bits(6, 128, scheme) == sum(quantize(w_OI, scheme).storage.values())


def test_rows_per_precision_and_group_size() -> None:
    shape = plain_shape(ShapeNumbers(layers=2, d_model=64, d_ff=96, vocab=128))
    options = LedgerOptions(precisions=[Precision.int4, Precision.mxfp4], group_sizes=[64, -1])
    rows = [(row["precision"], row["group_size"]) for row in by_precision(shape, options)]
    assert rows == [
        ("16 bit", ""),
        ("int4", "codes"),
        ("int4", 64),
        ("int4", -1),
        ("mxfp4", "codes"),
        ("mxfp4", 32),  # the format's own, once
    ]


def test_what_is_stored_and_what_is_saved_add_up() -> None:
    shape = plain_shape(ShapeNumbers(layers=2, d_model=64, d_ff=96, vocab=128))
    counts = totals(shape)
    for row in by_precision(shape, LedgerOptions()):
        assert row["ffn_bytes"] + row["ffn_saved_bytes"] == 2 * counts["ffn"]
        assert row["blocks_saved_bytes"] == row["ffn_saved_bytes"] + row["attention_saved_bytes"]
        assert row["model_blocks_bytes"] + row["blocks_saved_bytes"] == 2 * counts["all"]
        assert row["model_everything_bytes"] == row["ffn_bytes"] + row["attention_bytes"] + row["tables_bytes"]


def test_tied_table_is_stored_once() -> None:
    tied, untied = (plain_shape(ShapeNumbers(layers=1, d_model=64, d_ff=96, vocab=128, tied=t)) for t in (True, False))
    for one, two in zip(by_precision(tied, LedgerOptions()), by_precision(untied, LedgerOptions()), strict=True):
        assert 2 * one["tables_bytes"] == two["tables_bytes"]


def test_plans_are_the_two_by_two() -> None:
    scheme = scheme_of(LedgerOptions(), Precision.int4, 128)
    assert plan_schemes(LedgerOptions()) == {
        "base": {},
        "ffn": {"ffn": scheme},
        "attention": {"attention": scheme},
        "both": {"ffn": scheme, "attention": scheme},
    }
