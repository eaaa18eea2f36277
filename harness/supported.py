"""What each method can do, and one check of a scheme against it. Imports no torch: configs are checked in a second.

`SUPPORTED` lists the precisions of every method. What else a method has no use for is refused rather than ignored: an
option in a config that changes nothing would be read as an explanation of the result.
"""

from __future__ import annotations

from dataclasses import fields

from harness.errors import UserError
from harness.scheme import ActOrder, Method, Precision, RangeRule, Scheme

INTEGERS = tuple(Precision(f"int{bits}") for bits in (2, 3, 4, 5, 6, 8))
GPTQ_FILES = tuple(Precision(f"int{bits}") for bits in (2, 3, 4, 8))  # widths of the tools' packed format

SUPPORTED: dict[Method, tuple[Precision, ...]] = {
    Method.rtn: (*INTEGERS, Precision.fp8_e4m3, Precision.mxfp4, Precision.nvfp4),
    Method.gptq: INTEGERS,
    Method.awq: INTEGERS,
    Method.hqq: INTEGERS,
    Method.bnb: (Precision.nf4, Precision.fp4, Precision.int8),
    Method.auto_gptq: GPTQ_FILES,
    Method.gptqmodel: GPTQ_FILES,
}

# Options that belong to some methods only; for the others they must stay at their default.
OPTIONS: dict[str, tuple[Method, ...]] = {
    "act_order": (Method.gptq, Method.auto_gptq, Method.gptqmodel),
    "damp": (Method.gptq, Method.auto_gptq, Method.gptqmodel),
    "group_scales": (Method.gptq,),
    "dead_inputs": (Method.gptq,),
    "true_sequential": (Method.gptq,),
    "awq_scale": (Method.awq,),
    "awq_clip": (Method.awq,),
    "double_quant": (Method.bnb,),
    "outlier_threshold": (Method.bnb,),
    "keep_columns": (Method.rtn, Method.gptq, Method.awq, Method.hqq, Method.bnb),
}

FIXED_GROUPS = {Precision.mxfp4: 32, Precision.nvfp4: 16}
BNB_BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
WITH_INPUTS = (Method.gptq, Method.awq, Method.auto_gptq, Method.gptqmodel)


def needs_inputs(scheme: Scheme) -> bool:
    """Whether the method cannot do without input statistics."""
    return scheme.method in WITH_INPUTS


def wants_inputs(scheme: Scheme) -> bool:
    """Whether calibration is run for the scheme: kept columns are chosen by activation magnitude where it is known."""
    return needs_inputs(scheme) or scheme.keep_columns > 0


def is_live(scheme: Scheme) -> bool:
    """Whether the scheme acts on activations as well (LLM.int8), so that no rounded weight can stand for it."""
    return scheme.method is Method.bnb and scheme.precision is Precision.int8


def check_scheme(scheme: Scheme, where: str) -> None:
    """UserError, naming `where` the scheme was set, if its method cannot do what it asks."""
    if not scheme.touches:
        return
    for problem in (_precision, _options, _numbers, _group, _range):
        if text := problem(scheme):
            raise UserError(f"{where}: {text}")


def _precision(scheme: Scheme) -> str:
    known = SUPPORTED[scheme.method]
    if scheme.precision in known:
        return ""
    others = [method for method, precisions in SUPPORTED.items() if scheme.precision in precisions]
    return (
        f"method={scheme.method} cannot do precision={scheme.precision}. It can do {', '.join(known)}; "
        f"{scheme.precision} is done by {', '.join(others)}."
    )


def _options(scheme: Scheme) -> str:
    defaults = {field.name: field.default for field in fields(Scheme)}
    for name, methods in OPTIONS.items():
        if getattr(scheme, name) != defaults[name] and scheme.method not in methods:
            return (
                f"{name}={getattr(scheme, name)} means nothing to method={scheme.method}. "
                f"Leave it at {defaults[name]}, or use {', '.join(methods)}."
            )
    if scheme.act_order is ActOrder.group_aware and scheme.method is not Method.gptq:
        return f"act_order=group_aware is asked of gptq only, not of {scheme.method}, which has its own default."
    if scheme.double_quant and is_live(scheme):
        return "double_quant=true is for nf4 and fp4. Leave it out for int8."
    if scheme.keep_columns and is_live(scheme):
        return "keep_columns means nothing to LLM.int8, which picks outliers itself. Set outlier_threshold instead."
    return ""


def _numbers(scheme: Scheme) -> str:
    if not 0 <= scheme.damp < float("inf"):  # NaN is not either
        return f"damp={scheme.damp} is negative or no number. Use 0 or more; 0.01 is usual."
    if not 0 <= scheme.keep_columns < float("inf") or (scheme.keep_columns > 1 and scheme.keep_columns % 1):
        return f"keep_columns={scheme.keep_columns} is neither a share below 1 nor a whole number of input channels."
    if not scheme.outlier_threshold >= 0:
        return f"outlier_threshold={scheme.outlier_threshold} is negative or no number. Use 0 (none) or more."
    return ""


def _group(scheme: Scheme) -> str:
    size, fixed = scheme.group_size, FIXED_GROUPS.get(scheme.precision)
    if size != -1 and size < 1:
        return f"group_size={size} is not a size. Use a positive number, or -1 for one group a row."
    if fixed and size != fixed:
        return f"{scheme.precision} has groups of {fixed} by definition, not {size}. Set group_size={fixed}."
    if is_live(scheme) and size != -1:
        return f"LLM.int8 has one scale a row, not groups of {size}. Set group_size=-1."
    if scheme.method is Method.bnb and size not in (-1, *BNB_BLOCKS):
        allowed = ", ".join(map(str, BNB_BLOCKS))
        return f"group_size={size} is no block size of bitsandbytes. Use {allowed}, or -1 for one block a row."
    return ""


def _range(scheme: Scheme) -> str:
    symmetric = "true" if scheme.symmetric else "false"
    rule = scheme.range_rule
    if scheme.method is Method.hqq:
        if scheme.symmetric or rule is not RangeRule.minmax:
            return "hqq searches zero points from the range minmax. Set symmetric=false and leave range at auto."
        return ""
    if scheme.precision not in INTEGERS or scheme.method is Method.bnb:
        if not scheme.symmetric or scheme.range is not RangeRule.auto:
            return f"{scheme.precision} has no zero points and no range rules. Set symmetric=true and range=auto."
        return ""
    allowed = (RangeRule.qmax, RangeRule.half) if scheme.symmetric else (RangeRule.minmax, RangeRule.with_zero)
    if scheme.method in (Method.auto_gptq, Method.gptqmodel):
        allowed = allowed[1:]
    if rule not in allowed:
        return f"range={rule} does not go with symmetric={symmetric} in {scheme.method}. Use {' or '.join(allowed)}."
    return ""
