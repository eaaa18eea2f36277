"""The context suite: questions whose answer stands in the text before them, made for any tokenizer and any length.

Attention moves information across the context; but for `conflict` these tasks need that and no stored fact:

* `passkey`: a number hidden in prose at a depth of 10, 50 or 90 % (Mohtashami & Jaggi 2023).
* `key_value`: one of as many pairs as fit; the wrong answers are values of other pairs (Liu et al. 2023, Lost in the
  Middle).
* `induction_copy`: random tokens, twice. How far the nll of the second pass falls below that of the first measures
  copying by induction heads (Olsson et al. 2022). One choice, so it has an nll and no accuracy. The first pass has no
  context: a band to compare with, and no part of the task's mean or of its attribution.
* `two_hop`: Anna's teacher is Tom, Tom lives in Lima; where does Anna's teacher live? Band `one_hop` asks where Tom
  lives: the control without the first step. The wrong answers are where others live.
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
from harness.data.sources.adjectives import NOUNS
from harness.errors import UserError

DEPTHS = (0.1, 0.5, 0.9)
N_CHOICES = 4
PEOPLE = """Anna Tom Mary John Peter Laura David Susan Paul Emma Frank Alice Henry Julia Simon Clara Oliver Nora Victor
Helen"""
SUITES = Path(__file__).parent / "suites"
NAMES = ("city_country", "entity_class", "wikidata")  # their documents are the keys of key_value
FAMOUS = 60  # cities, the largest: homes in two_hop


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
    question = "What is the pass key? The pass key is"
    needle = (depth, f"The pass key is {keys[0]}. Remember it.")
    text = hide(encode, rng, [needle], length - _longest(encode, [question], keys))
    tokens = _cut(encode, f"{text} {question}", keys, _order(rng))
    return [ContextItem("passkey", *tokens, f"passkey-{length}-{index}", _band(depth), length)]


def key_value(encode: Encode, rng: random.Random, length: int, index: int) -> list[ContextItem]:
    """Lima: piano. Plato: violin. Volga: lamp. ... Plato: | violin, three other values."""
    keys = rng.sample(_names(), len(_names()))
    values = rng.choices(NOUNS.split(), k=len(keys))
    pairs = [f"{key}: {value}." for key, value in zip(keys, values, strict=True)]
    n_pairs = n_fitting(encode, pairs, length - _longest(encode, pairs, [""]))
    if len(set(values[:n_pairs])) < N_CHOICES:
        raise UserError(f"context length: {length} tokens hold {n_pairs} pairs of key and value; allow more")
    depth = DEPTHS[index % len(DEPTHS)]
    asked = round(depth * (n_pairs - 1))
    text = " ".join([*pairs[:n_pairs], f"{keys[asked]}:"])
    others = sorted(set(values[:n_pairs]) - {values[asked]})
    tokens = _cut(encode, text, [values[asked], *rng.sample(others, N_CHOICES - 1)], _order(rng))
    return [ContextItem("key_value", *tokens, f"key_value-{length}-{index}", _band(depth), length)]


def induction_copy(encode: Encode, rng: random.Random, length: int, index: int) -> list[ContextItem]:
    """Half of `length` random tokens, scored without a context and after themselves."""
    tokens = tuple(rng.choices(_common_tokens(encode), k=length // 2))
    document = f"induction_copy-{length}-{index}"
    return [
        ContextItem("induction_copy", (), (tokens,), 0, document, "first_pass", length),
        ContextItem("induction_copy", tokens, (tokens,), 0, document, "second_pass", length),
    ]


def two_hop(encode: Encode, rng: random.Random, length: int, index: int) -> list[ContextItem]:
    """... The teacher of Anna is Tom. ... Tom lives in Lima. ... The teacher of Anna lives in | Lima, three others."""
    people = rng.sample(PEOPLE.split(), 2 * N_CHOICES)
    pupils, teachers = people[:N_CHOICES], people[N_CHOICES:]
    homes = rng.sample([fact.document for fact in _known_facts()[:FAMOUS]], N_CHOICES)
    steps = [f"The teacher of {pupil} is {teacher}." for pupil, teacher in zip(pupils, teachers, strict=True)]
    steps += [f"{teacher} lives in {home}." for teacher, home in zip(teachers, homes, strict=True)]
    questions = {"two_hop": f"The teacher of {pupils[0]} lives in", "one_hop": f"{teachers[0]} lives in"}
    needles = [(rng.random(), step) for step in steps]
    text = hide(encode, rng, needles, length - _longest(encode, questions.values(), homes))
    order, document = _order(rng), f"two_hop-{length}-{index}"
    return [
        ContextItem("two_hop", *_cut(encode, f"{text} {question}", homes, order), document, band, length)
        for band, question in questions.items()
    ]


def conflict(encode: Encode, rng: random.Random, length: int, index: int) -> list[ContextItem]:
    """The city of Lima is in the country of Japan. ... The city of Lima is in the country of | Japan, Peru."""
    fact = _known_facts()[index % len(_known_facts())]
    truth = fact.choices[fact.gold]
    lie = rng.choice([choice for choice in fact.choices if choice != truth])
    room = length - _longest(encode, [fact.query], fact.choices)
    depth, order, state = DEPTHS[index % len(DEPTHS)], _order(rng, 2), rng.getstate()
    items = []
    for band, told, other in (("conflicting", lie, truth), ("agreeing", truth, lie)):
        rng.setstate(state)  # the same prose in both
        text = hide(encode, rng, [(depth, f"{fact.query} {told}.")], room)
        tokens = _cut(encode, f"{text} {fact.query}", [told, other], order)
        items.append(ContextItem("conflict", *tokens, fact.document, band, length))
    return items


MAKERS: dict[str, Maker] = {
    "passkey": passkey,
    "key_value": key_value,
    "induction_copy": induction_copy,
    "two_hop": two_hop,
    "conflict": conflict,
}


def _cut(
    encode: Encode, text: str, answers: Sequence[str], order: Sequence[int]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]:
    """Tokens of text and answers, the answers in the given order, and where the first of them (the right one) went.

    Cut as lm-eval does it: the whole is encoded, and the choice is what lies behind the tokens of the text alone.
    """
    context = tuple(encode(text))
    choices = tuple(tuple(encode(f"{text} {answers[i]}")[len(context) :]) for i in order)
    return context, choices, order.index(0)


def _order(rng: random.Random, n_choices: int = N_CHOICES) -> list[int]:
    return rng.sample(range(n_choices), n_choices)


def _band(depth: float) -> str:
    return f"depth_{round(100 * depth)}"


def _longest(encode: Encode, questions: Iterable[str], answers: Iterable[str]) -> int:
    """Tokens of the longest question with the longest answer."""
    return max(len(encode(f" {q}")) for q in questions) + max(len(encode(f" {a}")) for a in answers)


@cache
def _names() -> tuple[str, ...]:
    """Names of cities, people, places and works, each once: over 3,000."""
    documents = [item.document for task in NAMES for item in load_items(SUITES / f"{task}.jsonl")]
    return tuple(dict.fromkeys(documents))


@cache
def _common_tokens(encode: Encode) -> list[int]:
    """Tokens that occur in prose: no special, unused or broken ones."""
    return sorted(set(encode(" ".join(sentences()))))


@cache
def _known_facts() -> list[Item]:
    """The largest cities first: what a model surely remembers."""
    return sorted(load_items(SUITES / "city_country.jsonl"), key=lambda item: -(item.popularity or 0))
