"""AWQ: scales and clipping only where they help; shared, emulated, and the identity otherwise."""

import pytest
import torch

from harness.errors import UserError
from harness.quantize import InputStats, Scheme, pair_scale, quantize


def scheme(**fields):
    return Scheme(
        **{
            "method": "awq",
            "precision": "int3",
            "group_size": 32,
            "symmetric": False,
            "scale_dtype": "float32",
            **fields,
        }
    )


def problem(out_features=24, spread=2.0):
    """Weights and inputs whose channels differ by up to 10^spread."""
    x_TI = torch.randn(300, 64) * torch.logspace(-spread / 2, spread / 2, 64)[torch.randperm(64)]
    return torch.randn(out_features, 64), x_TI


def output_error(w_OI, q, x_TI):
    return (x_TI @ (q.dequantize() - w_OI).T).pow(2).sum().item()


@pytest.mark.case("D23")
@pytest.mark.parametrize("symmetric", [True, False])
def test_each_switch_helps_and_is_told(symmetric):
    w_OI, x_TI = problem()
    stats = InputStats.from_inputs(x_TI)
    errors = {}
    for scale in (False, True):
        for clip in (False, True):
            q = quantize(w_OI, scheme(symmetric=symmetric, awq_scale=scale, awq_clip=clip), stats)
            errors[scale, clip] = output_error(w_OI, q, x_TI)
            assert q.facts["awq_scaled"] == scale
            assert (q.facts.get("awq_clipped_groups", 0) > 0) == clip
    assert errors[True, True] < errors[True, False] < errors[False, False]
    assert errors[False, True] < errors[False, False]
    plain = quantize(w_OI, scheme(method="rtn", symmetric=symmetric))
    assert errors[False, False] == output_error(w_OI, plain, x_TI)


def test_identity_when_nothing_beats_it():
    """Inputs all alike: no channel deserves more than another, and weights on the grid leave nothing to gain."""
    w_OI = quantize(torch.randn(8, 64), scheme(method="rtn")).dequantize()
    stats = InputStats.from_inputs(torch.randn(500, 64))
    assert (pair_scale([w_OI], scheme(), stats) == 1).all()
    q = quantize(w_OI, scheme(), stats)
    assert not q.facts["awq_scaled"]
    assert q.facts["awq_clipped_groups"] == 0
    assert q.input_scale_I is None


def test_a_pair_group_shares_one_scale_and_it_can_be_given():
    w_OI, x_TI = problem()
    stats = InputStats.from_inputs(x_TI)
    other_OI = torch.randn(8, 64)
    shared_I = pair_scale([w_OI, other_OI], scheme(), stats)
    assert shared_I.shape == (64,)
    assert shared_I.max() * shared_I.min() == pytest.approx(1, rel=1e-4)
    q = quantize(w_OI, scheme(awq_clip=False), stats, input_scale_I=shared_I)
    by_hand = quantize(w_OI * shared_I, scheme(method="rtn")).dequantize() / shared_I
    assert torch.equal(q.dequantize(), by_hand)
    assert torch.equal(
        quantize(w_OI, scheme(), stats).dequantize(),
        quantize(w_OI, scheme(), stats, input_scale_I=pair_scale([w_OI], scheme(), stats)).dequantize(),
    )


def test_losses_are_those_of_real_outputs():
    """The search by the Hessian picks the exponent that a search by outputs picks."""
    w_OI, x_TI = problem()
    stats = InputStats.from_inputs(x_TI)
    losses = []
    for exponent in [i / 20 for i in range(20)]:
        scale_I = stats.mean_abs_I.pow(exponent)
        scale_I /= (scale_I.max() * scale_I.min()).sqrt()
        rounded_OI = quantize(w_OI * scale_I, scheme(method="rtn")).dequantize() / scale_I
        losses.append(((x_TI @ (rounded_OI - w_OI).T).pow(2).sum().item(), scale_I))
    best_I = min(losses, key=lambda pair: pair[0])[1]
    torch.testing.assert_close(pair_scale([w_OI], scheme(), stats), best_I)


def test_clipping_minimises_each_groups_own_output_error():
    w_OI, x_TI = problem(out_features=4)
    q = quantize(w_OI, scheme(awq_scale=False), InputStats.from_inputs(x_TI))
    for o in range(4):
        for g, columns in enumerate((slice(0, 32), slice(32, 64))):
            part_1S, x_TS = w_OI[o : o + 1, columns], x_TI[:, columns]
            top = part_1S.abs().max()
            errors = []
            for cut in [1 - i / 20 for i in range(10)]:
                rounded_1S = quantize(part_1S.clamp(-top * cut, top * cut), scheme(method="rtn")).dequantize()
                errors.append((x_TS @ (rounded_1S - part_1S).T).pow(2).sum())
            ours = (x_TS @ (q.dequantize()[o : o + 1, columns] - part_1S).T).pow(2).sum()
            assert ours == pytest.approx(min(errors).item(), rel=1e-4), (o, g)


@pytest.mark.case("A9")
def test_group_minus_one_is_one_group_a_row():
    w_OI, x_TI = problem()
    stats = InputStats.from_inputs(x_TI)
    per_row, explicit = (quantize(w_OI, scheme(group_size=size), stats) for size in (-1, 64))
    assert torch.equal(per_row.dequantize(), explicit.dequantize())


def test_tail_group():
    w_OI, x_TI = problem()
    q = quantize(w_OI, scheme(group_size=24), InputStats.from_inputs(x_TI), indivisible="tail")
    plain = quantize(w_OI, scheme(method="rtn", group_size=24), indivisible="tail")
    assert q.scale_OG.shape == (24, 3)
    assert output_error(w_OI, q, x_TI) < output_error(w_OI, plain, x_TI)


@pytest.mark.case("D4")
@pytest.mark.parametrize("tokens", [0, 20])
def test_inputs_that_are_all_zero_leave_plain_rounding(tokens):
    w_OI = torch.randn(4, 64)
    q = quantize(w_OI, scheme(), InputStats.from_inputs(torch.zeros(tokens, 64)))
    assert torch.equal(q.dequantize(), quantize(w_OI, scheme(method="rtn")).dequantize())
    assert q.facts["fallback"] == "rtn"


@pytest.mark.case("D3")
def test_some_dead_inputs_stay_finite():
    w_OI, x_TI = problem()
    x_TI[:, [3, 9]] = 0
    q = quantize(w_OI, scheme(), InputStats.from_inputs(x_TI))
    assert q.dequantize().isfinite().all()
    assert (q.dequantize()[:, [3, 9]] - w_OI[:, [3, 9]]).abs().max() < 3 * w_OI.abs().max()


def test_bad_statistics():
    with pytest.raises(UserError, match="method=awq needs input statistics"):
        quantize(torch.randn(4, 64), scheme())
    with pytest.raises(UserError, match="not finite"):
        quantize(torch.randn(4, 64), scheme(), InputStats.from_inputs(torch.full((3, 64), float("nan"))))
