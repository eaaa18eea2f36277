"""What the base model knows of the shipped suites: counts, chance and base accuracy by task and band.

    python experiments/suites/base.py outputs/standard/RUN_ID --csv experiments/suites/base.csv

Chance is the mean of 1 / choices over the rows of a suite's file. `room`: base accuracy less chance; below 0.1 a task
or band is left out of attribution.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

from harness.report.stored import read_report
from harness.score.library import SUITES

METRICS = ("acc", "nll")


def chance() -> pd.DataFrame:
    """By task and band ("" for all of a task), over all rows of the files that this run scored."""
    rows = [
        {"task": f"qh_{path.stem}", "band": band, "chance": 1 / len(row["choices"])}
        for path in sorted(SUITES.glob("*.jsonl"))
        for row in map(json.loads, path.read_text("utf-8").splitlines())
        for band in ("", row["band"])
    ]
    return pd.DataFrame(rows).groupby(["task", "band"], as_index=False)["chance"].mean()


def base_rows(folder: Path) -> pd.DataFrame:
    """Accuracy and nll of base beside chance, by task and band."""
    report = read_report(folder / "report.csv").assign(band=lambda table: table["band"].fillna(""))
    base = report[(report["arm"] == "base") & report["metric"].isin(METRICS)]
    keys = ["subset", "task", "band", "n_items", "n_documents"]
    wide = base.pivot_table(index=keys, columns="metric", values="value", sort=False).reset_index()
    found = wide.dropna(subset=["acc"]).merge(chance(), on=["task", "band"], how="inner")
    whole = found.groupby("task")["n_items"].transform("max")
    found = found[(found["band"] == "") | (found["n_items"] < whole)]  # without a band that is all of a task
    return found.assign(room=found["acc"] - found["chance"])


def main() -> None:
    """Write the table and print it as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    found = base_rows(asked.folder)
    if asked.csv:
        found.to_csv(asked.csv, index=False, float_format="%.6g")
    lines = ["| task | band | items | documents | chance | base acc | room | base nll |", "|---" * 8 + "|"]
    for row in found.itertuples():
        figures = " | ".join(f"{value:.3f}" for value in (row.chance, row.acc, row.room, row.nll))
        lines.append(f"| {row.task} | {row.band or 'all'} | {row.n_items} | {row.n_documents} | {figures} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
