"""GPTQ: equal to auto-gptq's published results, and well behaved on inputs that break its factorization."""

import pytest
import torch

from harness.errors import UserError
from harness.quantize import InputStats, Scheme, factor_key, factorize, quantize
from harness.quantize.factor import damping_steps
from tests.quantize.golden import arrays, inputs, output_errors

# Rows with a weight halfway between two codes. The last bit of a sum decides, and so the machine's way of summing does;
# all that follows in the row may differ (61 and 101 of 9,216 weights with MKL_CBWR=COMPATIBLE, else none).
NEAR_TIES = {"dead.b8.g-1.asym.plain": 29, "dead.b8.g64.asym.plain": 29}
ORDERS = {"plain": "none", "act": "regroup", "act_static": "static"}


def scheme(**fields):
    return Scheme(**{"method": "gptq", "precision": "int4", "group_size": 16, "scale_dtype": "float32", **fields})


def rtn(**fields):
    return scheme(method="rtn", range="half", **fields)


def problem(tokens=256, in_features=64, out_features=12):
    """A weight and correlated inputs of uneven size, for which feedback and order matter."""
    mix = torch.eye(in_features) + 0.3 * torch.randn(in_features, in_features)
    return torch.randn(out_features, in_features), torch.randn(tokens, in_features) @ mix * torch.linspace(
        0.3, 3, in_features
    )


def output_error(w_OI, q, x_TI):
    return (x_TI @ (q.dequantize() - w_OI).T).pow(2).mean().item()


@pytest.mark.parametrize("case", output_errors())
def test_equals_auto_gptq(case):
    data, bits, group, kind, order = case.split(".")
    w_OI, x_TI = inputs(data)
    q = quantize(
        w_OI,
        scheme(
            precision=f"int{bits[1:]}", group_size=int(group[1:]), symmetric=kind == "sym", act_order=ORDERS[order],
            group_scales="block_start", damp=0.01,
        ),
        InputStats.from_inputs(x_TI),
    )  # fmt: skip
    same_OI = torch.isclose(q.dequantize(), arrays("auto_gptq")[case], rtol=1e-5, atol=1e-6)
    if case in NEAR_TIES:
        same_OI[NEAR_TIES[case]] = True
    assert same_OI.float().mean() >= 0.999
    assert output_error(w_OI, q, x_TI) == pytest.approx(output_errors()[case], rel=0.01)


def test_weights_and_statistics_are_not_changed_and_runs_are_bit_equal():
    w_OI, x_TI = problem()
    stats = InputStats.from_inputs(x_TI)
    before_OI, hessian_II = w_OI.clone(), stats.hessian_II.clone()
    once, twice = (quantize(w_OI, scheme(act_order="regroup"), stats).dequantize() for _ in range(2))
    assert torch.equal(once, twice)
    assert torch.equal(w_OI, before_OI)
    assert torch.equal(stats.hessian_II, hessian_II)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("range_rule", ["auto", "other"])
def test_beats_rounding(symmetric, range_rule):
    w_OI, x_TI = problem()
    rule = {"auto": ("half", "with_zero"), "other": ("qmax", "minmax")}[range_rule][0 if symmetric else 1]
    ours = scheme(precision="int3", symmetric=symmetric, range=rule)
    plain = scheme(method="rtn", precision="int3", symmetric=symmetric, range=rule)
    q = quantize(w_OI, ours, InputStats.from_inputs(x_TI))
    assert output_error(w_OI, q, x_TI) < 0.8 * output_error(w_OI, quantize(w_OI, plain), x_TI)


def test_one_factor_serves_precisions_and_group_sizes():
    w_OI, x_TI = problem()
    stats = InputStats.from_inputs(x_TI)
    factor = factorize(stats, scheme(act_order="static"))
    for precision, size in [("int3", 16), ("int4", -1), ("int8", 32)]:
        fields = {"precision": precision, "group_size": size, "act_order": "static"}
        shared = quantize(w_OI, scheme(**fields), factor=factor)
        assert torch.equal(shared.dequantize(), quantize(w_OI, scheme(**fields), stats).dequantize())
    assert factor_key(scheme(act_order="static")) == factor_key(scheme(act_order="regroup", precision="int2"))
    with pytest.raises(AssertionError, match="another column order"):
        quantize(w_OI, scheme(act_order="none"), factor=factor)


def test_current_scales_differ_from_block_start_only_inside_a_block():
    w_OI, x_TI = problem(600, 256)
    stats = InputStats.from_inputs(x_TI)
    for size, equal in [(128, True), (32, False), (96, False)]:
        results = [
            quantize(w_OI, scheme(group_size=size, group_scales=mode), stats, indivisible="tail").dequantize()
            for mode in ("block_start", "current")
        ]
        assert torch.allclose(*results, atol=1e-4) == equal


