"""Text as the rows that data sets have, and as token ids."""

from __future__ import annotations

import re
from typing import Any


def joined(text: str, joiner: str) -> str:
    """The lines of a text (newlines kept, blank ones emptied) with `joiner` between them; without one, the text.

    Two newlines are what papers put between the rows of WikiText.
    """
    if not joiner:
        return text
    rows = re.findall(r"[^\n]*\n|[^\n]+", text)
    return joiner.join(row if row.strip() else "" for row in rows)


def bare_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text and nothing else: no BOS, no EOS, no warning about its length."""
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
