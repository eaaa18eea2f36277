"""Facts of Wikidata, from BIG-bench's qa_wikidata (Apache-2.0), made into multiple choice.

The band is the relation. Popularity is the number of WordNet glosses that name the entity. Only relations with many
different answers are used, and no answer may be right more than `PER_ANSWER` times in one relation: in the source
nearly half of all native languages are English.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from harness.data.items import Item, Row, at_most_each, draw_choices, gives_away, gloss_mentions, interleave

RELATIONS = {
    "citizenship": "The country of citizenship of ",
    "country": "The country of ",
    "native_language": "The native language of ",
    "official_language": "The official language of ",
    "original_country": "The original country of ",
    "religion": "The religion of ",
}
ITEMS_PER_RELATION = 300
PER_ANSWER = 30
PER_ANSWER_OF = {"religion": 60}  # it has five answers
VAGUE = ("Christianity", "Christian", "Buddhist")  # Catholicism is Christian, too


def wikidata(registry: Path) -> list[Item]:
    """300 facts a relation, four answers to choose from."""
    rng = random.Random("wikidata")
    mentions = gloss_mentions(registry)
    facts = _facts(registry)
    return interleave(_relation_items(rng, relation, facts, mentions) for relation in RELATIONS)


def _facts(registry: Path) -> dict[str, list[str]]:
    """prompt -> all answers that the source calls right, in its order."""
    facts: dict[str, list[str]] = {}
    for example in json.loads((registry / "bigbench" / "qa_wikidata.json").read_text(encoding="utf-8"))["examples"]:
        target = example["target"]
        facts.setdefault(example["input"], []).extend([target] if isinstance(target, str) else target)
    return facts


def relation_of(prompt: str) -> str | None:
    """The relation with the longest beginning that fits."""
    fitting = [relation for relation, start in RELATIONS.items() if prompt.startswith(start)]
    return max(fitting, key=lambda relation: len(RELATIONS[relation]), default=None)


def _relation_items(
    rng: random.Random, relation: str, facts: dict[str, list[str]], mentions: Counter[str]
) -> list[Item]:
    rows: list[Row] = []
    for prompt, answers in facts.items():
        entity = prompt.removeprefix(RELATIONS[relation]).removesuffix(" is")
        if relation_of(prompt) == relation and answers[0] not in VAGUE and not gives_away(entity, answers[0]):
            rows.append({"prompt": prompt, "entity": entity, "answer": answers[0]})
    rng.shuffle(rows)
    rows = at_most_each(rows, "answer", PER_ANSWER_OF.get(relation, PER_ANSWER))[:ITEMS_PER_RELATION]
    pool = [row["answer"] for row in rows]
    items = []
    for row in rows:
        right = facts[row["prompt"]]
        choices, gold = draw_choices(rng, row["answer"], pool, is_wrong=lambda answer, right=right: answer not in right)
        popularity = float(mentions[row["entity"]])
        items.append(Item(row["prompt"], choices, gold, row["entity"], relation, popularity))
    return items
