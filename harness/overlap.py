"""What calibration saw, and how much of that is scored: a method that has seen the test text looks better than it is.

Two measures, both shares of the scored sequences: 13 tokens in a row in common with any sample, the length by which
GPT-3 (Brown et al. 2020, appendix C) called texts overlapping; and a whole line in common, letter by letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from harness.calibrate import Draw

NGRAM = 13  # tokens
SCORED_TOO = f"scored_with_{NGRAM}_tokens_in_common"
SHORTEST_LINE = 20  # characters; shorter ones (headings, "yes") are shared by chance

Tokens = Sequence[int]


def ngram_overlap(draws: Sequence[Draw], scored: Sequence[Tokens]) -> float:
    """Share of the scored sequences with 13 tokens in a row of any sample."""
    return _share(draws, scored, lambda tokens: (tuple(tokens[i : i + NGRAM]) for i in range(len(tokens) - NGRAM + 1)))


def line_overlap(draws: Sequence[Draw], scored: Sequence[Tokens], decode: Callable[[Tokens], str]) -> float:
    """Share of the scored sequences with a line of any sample. Lines cut by a sample's ends do not count."""

    def lines(tokens: Tokens) -> Iterator[str]:
        stripped = (line.strip() for line in decode(tokens).split("\n"))
        return (line for line in stripped if len(line) >= SHORTEST_LINE)

    return _share(draws, scored, lines)


def describe(draws: Sequence[Draw], seeds: Sequence[int], scored: Sequence[Tokens], tokenizer: Any) -> list[dict]:
    """One entry a calibration draw, for result.json."""
    return [
        {
            "seed": seed,
            "samples": len(draw.samples),
            "tokens": sum(map(len, draw.samples)),
            "repeated_tokens": draw.repeated,
            "usable_samples": draw.usable,
            "dropped_short_texts": draw.dropped,
            "sample_hash": draw.digest,
            SCORED_TOO: ngram_overlap([draw], scored),
            "scored_with_a_line_in_common": line_overlap([draw], scored, tokenizer.decode),
        }
        for seed, draw in zip(seeds, draws, strict=True)
    ]


def _share(draws: Sequence[Draw], scored: Sequence[Tokens], pieces: Callable[[Tokens], Iterator[Any]]) -> float:
    known = {piece for draw in draws for sample in draw.samples for piece in pieces(sample)}
    return float(np.mean([any(piece in known for piece in pieces(tokens)) for tokens in scored])) if scored else 0.0
