"""Every setting of a run, typed. The only place where a default is written; Hydra's files hold only differences.

Torch is never imported here: `--help` and config errors answer in a second. Each group's dataclass is registered as
`<group>/schema`, so that a bad key, type or enum in a file or on the command line fails when the config is composed.
Schemes and their defaults are in `harness.scheme`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore

from harness.config.behaviour import (
    AttributeConfig,
    EffectKind,
    EngineConfig,
    HarnessConfig,
    Isolate,
    OnLocked,
    OnStale,
)
from harness.config.calib import CalibConfig, CalibDraw, CalibInputs, CalibPacking, CalibSource
from harness.config.design import ArmsRule, DesignConfig, Players, QuantConfig
from harness.config.eval import (
    BosRule,
    BosUse,
    ContextSuiteConfig,
    EvalConfig,
    LastWindow,
    PerplexityConfig,
    Sampler,
    TaskOptions,
    TooLong,
)
from harness.config.model import DType, ModelConfig, ModelSource, OffGrid

__all__ = [
    "GROUPS",
    "ArmsRule",
    "AttributeConfig",
    "BosRule",
    "BosUse",
    "CalibConfig",
    "CalibDraw",
    "CalibInputs",
    "CalibPacking",
    "CalibSource",
    "ContextSuiteConfig",
    "DType",
    "DesignConfig",
    "EffectKind",
    "EngineConfig",
    "EvalConfig",
    "HarnessConfig",
    "Isolate",
    "LastWindow",
    "ModelConfig",
    "ModelSource",
    "OffGrid",
    "OnLocked",
    "OnStale",
    "PerplexityConfig",
    "Players",
    "QuantConfig",
    "RunConfig",
    "Sampler",
    "TaskOptions",
    "TooLong",
    "register",
]


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
