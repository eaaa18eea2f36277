"""What a named person or place is, from WordNet's instances: "Gustav Mahler was a composer".

Classes that one and the same entity may well belong to (physicist and chemist, poet and playwright) form a kin, and a
question never sets two of a kin against each other. Names that give their class away (Loch Ness) and distractors that
the gloss mentions are not used. The gloss always names the right class and travels along as the passage of the
open-book form; the question itself never shows it.

Popularity is the number of WordNet glosses that name the entity.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from harness.data.items import (
    Item,
    Row,
    at_most_each,
    draw_choices,
    gloss_mentions,
    interleave,
    read_wordnet,
)

# label: (kin, WordNet classes). People first, places below.
PEOPLE = {
    "a writer": ("letters", "writer dramatist poet novelist playwright"),
    "a composer": ("music", "composer"),
    "a painter": ("art", "painter old_master"),
    "a sculptor": ("art", "sculptor"),
    "an architect": ("building", "architect"),
    "a physicist": ("science", "physicist nuclear_physicist"),
    "a chemist": ("science", "chemist biochemist"),
    "a mathematician": ("science", "mathematician"),
    "an astronomer": ("science", "astronomer"),
    "a philosopher": ("thought", "philosopher"),
    "a theologian": ("thought", "theologian"),
    "a king": ("rule", "king King_of_England King_of_France"),
    "a president": ("rule", "President_of_the_United_States"),
    "an emperor": ("rule", "Roman_Emperor"),
    "a pope": ("church", "pope"),
    "a general": ("war", "general"),
    "an actor": ("film", "actor film_maker"),
    "an actress": ("film", "actress"),
    "an economist": ("economics", "economist"),
    "an explorer": ("travel", "explorer"),
}
PLACES = {
    "a river": ("river", "river"),
    "a city": ("town", "city city|port"),
    "an island": ("island", "island"),
    "a mountain": ("mountain", "mountain_peak volcano mount"),
    "a mountain range": ("mountain", "range mountains"),
    "a lake": ("lake", "lake loch"),
    "a sea": ("sea", "sea bay gulf"),
    "a desert": ("desert", "desert"),
    "a country": ("country", "country African_country Asian_country European_country South_American_country"),
    "an American state": ("state", "American_state"),
    "a constellation": ("sky", "constellation"),
}
ITEMS_PER_CLASS = 60
Kinds = dict[str, tuple[str, str]]


def entity_class(registry: Path) -> list[Item]:
    """People and places, four classes to choose from."""
    rng = random.Random("entity_class")
    mentions = gloss_mentions(registry)
    instances = read_wordnet(registry, "instances")
    return interleave(
        [
            _items(rng, _entities(instances, PEOPLE, mentions), PEOPLE, "person", "Who was {0}? {0} was"),
            _items(rng, _entities(instances, PLACES, mentions), PLACES, "place", "What is {0}? {0} is"),
        ]
    )


def _entities(instances: list[Row], kinds: Kinds, mentions: Counter[str]) -> list[Row]:
    """Rows with `label`, the `name` to ask for, and its `mentions`; names that two entities bear are left out."""
    label_of = {name: label for label, (_, classes) in kinds.items() for name in classes.split()}
    rows = [row | {"label": label_of[row["class"]]} for row in instances if row["class"] in label_of]
    rows = [row | {"name": plain_name(row["names"], kinds[row["label"]][1])} for row in rows]
    fair = [row for row in rows if row["name"] and speaks_of(row["gloss"], kinds[row["label"]][1])]
    bearers = Counter(row["name"] for row in fair)
    return [row | {"mentions": str(mentions[row["name"]])} for row in fair if bearers[row["name"]] == 1]


def plain_name(names: str, classes: str) -> str:
    """The first name of several words, else the first, of those that do not give the class away; "" if all do.

    >>> plain_name("Fields|W._C._Fields|William_Claude_Dukenfield", "actor film_maker")
    'W. C. Fields'
    >>> plain_name("Ness|Loch_Ness", "lake loch")
    'Ness'
    """
    fair = [name for name in names.replace("_", " ").split("|") if not speaks_of(name, classes)]
    return next((name for name in fair if " " in name), fair[0] if fair else "")


def speaks_of(text: str, classes: str) -> bool:
    """Whether a text names any of the classes: for "city|port Roman_Emperor" city, port or roman emperor."""
    words = [word.replace("_", " ").casefold() for entry in classes.split() for word in entry.split("|")]
    return any(word in text.casefold() for word in words)


def _items(rng: random.Random, rows: list[Row], kinds: Kinds, band: str, template: str) -> list[Item]:
    drawn = at_most_each(rng.sample(rows, len(rows)), "label", ITEMS_PER_CLASS)
    labels = [row["label"] for row in drawn]
    return [_item(rng, row, labels, kinds, band, template) for row in drawn]


def _item(rng: random.Random, row: Row, labels: list[str], kinds: Kinds, band: str, template: str) -> Item:
    name, kin = row["name"], kinds[row["label"]][0]

    def is_wrong(label: str) -> bool:
        other_kin, classes = kinds[label]
        return other_kin != kin and not speaks_of(row["gloss"], classes)

    choices, gold = draw_choices(rng, row["label"], labels, is_wrong)
    passage = f"{name}: {row['gloss']}."
    return Item(template.format(name), choices, gold, name, band, float(row["mentions"]), passage)
