"""`quantize`: the one door to every method that rounds a weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from harness.errors import UserError
from harness.quantize.bnb import round_to_table
from harness.quantize.factor import Factor, factorize
from harness.quantize.floats import round_floats
from harness.quantize.formats import FORMATS
from harness.quantize.gptq import solve
from harness.quantize.result import Quantized
from harness.quantize.rtn import round_to_nearest
from harness.quantize.stats import InputStats
from harness.scheme import Method, Scheme, effective_group


@dataclass(frozen=True)
class Job:
    """What a method is given."""

    w_OI: Tensor
    scheme: Scheme
    group_size: int  # in effect
    stats: InputStats | None
    factor: Factor | None


def quantize(
    w_OI: Tensor,
    scheme: Scheme,
    stats: InputStats | None = None,
    *,
    indivisible: str = "error",
    factor: Factor | None = None,
) -> Quantized:
    """Quantize one matrix.

    `indivisible`: "error" or "tail", where group_size does not divide in_features. `factor`: GPTQ's factor of these
    statistics (`factorize`), to use one for several precisions and group sizes. Raises UserError for what the method
    cannot do, for missing statistics and for values that are not finite.
    """
    if scheme.method not in METHODS:
        raise UserError(f"method={scheme.method} is not a way to round a weight. Choose one of: {', '.join(METHODS)}")
    job = Job(w_OI, scheme, effective_group(w_OI.shape[1], scheme.group_size, indivisible), stats, factor)
    return METHODS[scheme.method](job)


def _stats(job: Job) -> InputStats:
    """The statistics that the method cannot do without."""
    if job.stats is None:
        raise UserError(
            f"method={job.scheme.method} needs input statistics. Give it calibration data (calib), or use rtn."
        )
    if job.stats.in_features != job.w_OI.shape[1]:
        raise UserError(
            f"Statistics of {job.stats.in_features} inputs do not fit a weight of {job.w_OI.shape[1]} inputs."
        )
    return job.stats


def _rtn(job: Job) -> Quantized:
    rounding = round_floats if FORMATS[job.scheme.precision].values else round_to_nearest
    return rounding(job.w_OI, job.scheme, job.group_size)


def _bnb(job: Job) -> Quantized:
    return round_to_table(job.w_OI, job.scheme, job.group_size)


def _gptq(job: Job) -> Quantized:
    factor = job.factor or factorize(_stats(job), job.scheme)
    return solve(job.w_OI, job.scheme, job.group_size, factor)


METHODS: dict[Method, Callable[[Job], Quantized]] = {Method.rtn: _rtn, Method.gptq: _gptq, Method.bnb: _bnb}
