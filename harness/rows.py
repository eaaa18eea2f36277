"""Text files read as rows, the way data sets of text come."""

from __future__ import annotations

import re


def joined(text: str, joiner: str) -> str:
    r"""The lines of a text (newlines kept, blank ones emptied) with `joiner` between them; without one, the text.

    On a command line newlines are written `\n`: `calib.joiner='\n\n'` is what papers put between the rows of WikiText.
    """
    if not joiner:
        return text
    rows = re.findall(r"[^\n]*\n|[^\n]+", text)
    return joiner.replace("\\n", "\n").join(row if row.strip() else "" for row in rows)
