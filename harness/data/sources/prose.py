"""Running text: Moby Dick for perplexity, State of the Union addresses for calibration (public domain, CC0).

A document begins wherever `DOCUMENT_START` matches: chapters of the novel, single addresses.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT_START = {"moby_dick": r"(?m)^CHAPTER \d+\. ", "sotu": r"(?<=\n\n)"}
CHAPTERS = 28  # up to the appearance of Ahab: 255,231 characters
ADDRESSES = 12
LONGEST_ADDRESS = 60_000  # characters; the two written messages above it would be half of the cut


def documents(text: str, start: str) -> list[str]:
    """The text cut before every match of `start`; joined again they give the text."""
    cuts = [m.start() for m in re.finditer(start, text) if m.start() > 0]
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def moby_dick(registry: Path) -> str:
    """The first chapters, byte for byte."""
    chapters = documents(_read(registry, "moby_dick.txt"), DOCUMENT_START["moby_dick"])
    return "".join(chapters[:CHAPTERS])


def sotu(registry: Path) -> str:
    """Twelve addresses spread evenly over 1945 to 2021, a blank line between them."""
    addresses = _read(registry, "sotu_1945_2021.txt").strip().split("\n\n")
    short = [address for address in addresses if len(address) <= LONGEST_ADDRESS]
    drawn = [short[i * (len(short) - 1) // (ADDRESSES - 1)] for i in range(ADDRESSES)]
    return "\n\n".join(drawn) + "\n"


def _read(registry: Path, name: str) -> str:
    return (registry / "public-domain-prose" / name).read_bytes().decode("utf-8")