def test_current_scales_are_those_of_the_weights_as_they_stand(monkeypatch):
    """With blocks of one column every update is immediate, so that block_start means current."""
    w_OI, x_TI = problem(400, 96)
    stats = InputStats.from_inputs(x_TI)
    blocked = quantize(w_OI, scheme(group_size=24, group_scales="current"), stats).dequantize()
    monkeypatch.setattr("harness.quantize.gptq.BLOCK", 1)
    immediate = quantize(w_OI, scheme(group_size=24, group_scales="block_start"), stats).dequantize()
    torch.testing.assert_close(blocked, immediate, atol=1e-4, rtol=0)


@pytest.mark.parametrize("in_features", [64, 72])
def test_group_aware_order_is_the_plain_walk_over_reordered_columns(in_features):
    w_OI, x_TI = problem(in_features=in_features)
    energy_I = x_TI.pow(2).sum(0)
    groups = sorted(range(in_features // 16), key=lambda g: -energy_I[16 * g : 16 * g + 16].max())
    order = [
        i for g in [*groups, 4] for i in sorted(range(in_features)[16 * g : 16 * g + 16], key=lambda i: -energy_I[i])
    ]
    plain = quantize(w_OI[:, order], scheme(group_size=16), InputStats.from_inputs(x_TI[:, order]), indivisible="tail")
    aware = quantize(
        w_OI, scheme(group_size=16, act_order="group_aware"), InputStats.from_inputs(x_TI), indivisible="tail"
    )
    assert torch.allclose(aware.dequantize()[:, order], plain.dequantize(), atol=1e-5)
    assert aware.storage == plain.storage
    assert aware.order_I is None


@pytest.mark.parametrize("order", ["none", "regroup", "static", "group_aware"])
def test_tail_group(order):
    w_OI, x_TI = problem(in_features=72)
    fields = {"group_size": 16, "act_order": order}
    q = quantize(w_OI, scheme(**fields), InputStats.from_inputs(x_TI), indivisible="tail")
    assert q.scale_OG.shape == (12, 5)
    assert output_error(w_OI, q, x_TI) < output_error(w_OI, quantize(w_OI, rtn(), indivisible="tail"), x_TI)


@pytest.mark.case("D15")
def test_regrouped_and_static_order_are_two_things():
    w_OI, x_TI = problem()
    stats = InputStats.from_inputs(x_TI)
    by_order = {order: quantize(w_OI, scheme(precision="int3", act_order=order), stats) for order in ORDERS.values()}
    levels = {
        order: max(len(row_GS.unique()) for row_GS in q.dequantize().unflatten(1, (4, 16)).flatten(0, 1))
        for order, q in by_order.items()
    }
    assert levels["none"] <= 8
    assert levels["static"] <= 8
    assert levels["regroup"] > 8  # weights of several groups among 16 neighbours: unreadable without the group index
    assert by_order["regroup"].storage["group_index"] == 32 * 64
    assert by_order["static"].storage["group_index"] == by_order["none"].storage["group_index"] == 0
    losses = {order: output_error(w_OI, q, x_TI) for order, q in by_order.items()}
    assert len({f"{loss:.6f}" for loss in losses.values()}) == 3


@pytest.mark.case("D15")
@pytest.mark.case("A9")
def test_orders_are_equal_with_one_group_a_row():
    w_OI, x_TI = problem()
    stats = InputStats.from_inputs(x_TI)
    regrouped, static, explicit = (
        quantize(w_OI, scheme(group_size=size, act_order=order), stats)
        for size, order in [(-1, "regroup"), (-1, "static"), (64, "static")]
    )
    assert torch.equal(regrouped.dequantize(), static.dequantize())
    assert torch.equal(explicit.dequantize(), static.dequantize())
    assert regrouped.bits_per_weight == static.bits_per_weight


@pytest.mark.case("D1")
@pytest.mark.parametrize("asked", [0.0, 1e-8])
def test_damping_is_raised_in_steps_and_told(asked):
    """10 tokens for 64 inputs: no damping, or almost none, cannot be factorized."""
    w_OI, x_TI = problem(tokens=10)
    q = quantize(w_OI, scheme(damp=asked), InputStats.from_inputs(x_TI))
    assert q.dequantize().isfinite().all()
    assert 1e-7 < q.facts["damp"] <= 1e-4
    assert "fallback" not in q.facts
    assert output_error(w_OI, q, x_TI) < output_error(w_OI, quantize(w_OI, rtn()), x_TI)


def test_damping_steps():
    assert damping_steps(0.01) == [0.01, 0.1, 1.0]
    assert damping_steps(0) == [0, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0]


@pytest.mark.case("D1")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_inputs_that_are_not_finite_are_named_as_the_cause(bad):
    w_OI, x_TI = problem()
    x_TI[3, 5] = bad
    with pytest.raises(UserError, match="inputs hold values that are not finite"):
        quantize(w_OI, scheme(), InputStats.from_inputs(x_TI))


@pytest.mark.case("D1")
def test_last_resort_is_plain_rounding_marked_as_such():
    w_OI = torch.randn(4, 16)
    stats = InputStats.from_inputs(torch.randn(20, 16))
    stats.hessian_II = -stats.hessian_II
    q = quantize(w_OI, scheme(), stats)
    assert torch.equal(q.dequantize(), quantize(w_OI, rtn()).dequantize())
    assert q.facts["fallback"] == "rtn"
    assert "not positive definite" in q.facts["fallback_reason"]


@pytest.mark.case("D2")
def test_damping_that_drowns_most_inputs_is_reported():
    """One channel x3000 raises the mean of the diagonal, and with it the damping of every other channel."""
    w_OI, x_TI = torch.randn(8, 64), torch.randn(512, 64)
    x_TI[:, 7] *= 3000
    q = quantize(w_OI, scheme(), InputStats.from_inputs(x_TI))
    assert q.facts["damp_over_median"] == pytest.approx(1384, rel=0.15)
    even = quantize(w_OI, scheme(), InputStats.from_inputs(torch.randn(512, 64)))
    assert even.facts["damp_over_median"] == pytest.approx(0.01, rel=0.1)


@pytest.mark.case("D3")
@pytest.mark.parametrize("rule", ["zero", "round"])
@pytest.mark.parametrize("order", ["none", "regroup", "static"])
def test_dead_input_neither_gives_nor_takes_feedback(order, rule):
    w_OI, x_TI = torch.randn(6, 32), torch.eye(32)
    x_TI[5, 5] = 0
    q = quantize(w_OI, scheme(act_order=order, dead_inputs=rule, group_size=-1), InputStats.from_inputs(x_TI))
    assert q.facts["dead_inputs"] == 1
    plain_OI = quantize(w_OI, rtn(group_size=-1)).dequantize()
    if rule == "zero":
        plain_OI[:, 5] = 0
    torch.testing.assert_close(q.dequantize(), plain_OI)


@pytest.mark.case("D3")
def test_dead_inputs_change_nothing_for_the_others():
    w_OI, x_TI = problem()
    x_TI[:, [3, 40]] = 0
    q = quantize(w_OI, scheme(dead_inputs="round", group_size=-1, damp=1e-4), InputStats.from_inputs(x_TI))
    touched_OI = w_OI.clone()
    touched_OI[:, [3, 40]] *= 0.5
    other = quantize(touched_OI, scheme(dead_inputs="round", group_size=-1, damp=1e-4), InputStats.from_inputs(x_TI))
    live = torch.ones(64, dtype=torch.bool)
    live[[3, 40]] = False
    assert torch.equal(q.dequantize()[:, live], other.dequantize()[:, live])
    assert ((q.dequantize() - w_OI)[:, ~live].abs() <= q.scale_OG / 2 * 1.001).all()


@pytest.mark.case("D4")
@pytest.mark.parametrize("tokens", [0, 30])
def test_inputs_that_are_all_zero_leave_plain_rounding(tokens):
    w_OI = torch.randn(6, 32)
    q = quantize(w_OI, scheme(), InputStats.from_inputs(torch.zeros(tokens, 32)))
    assert torch.equal(q.dequantize(), quantize(w_OI, rtn()).dequantize())
    assert q.facts["fallback"] == "rtn"
    assert q.facts["fallback_reason"] == ("every input is zero in calibration" if tokens else "no calibration tokens")
    assert q.facts["dead_inputs"] == 32


def test_statistics_are_needed_and_must_fit():
    with pytest.raises(UserError, match="method=gptq needs input statistics"):
        quantize(torch.randn(4, 16), scheme())
    with pytest.raises(UserError, match="Statistics of 8 inputs do not fit a weight of 16"):
        quantize(torch.randn(4, 16), scheme(), InputStats.from_inputs(torch.randn(9, 8)))


@pytest.mark.parametrize(("order", "group_size"), [("none", 16), ("static", 16), ("regroup", -1)])
@pytest.mark.parametrize("hessian", [torch.float32, torch.float64])
def test_half_precision_weights_and_either_hessian(hessian, order, group_size):
    w_OI, x_TI = problem()
    w_OI = w_OI.bfloat16()
    fields = {"act_order": order, "group_size": group_size}
    q = quantize(w_OI, scheme(**fields), InputStats.from_inputs(x_TI, dtype=hessian))
    same = quantize(w_OI.float(), scheme(**fields), InputStats.from_inputs(x_TI, dtype=hessian))
    assert torch.equal(q.dequantize(), same.dequantize())
    assert output_error(w_OI, q, x_TI) < output_error(w_OI, quantize(w_OI, rtn(group_size=group_size)), x_TI)
