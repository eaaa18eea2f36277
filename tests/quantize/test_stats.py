"""Input statistics: what they hold, and that batches do not matter."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.quantize import InputStats


def close(a, b):
    """Within 1e-6 of the largest entry."""
    return (a - b).abs().max() <= 1e-6 * b.abs().max()


def test_definition():
    x_TI = torch.randn(50, 8, dtype=torch.float64)
    stats = InputStats.from_inputs(x_TI, dtype=torch.float64)
    assert close(stats.hessian_II, x_TI.T @ x_TI)
    assert close(stats.mean_abs_I, x_TI.abs().mean(0).float())
    assert torch.equal(stats.max_abs_I, x_TI.abs().amax(0).float())
    assert stats.n_tokens == 50


@pytest.mark.case("C6")
@pytest.mark.case("E6")
def test_any_batching_gives_the_same_statistics():
    x_TI = torch.randn(9000, 24) * torch.logspace(-2, 2, 24)
    whole = InputStats.from_inputs(x_TI)
    for sizes in ([5, 9, 8986], [1] * 500 + [8500], [4500, 4500]):
        parts = InputStats.empty(24)
        for part_TI in x_TI.split(sizes):
            parts.add(part_TI)
        assert parts.n_tokens == whole.n_tokens
        assert close(parts.hessian_II, whole.hessian_II)
        assert close(parts.mean_abs_I, whole.mean_abs_I)
        assert torch.equal(parts.max_abs_I, whole.max_abs_I)


def test_batch_dimensions_are_tokens_and_half_precision_is_widened():
    x_BTI = torch.randn(2, 7, 6).bfloat16()
    stats = InputStats.from_inputs(x_BTI)
    assert stats.n_tokens == 14
    assert stats.hessian_II.dtype == torch.float32
    assert close(stats.hessian_II, x_BTI.float().flatten(0, 1).T @ x_BTI.float().flatten(0, 1))


def test_no_tokens():
    stats = InputStats.empty(4).add(torch.empty(0, 4))
    assert stats.n_tokens == 0
    assert (stats.mean_abs_I == 0).all()


def test_round_trip_through_a_file(tmp_path):
    stats = InputStats.from_inputs(torch.randn(10, 4))
    save_file(stats.tensors(), tmp_path / "stats.safetensors")
    back = InputStats.from_tensors(load_file(tmp_path / "stats.safetensors"))
    assert back.n_tokens == 10
    assert torch.equal(back.hessian_II, stats.hessian_II)
    assert torch.equal(back.mean_abs_I, stats.mean_abs_I)
