"""From a treatment to the weights to write: each (site, scheme) is quantized once a layer, and what it cost is noted.

The notes become sites.csv: requested and realised scheme, bits per weight, relative weight error
||Q - W||_F / ||W||_F, and, where the inputs are known, relative output error sqrt(tr(E H E^T) / tr(W H W^T)), E = Q - W.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from harness.model.sites import Site, read_site
from harness.plan import Treatment
from harness.quantize import InputStats, Quantized, quantize
from harness.scheme import Indivisible, Scheme


@dataclass
class Weigher:
    """Quantizes sites on demand. `facts` has one record for every (site name, scheme) that was asked for."""

    indivisible: Indivisible = Indivisible.error
    facts: dict[tuple[str, Scheme], dict[str, Any]] = field(default_factory=dict)
    _layer: int | None = None
    _made: dict[tuple[Site, Scheme], Tensor] = field(default_factory=dict)

    def weights(
        self, treatment: Treatment, layer: nn.Module, stats: Mapping[Site, InputStats] | None = None
    ) -> dict[Site, Tensor]:
        """The dequantized weights [O, I] of a treatment, in the type of the stored ones.

        Results are kept while the same layer is asked for again: `both` uses what `ffn` and `attention` made.
        """
        if treatment and treatment[0][0].layer != self._layer:
            self._layer, self._made = treatment[0][0].layer, {}
        return {site: self._weight(site, scheme, layer, (stats or {}).get(site)) for site, scheme in treatment}

    def _weight(self, site: Site, scheme: Scheme, layer: nn.Module, stats: InputStats | None) -> Tensor:
        if (site, scheme) not in self._made:
            w_OI = read_site(layer, site)
            q = quantize(w_OI, scheme, stats, indivisible=self.indivisible)
            q_OI = q.dequantize()
            self.facts[site.name, scheme] = _facts(site, scheme, q, w_OI.float(), q_OI, stats)
            self._made[site, scheme] = q_OI.to(w_OI.dtype)
        return self._made[site, scheme]


def _facts(
    site: Site, scheme: Scheme, q: Quantized, w_OI: Tensor, q_OI: Tensor, stats: InputStats | None
) -> dict[str, Any]:
    error_OI = q_OI - w_OI
    facts = {
        "site": site.name,
        "block": site.block,
        "role": site.role,
        "layer": site.layer,
        "out_features": site.out_features,
        "in_features": site.in_features,
        **{f"requested_{name}": value for name, value in asdict(scheme).items()},
        "realised_group_size": q.group_size,
        "realised_range": scheme.range_rule,
        "bits_per_weight": q.bits_per_weight,
        "relative_weight_error": (error_OI.norm() / w_OI.norm()).item() if w_OI.any() else 0.0,
    }
    if stats is not None and stats.n_tokens:
        facts["relative_output_error"] = _output_error(error_OI, w_OI, stats)
        facts["calibration_tokens"] = stats.n_tokens
    return {**facts, **q.facts}


def _output_error(error_OI: Tensor, w_OI: Tensor, stats: InputStats) -> float:
    hessian_II = stats.hessian_II.to(w_OI.device, torch.float32)
    size = ((w_OI @ hessian_II) * w_OI).sum()
    return (((error_OI @ hessian_II) * error_OI).sum().clamp(min=0) / size).sqrt().item() if size > 0 else 0.0
