"""Settings without a group: how the work is cut, what is inferred from scores, and how a run behaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass
class EngineConfig:
    """How the work is cut. Nothing here changes a result beyond rounding."""

    memory_gib: float = 4.0  # hidden states and masks held at once; more items than fit are scored in waves
    pack_tokens: int = 256  # tokens a tree pack aims at
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

    plan_only: bool = False  # print arms, sites and what it would take, then stop; no weight is read
    force: bool = False  # run again although a result is there, taking no scores or tokens from the cache folder
    on_locked: OnLocked = OnLocked.wait
    on_stale: OnStale = OnStale.recompute
    reuse: bool = True  # take what other runs scored or tokenized from the cache folder, and leave there what this does
    reuse_gib: float = 4.0  # base's hidden states are kept up to this size
    page: bool = True  # end with report.html and its pictures; `python -m harness.report FOLDER` makes them later
    max_failures: int = 0  # a sweep starts no further job after so many failed ones; 0: it never stops
    isolate: Isolate = Isolate.auto
    traceback: bool = False  # show Python's traceback with an error
