"""Token sequences packed as trees, so that tokens shared between sequences are computed once.

A question with its choices is a tree: every choice continues the same context. Packed, the tree is one sequence in
which a token sees its own ancestors only, at the position it would have had alone:

    tokens    c0 c1 c2 | a0 a1 | b0          a and b see c and themselves, not each other
    position   0  1  2 |  3  4 |  3

Sequences are sorted, so that those with a common beginning are neighbours; a new one adds only the tokens it does
not share with the one before. Packs are formed from all sequences at once, before any batch, wave or rank is cut:
what a token sees never depends on how the work is divided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class TokenSequence:
    """Token ids of which those from `start` on are scored; `start` >= 1, as the first token has no prediction."""

    tokens: tuple[int, ...]
    start: int

    def __post_init__(self) -> None:
        assert 1 <= self.start < len(self.tokens), (self.start, len(self.tokens))

    @property
    def scored(self) -> int:
        """Number of scored tokens."""
        return len(self.tokens) - self.start


@dataclass
class Pack:
    """One row of a batch: a tree of tokens and the predictions read from it.

    The prediction of `target[k]` is made at index `at[k]` and stored in `slot[k]` of the run's score arrays.
    """

    tokens: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    branches: list[tuple[int, int, list[int]]] = field(default_factory=list)  # (first, stop, indices of ancestors)
    at: list[int] = field(default_factory=list)
    target: list[int] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_tree(self) -> bool:
        """Whether some token must not see some earlier one, so that a plain causal mask would be wrong."""
        return len(self.branches) > 1

    def add(self, sequence: TokenSequence, slot: int, path: list[int]) -> list[int]:
        """Add a sequence whose first len(path) tokens already stand at `path`; returns the whole path."""
        new = sequence.tokens[len(path) : -1]  # the last token is only ever a target
        first = len(self.tokens)
        whole = path + list(range(first, first + len(new)))
        if new:
            self.branches.append((first, first + len(new), path))
        self.tokens += new
        self.position += range(len(path), len(whole))
        self.at += whole[sequence.start - 1 :]
        self.target += sequence.tokens[sequence.start :]
        self.slot += range(slot, slot + sequence.scored)
        return whole

    def visible(self) -> np.ndarray:
        """[T, T] bool: row t sees column u."""
        sees = np.zeros((len(self), len(self)), dtype=bool)
        for first, stop, path in self.branches:
            sees[first:stop, path] = True
            sees[first:stop, first:stop] = np.tri(stop - first, dtype=bool)
        return sees


def slots(sequences: Sequence[TokenSequence]) -> np.ndarray:
    """First score slot of every sequence, and behind them the number of slots: [sequences + 1]."""
    return np.cumsum([0, *(s.scored for s in sequences)])


def pack_trees(
    sequences: Sequence[TokenSequence], size: int, *, tokens: int | None = None, depth: int | None = None
) -> list[Pack]:
    """Packs of about `size` tokens.

    A pack is closed where the next sequence shares less than half its tokens with the one before, so that a question
    is not torn from its choices, or else at twice the size; a long shared beginning (few-shot examples) makes room
    for as much again. Where a model bounds what a tree mask is right for, `tokens` bounds a pack in which anything
    branches, and a sequence longer than `depth` stands alone.
    """
    first_slot = slots(sequences)
    alone = [s for s in range(len(sequences)) if depth is not None and len(sequences[s].tokens) - 1 > depth]
    packs = [_single(sequences[s], int(first_slot[s])) for s in alone]
    order = sorted(set(range(len(sequences))) - set(alone), key=lambda s: (sequences[s].tokens, sequences[s].start))
    tree: Pack | None = None
    path: list[int] = []
    before: tuple[int, ...] = ()
    room = 0
    for s in order:
        inputs = sequences[s].tokens[:-1]
        shared = _common(before, inputs)
        full = (len(tree) if tree else 0) + len(inputs) - shared
        fits = full <= (room if 2 * shared < len(inputs) else 2 * room)
        if tree is None or not fits or (tokens is not None and full > tokens):
            tree, path, shared, room = Pack(), [], 0, max(size, len(inputs))
            packs.append(tree)
        path = tree.add(sequences[s], int(first_slot[s]), path[:shared])
        before = inputs
    return packs


def pack_plain(sequences: Sequence[TokenSequence]) -> list[Pack]:
    """One pack a sequence, nothing shared: for models that cannot take a tree mask."""
    return [_single(s, int(slot)) for s, slot in zip(sequences, slots(sequences), strict=False)]


def _single(sequence: TokenSequence, slot: int) -> Pack:
    pack = Pack()
    pack.add(sequence, slot, [])
    return pack


def batches(packs: Sequence[Pack], tokens: int, depth: int | None = None) -> Iterator[list[Pack]]:
    """Packs of similar length together, trees apart from plain ones, each batch within `tokens` padded tokens.

    Where a position beyond `depth` changes what a model does to the whole batch, packs that have one go apart as well.
    """

    def kind(pack: Pack) -> tuple[bool, bool]:
        return pack.is_tree, depth is not None and max(pack.position) >= depth

    for own in sorted({kind(pack) for pack in packs}):
        group: list[Pack] = []
        for pack in sorted((p for p in packs if kind(p) == own), key=len, reverse=True):
            if group and len(group[0]) * (len(group) + 1) > tokens:
                yield group
                group = []
            group.append(pack)
        if group:
            yield group


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    n = min(len(a), len(b))
    for i in range(n):
        if a[i] != b[i]:
            return i
    return n
