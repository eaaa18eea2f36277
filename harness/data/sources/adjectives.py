"""Adjective order: of two phrases with the same words, which one is English?

English puts adjectives before a noun in the order opinion, size, age, colour, origin, material (Quirk et al., A
Comprehensive Grammar of the English Language, section 7.45; Scontras, Degen & Goodman 2017 on why). The wrong phrase
is the right one with two of its adjectives exchanged, so the two hold the same words and nearly the same tokens: plain
accuracy is fair. The band is the number of adjectives; the document is the noun. Words and templates are our own.

Results were recorded with the first nouns alone: their questions stay as they were and come first; the further nouns
bring every band above 300.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness.data.items import Item, interleave

KINDS = {
    "opinion": "lovely beautiful ugly strange nice splendid awful charming horrible wonderful",
    "size": "big small large tiny huge little enormous",
    "age": "old new ancient antique",
    "colour": "red blue green yellow black white brown grey pink purple orange",
    "origin": "French Italian Chinese Japanese German Spanish Indian Mexican Turkish Russian American Dutch",
    "material": "wooden plastic metal steel golden paper stone",
}
NOUNS = """table chair lamp box cup bowl basket bottle plate spoon knife fork clock mirror bench desk shelf drawer door
gate fence bridge boat ship train truck wagon cart sled bicycle kite drum flute violin piano trumpet bell whistle toy
doll puzzle ball mask crown ring necklace bracelet button brooch belt hat helmet shoe boot sandal coat jacket glove
scarf umbrella fan comb brush bucket barrel ladder hammer shovel rake saw wheel anchor lantern candle vase statue frame
picture poster book notebook envelope pen pencil stamp coin medal trophy flag banner tent hut cabin cottage house barn
tower castle temple fountain bed pillow blanket curtain carpet rug sofa stool cradle trunk suitcase bag purse wallet
tray jug kettle pot pan oven stove cupboard cabinet chest buckle hook key lock chain pipe flask mug teapot pitcher
birdcage telescope compass camera radio telephone typewriter"""
MORE_NOUNS = """tractor canoe raft guitar harp trombone pillar bookcase dresser wardrobe teacup saucer lampshade
doorknob mailbox birdhouse dollhouse sword shield spear necktie vest skirt apron cape slipper goblet ladle sundial
windmill"""
CARRIERS = ("She pointed at the", "He was proud of the", "They asked about the", "Everybody looked at the")
BANDS = {"two": 2, "three": 3, "four": 4}
ITEMS_PER_NOUN = 2  # and band


def adjective_order() -> list[Item]:
    """Two phrases a question, every noun twice in every band."""
    return [*_batch("adjective_order", NOUNS.split()), *_batch("adjective_order, more nouns", MORE_NOUNS.split())]


def _batch(seed: str, nouns: Sequence[str]) -> list[Item]:
    rng = random.Random(seed)
    return interleave(_band_items(rng, nouns, band, n) for band, n in BANDS.items())


def _band_items(rng: random.Random, nouns: Sequence[str], band: str, n_adjectives: int) -> list[Item]:
    rounds = [rng.sample(nouns, len(nouns)) for _ in range(ITEMS_PER_NOUN)]
    return [_item(rng, noun, band, n_adjectives) for shuffled in rounds for noun in shuffled]


def _item(rng: random.Random, noun: str, band: str, n_adjectives: int) -> Item:
    kinds = sorted(rng.sample(range(len(KINDS)), n_adjectives))
    right = [rng.choice(list(KINDS.values())[kind].split()) for kind in kinds]
    first, second = rng.sample(range(n_adjectives), 2)
    wrong = right.copy()
    wrong[first], wrong[second] = right[second], right[first]
    gold = rng.randrange(2)
    phrases = [" ".join([*adjectives, noun]) for adjectives in (right, wrong)]
    return Item(rng.choice(CARRIERS), tuple(phrases if gold == 0 else phrases[::-1]), gold, noun, band)
