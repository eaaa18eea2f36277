"""Token ids of a task's requests, and where they are kept for later runs.

What a task asks is a list of texts, and turning them into token ids takes the same list to the same ids under one
tokenizer, BOS rule and longest input. They are kept in the cache folder (harness.entries) under a hash of all of these,
but for small tasks, of which the tokenizer makes them about as soon as a file is found and checked.

Four flat arrays: `ids` of all sequences one behind the other, and the `lengths`, `starts` (first scored token) and
`counts` (sequences a request) that cut them up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash
from safetensors.numpy import load_file, save_file

from harness.entries import Entry, folder_of, usable
from harness.makers import maker_version
from harness.packs import TokenSequence
from harness.score.encode import Encoder

LEAST_CHARACTERS = 2**15  # of a task whose token ids are kept: a tenth of a second of a tokenizer's time

Made = list[list[TokenSequence]]  # by request


class Request(NamedTuple):
    """One text to be scored: an answer behind its context or, without one (`None`), all of it in windows."""

    context: str | None
    answer: str
    item: str  # names it in an error


def tokenized(requests: Sequence[Request], encoder: Encoder, task: str) -> Made:
    """Sequences of every request: kept ones, or made by `encoder`. UserError names an item that cannot be scored."""
    size = sum(len(request.context or "") + len(request.answer) for request in requests)
    if not encoder.reuse or size < LEAST_CHARACTERS or not encoder.identity:
        return [_made(request, encoder) for request in requests]
    made_from = {
        "requests": _hash_of(requests),
        "tokenizer": encoder.identity,
        "bos": encoder.bos,
        "longest": encoder.max_length,
        "code_version": maker_version("tokens"),
    }
    folder = folder_of("tokens", made_from)
    if not usable(folder):
        return [_made(request, encoder) for request in requests]
    entry = Entry(folder / "ids.safetensors", {"task": task, **made_from})
    with entry.lock():
        if entry.whole():
            return _load(entry.path)
        made = [_made(request, encoder) for request in requests]
        entry.write(lambda path: _save(path, made))
        return made


def _made(request: Request, encoder: Encoder) -> list[TokenSequence]:
    if request.context is None:
        return encoder.rolling(request.answer, request.item)
    return [encoder.pair(request.context, request.answer, request.item)]


def _hash_of(requests: Iterable[Request]) -> str:
    """xxh3_128 of all texts, each with its length before it."""
    digest = xxhash.xxh3_128()
    for context, answer, _ in requests:
        for text in (context, answer):
            data = (text or "").encode(errors="surrogatepass")
            digest.update(f"{-1 if text is None else len(data)}\n".encode() + data)
    return digest.hexdigest()


def _save(path: Path, made: Made) -> None:
    flat = list(chain.from_iterable(made))
    arrays = {
        "ids": chain.from_iterable(sequence.tokens for sequence in flat),
        "lengths": (len(sequence.tokens) for sequence in flat),
        "starts": (sequence.start for sequence in flat),
        "counts": (len(one) for one in made),
    }
    save_file({name: np.fromiter(values, dtype=np.int32) for name, values in arrays.items()}, path)


def _load(path: Path) -> Made:
    arrays = load_file(path)
    cuts = pairwise(np.cumsum([0, *arrays["lengths"]]).tolist())
    starts = arrays["starts"].tolist()
    flat = (
        TokenSequence(tuple(arrays["ids"][a:b].tolist()), start) for (a, b), start in zip(cuts, starts, strict=True)
    )
    return [list(islice(flat, count)) for count in arrays["counts"].tolist()]
