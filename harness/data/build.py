"""Rebuild the shipped data from its sources: `python -m harness.data.build REGISTRY OUT`.

REGISTRY holds the source packages' data in folders (geonames, wordnet, ...; see PROVENANCE.md for where each comes
from). The same sources give the same bytes, which a test checks wherever they are at hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from harness.data.items import Item, write_jsonl
from harness.data.sources import adjectives, bigbench, elements, everyday, geonames, grammar, prose, wikidata, wordnet

TASKS: dict[str, Callable[[Path], list[Item]]] = {
    "city_country": geonames.city_country,
    "country_capital": geonames.country_capital,
    "country_currency": geonames.country_currency,
    "element_symbol": elements.element_symbol,
    "entity_class": wordnet.entity_class,
    "wikidata": wikidata.wikidata,
    "adjective_order": lambda _: adjectives.adjective_order(),
    "grammar": grammar.grammar,
    "everyday_physics": lambda _: everyday.everyday_physics(),
    "social_situations": bigbench.social_situations,
    "physical_intuition": bigbench.physical_intuition,
}
TEXTS: dict[str, Callable[[Path], str]] = {"moby_dick": prose.moby_dick, "sotu": prose.sotu}


def build(registry: Path, out: Path) -> None:
    """Write `suites/<task>.jsonl` and `prose/<name>.txt` below `out`."""
    for folder in ("suites", "prose"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name, items in TASKS.items():
        write_jsonl(items(registry), out / "suites" / f"{name}.jsonl")
    for name, text in TEXTS.items():
        (out / "prose" / f"{name}.txt").write_text(text(registry), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m harness.data.build REGISTRY OUT")
    build(Path(sys.argv[1]), Path(sys.argv[2]))
