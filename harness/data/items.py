"""The shape of a shipped question, and the few operations by which every source builds its questions.

A question is scored as a multiple choice: the model's log-likelihood of each choice after `query` and one space.
Three rules hold for every file:

* **Distractors are answers of other questions of the same relation and band**, drawn in the frequency in which they
  are right. A model that knows only which answers are common is then right about as often as one that guesses.
* **Bands are interleaved**: the first n lines of a file hold equally many questions of each band, so that a limit on
  the number of questions (as the `quick` preset sets) is a fair cut.
* **Everything random is seeded** by the task's name; the same sources give the same bytes.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
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
    passage: str | None = None  # a text that states the answer


def read_tsv(path: Path) -> list[Row]:
    """Rows of a tab-separated file with a header line; no quoting."""
    header, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    names = header.split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]


def read_wordnet(registry: Path, table: str) -> list[Row]:
    """`instances` (named people and places) or `nouns_first_sense` (common nouns)."""
    return read_tsv(registry / "wordnet" / f"{table}.tsv")


def write_jsonl(items: Iterable[Item], path: Path) -> None:
    """One item a line, UTF-8, as `datasets` reads it; fields without a value are left out."""
    rows = [{key: value for key, value in asdict(item).items() if value is not None} for item in items]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def load_items(path: Path) -> list[Item]:
    """The items of a file that `write_jsonl` wrote."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Item(**row | {"choices": tuple(row["choices"])}) for row in rows]


def draw_choices(
    rng: random.Random, right: str, answers: Sequence[str], is_wrong: Callable[[str], bool], n_choices: int = 4
) -> tuple[tuple[str, ...], int]:
    """`right` among n - 1 different others from `answers` that `is_wrong` accepts, shuffled; and the index of `right`.

    `answers` holds each answer as often as it is right, and is drawn from in that frequency.
    """
    drawn = (answer for answer in rng.sample(answers, len(answers)) if answer != right and is_wrong(answer))
    others = list(dict.fromkeys(drawn))[: n_choices - 1]
    assert len(others) == n_choices - 1, f"only {len(others)} wrong answers for {right!r}"
    gold = rng.randrange(n_choices)
    return (*others[:gold], right, *others[gold:]), gold


def interleave(bands: Iterable[Sequence[Item]]) -> list[Item]:
    """First item of each band, second item of each band, and so on."""
    return [item for row in zip_longest(*bands) for item in row if item is not None]


def at_most_each(rows: Iterable[Row], key: str, limit: int) -> list[Row]:
    """The first `limit` rows of every value of column `key`, in their order."""
    count: Counter[str] = Counter()
    kept = []
    for row in rows:
        count[row[key]] += 1
        if count[row[key]] <= limit:
            kept.append(row)
    return kept


def gives_away(name: str, answer: str) -> bool:
    """Whether the answer can be read off the name: one begins with the other or they share a word of four letters."""
    name, answer = name.casefold(), answer.casefold()
    if name.startswith(answer) or answer.startswith(name):
        return True
    return any(len(word) >= 4 and word in name for word in answer.split())


def by_terciles(rows: Sequence[Row], key: str, names: Sequence[str]) -> dict[str, list[Row]]:
    """Rows in three bands of equal size by the number in column `key`, the highest first."""
    ranked = sorted(rows, key=lambda row: -float(row[key]))
    cuts = [len(rows) * i // len(names) for i in range(len(names) + 1)]
    return {name: ranked[a:b] for name, a, b in zip(names, cuts[:-1], cuts[1:], strict=True)}


def count_mentions(texts: Iterable[str], longest: int = 3) -> Counter[str]:
    """In how many texts every run of up to `longest` words occurs: how often a dictionary's glosses name a thing."""
    count: Counter[str] = Counter()
    for text in texts:
        words = re.findall(r"[\w.'-]+", text)
        count.update({" ".join(words[i : i + n]) for n in range(1, longest + 1) for i in range(len(words) - n + 1)})
    return count


def gloss_mentions(registry: Path) -> Counter[str]:
    """Mentions in all WordNet glosses at hand."""
    tables = ("instances", "nouns_first_sense")
    return count_mentions(row["gloss"] for table in tables for row in read_wordnet(registry, table))
