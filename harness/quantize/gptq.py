"""GPTQ (Frantar et al. 2022): round one input column at a time, and let the later columns make up for the error.

    for every column k, in order:   q_k = round(w_k),   e = (w_k - q_k) / U_kk,   w_j -= e U_kj for all j > k

with U from `factor.py`. Columns are taken in blocks of 128: inside a block every column is brought up to date at
once, the columns behind the block only at its end (the same sums, in an order that is fast).

    act_order     none     columns as stored
                  regroup  by falling mean square of the input; a group is `group_size` successive columns of that
                           order, so weights need an index to their group
                  static   the same order, but groups and their scales are those of the stored order, from the
                           weights before any feedback
                  group_aware  the stored groups, the one with the largest mean square first, its columns by falling
                           mean square: no index to keep, scales from up-to-date weights (group-aware reordering of
                           Gafni et al. 2025, arXiv 2505.14638; GPTQModel's default). A short last group stays last
    group_scales  block_start  a group's scale is read from the weights as they stood when its block began (auto-gptq)
                  current      from the weights as they stand when its first column's turn comes
    dead_inputs   zero     weights of inputs never seen in calibration become 0 before anything else (auto-gptq)
                  round    they are rounded like all others. Either way they take part in no feedback

Against auto-gptq 0.7.1 over 99.9 % of weights are equal, its quirk included: with one group a row the range is read
before dead inputs are set to 0, with smaller groups after. Not matched: the symmetric scale of a group without any
negative weight, which that version halves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.quantize import grid
from harness.quantize.factor import Factor, factor_key
from harness.quantize.formats import FORMATS
from harness.quantize.grid import Grid
from harness.quantize.result import Quantized, assemble
from harness.quantize.rtn import round_to_nearest
from harness.scheme import ActOrder, DeadInputs, GroupScales, Scheme

BLOCK = 128


def solve(w_OI: Tensor, scheme: Scheme, group_size: int, factor: Factor) -> Quantized:
    """Codes by GPTQ; by plain rounding, marked in the facts, where there is no factor."""
    assert factor.key == factor_key(scheme), "this factor was made for another column order, damping or kept columns"
    facts = {
        "damp": factor.damp,
        "damp_over_median": factor.damp_over_median,
        "dead_inputs": factor.dead_inputs,
    }
    if factor.upper_II is None:
        fallback = {"fallback": "rtn", "fallback_reason": factor.failure}
        return round_to_nearest(w_OI, scheme, group_size).with_facts(**facts, **fallback)
    drop_I = factor.dead_I & (scheme.dead_inputs is DeadInputs.zero)
    w_IO = w_OI.T[factor.order_I].float()
    w_IO[drop_I[factor.order_I]] = 0
    walk = _Walk(w_IO, factor.upper_II, scheme, group_size)
    one_group = group_size == w_OI.shape[1]
    if one_group:
        walk.set_groups(factor.order_I, grid.group_range(w_OI, group_size))
    elif scheme.act_order is ActOrder.static:
        walk.set_groups(factor.order_I, grid.group_range(w_OI.masked_fill(drop_I, 0), group_size))
    codes_OI = walk.run().T
    if scheme.act_order is ActOrder.group_aware and not one_group:
        first_G = factor.order_I[::group_size] // group_size
        walk.grids = [walk.grids[g] for g in torch.argsort(first_G).tolist()]
    lattice = grid.join(walk.grids, dim=1)
    regrouped = scheme.act_order is ActOrder.regroup and not one_group
    if not regrouped:
        codes_OI = codes_OI[:, torch.argsort(factor.order_I)]
    order_I = factor.order_I if regrouped else None
    return assemble(codes_OI.contiguous(), lattice, scheme, walk.form, group_size, order_I).with_facts(**facts)


class _Walk:
    """The weights [I, O], in the order of the walk, and the groups met on it."""

    def __init__(self, w_IO: Tensor, upper_II: Tensor, scheme: Scheme, size: int) -> None:
        self.w_IO, self.upper_II = w_IO, upper_II
        self.form, self.stored = FORMATS[scheme.precision], getattr(torch, scheme.scale_dtype)
        self.rule, self.current = scheme.range_rule, scheme.group_scales is GroupScales.current
        self.size = size
        self.group_I = [k // size for k in range(len(w_IO))]
        self.grids: list[Grid] = []

    def set_groups(self, order_I: Tensor, ends: tuple[Tensor, Tensor]) -> None:
        """Groups fixed beforehand: those of the stored order, from these smallest and largest weights [O, G]."""
        self.group_I = (order_I // self.size).tolist()
        self.grids = [self.fit(low_O, high_O) for low_O, high_O in zip(*(end.unbind(1) for end in ends), strict=True)]

    def fit(self, low_O: Tensor, high_O: Tensor) -> Grid:
        """The grid of one group of every row."""
        return grid.fit(low_O[:, None], high_O[:, None], self.form, self.rule, self.stored)

    def run(self) -> Tensor:
        """Codes [I, O] in the order of the walk."""
        codes_IO = torch.empty(self.w_IO.shape, dtype=torch.uint8, device=self.w_IO.device)
        for start in range(0, len(self.w_IO), BLOCK):
            block = slice(start, min(start + BLOCK, len(self.w_IO)))
            error_CO = self.run_block(block, codes_IO[block])
            self.w_IO[block.stop :].addmm_(self.upper_II[block, block.stop :].T, error_CO, alpha=-1)
        return codes_IO

    def run_block(self, block: slice, codes_CO: Tensor) -> Tensor:
        """Fills in the codes of a block of columns; returns their errors over U_kk."""
        w_CO, upper_CC = self.w_IO[block].clone(), self.upper_II[block, block]
        error_CO = torch.empty_like(w_CO)
        for c in range(len(w_CO)):
            if self.group_I[block.start + c] == len(self.grids):  # the first column of a new group
                self.grids.append(self.fit(*torch.aminmax(self.ahead(block, c, w_CO, error_CO), dim=0)))
            lattice = self.grids[self.group_I[block.start + c]]
            scale_O, zero_O = lattice.scale_OG[:, 0], lattice.zero_OG[:, 0]
            code_O = (w_CO[c] / scale_O).round_().add_(zero_O).clamp_(0, self.form.levels)
            codes_CO[c] = code_O
            error_CO[c] = (w_CO[c] - (code_O - zero_O) * scale_O) / upper_CC[c, c]
            w_CO[c + 1 :].addr_(upper_CC[c, c + 1 :], error_CO[c], alpha=-1)
        return error_CO

    def ahead(self, block: slice, c: int, w_CO: Tensor, error_CO: Tensor) -> Tensor:
        """Weights of the group that starts at column c of the block, as `group_scales` says."""
        k, stop = block.start + c, block.start + c + self.size
        if not self.current:
            return self.w_IO[k:stop]
        behind_CI = self.upper_II[block.start : k, block.stop : max(stop, block.stop)]
        behind_IO = self.w_IO[block.stop : max(stop, block.stop)] - behind_CI.T @ error_CO[:c]
        return torch.cat([w_CO[c : c + self.size], behind_IO])
