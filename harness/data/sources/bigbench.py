"""Social and physical reasoning from BIG-bench (Apache-2.0): social_iqa and physical_intuition, as they are.

BIG-bench asks that its data stay out of training corpora; PROVENANCE.md carries its canary.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from harness.data.items import Item

SOCIAL_ITEMS = 900


def social_situations(registry: Path) -> list[Item]:
    """900 questions on what people feel, want and do; three answers. The document is the situation."""
    return _items(registry, "social_iqa", n_choices=3)[:SOCIAL_ITEMS]


def physical_intuition(registry: Path) -> list[Item]:
    """Questions of school physics; mostly four answers."""
    return _items(registry, "physical_intuition")


def _items(registry: Path, task: str, n_choices: int | None = None) -> list[Item]:
    """Shuffled; a question that occurs twice is asked once."""
    examples = json.loads((registry / "bigbench" / f"{task}.json").read_text(encoding="utf-8"))["examples"]
    once = list({example["input"]: example for example in examples}.values())
    random.Random(task).shuffle(once)
    fair = [example for example in once if n_choices in (None, len(example["target_scores"]))]
    return [_item(example) for example in fair]


def _item(example: dict) -> Item:
    text, scores = example["input"].strip(), example["target_scores"]
    situation, _, question = text.rpartition(". ")
    choices = tuple(scores)
    gold = max(range(len(choices)), key=lambda i: scores[choices[i]])
    return Item(f"{text}\nAnswer:", choices, gold, situation or question, "all")
