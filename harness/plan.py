"""Which weight gets which scheme in which arm: decided, printed and checked before any weight is read.

A plan maps sites to schemes. An arm is a coalition of players, and its plan is the full plan restricted to the sites
of those players. Players are blocks, roles, layers or experts; the design says which coalitions are tried.

Overrides are ordered rules on site names; the last match wins, its fields over those of the block. A rule acts only
in arms where its site's player is on.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase, translate
from functools import cached_property

from harness.config import QuantConfig
from harness.errors import UserError
from harness.model.lattice import nests
from harness.model.sites import Site
from harness.overrides import changed, read_rule
from harness.scheme import BLOCKS, Indivisible, Scheme, dividing_groups
from harness.supported import check_scheme, is_live, needs_inputs, wants_inputs


@dataclass(frozen=True)
class Noise:
    """No quantization but a seeded disturbance of a matrix: what any change of the weights does at least.

    `relative` 0: every weight moves by uniform at most half a bfloat16 step; in bfloat16, which holds no half steps,
    one in twelve moves by a whole one (harness.weigh). Else Gaussian noise of that relative Frobenius norm, to compare
    blocks at equal weight error.
    """

    seed: int
    relative: float = 0.0


@dataclass(frozen=True)
class Cast:
    """LLM.int8's control: inputs and weights cast to float16 as it does, nothing rounded to integers."""


@dataclass(frozen=True)
class Splice:
    """The weights that the block's own arm made with this scheme, whatever this arm's inputs would have given."""

    scheme: Scheme


Recipe = Scheme | Noise | Cast | Splice
Plan = Mapping[Site, Recipe]
# How one layer is changed: site, scheme, and the calibration draw where the scheme looks at inputs. Empty: not at all.
Treatment = tuple[tuple[Site, Recipe, int], ...]


@dataclass(frozen=True)
class Arm:
    """One plan under test. `players` says which are on; base has none. `draw`: its calibration tokens.

    A control is no coalition of the design (harness.controls).
    """

    name: str
    players: frozenset[str]
    plan: Plan = field(hash=False)
    draw: int = 0
    control: bool = False

    @cached_property
    def _by_layer(self) -> dict[int, Treatment]:
        layers: dict[int, list[tuple[Site, Recipe, int]]] = {}
        for site, recipe, draw in self.key:
            layers.setdefault(site.layer, []).append((site, recipe, draw))
        return {layer: tuple(pairs) for layer, pairs in layers.items()}

    @cached_property
    def calibrated(self) -> bool:
        """Whether any of its schemes looks at inputs."""
        return any(looks_at_inputs(recipe) for recipe in self.plan.values())

    @property
    def is_noise(self) -> bool:
        """Whether the arm is a draw of the noise floor; matched noise is far above that and is tested as other arms."""
        return any(isinstance(recipe, Noise) and not recipe.relative for recipe in self.plan.values())

    @property
    def is_live(self) -> bool:
        """Whether it also acts on activations, so that what it scores depends on the batch."""
        return any(computes(recipe) for recipe in self.plan.values())

    def treatment(self, layer: int) -> Treatment:
        """How this arm changes a layer; -1 is the embedding, the number of layers is the head."""
        return self._by_layer.get(layer, ())

    @cached_property
    def key(self) -> Treatment:
        """Equal for arms that quantize the same sites alike."""
        return tuple((site, r, self.draw if looks_at_inputs(r) else 0) for site, r in self.plan.items())


# Roles in the order in which a layer computes them; those that share an input belong together.
STAGES = (("q", "k", "v", "q_a", "kv_a"), ("q_b", "kv_b"), ("o",), ("gate", "up"), ("down",))


def true_sequential_stages(treatment: Treatment) -> list[Treatment]:
    """A layer's treatment cut by role where a scheme asks for it, else whole."""
    if not any(isinstance(recipe, Scheme) and recipe.true_sequential for _, recipe, _ in treatment):
        return [treatment]
    cut = [tuple(part for part in treatment if part[0].role in roles) for roles in STAGES]
    return [stage for stage in cut if stage]


def looks_at_inputs(recipe: Recipe) -> bool:
    """Whether calibration tokens matter to it."""
    return isinstance(recipe, Scheme) and wants_inputs(recipe)


def scheme_of(recipe: Recipe) -> Scheme | None:
    """The scheme that a matrix's weights were made with; none where they are disturbed or cast."""
    own = recipe.scheme if isinstance(recipe, Splice) else recipe
    return own if isinstance(own, Scheme) else None


def computes(recipe: Recipe) -> bool:
    """Whether it stands for another computation (harness.live), not for other weights."""
    return isinstance(recipe, Cast) or (isinstance(recipe, Scheme) and is_live(recipe))


@dataclass(frozen=True)
class Rules:
    """The resolved full plan, and what the overrides did to it (lines to print)."""

    plan: dict[Site, Scheme]
    notes: list[str]


def matches(pattern: str, name: str) -> bool:
    """Glob on a site name, with `a-b` layer ranges: `layers.0-3.ffn.down`, `layers.*.attention.[qk]`."""
    parts = re.split(r"(?<=\.)(\d+)-(\d+)(?=\.|$)", pattern)
    if len(parts) == 1:
        return fnmatchcase(name, pattern)
    text = ""
    for n in range(0, len(parts), 3):
        text += translate(parts[n]).removeprefix("(?s:").removesuffix(r")\Z")
        if n + 2 < len(parts):
            text += "(" + "|".join(str(i) for i in range(int(parts[n + 1]), int(parts[n + 2]) + 1)) + ")"
    return re.fullmatch(text, name) is not None


