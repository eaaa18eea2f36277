"""Rows as the benchmark files hold them, with the fields that a task needs beside."""

from __future__ import annotations

from datasets import Dataset

RARE, POPULAR = 300, 5_000  # views of the subject's page a month: below, from


def popqa(rows: Dataset) -> Dataset:
    """The first of the possible answers, and a band of popularity."""
    return rows.map(lambda row: {"answer": row["possible_answers"][0], "band": band(row["s_pop"])})


def band(views: int) -> str:
    """rare, middling or popular."""
    if views < RARE:
        return "rare"
    return "popular" if views >= POPULAR else "middling"
