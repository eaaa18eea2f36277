"""What scoring yields: per-item values of one metric of one task, for all arms side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from harness.packs import TokenSequence
from harness.stream import Scores

WINDOW = "window"  # and a number: the document of a window where a text does not say what a document is


@dataclass
class Measure:
    """Values of one metric on the same items in every arm. Weights make the mean one over tokens where that is due."""

    subset: str
    task: str
    metric: str
    unit: str
    higher_is_better: bool
    values_AN: np.ndarray
    items: Sequence[str]
    documents: Sequence[str]
    bands: Sequence[str]
    n_tokens: np.ndarray  # scored tokens an item
    weights_N: np.ndarray  # weight of an item in the mean
    worst: float = float("nan")  # the value of a model that knows nothing: uniform nll, chance accuracy
    is_text: bool = False  # running text, whose nll is also shown as perplexity
    kl_AN: np.ndarray | None = None  # mean KL(base || arm) over the item's scored tokens
    agree_AN: np.ndarray | None = None  # share of them where the arm's first choice is base's
    controls: frozenset[str] = frozenset()  # bands to compare with: rows of their own, no part of the task's mean


def bands(measure: Measure) -> list[str]:
    """The task first, as "", then each band by itself."""
    return ["", *sorted({band for band in measure.bands if band})]


def in_band(measure: Measure, band: str) -> np.ndarray:
    """Which items belong to a band; "" is the task: all but its controls."""
    return np.array([own == band if band else own not in measure.controls for own in measure.bands])


def of_task(measure: Measure) -> Measure:
    """The measure without its controls."""
    if not measure.controls:
        return measure
    chosen = in_band(measure, "")
    lists = {
        name: [value for value, kept in zip(getattr(measure, name), chosen, strict=True) if kept]
        for name in ("items", "documents", "bands")
    }
    arrays = {
        name: None if (values := getattr(measure, name)) is None else values[..., chosen]
        for name in ("values_AN", "n_tokens", "weights_N", "kl_AN", "agree_AN")
    }
    return replace(measure, **lists, **arrays, controls=frozenset())


@dataclass
class Summary:
    """A metric that is no mean over items (F1, correlation, word perplexity): one value an arm.

    `weighted`, where it is cheap: item weights [R, N] to values [R, A], so that documents can be resampled.
    """

    subset: str
    task: str
    metric: str
    unit: str
    higher_is_better: bool
    value_A: np.ndarray
    n_items: int
    documents: Sequence[str] = ()
    weighted: Callable[[np.ndarray], np.ndarray] | None = None
    band: str = ""  # of these items only; "" is the whole task


@dataclass
class Results:
    """All measures of one task, and the protocol they were made under."""

    measures: list[Measure]
    summaries: list[Summary] = field(default_factory=list)
    protocol: dict[str, Any] = field(default_factory=dict)
    data_hash: str = ""
    template_hash: str = ""
    popularity: Sequence[float | None] = ()  # of every item, where it is known
    shots: Sequence[Sequence[int]] = ()  # of every item: rows of its examples


class Scorable(Protocol):
    """A task or text: sequences to score, and what their scores mean."""

    subset: str
    name: str
    group: str  # what was asked for, where that name stands for several tasks (mmlu); else empty
    sequences: list[TokenSequence]
    is_text: bool  # running text in windows, not questions

    @property
    def item_documents(self) -> list[str]:
        """The document of every item that the task's mean is over."""
        ...

    @property
    def metrics(self) -> Sequence[str]:
        """Names of the metrics that may come of it item by item."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of the sequences and of what turns their scores into values."""
        ...

    def results(self, scores: Scores) -> Results:
        """Measures from the scores of `sequences`, slots in the same order."""
        ...


def digest(value: Any) -> str:
    """Sixteen hex digits of a value's JSON form."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def by_sequence(values_AS: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums over each sequence's slots: [arms, sequences]. `starts` as from `packs.slots`."""
    return np.add.reduceat(values_AS, starts[:-1], axis=1) if len(starts) > 1 else values_AS[:, :0]
