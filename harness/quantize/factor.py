"""The factor of a Hessian that GPTQ walks along. One factor serves every precision, group size and range rule.

With H = 2/n sum x x^T, damped on its diagonal, and H^-1 = U^T U (U upper triangular), row k of U holds how the error
of column k is shared out over the columns after it (Frantar et al. 2022, "GPTQ", section 3.3).

An input that was zero in every token is dead: its row and column of H are zero. Its diagonal is set to the mean: any
positive value will do, since without off-diagonal entries it neither takes nor gives feedback.

The factorization is done in float64, so that near-ties between two codes do not hang on the order in which a machine
adds up. If H is not positive definite (fewer tokens than inputs, for one) the damping is raised to the next power of
ten, up to the mean diagonal itself. Where that does not help either, the factor says so and the method falls back to
plain rounding. Inputs that are not finite are an error: damping cannot help them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.quantize.outliers import unkept
from harness.quantize.stats import InputStats
from harness.scheme import ActOrder, Scheme


@dataclass(frozen=True)
class Factor:
    """U and the column order it belongs to. Keep it as long as `factor_key(scheme)` stays the same."""

    upper_II: Tensor | None  # float32; none where `failure` says why
    order_I: Tensor  # the input that is taken k-th
    dead_I: Tensor  # bool, by input; inputs kept in 16 bits count as dead here
    key: tuple[object, ...]  # what of the scheme it depends on
    dead_inputs: int  # zero in every token
    damp: float = 0.0  # used, over the mean of the diagonal
    damp_over_median: float = 0.0  # of the damping term: far above 1, GPTQ all but rounds to nearest
    failure: str = ""


def factor_key(scheme: Scheme) -> tuple[object, ...]:
    """What of a scheme its factor depends on, beside the statistics."""
    by_group = scheme.group_size if scheme.act_order is ActOrder.group_aware else 0
    return (scheme.act_order is not ActOrder.none, by_group, scheme.damp, scheme.keep_columns)


def factorize(stats: InputStats, scheme: Scheme) -> Factor:
    """The factor for these inputs. Raises UserError where they are not finite."""
    stats.require_finite()
    dead_inputs, reason, key = int((stats.hessian_II.diagonal() == 0).sum()), stats.emptiness(), factor_key(scheme)
    stats = unkept(stats, scheme.keep_columns)
    diagonal_I = stats.hessian_II.diagonal()
    dead_I = diagonal_I == 0
    order_I = _order(diagonal_I, scheme)
    if dead_I.all():
        return Factor(None, order_I, dead_I, key, dead_inputs, failure=reason or "every input is kept in 16 bits")
    hessian_II = stats.hessian_II[order_I][:, order_I].double() * (2 / stats.n_tokens)
    mean = hessian_II.diagonal().mean().item()
    hessian_II.diagonal()[dead_I[order_I]] = mean
    for damp in damping_steps(scheme.damp):
        upper_II = _inverse_factor(hessian_II, damp * mean)
        if upper_II is not None:
            return Factor(upper_II, order_I, dead_I, key, dead_inputs, damp, over_median(diagonal_I, damp))
    failure = "the Hessian is not positive definite at any damping up to 1"
    return Factor(None, order_I, dead_I, key, dead_inputs, failure=failure)


def over_median(diagonal_I: Tensor, damp: float) -> float:
    """The damping term, a share of the diagonal's mean, over the median of what is not zero there; 0 if all is."""
    live_I = diagonal_I[diagonal_I > 0].double()
    return damp * (live_I.sum() / len(diagonal_I) / live_I.median()).item() if len(live_I) else 0.0


def _order(diagonal_I: Tensor, scheme: Scheme) -> Tensor:
    """The input taken k-th, by its mean square (`gptq.py` on the orders)."""
    if scheme.act_order is ActOrder.none:
        return torch.arange(len(diagonal_I), device=diagonal_I.device)
    size = scheme.group_size if scheme.act_order is ActOrder.group_aware else -1
    groups = diagonal_I.split(size if size > 0 else len(diagonal_I))
    pieces = [g * size + torch.argsort(group, descending=True, stable=True) for g, group in enumerate(groups)]
    short = [pieces.pop()] if len(groups[-1]) < len(groups[0]) else []
    pieces.sort(key=lambda piece: -diagonal_I[piece[0]].item())
    return torch.cat(pieces + short)


def damping_steps(damp: float) -> list[float]:
    """The asked damping and the powers of ten above it, from 1e-6 to 1."""
    return [damp] + [10.0**power for power in range(-6, 1) if 10.0**power > damp * (1 + 1e-9)]


def _inverse_factor(hessian_II: Tensor, damping: float) -> Tensor | None:
    """Upper Cholesky factor of the inverse of the damped Hessian; none where there is none."""
    damped_II = hessian_II.clone()
    damped_II.diagonal().add_(damping)
    lower_II, failed = torch.linalg.cholesky_ex(damped_II)
    if failed:
        return None
    upper_II, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower_II), upper=True)
    return None if failed or not torch.isfinite(upper_II.sum()) else upper_II.float()