def resolve(sites: Sequence[Site], quant: QuantConfig) -> Rules:
    """Every site's scheme with everything on. UserError: a rule with unknown fields, or one that matches nothing."""
    plan = {site: getattr(quant, site.block) for site in sites}
    winner: dict[Site, int] = {}
    notes = []
    for number, rule in enumerate(quant.overrides):
        pattern, changes = read_rule(rule, number)
        hit = [site for site in sites if matches(pattern, site.name)]
        if not hit:
            near = get_close_matches(pattern, [s.name for s in sites], n=3, cutoff=0.3) or [s.name for s in sites[:3]]
            raise UserError(
                f"quant.overrides[{number}].match={pattern!r} matches no site. There are {', '.join(near)} and so on.\n"
                "harness.plan_only=true prints all of them."
            )
        for loser, count in Counter(winner[s] for s in hit if s in winner).items():
            before = quant.overrides[loser]["match"]
            notes.append(f"override {number} ({pattern}) shadows override {loser} ({before}) on {count} sites")
        where = f"quant.overrides[{number}]"
        made = {block: changed(getattr(quant, block), changes, where) for block in {site.block for site in hit}}
        for scheme in made.values():
            check_scheme(scheme, where)
        for site in hit:
            winner[site], plan[site] = number, made[site.block]
    touched = {site: scheme for site, scheme in plan.items() if scheme.touches}
    _check_columns(touched)
    _check_outside(touched)
    _check_live(touched)
    return Rules(touched, notes)


def _check_columns(plan: Mapping[Site, Scheme]) -> None:
    for site, scheme in plan.items():
        if scheme.keep_columns > site.in_features:
            raise UserError(
                f"quant.{site.block}.keep_columns={scheme.keep_columns:g}: {site.name} has {site.in_features} inputs. "
                "Keep fewer, or give a share below 1."
            )


def _check_outside(plan: Mapping[Site, Scheme]) -> None:
    """Embedding and head: no calibration statistics are gathered there, and LLM.int8 has no embedding."""
    for site, scheme in plan.items():
        if site.block in BLOCKS or not (needs_inputs(scheme) or (site.block == "embedding" and is_live(scheme))):
            continue
        raise UserError(
            f"quant.{site.block}.method={scheme.method} with {scheme.precision} works in ffn and attention only. "
            "Use rtn, hqq, or bnb with nf4 or fp4."
        )


def _check_live(plan: Mapping[Site, Scheme]) -> None:
    """LLM.int8 replaces a linear module's whole product: a part of a matrix, or a transposed one, has none."""
    wrong = [site for site, scheme in plan.items() if is_live(scheme) and not site.is_whole]
    if not wrong:
        return
    site = wrong[0]
    part = "stored transposed in" if site.transposed and not site.rows else "only a part of"
    raise UserError(
        f"quant.{site.block}.method=bnb with int8 (LLM.int8) replaces whole linear modules; {site.name} is {part} "
        f"{site.module} ({len(wrong)} such sites).\nUse rtn with int8, or give these sites another method in "
        "quant.overrides."
    )


def check_groups(plan: Mapping[Site, Scheme], indivisible: Indivisible) -> None:
    """Refuse groups that do not divide their rows, unless a shorter last group is allowed."""
    if indivisible is Indivisible.tail:
        return
    bad: dict[tuple[str, int, int], list[str]] = {}
    for site, scheme in plan.items():
        size = scheme.group_size
        if size > 0 and site.in_features % size:
            bad.setdefault((f"{site.block}.{site.role}", site.in_features, size), []).append(site.name)
    if not bad:
        return
    lines = [
        f"  {role}: in_features {width}, group_size {size} ({len(names)} sites, {names[0]} .. {names[-1]})"
        for (role, width, size), names in bad.items()
    ]
    fit = dividing_groups(math.gcd(*(width for _, width, _ in bad)))
    raise UserError(
        "group_size does not divide in_features:\n" + "\n".join(lines) + "\n"
        f"Group sizes that divide all of these: {', '.join(map(str, fit))}, or -1 "
        "(one group a row). quant.indivisible=tail lets the last group of a row be shorter."
    )


def check_lattice(plan: Mapping[Site, Scheme], lattice: str, allowed: bool) -> None:
    """Refuse schemes that lose nothing because the base's weights already sit on a grid that theirs contains."""
    nested = [site for site, s in plan.items() if nests(lattice, s.group_size, s.symmetric, s.precision)]
    if nested and not allowed:
        scheme = plan[nested[0]]
        raise UserError(
            f"The base's weights already sit on a grid ({lattice}), and {scheme.precision} at group_size "
            f"{scheme.group_size} contains it ({len(nested)} sites, {nested[0].name} first): its loss would be zero by "
            "construction.\nUse model=smollm2_135m (off that grid) or another base, a group_size that does not nest, "
            "or model.allow_lattice=true."
        )


def trunk_counts(arms: Sequence[Arm], layers: int) -> list[int]:
    """How many different hidden states leave each layer: the engine's work, known before it starts."""
    counts: list[int] = []
    states = [0 for _ in arms]
    for layer in range(-1, layers):
        ways = list(zip(states, (arm.treatment(layer) for arm in arms), strict=True))
        number = {way: n for n, way in enumerate(dict.fromkeys(ways))}
        states = [number[way] for way in ways]
        counts.append(len(number))
    return counts[1:]


def base_arm() -> Arm:
    """The arm in which nothing is quantized."""
    return Arm("base", frozenset(), {})
