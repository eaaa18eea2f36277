"""Every setting of a run, typed. The only place where a default is written; Hydra's files hold only differences.

Torch is never imported here: `--help` and config errors answer in a second. Each group's dataclass is registered as
`<group>/schema`, so that a bad key, type or enum in a file or on the command line fails when the config is composed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from harness.scheme import Indivisible, Method, Scheme


class ModelSource(StrEnum):
    """Where weights come from."""

    hf = "hf"  # hub id or local folder
    gguf = "gguf"  # a GGUF file
    package = "package"  # a GGUF file inside a Python package
    random = "random"  # random weights of a given shape


class DType(StrEnum):
    """Computing type. `auto`: float32 on the CPU, bfloat16 on a GPU."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


@dataclass
class OffGrid:
    """Exact re-parameterization by log-normal factors (harness.model.offgrid). sigma 0: off."""

    sigma: float = 0.0
    seed: int = 0


@dataclass
class ModelConfig:
    """Which weights, and how they are read."""

    name: str = MISSING  # label in reports
    source: ModelSource = ModelSource.hf
    path: str = ""  # hub id, folder, GGUF file, or package requirement
    revision: str = ""  # hub revision; empty: the hub's default branch
    file: str = ""  # GGUF file inside the package
    sha256: str = ""  # of that file; empty: not checked
    licence: str = ""
    gated: bool = False  # the hub asks for an accepted licence and a token
    dtype: DType = DType.auto
    device: str = "auto"  # auto: cuda when present, else cpu
    attention: str = "auto"  # auto: sdpa, or eager where the architecture needs it
    off_grid: OffGrid = field(default_factory=OffGrid)
    allow_lattice: bool = False  # quantize a base whose weights already sit on a grid that the arms' groups nest in
    config: dict[str, Any] = field(default_factory=dict)  # fields of the model's own config to set (random models)
    seed: int = 0  # of random weights


@dataclass
class QuantConfig:
    """Schemes by block. Overrides are rules {match: glob on site names, <scheme fields>}; the last match wins."""

    ffn: Scheme = field(default_factory=lambda: Scheme(method=Method.keep))
    attention: Scheme = field(default_factory=lambda: Scheme(method=Method.keep))
    embedding: Scheme = field(default_factory=lambda: Scheme(method=Method.keep))
    head: Scheme = field(default_factory=lambda: Scheme(method=Method.keep))
    overrides: list[dict[str, Any]] = field(default_factory=list)
    indivisible: Indivisible = Indivisible.error


class Players(StrEnum):
    """Between whom the loss is split."""

    blocks = "blocks"
    roles = "roles"
    layers = "layers"
    block_layers = "block_layers"  # blocks x groups of layers
    experts = "experts"


class ArmsRule(StrEnum):
    """Which coalitions of players become arms. Every design has `base`, where nothing is quantized."""

    single = "single"  # each player alone
    together = "together"  # all players at once
    all = "all"  # every subset: 2 x 2 for two blocks
    one_in = "one_in"  # each player alone, and all at once
    one_out = "one_out"  # all but one player, and all at once
    one_in_out = "one_in_out"  # both: 16 arms for seven roles
    owen = "owen"  # roles: every subset of one block's roles with the other block off and on (exact Owen values)


@dataclass
class DesignConfig:
    """The arms of a run."""

    players: Players = Players.blocks
    arms: ArmsRule = ArmsRule.single
    matched_noise: float = 0.0  # arms that disturb one block each to this relative weight error; 0: none
    random_sets: int = 0  # arms that quantize random sites, as many weights as the smaller block has
    noise_draws: int = 0  # arms that move every block weight by at most half a bfloat16 step: the noise floor
    layer_groups: int = 0  # merge consecutive layers into this many players; 0: one each
    seed: int = 0


class CalibSource(StrEnum):
    """Where calibration tokens come from."""

    shipped = "shipped"  # State of the Union speeches in the package
    text = "text"  # a text file
    jsonl = "jsonl"  # a jsonl file with a text field, or token ids
    dataset = "dataset"  # a `datasets` set


