"""From a treatment to the weights to write: each matrix is quantized once for all arms, and what it cost is noted.

What can be shared is: GPTQ's factor of one input serves every matrix that it feeds and every precision and group
size; AWQ's scale is one for the matrices of a block that share an input (q, k, v; gate, up), the same in all arms.

The notes become sites.csv: requested and realised scheme, bits per weight, relative weight error
||Q - W||_F / ||W||_F, and, where the inputs are known, relative output error sqrt(tr(E H E^T) / tr(W H W^T)), where
E = Q - W.
An expert that few calibration tokens reached is rounded to nearest (harness.expert_inputs), and its note says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from harness.expert_inputs import nothing_known, too_few
from harness.live import Linear, cast_forward, int8_forward
from harness.model.sites import Site, read_site
from harness.plan import Arm, Cast, Noise, Recipe, Splice, Treatment, computes, looks_at_inputs, scheme_of
from harness.quantize import Factor, InputStats, Quantized, factor_key, factorize, pair_scale, quantize
from harness.quantize.llm_int8 import int8_weight
from harness.scheme import Indivisible, Method, Scheme

SiteStats = Mapping[Site, InputStats]

# AWQ clips no range of what makes queries and keys: in latent attention that is all but o.
NEVER_CLIPPED = ("q", "k", "q_a", "q_b", "kv_a", "kv_b")


@dataclass
class Weigher:
    """Quantizes sites on demand. `facts` has one record for every (site name, scheme, draw) that was asked for.

    Where every arm is calibrated on its own quantized layers, `own_facts` has one for every (arm, site name).
    """

    sites: Sequence[Site] = ()  # all block sites of the model: AWQ's pair groups are found among them
    indivisible: Indivisible = Indivisible.error
    facts: dict[tuple[str, Scheme, int], dict[str, Any]] = field(default_factory=dict)
    own_facts: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    _layer: int | None = None
    _kept: dict[Any, Any] = field(default_factory=dict)

    def weights(
        self, treatment: Treatment, layer: nn.Module, stats: Mapping[int, SiteStats] | None = None
    ) -> dict[Site, Tensor]:
        """The dequantized weights [O, I] of a treatment, in the type of the stored ones. `stats`: by draw.

        What was made is kept while the same layer is asked for again: `both` uses what `ffn` and `attention` made.
        Methods that look at no inputs are told of none, so that their sites are described alike beside any other arm.
        """
        if treatment and treatment[0][0].layer != self._layer:
            self._layer, self._kept = treatment[0][0].layer, {}
        known = stats or {}
        return {
            site: self._weight(site, recipe, draw, layer, known.get(draw, {}) if looks_at_inputs(recipe) else {})
            for site, recipe, draw in treatment
            if not computes(recipe)
        }

    def forwards(self, treatment: Treatment, layer: nn.Module) -> dict[Site, Linear]:
        """The sites of a treatment that compute in another way instead (harness.live)."""
        return {site: self._forward(site, recipe, layer) for site, recipe, _ in treatment if computes(recipe)}

    def note(self, arms: Sequence[str], treatment: Treatment) -> None:
        """What was just made for a treatment belongs to these arms only: to be told before others are made."""
        for site, recipe, draw in treatment:
            if isinstance(recipe, Scheme):
                fact = self.facts[site.name, recipe, draw]
            elif isinstance(recipe, Splice):
                fact = self._kept["facts", site, recipe.scheme]
            else:
                continue
            self.own_facts |= {(arm, site.name): fact for arm in arms}

    def facts_of(self, arm: Arm) -> dict[str, dict[str, Any]]:
        """What is known of every quantized site of an arm, by site name; nothing for noise."""
        schemes = ((site.name, scheme_of(recipe), draw) for site, recipe, draw in arm.key)
        return {
            name: self.own_facts.get((arm.name, name)) or self.facts[name, scheme, draw]
            for name, scheme, draw in schemes
            if scheme is not None
        }

    def _forward(self, site: Site, recipe: Recipe, layer: nn.Module) -> Linear:
        w_OI = read_site(layer, site)
        if not isinstance(recipe, Scheme):
            return cast_forward(w_OI)
        weight = int8_weight(w_OI)
        self.facts[site.name, recipe, 0] = _described(
            site, recipe, w_OI.float(), weight.dequantize(), site.in_features, weight.bits_per_weight
        )
        return int8_forward(weight, recipe.outlier_threshold)

    def _weight(self, site: Site, recipe: Recipe, draw: int, layer: nn.Module, stats: SiteStats) -> Tensor:
        assert not isinstance(recipe, Cast)
        if isinstance(recipe, Noise):
            return disturbed(read_site(layer, site), recipe, site.name)
        if isinstance(recipe, Splice):
            return self._kept["first", site, recipe.scheme]
        return self._quantized_weight(site, recipe, draw, layer, stats)

    def _quantized_weight(self, site: Site, scheme: Scheme, draw: int, layer: nn.Module, stats: SiteStats) -> Tensor:
        def make() -> Tensor:
            w_OI = read_site(layer, site)
            q = self._quantized(site, scheme, w_OI, layer, stats)
            q_OI = q.dequantize()
            fact = _facts(site, scheme, q, w_OI.float(), q_OI, stats.get(site))
            self.facts[site.name, scheme, draw] = fact
            made_OI = q_OI.to(w_OI.dtype)
            # By the block's own arm, which comes before others: for Splice.
            self._kept.setdefault(("first", site, scheme), made_OI)
            self._kept.setdefault(("facts", site, scheme), fact)
            return made_OI

        return self._once(("weight", site, scheme), stats.get(site), make)

    def _quantized(self, site: Site, scheme: Scheme, w_OI: Tensor, layer: nn.Module, stats: SiteStats) -> Quantized:
        own = stats.get(site)
        if own is not None and (reason := too_few(site, own)):
            q = quantize(w_OI, scheme, nothing_known(w_OI), indivisible=self.indivisible)
            return q.with_facts(fallback_reason=reason)
        shared: dict[str, Any] = {}
        if own is not None and scheme.method is Method.gptq:
            shared["factor"] = self._factor(scheme, own)
        if own is not None and scheme.method is Method.awq:
            shared["input_scale_I"] = self._pair_scale(site, scheme, layer, stats)
            scheme = replace(scheme, awq_clip=scheme.awq_clip and site.role not in NEVER_CLIPPED)
        return quantize(w_OI, scheme, own, indivisible=self.indivisible, **shared)

    def _factor(self, scheme: Scheme, stats: InputStats) -> Factor:
        return self._once(("factor", factor_key(scheme)), stats, lambda: factorize(stats, scheme))

    def _pair_scale(self, site: Site, scheme: Scheme, layer: nn.Module, stats: SiteStats) -> Tensor:
        """AWQ's scale of every matrix of the block that is fed this site's input."""
        group = [
            s for s in self.sites if s.layer == site.layer and s.block == site.block and stats.get(s) is stats[site]
        ]

        def make() -> Tensor:
            weights = [read_site(layer, s) for s in group]
            return pair_scale(weights, scheme, stats[site], indivisible=self.indivisible)

        return self._once(("pair", site.block, scheme), stats[site], make)

    def _once(self, key: tuple[Any, ...], stats: InputStats | None, make: Callable[[], Any]) -> Any:
        """What `make` returns, made once a layer for the same key and the same statistics."""
        key = (*key, id(stats))
        if key not in self._kept:
            self._kept[key] = (make(), stats)  # holding the statistics keeps their id theirs
        return self._kept[key][0]


def disturbed(w_OI: Tensor, noise: Noise, name: str) -> Tensor:
    """The matrix with seeded noise (harness.plan.Noise), the same on every device; no other generator is touched."""
    seed = int.from_bytes(hashlib.sha256(f"{noise.seed} {name}".encode()).digest()[:8], "big") >> 1
    generator = torch.Generator().manual_seed(seed)
    if noise.relative:
        noise_OI = torch.randn(w_OI.shape, generator=generator).to(w_OI.device)
        noise_OI *= noise.relative * w_OI.float().norm() / noise_OI.norm()
    else:
        noise_OI = _within_half_a_step(w_OI, generator).to(w_OI.device)
    return (w_OI.float() + noise_OI).to(w_OI.dtype)


def _within_half_a_step(w_OI: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform within half a bfloat16 step of each weight, on the CPU.

    bfloat16 itself holds nothing between its steps, and would round all but a few weights back to where they were.
    There a weight moves by a whole step, up or down with probability 1/24 each: the same variance, a twelfth of the
    step's square. (The step is the one above the weight; below a power of two it is two of the grid's.)
    """
    exponent_OI = torch.frexp(w_OI.float()).exponent.cpu()
    step_OI = torch.ldexp(torch.ones(w_OI.shape), exponent_OI - 8)  # 8 significant bits
    step_OI[w_OI.cpu() == 0] = 0  # what was pruned away stays away
    drawn_OI = torch.rand(w_OI.shape, generator=generator) - 0.5
    if w_OI.dtype is torch.bfloat16:
        drawn_OI = (drawn_OI.abs() > 11 / 24) * drawn_OI.sign()
    return drawn_OI * step_OI


