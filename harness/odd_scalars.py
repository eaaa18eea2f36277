"""Numbers in a user's config files that YAML 1.1 reads as others: `4:30` (base 60) is 270, `010` (octal) is 8.

By the time there is a configuration the text is gone, so the files are read once more, before Hydra: those at the top
of each folder of the search path, and all that a group's folder holds. On the command line Hydra reads `4:30` as text
and `010` as ten; nothing to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import yaml

ODD = re.compile(r"[-+]?(\d[\d_]*(:[0-5]?\d)+(\.[\d_]*)?|0[\d_]+)")


def odd_scalar(arguments: Sequence[str], groups: Collection[str], start: Path) -> str:
    """What is wrong with the first such number in files that a command line brings in; empty where there is none."""
    for folder in _folders(arguments, start):
        of_groups = (path for group in groups for path in (folder / group).rglob("*.yaml"))
        for path in sorted({*folder.glob("*.yaml"), *of_groups}):
            for number, text in odd_scalars(path.read_text(encoding="utf-8", errors="replace")):
                return (
                    f"{path}, line {number}: YAML reads {text} as {yaml.safe_load(text)}. "
                    "Put it in quotes if it is text, or write the number that is meant."
                )
    return ""


def odd_scalars(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of the numbers that are not what they look like. A file that is no YAML is left to Hydra."""
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if not isinstance(token, yaml.ScalarToken) or not token.plain or not ODD.fullmatch(token.value):
                continue
            if not isinstance(yaml.safe_load(token.value), str):
                yield token.start_mark.line + 1, token.value
    except yaml.YAMLError:
        return


def _folders(arguments: Sequence[str], start: Path) -> Iterator[Path]:
    """Where the user's own config files are searched, besides the shipped ones."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, _, value = argument.partition("=")
        if name in ("--config-dir", "-cd"):
            yield start / (value or following)
        elif name.lstrip("+") == "hydra.searchpath":
            for place in value.strip("[] ").split(","):
                if not place.strip("'\" ").startswith("pkg://"):
                    yield start / place.strip("'\" ").removeprefix("file://")
