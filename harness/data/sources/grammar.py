"""Minimal pairs of English grammar, of our own: two continuations of one beginning, one of them grammatical.

The phenomena are those of BLiMP (Warstadt et al. 2020) that can be told at a single word: agreement of a verb with its
subject, the same with a noun of the other number in between, agreement of a determiner with its noun, the gender of
reflexive pronouns, the form of a verb after a time and after an auxiliary. Nouns are WordNet's most frequent words for
people and things; irregular verbs are BIG-bench's. The band is the phenomenon, the document the word that decides.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from harness.data.items import Item, interleave, read_wordnet

ITEMS_PER_PHENOMENON = 300
PERSON, THING = "18", "06"  # WordNet's files of nouns
LEAST_TAGS = 8  # occurrences in the sense-tagged corpus: no rare words
# Words without a plural, with an irregular one, or not used alone.
LEFT_OUT = """clothing equipment machinery apparatus drug opium art stairs aircraft redcoat halfback liberal private
relative sir subsection surface system facility machine wife thief woman man gentleman clergyman businessman ballplayer
baby lady marksman policeman salesman slave soul quack official character holder shelf knife loaf scissors
mine plant piece block cell coat hero ammunition furniture pottery soap etcetera load well"""
VERBS = (("is", "are"), ("was", "were"), ("has", "have"))  # singular, plural
BETWEEN = ("near the", "behind the", "next to the", "with the")
MALE = "king brother father husband son uncle nephew prince boy gentleman grandfather waiter monk duke bridegroom"
FEMALE = "queen sister mother wife daughter aunt niece princess girl lady grandmother waitress nun duchess bride"
REFLEXIVE_VERBS = "blamed saved defended described admired praised hurt helped trusted hated protected introduced"
NO_PAST = (
    "be",
    "have",
    "do",
    "may",
    "ought",
    "bid",
    "lie",
    "wind",
)  # several forms, none, or another verb's

Noun = tuple[str, str]  # singular, plural
Pair = tuple[str, str, str, str]  # beginning, right, wrong, document


def grammar(registry: Path) -> list[Item]:
    """300 pairs a phenomenon."""
    people, things, verbs = _nouns(registry, PERSON), _nouns(registry, THING), _verbs(registry)
    phenomena: dict[str, Callable[[random.Random], Pair]] = {
        "agreement": lambda rng: agreement(rng, people + things),
        "distant_agreement": lambda rng: distant_agreement(rng, people, things),
        "determiner": lambda rng: determiner(rng, people + things),
        "reflexive": reflexive,
        "verb_form": lambda rng: verb_form(rng, people, verbs),
    }
    return interleave(_phenomenon(name, pair) for name, pair in phenomena.items())


def agreement(rng: random.Random, nouns: list[Noun]) -> Pair:
    """The lawyers | are, is."""
    noun, number, verb = rng.choice(nouns), rng.randrange(2), rng.choice(VERBS)
    return f"The {noun[number]}", verb[number], verb[1 - number], noun[0]


def distant_agreement(rng: random.Random, people: list[Noun], things: list[Noun]) -> Pair:
    """The lawyers near the house | are, is."""
    noun, other, number, verb = rng.choice(people), rng.choice(things), rng.randrange(2), rng.choice(VERBS)
    return f"The {noun[number]} {rng.choice(BETWEEN)} {other[1 - number]}", verb[number], verb[1 - number], noun[0]


def determiner(rng: random.Random, nouns: list[Noun]) -> Pair:
    """They asked about those | lawyers, lawyer."""
    noun, number = rng.choice(nouns), rng.randrange(2)
    word = rng.choice((("this", "that"), ("these", "those"))[number])
    return f"They asked about {word}", noun[number], noun[1 - number], noun[0]


def reflexive(rng: random.Random) -> Pair:
    """The queen admired | herself, himself."""
    female = rng.randrange(2)
    noun = rng.choice((MALE, FEMALE)[female].split())
    pronouns = ("himself", "herself")
    return f"The {noun} {rng.choice(REFLEXIVE_VERBS.split())}", pronouns[female], pronouns[1 - female], noun


def verb_form(rng: random.Random, people: list[Noun], verbs: list[tuple[str, str]]) -> Pair:
    """Last year the lawyer | took, take. Next year the lawyer will | take, took."""
    noun, (base, past) = rng.choice(people), rng.choice(verbs)
    if rng.randrange(2):
        return f"Last year the {noun[0]}", past, base, base
    return f"Next year the {noun[0]} will", base, past, base


def plural(noun: str) -> str:
    """Regular English plural.

    >>> [plural(noun) for noun in ("boat", "box", "church", "city", "boy")]
    ['boats', 'boxes', 'churches', 'cities', 'boys']
    """
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def _nouns(registry: Path, lexfile: str) -> list[Noun]:
    rows = read_wordnet(registry, "nouns_first_sense")
    left_out = LEFT_OUT.split()
    return [
        (row["lemma"], plural(row["lemma"]))
        for row in rows
        if row["lexfile"] == lexfile and int(row["tag_cnt"]) >= LEAST_TAGS and row["lemma"] not in left_out
    ]


def _verbs(registry: Path) -> list[tuple[str, str]]:
    """Base and past form of irregular verbs that show a difference."""
    text = (registry / "bigbench" / "past_tense_irregular.json").read_text(encoding="utf-8")
    forms = [(example["input"], example["target"]) for example in json.loads(text)["examples"]]
    return [(base, past) for base, past in forms if base != past and base not in NO_PAST]


def _phenomenon(name: str, draw: Callable[[random.Random], Pair]) -> list[Item]:
    rng = random.Random(f"grammar {name}")
    pairs: dict[Pair, None] = {}
    while len(pairs) < ITEMS_PER_PHENOMENON:
        pairs[draw(rng)] = None
    return [_item(rng, pair, name) for pair in pairs]


def _item(rng: random.Random, pair: Pair, band: str) -> Item:
    beginning, right, wrong, document = pair
    gold = rng.randrange(2)
    return Item(beginning, (right, wrong) if gold == 0 else (wrong, right), gold, document, band)
