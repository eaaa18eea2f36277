"""Arms that are no coalition of the design but tell what its losses mean.

noise.0 ..        every block weight moved by at most half a bfloat16 step (in bfloat16, one in twelve by a whole one):
                  the floor below which a loss is nothing
matched.ffn ..    each block disturbed alone, to the same relative weight error: sensitivity without size of error
random.0 ..       random sites of about as many weights as the smaller block, quantized: size without place
spliced           the weights of `ffn` and of `attention` put together. Where each arm calibrates on its own
                  quantized layers, `both` has other weights than the two; both - spliced is that recalibration
fp16_cast         LLM.int8's float16 casts, nothing rounded to integers
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.config import ArmsRule, DesignConfig, Players
from harness.errors import UserError
from harness.model.sites import Site
from harness.plan import Arm, Cast, Noise, Splice, looks_at_inputs
from harness.scheme import BLOCKS, Scheme
from harness.supported import is_live
from harness.words import CAST, MATCHED, NOISE, RANDOM, SPLICED


def control_arms(plan: dict[Site, Scheme], sites: Sequence[Site], design: DesignConfig, sequential: bool) -> list[Arm]:
    """Every control that the design asks for or the methods need. `plan`: the full one; `sites`: all block sites."""
    return [
        *_spliced(plan, design, sequential),
        *_noise(sites, design),
        *_matched(sites, design),
        *_random(plan, design),
        *_cast(plan),
    ]


def _noise(sites: Sequence[Site], design: DesignConfig) -> list[Arm]:
    return [
        Arm(f"{NOISE}.{k}", frozenset(), dict.fromkeys(sites, Noise(design.seed + k)), control=True)
        for k in range(design.noise_draws)
    ]


def _matched(sites: Sequence[Site], design: DesignConfig) -> list[Arm]:
    if not design.matched_noise:
        return []
    noise = Noise(design.seed, design.matched_noise)
    plans = {block: dict.fromkeys((s for s in sites if s.block == block), noise) for block in BLOCKS}
    return [Arm(f"{MATCHED}.{block}", frozenset(), plan, control=True) for block, plan in plans.items()]


def _random(plan: dict[Site, Scheme], design: DesignConfig) -> list[Arm]:
    size = min(sum(site.weights for site in plan if site.block == block) for block in BLOCKS)
    if design.random_sets and not size:
        raise UserError(f"design.random_sets={design.random_sets}: quantize both blocks, or leave random sets out.")
    rng = np.random.default_rng(design.seed)
    return [
        Arm(f"{RANDOM}.{k}", frozenset(), {s: plan[s] for s in _drawn(list(plan), size, rng)}, control=True)
        for k in range(design.random_sets)
    ]


def _drawn(sites: list[Site], size: int, rng: np.random.Generator) -> list[Site]:
    """Sites in random order until they hold about `size` weights."""
    order = [sites[i] for i in rng.permutation(len(sites))]
    total = np.cumsum([site.weights for site in order])
    return order[: 1 + int(np.abs(total - size).argmin())]


def _spliced(plan: dict[Site, Scheme], design: DesignConfig, sequential: bool) -> list[Arm]:
    blocks = {site.block for site, scheme in plan.items() if looks_at_inputs(scheme)}
    two_by_two = design.players is Players.blocks and design.arms is ArmsRule.all and blocks >= set(BLOCKS)
    if not (sequential and two_by_two):
        return []
    return [Arm(SPLICED, frozenset(), {site: Splice(scheme) for site, scheme in plan.items()}, control=True)]


def _cast(plan: dict[Site, Scheme]) -> list[Arm]:
    sites = [site for site, scheme in plan.items() if is_live(scheme)]
    return [Arm(CAST, frozenset(), dict.fromkeys(sites, Cast()), control=True)] if sites else []
