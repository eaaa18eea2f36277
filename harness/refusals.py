"""What is refused before there is a typed configuration: settings that do not exist, and what Hydra has to say.

Hydra takes `+exq=name` for a new key when no group has that name, and advises `+` for every misspelt key: a typo must
not pass for a setting. Its own messages are kept to what helps: what was set, what was wrong, what could be set.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from harness.config import GROUPS, RunConfig, TaskOptions
from harness.errors import UserError

NOISE = ("full_key", "reference_type", "object_type", "See http", "Config search path", "provider=")
PREFIX = "Error merging override "


def refuse_unknown(cfg: DictConfig, schema: type = RunConfig, where: str = "") -> None:
    """UserError for a key of a composed configuration that is no field."""
    known = {f.name for f in fields(schema)}
    hints = get_type_hints(schema)
    for key in map(str, cfg):
        if key not in known:
            raise UserError(_unknown(key, known, where))
        if is_dataclass(hints[key]) and not OmegaConf.is_missing(cfg, key):
            refuse_unknown(cfg[key], hints[key], f"{where}{key}.")  # pyright: ignore


def misspelt(arguments: Sequence[str]) -> str:
    """What is wrong with the first command line setting whose name is no field's; empty where all are known."""
    for argument in arguments:
        name, equals, _ = argument.lstrip("+").partition("=")
        path = name.split(".")
        if not equals or argument[0] in "-~" or path[0] in ("exp", "hydra") or "/" in name or "@" in name:
            continue
        schema, where = RunConfig, ""
        for part in path:
            known = {f.name for f in fields(schema)}
            if part not in known:
                return _unknown(part, known, where)
            schema, where = get_type_hints(schema)[part], f"{where}{part}."
            if not is_dataclass(schema):
                break
    return ""


def odd_task_options(arguments: Sequence[str]) -> str:
    """What is wrong with the first setting of a task's options; OmegaConf takes them in one form only."""
    for argument in arguments:
        name, _, _ = argument.partition("=")
        path = name.lstrip("+").split(".")
        if path[:2] != ["eval", "task_options"] or argument in ("eval.task_options", "eval.task_options={}"):
            continue
        try:
            options: Any = OverridesParser.create().parse_override(argument).value()
        except OverrideParseException:
            continue  # Hydra says it better
        for part in reversed(path[2:]):
            options = {part: options}
        if wrong := _wrong_options(options):
            return f"{argument}: {wrong} As in {_in_form({'arc_easy': {'limit': 9}})}"
        if len(path) > 2 or not name.startswith("+"):
            return f"{argument}: options of a task are new settings. Write {_in_form(options)}"
    return ""


def _wrong_options(options: Any) -> str:
    """Where options are no {task: {field: value}}."""
    known = {f.name for f in fields(TaskOptions)}
    if not isinstance(options, dict) or not all(isinstance(own, dict) for own in options.values()):
        return "give each task's options by its name."
    unknown = [str(field) for own in options.values() for field in own if field not in known]
    return f"{unknown[0]} is no option of a task. There are {', '.join(sorted(known))}." if unknown else ""


def _in_form(options: dict[str, dict[str, Any]]) -> str:
    inner = ", ".join(
        f"{task}: {{{', '.join(f'{k}: {str(v).lower() if isinstance(v, bool) else v}' for k, v in own.items())}}}"
        for task, own in options.items()
    )
    return f"'+eval.task_options={{{inner}}}'"


def _unknown(key: str, known: Collection[str], where: str) -> str:
    near = get_close_matches(key, [*known, *(("exp", *GROUPS) if not where else ())], n=1)
    hint = f" Did you mean {where}{near[0]}?" if near else ""
    return f"{where}{key}: there is no such setting or group.{hint} Settings here: {', '.join(sorted(known))}."


def in_words(error: BaseException) -> str:
    """Hydra's or OmegaConf's error in a few lines, without their bookkeeping."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        return _no_such_choice(error.missing_cfg_file, error.options)
    lines: list[str] = []
    current: BaseException | None = error
    while current is not None:
        lines += [line.strip() for line in str(current).splitlines() if line.strip(" ^")]
        current = current.__cause__
    words = "\n".join(dict.fromkeys(line for line in lines if not line.startswith(NOISE)))
    if words.startswith(PREFIX):  # the setting, then what is wrong with it
        words = words.removeprefix(PREFIX).replace("\n", ": ", 1).replace("is not Optional", "cannot be null")
    if isinstance(error, OverrideParseException):
        words += f"\nIn {error.override}: settings are name=value; odd characters need quotes twice: 'name=\"value\"'."
    return words


def _no_such_choice(file: str, options: Sequence[str]) -> str:
    group, _, name = file.removesuffix(".yaml").rpartition("/")
    choices = [option for option in options if option != "schema"]
    near = get_close_matches(name, choices, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"{group}={name}: there is no such choice.{hint} There are {', '.join(choices)}."