class CalibInputs(StrEnum):
    """Whose activations the statistics see: the unquantized model's, or those of the arm's own quantized prefix."""

    float = "float"
    quantized = "quantized"


class CalibPacking(StrEnum):
    """How texts become samples of equal length."""

    stream = "stream"  # texts joined into one stream of tokens, cut anywhere
    rows = "rows"  # one sample a text, cut to the length; shorter texts are dropped and counted


class CalibDraw(StrEnum):
    """Which samples are taken."""

    random = "random"  # drawn with the seed
    start = "start"  # from the start, one after the other


@dataclass
class CalibConfig:
    """Calibration tokens for methods that need input statistics."""

    source: CalibSource = CalibSource.shipped
    path: str = ""  # file, or dataset name
    config_name: str = ""  # dataset configuration
    split: str = "train"
    text_field: str = "text"  # jsonl and datasets: the column of text or of token ids
    joiner: str = ""  # text files: as eval.perplexity.joiner
    samples: int = 32
    length: int = 512  # tokens a sample
    packing: CalibPacking = CalibPacking.stream
    draw: CalibDraw = CalibDraw.random
    bos: bool = False  # a BOS as the first token of each sample
    seeds: list[int] = field(default_factory=lambda: [0])
    inputs: CalibInputs = CalibInputs.float
    keep: bool = True  # keep statistics of float inputs in the cache folder for later runs


class BosRule(StrEnum):
    """Where a beginning-of-sequence token stands. It is never scored and never doubled."""

    none = "none"
    first = "first"  # once, at the start of the text
    window = "window"  # at the start of every window


class LastWindow(StrEnum):
    """A last window shorter than the others: dropped (as in papers) or scored."""

    drop = "drop"
    score = "score"


@dataclass
class PerplexityConfig:
    """A text scored in windows. `path` empty: off."""

    path: str = ""  # a file, or `shipped:moby_dick`
    name: str = "prose"
    subset: str = "general"
    window: int = 1024  # tokens
    stride: int = 0  # tokens between window starts; 0: window, so that no token is seen twice
    joiner: str = ""  # set: lines are rows, blank rows emptied, joined by this (papers: two newlines); empty: as it is
    bos: BosRule = BosRule.none
    last_window: LastWindow = LastWindow.drop
    max_windows: int = 0  # 0: all
    max_windows_per_document: int = 0  # 0: all
    max_chars: int = 0  # only this much of the text's beginning; 0: all
    document_regex: str = ""  # a match starts a new document, which no window crosses; empty: each window is one


class Sampler(StrEnum):
    """How few-shot examples are chosen."""

    default = "default"  # drawn anew for every question
    first_n = "first_n"  # the first ones, the same for every question


class BosUse(StrEnum):
    """A beginning-of-sequence token before a question's text: as the tokenizer does by itself, always, or never."""

    auto = "auto"
    always = "always"
    never = "never"


@dataclass
class TaskOptions:
    """Settings of one lm-eval task; an unset field leaves the task's own."""

    num_fewshot: int | None = None
    sampler: Sampler | None = None
    limit: int | None = None
    chat_template: bool | None = None


@dataclass
class ContextSuiteConfig:
    """Generated questions whose answer stands in the context (harness.data.context)."""

    lengths: list[int] = field(default_factory=list)  # tokens an item may have; empty: off
    documents: int = 30  # a task and length
    seed: int = 0


@dataclass
class EvalConfig:
    """What is scored. Subsets list lm-eval task names, or paths of task YAML files in lm-eval's format."""

    general: list[str] = field(default_factory=list)
    knowledge: list[str] = field(default_factory=list)
    context: list[str] = field(default_factory=list)
    perplexity: PerplexityConfig = field(default_factory=PerplexityConfig)
    context_suite: ContextSuiteConfig = field(default_factory=ContextSuiteConfig)
    limit: int | None = None  # questions a task, the first ones
    num_fewshot: int | None = None
    sampler: Sampler | None = None
    chat_template: bool = False  # prompts in the dress of the tokenizer's chat template, examples as turns
    task_options: dict[str, TaskOptions] = field(default_factory=dict)  # {name: {limit: 9}}, over the four above
    bos: BosUse = BosUse.auto
    seed: int = 1234  # few-shot draws

    def by_subset(self) -> dict[str, list[str]]:
        """Tasks by the subset they belong to."""
        return {"general": self.general, "knowledge": self.knowledge, "context": self.context}