def _facts(
    site: Site, scheme: Scheme, q: Quantized, w_OI: Tensor, q_OI: Tensor, stats: InputStats | None
) -> dict[str, Any]:
    facts = _described(site, scheme, w_OI, q_OI, q.group_size, q.bits_per_weight)
    if stats is not None:
        facts["calibration_tokens"] = stats.n_tokens
    if stats is not None and stats.n_tokens:
        facts["relative_output_error"] = _output_error(q_OI - w_OI, w_OI, stats)
    return {**facts, **q.facts}


def _described(site: Site, scheme: Scheme, w_OI: Tensor, q_OI: Tensor, group_size: int, bits: float) -> dict[str, Any]:
    return {
        "site": site.name,
        "block": site.block,
        "role": site.role,
        "layer": site.layer,
        "out_features": site.out_features,
        "in_features": site.in_features,
        **{f"requested_{name}": value for name, value in asdict(scheme).items()},
        "realised_group_size": group_size,
        "realised_range": scheme.range_rule,
        "bits_per_weight": bits,
        "relative_weight_error": ((q_OI - w_OI).norm() / w_OI.norm()).item() if w_OI.any() else 0.0,
    }


def _output_error(error_OI: Tensor, w_OI: Tensor, stats: InputStats) -> float:
    hessian_II = stats.hessian_II.float()
    size = ((w_OI @ hessian_II) * w_OI).sum()
    return (((error_OI @ hessian_II) * error_OI).sum().clamp(min=0) / size).sqrt().item() if size > 0 else 0.0
