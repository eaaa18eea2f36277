"""Text of a wanted length in tokens: sentences of Moby Dick with other sentences hidden among them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path

from harness.errors import UserError

Encode = Callable[[str], list[int]]  # text -> token ids, without special tokens

PROSE = Path(__file__).parent / "prose" / "moby_dick.txt"
SENTENCE = range(20, 300)  # characters; leaves out headings and the longest periods


@cache
def sentences() -> tuple[str, ...]:
    """Sentences of the shipped novel, in order, each on one line."""
    text = " ".join(PROSE.read_text(encoding="utf-8").split())
    return tuple(sentence for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", text) if len(sentence) in SENTENCE)


def hide(encode: Encode, rng: random.Random, needles: Sequence[tuple[float, str]], length: int) -> str:
    """Prose with every needle (depth in 0..1, sentence) at its depth: at most `length` tokens.

    Prose is cut to fit, needles never: UserError where they alone are longer.
    """
    start = rng.randrange(len(sentences()))
    prose = [*sentences()[start:], *sentences()[:start]]
    count = n_fitting(encode, prose, length - len(encode(_weave([], needles))))
    while len(encode(text := _weave(prose[:count], needles))) > length:
        if count == 0:
            needed = len(encode(text)) - length
            raise UserError(f"context length: a question takes {needed} tokens more than allowed; allow more")
        count -= 1
    return text


def n_fitting(encode: Encode, lines: Sequence[str], room: int) -> int:
    """How many of the lines, set one behind the other, go into `room` tokens, counting each by itself."""
    ends = accumulate(len(encode(f" {line}")) for line in lines)
    return next((count for count, end in enumerate(ends) if end > room), len(lines))


def _weave(prose: list[str], needles: Sequence[tuple[float, str]]) -> str:
    lines = prose.copy()
    for depth, needle in sorted(needles, reverse=True):  # from the end, so that earlier places stay where they are
        lines.insert(round(depth * len(prose)), needle)
    return " ".join(lines)
