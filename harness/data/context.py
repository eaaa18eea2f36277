"""The context suite: questions whose answer stands in the text before them, made for any tokenizer and any length.

Attention moves information across the context; but for `conflict` these tasks need that and no stored fact:

* `passkey`: a number hidden in prose at a depth of 10, 50 or 90 % (Mohtashami & Jaggi 2023).
* `key_value`: one of as many pairs as fit; the wrong answers are values of other pairs (Liu et al. 2023, Lost in the
  Middle).
* `induction_copy`: random tokens, twice. How far the nll of the second pass falls below that of the first measures
  copying by induction heads (Olsson et al. 2022). One choice, so it has an nll and no accuracy.
* `two_hop`: a thing is in a box, the box in a room; asked for the thing's room. Band `one_hop`, the box's room, is the
  control: the same text without the first step.
* `conflict`: the text says that a well-known city lies in another country; that and the truth are scored against each
  other, and `gold` is what the text says. In band `agreeing` the text says the truth: the open-book form of the fact.

Everything is drawn from generators seeded by task, seed, length and index: the same arguments give the same items, and
a longer list begins with the shorter one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.data.filler import Encode, hide, n_fitting, sentences
from harness.data.items import Item, load_items
from harness.data.sources.adjectives import KINDS, NOUNS
from harness.errors import UserError

DEPTHS = (0.1, 0.5, 0.9)
N_CHOICES = 4
ROOMS = "kitchen garden library cellar attic bedroom bathroom garage hall office chapel stable"
FACTS = Path(__file__).parent / "suites" / "city_country.jsonl"


@dataclass(frozen=True)
class ContextItem:
    """One question in token ids: log p(choice | context) for every choice. Special tokens are the scorer's affair."""

    task: str
    context: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...]
    gold: int
    document: str
    band: str
    length: int  # context and choice together hold at most so many tokens


Maker = Callable[[Encode, random.Random, int, int], list[ContextItem]]  # encode, rng, length, index


def make_suite(encode: Encode, lengths: Iterable[int], n_documents: int, seed: int = 0) -> list[ContextItem]:
    """`n_documents` of every task at every length; UserError where a length cannot hold a task's question."""
    return [
        item
        for task, make in MAKERS.items()
        for length in lengths
        for index in range(n_documents)
        for item in make(encode, random.Random(f"{task} {seed} {length} {index}"), length, index)
    ]


def passkey(encode: Encode, rng: random.Random, length: int, index: int) -> list[ContextItem]:
    """... The pass key is 48213. Remember it. ... What is the pass key? The pass key is | 48213, three others."""
    keys = [str(number) for number in rng.sample(range(10_000, 100_000), N_CHOICES)]
    depth = DEPTHS[index % len(DEPTHS)]
    needle, question = f"The pass key is {keys[0]}. Remember it.", "What is the pass key? The pass key is"
    text = hide(encode, rng, [(depth, needle)], question, length - _longest(encode, keys))
    return [ContextItem("passkey", *_cut(encode, rng, text, keys), f"passkey-{index}", _name(depth), length)]


def key_value(encode: Encode, rng: random.Random, length: int, index: int) -> list[ContextItem]:
    """The red table: piano. The blue lamp: violin. ... The red table: | piano, violin, two others."""
    nouns = NOUNS.split()
    keys = rng.sample(_keys(), len(_keys()))
    values = rng.choices(nouns, k=len(keys))
    room = length - _longest(encode, nouns) - _longest(encode, keys)
    n_pairs = n_fitting(encode, [f"{key} {value}." for key, value in zip(keys, values, strict=True)], room)
    if len(set(values[:n_pairs])) < N_CHOICES:
        raise UserError(f"context length: {length} tokens hold {n_pairs} pairs of key and value; allow more")
    depth = DEPTHS[index % len(DEPTHS)]
    asked = round(depth * (n_pairs - 1))
    text = " ".join([f"{keys[i]} {values[i]}." for i in range(n_pairs)] + [keys[asked]])
    others = sorted(set(values[:n_pairs]) - {values[asked]})
    answers = [values[asked], *rng.sample(others, N_CHOICES - 1)]
    return [ContextItem("key_value", *_cut(encode, rng, text, answers), f"key_value-{index}", _name(depth), length)]


