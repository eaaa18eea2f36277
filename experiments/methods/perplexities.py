"""A line a run: GPTQ's options, how it was calibrated and scored, and the perplexity of base and `ffn`.

python experiments/methods/perplexities.py --csv experiments/methods/gptq.csv outputs/gptq_int4_ffn_only/*
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from harness.report.stored import read_report

OPTIONS = {
    "quant.ffn": ("act_order", "true_sequential", "damp"),
    "calib": ("draw", "seeds"),
    "engine": ("batch_tokens",),
}
ORDER = ["windows", "act_order", "true_sequential", "damp", "draw", "seeds", "batch_tokens"]


def line(folder: Path) -> dict[str, Any]:
    """One finished run."""
    report = read_report(folder / "report.csv")
    config = json.loads((folder / "attempts" / "0" / "config.json").read_text("utf-8"))
    found: dict[str, Any] = {}
    for group, names in OPTIONS.items():
        node = config
        for part in group.split("."):
            node = node[part]
        found |= {name: node[name] for name in names}
    of_arm = report[report["metric"] == "perplexity"].set_index("arm")["value"]
    windows = report.loc[report["metric"] == "nll", "n_items"].iloc[0]
    return {**found, "windows": windows, "base": of_arm["base"], "ffn": of_arm["ffn"], "run_id": folder.name}


def main() -> None:
    """Write the table, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    asked = parser.parse_args()
    table = pd.DataFrame([line(folder) for folder in asked.folders if (folder / "report.csv").is_file()])
    table = table.astype({"seeds": str}).sort_values(ORDER)[[*ORDER, "base", "ffn", "run_id"]]
    table.to_csv(asked.csv, index=False, float_format="%.6g")
    print(table.to_string(index=False, float_format="%.4f"))


if __name__ == "__main__":
    main()
