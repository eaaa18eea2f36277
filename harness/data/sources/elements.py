"""The symbol of a chemical element, from the table of PyPI mendeleev (MIT).

Distractors begin with the same letter as the element's English name where enough symbols do, so that spelling alone
does not answer. Popularity is the number of WordNet glosses that name the element.
"""

from __future__ import annotations

import random
from pathlib import Path

from harness.data.items import Item, Row, by_terciles, draw_choices, gloss_mentions, interleave, read_tsv

BANDS = ("common", "middling", "rare")


def element_symbol(registry: Path) -> list[Item]:
    """All elements, four symbols to choose from."""
    rng = random.Random("element_symbol")
    mentions = gloss_mentions(registry)
    table = read_tsv(registry / "elements" / "elements.tsv")
    rows = [row | {"mentions": str(mentions[row["name"].lower()])} for row in table]
    bands = by_terciles(rows, "mentions", BANDS)
    symbols = [row["symbol"] for row in rows]
    return interleave(
        [_item(rng, row, symbols, band) for row in rng.sample(inside, len(inside))] for band, inside in bands.items()
    )


def _item(rng: random.Random, row: Row, symbols: list[str], band: str) -> Item:
    alike = [symbol for symbol in symbols if symbol[0] == row["name"][0] and symbol != row["symbol"]]
    pool = alike if len(alike) >= 3 else symbols
    choices, gold = draw_choices(rng, row["symbol"], pool, is_wrong=lambda _: True)
    query = f"The chemical symbol of {row['name'].lower()} is"
    return Item(query, choices, gold, row["name"], band, float(row["mentions"]))