def induction_copy(encode: Encode, rng: random.Random, length: int, index: int) -> list[ContextItem]:
    """Half of `length` random tokens, scored without a context and after themselves."""
    tokens = tuple(rng.choices(_common_tokens(encode), k=length // 2))
    document = f"induction_copy-{index}"
    return [
        ContextItem("induction_copy", (), (tokens,), 0, document, "first_pass", length),
        ContextItem("induction_copy", tokens, (tokens,), 0, document, "second_pass", length),
    ]


def two_hop(encode: Encode, rng: random.Random, length: int, index: int) -> list[ContextItem]:
    """... The key is in the red box. ... The red box is in the attic. ... The room of the key is the | attic, ..."""
    things, rooms = rng.sample(NOUNS.split(), N_CHOICES), rng.sample(ROOMS.split(), N_CHOICES)
    boxes = [f"{colour} box" for colour in rng.sample(KINDS["colour"].split(), N_CHOICES)]
    facts = [f"The {thing} is in the {box}." for thing, box in zip(things, boxes, strict=True)]
    facts += [f"The {box} is in the {room}." for box, room in zip(boxes, rooms, strict=True)]
    needles = [(rng.random(), fact) for fact in facts]
    spare, state = length - _longest(encode, rooms), rng.getstate()
    items = []
    for band, asked in (("two_hop", things[0]), ("one_hop", boxes[0])):
        rng.setstate(state)  # the same prose and order of choices in both
        text = hide(encode, rng, needles, f"The room where the {asked} can be found is the", spare)
        items.append(ContextItem("two_hop", *_cut(encode, rng, text, rooms), f"two_hop-{index}", band, length))
    return items


def conflict(encode: Encode, rng: random.Random, length: int, index: int) -> list[ContextItem]:
    """The city of Lima is in the country of Japan. ... The city of Lima is in the country of | Japan, Peru."""
    facts = _known_facts()
    fact = facts[index % len(facts)]
    truth = fact.choices[fact.gold]
    lie = rng.choice([choice for choice in fact.choices if choice != truth])
    spare, depth, state = length - _longest(encode, fact.choices), DEPTHS[index % len(DEPTHS)], rng.getstate()
    items = []
    for band, told, other in (("conflicting", lie, truth), ("agreeing", truth, lie)):
        rng.setstate(state)
        text = hide(encode, rng, [(depth, f"{fact.query} {told}.")], fact.query, spare)
        items.append(ContextItem("conflict", *_cut(encode, rng, text, [told, other]), fact.document, band, length))
    return items


MAKERS: dict[str, Maker] = {
    "passkey": passkey,
    "key_value": key_value,
    "induction_copy": induction_copy,
    "two_hop": two_hop,
    "conflict": conflict,
}


def _cut(
    encode: Encode, rng: random.Random, text: str, answers: Sequence[str]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]:
    """Tokens of text and shuffled answers (the right one comes first), and where the right one went.

    Cut as lm-eval does it: the whole is encoded, and the choice is what lies behind the tokens of the text alone.
    """
    order = rng.sample(range(len(answers)), len(answers))
    context = tuple(encode(text))
    choices = tuple(tuple(encode(f"{text} {answers[i]}")[len(context) :]) for i in order)
    return context, choices, order.index(0)


def _name(depth: float) -> str:
    return f"depth_{round(100 * depth)}"


def _longest(encode: Encode, answers: Iterable[str]) -> int:
    return max(len(encode(f" {answer}")) for answer in answers)


@cache
def _keys() -> tuple[str, ...]:
    return tuple(f"The {colour} {noun}:" for noun in NOUNS.split() for colour in KINDS["colour"].split())


@cache
def _common_tokens(encode: Encode) -> list[int]:
    """Tokens that occur in prose: no special, unused or broken ones."""
    return sorted(set(encode(" ".join(sentences()))))


@cache
def _known_facts() -> list[Item]:
    """The largest cities first: what a model surely remembers."""
    return sorted(load_items(FACTS), key=lambda item: -(item.popularity or 0))
