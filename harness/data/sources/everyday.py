"""Physical commonsense of our own: what a job is done with, what a thing is made of, what happens to matter.

everyday.tsv beside holds beginnings and their right endings, everyday_kinds.tsv what kinds of things the endings are.
Wrong choices are right endings of other questions of the same band, of no kind in common with the right one and of none
that the column `also` names as likewise fit for the question (a bottle may be of plastic, too).

The document is what a question is about: in `material` the thing, in `tool` the tool and in `effect` the effect, which
several questions share; each is named by the first question of the table about it.

Two batches: results were recorded with the first alone (one question an ending, no kinds), whose questions stay as they
were and come first; the second brings every band above 300.
"""

from __future__ import annotations

import random
from pathlib import Path

from harness.data.items import Item, Row, draw_choices, interleave, read_tsv

TABLE = Path(__file__).with_name("everyday.tsv")
KINDS = Path(__file__).with_name("everyday_kinds.tsv")
BANDS = ("tool", "material", "effect")
ONE_DOCUMENT_AN_ENDING = ("tool", "effect")


def everyday_physics() -> list[Item]:
    """All lines of the table, four endings to choose from."""
    bands = [[row for row in read_tsv(TABLE) if row["band"] == band] for band in BANDS]
    rng = random.Random("everyday_physics")
    first = [_first_items(rng, [row for row in rows if row["batch"] == "first"]) for rows in bands]
    rng = random.Random("everyday_physics, second batch")
    second = [_second_items(rng, rows) for rows in bands]
    return interleave([*early, *late] for early, late in zip(first, second, strict=True))


def read_kinds() -> dict[tuple[str, str], set[str]]:
    """(band, ending) -> what kinds of things it is."""
    return {(row["band"], row["answer"]): set(row["kinds"].split()) for row in read_tsv(KINDS)}


def wrong_endings(row: Row, rows: list[Row], kinds: dict[tuple[str, str], set[str]]) -> list[str]:
    """Endings of the questions `rows` that cannot be meant by the question `row`, each as often as it is right."""
    fits = kinds[row["band"], row["answer"]] | set(row["also"].split())
    return [other["answer"] for other in rows if not kinds[row["band"], other["answer"]] & fits]


def _first_items(rng: random.Random, rows: list[Row]) -> list[Item]:
    answers = [row["answer"] for row in rows]
    items = []
    for row in rng.sample(rows, len(rows)):
        choices, gold = draw_choices(rng, row["answer"], answers, is_wrong=lambda _: True)
        items.append(Item(row["query"], choices, gold, row["query"], row["band"]))
    return items


def _second_items(rng: random.Random, rows: list[Row]) -> list[Item]:
    """The second batch of one band; `rows` holds both, for their endings."""
    kinds = read_kinds()
    about = {row["answer"]: row["query"] for row in reversed(rows)}
    items = []
    second = [row for row in rows if row["batch"] == "second"]
    for row in rng.sample(second, len(second)):
        choices, gold = draw_choices(rng, row["answer"], wrong_endings(row, rows, kinds), is_wrong=lambda _: True)
        document = about[row["answer"]] if row["band"] in ONE_DOCUMENT_AN_ENDING else row["query"]
        items.append(Item(row["query"], choices, gold, document, row["band"]))
    return items
