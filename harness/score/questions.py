"""One row of a task as a question, with what the task file's `metadata` says of its rows.

| key | names |
|---|---|
| `document` | the field that holds what a bootstrap resamples; `entity` is another word for it |
| `band` | the field that holds the band in which the row is reported |
| `popularity` | a field with a number; where no band is named, its thirds are bands: rare, middling, popular |
| `closed_book` | the task that asks the same rows without their passage: row by row they are the same documents |

A row that names no document is its own. Nothing but these keys is looked at; lm-eval's own tasks have none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance

from harness.errors import UserError

BANDS = ("rare", "middling", "popular")


@dataclass
class Question:
    """One document of a task: its requests and what is known of it."""

    doc: dict[str, Any]
    instances: list[Any]  # lm_eval Instances
    gold: list[int]  # right choices; empty where the task has none
    item: str
    document: str
    band: str
    popularity: float | None = None
    shots: tuple[int, ...] = ()  # rows of its few-shot examples among those they are drawn from


def questions(task: Any, shots: Sequence[tuple[int, ...]]) -> Iterator[Question]:
    """Questions of a task whose requests are built. `shots`: of every question, or none at all."""
    by_doc: dict[int, list[Instance]] = defaultdict(list)
    for instance in task.instances:
        by_doc[instance.doc_id].append(instance)
    facts = _Facts(task)
    for n, (doc_id, instances) in enumerate(by_doc.items()):
        instances.sort(key=lambda instance: instance.idx)
        doc = instances[0].doc
        yield Question(
            doc=doc,
            instances=instances,
            gold=_gold(task, doc, str(doc_id)),
            item=str(doc_id),
            document=facts.document(doc, doc_id),
            band=facts.band(doc, doc_id),
            popularity=facts.popularity(doc, doc_id),
            shots=shots[n] if shots else (),
        )


class _Facts:
    """What the metadata of a task says of a row."""

    def __init__(self, task: Any) -> None:
        self.name = task.task_name
        metadata = task.config.metadata or {}
        rows = task.eval_docs
        known = set(rows[0])
        for key in ("document", "entity", "band", "popularity"):
            if key in metadata and metadata[key] not in known:
                fields = ", ".join(sorted(map(str, known)))
                raise UserError(
                    f"eval: task {self.name}: metadata.{key}={metadata[key]}, but its rows have {fields}. "
                    "Name one of them, or leave the key out."
                )
        self._document = metadata.get("document", metadata.get("entity"))
        self._rows_of = metadata.get("closed_book", self.name)
        self._popularity = metadata.get("popularity")
        self.band: Callable[[dict[str, Any], Any], str] = lambda doc, item: ""
        if "band" in metadata:
            self.band = lambda doc, item: str(doc[metadata["band"]])
        elif self._popularity:
            self.band = self._third([self.popularity(row, n) for n, row in enumerate(rows)])

    def document(self, doc: dict[str, Any], item: Any) -> str:
        return str(doc[self._document]) if self._document else f"{self._rows_of} {item}"

    def popularity(self, doc: dict[str, Any], item: Any) -> float | None:
        if not self._popularity:
            return None
        value = doc[self._popularity]
        try:
            return float(value)
        except (TypeError, ValueError):
            raise UserError(
                f"{self.name}, item {item}: metadata.popularity={self._popularity} is no number: {value!r}."
            ) from None

    def _third(self, values: Sequence[float | None]) -> Callable[[dict[str, Any], Any], str]:
        cuts = np.quantile(np.array(values, dtype=float), [1 / 3, 2 / 3])
        return lambda doc, item: BANDS[int((cuts <= self.popularity(doc, item)).sum())]


def _gold(task: Any, doc: dict[str, Any], item: str) -> list[int]:
    """Indices of the right choices; empty where the task has no choices."""
    if task.OUTPUT_TYPE != "multiple_choice":
        return []
    choices = task.doc_to_choice(doc)
    target = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
    gold: list[Any] = [choices.index(t) if isinstance(t, str) and t in choices else t for t in _listed(target)]
    if len(choices) < 2:
        raise UserError(f"{task.task_name}, item {item}: {len(choices)} choice, but at least two are needed.")
    if not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise UserError(f"{task.task_name}, item {item}: one of its choices is empty or no text: {choices}.")
    if not gold or not all(isinstance(g, int) and 0 <= g < len(choices) for g in gold):
        raise UserError(f"{task.task_name}, item {item}: right answer {target!r} is not among {len(choices)} choices.")
    return gold


def _listed(target: Any) -> list[Any]:
    return list(target) if isinstance(target, list) else [target]
