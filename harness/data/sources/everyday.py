"""Physical commonsense of our own: what a job is done with, what a thing is made of, what happens to matter.

everyday.tsv beside holds beginnings and their right endings. Wrong choices are the right endings of other questions of
the same band; the document is the question itself.
"""

from __future__ import annotations

import random
from pathlib import Path

from harness.data.items import Item, Row, draw_choices, interleave, read_tsv

TABLE = Path(__file__).with_name("everyday.tsv")
BANDS = ("tool", "material", "effect")


def everyday_physics() -> list[Item]:
    """All lines of the table, four endings to choose from."""
    rng = random.Random("everyday_physics")
    rows = read_tsv(TABLE)
    return interleave(_band_items(rng, [row for row in rows if row["band"] == band]) for band in BANDS)


def _band_items(rng: random.Random, rows: list[Row]) -> list[Item]:
    answers = [row["answer"] for row in rows]
    items = []
    for row in rng.sample(rows, len(rows)):
        choices, gold = draw_choices(rng, row["answer"], answers, is_wrong=lambda _: True)
        items.append(Item(row["query"], choices, gold, row["query"], row["band"]))
    return items
