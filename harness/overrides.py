"""Rules of `quant.overrides`: what can be said of them before a model is opened. Imports no torch."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.errors import UserError
from harness.scheme import Scheme


def read_rule(rule: dict[str, Any], number: int) -> tuple[str, dict[str, Any]]:
    """A rule's pattern and the scheme fields it sets. UserError for unknown fields, or for no pattern or field."""
    changes = dict(rule)
    pattern = changes.pop("match", None)
    known = {f.name for f in fields(Scheme)}
    unknown = sorted(set(changes) - known)
    if not isinstance(pattern, str) or not changes or unknown:
        found = f"unknown fields {', '.join(unknown)}" if unknown else f"found {rule}"
        raise UserError(
            f"quant.overrides[{number}]: {found}. A rule is {{match: <glob on site names>, <scheme fields>}}; "
            f"scheme fields are {', '.join(sorted(known))}."
        )
    return pattern, changes


def changed(scheme: Scheme, changes: dict[str, Any], where: str) -> Scheme:
    """The scheme with some fields set, typed as those of a block are. UserError for a value of another type."""
    try:
        made = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(scheme), changes))
    except OmegaConfBaseException as error:
        raise UserError(f"{where}.{error.full_key}: {str(error).splitlines()[0]}") from error
    assert isinstance(made, Scheme)
    return made
