"""The decode bound: what a step reads."""

import pytest

from harness.errors import UserError
from harness.ledger.config import LedgerOptions, ShapeNumbers
from harness.ledger.decode import ACCELERATORS, bounds, step_bytes, touched
from harness.ledger.params import totals
from harness.ledger.shape import Matrix, plain_shape
from harness.ledger.storage import by_precision, plan_schemes

DENSE = plain_shape(ShapeNumbers(layers=2, d_model=256, d_ff=512, heads=4, vocab=128))
SPARSE = plain_shape(ShapeNumbers(layers=2, d_model=256, d_ff=512, heads=4, vocab=128, experts=8, active_experts=2))


def test_a_dense_step_reads_the_whole_model_at_any_batch() -> None:
    for batch in (1, 7, 1000):
        assert step_bytes(DENSE, {}, batch) == 2 * totals(DENSE)["all"]


def test_a_plan_reads_what_it_stores() -> None:
    options = LedgerOptions()
    row = next(r for r in by_precision(DENSE, options) if (r["precision"], r["group_size"]) == ("int4", 128))
    assert step_bytes(DENSE, plan_schemes(options)["both"], 1) == row["model_blocks_bytes"]


def test_one_token_reads_its_own_experts_and_many_read_all() -> None:
    assert step_bytes(SPARSE, {}, 1) == 2 * totals(SPARSE, active=True)["all"]
    assert step_bytes(SPARSE, {}, 10_000) == pytest.approx(2 * totals(SPARSE)["all"])


def test_experts_touched_by_lot() -> None:
    matrix = Matrix(0, "ffn", "up", 4, 4, "expert", count=2, active=1)
    # two tokens, two experts: the same one with probability one half
    assert touched(matrix, 2) == pytest.approx(1.5)


def test_bound_is_the_slower_of_reading_and_computing() -> None:
    options = LedgerOptions(accelerators=["h100_sxm"], batch_sizes=[1, 10**6], length=1)
    small, large = [row for row in bounds(DENSE, options) if row["plan"] == "base"]
    assert small["step_ms"] == small["weight_ms"] + small["cache_ms"] > small["compute_ms"]
    assert large["step_ms"] == large["compute_ms"] > large["weight_ms"] + large["cache_ms"]
    assert large["tokens_per_s"] == pytest.approx(10**6 / large["step_ms"] * 1e3)


def test_every_accelerator_names_its_source() -> None:
    for device in ACCELERATORS.values():
        assert device.gb_s > 0
        assert device.source


def test_unknown_accelerator_is_named() -> None:
    with pytest.raises(UserError, match=r"h10_sxm is not known\. Did you mean h100_sxm"):
        bounds(DENSE, LedgerOptions(accelerators=["h10_sxm"]))