@dataclass
class EngineConfig:
    """How the work is cut. Nothing here changes a result beyond rounding."""

    memory_gib: float = 4.0  # hidden states and masks held at once; more items than fit are scored in waves
    pack_tokens: int = 768  # tokens a tree pack aims at
    batch_tokens: int = 2048  # tokens a forward call
    head_tokens: int = 512  # positions whose logits exist at once
    packing: bool = True  # share tokens between questions and choices; off: one plain sequence each


class EffectKind(StrEnum):
    """What a design's arms are compared for."""

    alone = "alone"  # the player's loss by itself
    restored = "restored"  # what the loss of everything falls by when the player is put back
    interaction = "interaction"
    shapley = "shapley"
    owen = "owen"
    total = "total"
    contrast = "contrast"  # against the share claimed
    difference = "difference"  # between players, and between subsets


@dataclass
class AttributeConfig:
    """Intervals and verdicts."""

    resamples: int = 10_000
    level: float = 0.95
    margin: float = 0.01  # losses within +-margin count as equivalent, in the metric's own unit
    seed: int = 0
    primary_metric: str = "nll"  # the declared family of tests: subset x {ffn, attention, interaction, difference}
    claims: dict[str, float] = field(default_factory=lambda: {"ffn": 0.7})  # share of the total claimed for a player
    effects: list[EffectKind] = field(default_factory=list)  # to report; empty: all that the design's arms allow


class OnLocked(StrEnum):
    """A second start of the same run while the first one is at work."""

    wait = "wait"
    skip = "skip"


class OnStale(StrEnum):
    """A finished run of the same settings, made by other code or from other weights or data. It is always listed."""

    recompute = "recompute"
    refuse = "refuse"
    use = "use"  # as if it were this one's, where only the code differs


class Isolate(StrEnum):
    """Whether a job of a sweep has a process of its own, so that a kill or a crash is that job's failure only."""

    auto = "auto"  # with a launcher (joblib, submitit, ray) yes; one after the other in this process no
    always = "always"
    never = "never"


@dataclass
class HarnessConfig:
    """How a run behaves, not what it computes."""

    plan_only: bool = False  # print arms and sites, then stop
    force: bool = False  # run again although a result is there, taking no scores from the cache folder
    on_locked: OnLocked = OnLocked.wait
    on_stale: OnStale = OnStale.recompute
    reuse: bool = True  # take what other runs scored from the cache folder, and leave there what this one scores
    reuse_gib: float = 4.0  # base's hidden states are kept up to this size
    max_failures: int = 0  # a sweep starts no further job after so many failed ones; 0: it never stops
    isolate: Isolate = Isolate.auto
    traceback: bool = False  # show Python's traceback with an error


@dataclass
class RunConfig:
    """A whole run."""

    experiment: str = "run"
    model: ModelConfig = field(default_factory=ModelConfig)
    quant: QuantConfig = field(default_factory=QuantConfig)
    calib: CalibConfig = field(default_factory=CalibConfig)
    design: DesignConfig = field(default_factory=DesignConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    attribute: AttributeConfig = field(default_factory=AttributeConfig)
    harness: HarnessConfig = field(default_factory=HarnessConfig)
    outputs: str = "outputs"  # relative to the folder the run was started in


GROUPS = {
    "model": ModelConfig,
    "quant": QuantConfig,
    "calib": CalibConfig,
    "design": DesignConfig,
    "eval": EvalConfig,
}


def register() -> None:
    """Put the schemas into Hydra's store."""
    store = ConfigStore.instance()
    store.store(name="schema", node=RunConfig)
    for group, node in GROUPS.items():
        store.store(group=group, name="schema", node=node)


register()
