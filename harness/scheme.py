"""The words of a quantization scheme: what is written per weight, and how the codes are chosen.

A `Scheme` is method + number format + group size + conventions. It holds no tensor and imports no torch, so that
configs can be composed, checked and printed in a second. `harness.quantize` turns a scheme and a weight into codes.

`range`, the convention that most often makes two "same" runs differ:

    symmetric    qmax        scale = max|w| / qmax, codes qmin..qmax                  rtn's default
                 half        scale = 2 max|w| / (2^bits - 1), codes 0..2^bits-1, zero point 2^(bits-1)   gptq's default
    asymmetric   minmax      scale = (max - min) / (2^bits - 1), zero point rounded and clamped; the range is not
                             forced through 0 (llm-awq, `pseudo_quantize_tensor`)    rtn's default
                 with_zero   the range always contains 0 (AutoGPTQ, `Quantizer.find_params`)   gptq's default
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from harness.errors import UserError

AXIS = 1  # of every method's groups, as HQQ counts: successive weights of one row of w_OI, never over row ends
BLOCKS = ("ffn", "attention")  # of a decoder layer; embedding, head, norms and routers are no blocks


class Method(StrEnum):
    """How codes are chosen."""

    keep = "keep"
    rtn = "rtn"
    gptq = "gptq"
    awq = "awq"
    hqq = "hqq"
    bnb = "bnb"
    auto_gptq = "auto_gptq"
    gptqmodel = "gptqmodel"


class Precision(StrEnum):
    """Number formats."""

    int2 = "int2"
    int3 = "int3"
    int4 = "int4"
    int5 = "int5"
    int6 = "int6"
    int8 = "int8"
    nf4 = "nf4"
    fp4 = "fp4"
    fp8_e4m3 = "fp8_e4m3"
    mxfp4 = "mxfp4"
    nvfp4 = "nvfp4"


class RangeRule(StrEnum):
    """How scale and zero point follow from a group's weights (module docstring). `auto`: the method's default."""

    auto = "auto"
    qmax = "qmax"
    half = "half"
    minmax = "minmax"
    with_zero = "with_zero"


class ActOrder(StrEnum):
    """GPTQ's column order: as stored, by activation with groups re-made, or by activation with the stored groups.

    `static` fixes the stored groups' scales beforehand; `group_aware` takes group after group.
    """

    none = "none"
    regroup = "regroup"
    static = "static"
    group_aware = "group_aware"


class GroupScales(StrEnum):
    """When GPTQ takes a group's scale: from the weights at the start of the column block, or as they stand now."""

    block_start = "block_start"
    current = "current"


class DeadInputs(StrEnum):
    """GPTQ and weights whose input was zero in every calibration token: 0, as GPTQ tools do, or plainly rounded."""

    zero = "zero"
    round = "round"


class ScaleDtype(StrEnum):
    """Stored type of scales."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"


class Indivisible(StrEnum):
    """What to do where group_size does not divide in_features: refuse, or let the last group be shorter."""

    error = "error"
    tail = "tail"


# Not frozen: OmegaConf makes frozen dataclasses read-only, and these fields are set from the command line.
@dataclass(unsafe_hash=True)
class Scheme:
    """One way to quantize a weight matrix. Strings are accepted for every enum."""

    method: Method = Method.rtn
    precision: Precision = Precision.int4
    group_size: int = 64  # weights along in_features that share a scale; -1: one group a row
    symmetric: bool = True
    range: RangeRule = RangeRule.auto
    scale_dtype: ScaleDtype = ScaleDtype.float16
    keep_columns: float = 0.0  # input channels kept in 16 bits: below 1 a share of them, else a count
    act_order: ActOrder = ActOrder.none  # gptq
    group_scales: GroupScales = GroupScales.block_start  # gptq
    dead_inputs: DeadInputs = DeadInputs.zero  # gptq
    damp: float = 0.01  # gptq: damping over the mean of the Hessian's diagonal
    true_sequential: bool = False  # gptq with calib.inputs=quantized: role after role inside a layer
    awq_scale: bool = True  # awq: search the per-channel scale
    awq_clip: bool = True  # awq: search the clipping range (never of what makes queries and keys)
    double_quant: bool = False  # bnb nf4/fp4: scales quantized to 8 bits in blocks of 256
    outlier_threshold: float = 6.0  # bnb int8: activation magnitude above which a column stays in 16 bits

    def __post_init__(self) -> None:
        for field in fields(self):
            enum = ENUMS.get(field.name)
            value = getattr(self, field.name)
            if enum and not isinstance(value, enum):
                if value not in list(enum):
                    raise ValueError(f"{field.name}={value!r} is not known. Choose one of: {', '.join(enum)}")
                setattr(self, field.name, enum(value))

    @property
    def range_rule(self) -> RangeRule:
        """The range rule in force: `auto` resolved by method and symmetry."""
        if self.range is not RangeRule.auto:
            return self.range
        gptq_like = self.method in (Method.gptq, Method.auto_gptq, Method.gptqmodel)
        if self.symmetric:
            return RangeRule.half if gptq_like else RangeRule.qmax
        return RangeRule.with_zero if gptq_like else RangeRule.minmax

    @property
    def touches(self) -> bool:
        """Whether the scheme changes a weight at all."""
        return self.method is not Method.keep


ENUMS: dict[str, type[StrEnum]] = {
    "method": Method,
    "precision": Precision,
    "range": RangeRule,
    "scale_dtype": ScaleDtype,
    "act_order": ActOrder,
    "group_scales": GroupScales,
    "dead_inputs": DeadInputs,
}


def effective_group(in_features: int, group_size: int, indivisible: str = "error") -> int:
    """Weights in a group of a row of `in_features`: -1 means all of them. UserError where the size does not fit."""
    if group_size == -1:
        return in_features
    if group_size < 1:
        raise UserError(f"group_size={group_size} is not a size. Use a positive number, or -1 for one group a row.")
    if in_features % group_size and Indivisible(indivisible) is Indivisible.error:
        raise UserError(
            f"group_size={group_size} does not divide in_features={in_features}. "
            f"What divides it: {', '.join(map(str, dividing_groups(in_features)))}, or -1. "
            "Or let the last group of each row be shorter: quant.indivisible=tail"
        )
    return min(group_size, in_features)


def dividing_groups(in_features: int) -> list[int]:
    """Group sizes that divide a width, those worth using first thought of: from 8 up where there are any."""
    divisors = [size for size in range(1, in_features + 1) if in_features % size == 0]
    return [size for size in divisors if size >= 8] or divisors
