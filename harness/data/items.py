"""The shape of a shipped question, and the few operations by which every source builds its questions.

A question is scored as a multiple choice: the model's log-likelihood of each choice after `query` and one space.
Three rules hold for every file:

* **Distractors are answers of other questions of the same relation and band**, drawn in the frequency in which they
  are right. A model that knows only which answers are common is then right as often as one that guesses.
* **Bands are interleaved**: the first n lines of a file hold equally many questions of each band, so that a limit on
  the number of questions (as the `quick` preset sets) is a fair cut.
* **Everything random is seeded** by the task's name; the same sources give the same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

Row = dict[str, str]


@dataclass(frozen=True)
class Item:
    """One question. `document` names the entity it is about: what a bootstrap resamples."""

    query: str
    choices: tuple[str, ...]
    gold: int  # index of the right choice
    document: str
    band: str
    popularity: float | None = None  # how often the world speaks of the entity, on the source's own scale


def read_tsv(path: Path) -> list[Row]:
    """Rows of a tab-separated file with a header line; no quoting."""
    header, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    names = header.split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]


def write_jsonl(items: Iterable[Item], path: Path) -> None:
    """One item a line, UTF-8, as `datasets` reads it."""
    lines = [json.dumps(asdict(item), ensure_ascii=False) for item in items]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def with_distractors(
    rng: random.Random, right: str, answers: Sequence[str], wrong: Callable[[str], bool], n_choices: int = 4
) -> tuple[tuple[str, ...], int]:
    """`right` among n - 1 different others from `answers` that `wrong` accepts, shuffled; and the index of `right`."""
    others: list[str] = []
    for answer in rng.sample(answers, len(answers)):
        if len(others) == n_choices - 1:
            break
        if answer != right and answer not in others and wrong(answer):
            others.append(answer)
    assert len(others) == n_choices - 1, f"only {len(others)} wrong answers for {right!r}"
    gold = rng.randrange(n_choices)
    return (*others[:gold], right, *others[gold:]), gold


def interleave(bands: Iterable[Sequence[Item]]) -> list[Item]:
    """First item of each band, second item of each band, and so on."""
    return [item for row in zip_longest(*bands) for item in row if item is not None]


def at_most_each(rows: Iterable[Row], key: Callable[[Row], str], limit: int) -> list[Row]:
    """The first `limit` rows of every key, in their order."""
    count: dict[str, int] = {}
    kept = []
    for row in rows:
        count[key(row)] = count.get(key(row), 0) + 1
        if count[key(row)] <= limit:
            kept.append(row)
    return kept
