"""`quantize`: the one door to every method that rounds a weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from harness.errors import UserError
from harness.quantize.awq import scale_and_clip
from harness.quantize.bnb import round_to_table
from harness.quantize.factor import Factor, factorize
from harness.quantize.floats import round_floats
from harness.quantize.formats import FORMATS
from harness.quantize.gptq import solve
from harness.quantize.hqq import search
from harness.quantize.outliers import largest_columns, with_kept
from harness.quantize.result import Quantized
from harness.quantize.rtn import round_to_nearest
from harness.quantize.stats import InputStats
from harness.quantize.worker import quantize_with_tool
from harness.scheme import Method, Scheme, effective_group
from harness.supported import check_scheme, is_live


@dataclass(frozen=True)
class Job:
    """What a method is given."""

    w_OI: Tensor
    scheme: Scheme
    group_size: int  # in effect
    stats: InputStats | None
    factor: Factor | None
    input_scale_I: Tensor | None


def quantize(
    w_OI: Tensor,
    scheme: Scheme,
    stats: InputStats | None = None,
    *,
    indivisible: str = "error",
    factor: Factor | None = None,
    input_scale_I: Tensor | None = None,
) -> Quantized:
    """Quantize one matrix.

    `indivisible`: "error" or "tail", where group_size does not divide in_features. `factor`: GPTQ's factor of these
    statistics (`factorize`), to use one for several precisions and group sizes. `input_scale_I`: AWQ's scale of the
    matrices that share this input (`pair_scale`). Raises UserError for what the method cannot do, for missing
    statistics and for values that are not finite.
    """
    check_scheme(scheme, f"quantize ({scheme.method})")
    if is_live(scheme) or scheme.method not in METHODS:
        raise UserError(
            f"{scheme.method} with {scheme.precision} is no rounding of a weight. Choose {', '.join(METHODS)}."
        )
    group_size = effective_group(w_OI.shape[1], scheme.group_size, indivisible)
    job = Job(w_OI, scheme, group_size, stats, factor, input_scale_I)
    if not scheme.keep_columns:
        return METHODS[scheme.method](job)
    magnitude_I = stats.max_abs_I if stats else w_OI.abs().amax(0)
    kept_K = largest_columns(magnitude_I, scheme.keep_columns)
    rest = METHODS[scheme.method](replace(job, w_OI=w_OI.index_fill(1, kept_K, 0)))
    return with_kept(rest, w_OI, kept_K)


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


def _hqq(job: Job) -> Quantized:
    return search(job.w_OI, job.scheme, job.group_size)


def _awq(job: Job) -> Quantized:
    return scale_and_clip(job.w_OI, job.scheme, job.group_size, _stats(job), job.input_scale_I)


def _tool(job: Job) -> Quantized:
    return quantize_with_tool(job.w_OI, job.scheme, job.group_size, _stats(job))


METHODS: dict[Method, Callable[[Job], Quantized]] = {
    Method.rtn: _rtn,
    Method.gptq: _gptq,
    Method.bnb: _bnb,
    Method.hqq: _hqq,
    Method.awq: _awq,
    Method.auto_gptq: _tool,
    Method.gptqmodel: _tool,
}
