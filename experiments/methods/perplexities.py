"""A line a run: GPTQ's options, how it was calibrated and scored, and the perplexity of base and `ffn`.

    python experiments/methods/perplexities.py --csv experiments/methods/gptq.csv outputs/gptq_int4_ffn_only/*

Folders without a finished run are passed over.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from harness.report.runs import DONE, read_run

QUANT = ("act_order", "true_sequential", "damp")
SETTINGS = (*(f"quant.ffn.{name}" for name in QUANT), "calib.draw", "calib.seeds", "engine.batch_tokens")
ORDER = ["windows", *(name.rpartition(".")[2] for name in SETTINGS)]


def line(folder: Path) -> dict[str, Any] | None:
    """One finished run."""
    run = read_run(folder)
    if run.status != DONE:
        return None
    found = {name.rpartition(".")[2]: run.setting(name) for name in SETTINGS}
    of_arm = run.report[run.report["metric"] == "perplexity"].set_index("arm")["value"]
    windows = run.report.loc[run.report["metric"] == "nll", "n_items"].iloc[0]
    return {**found, "windows": windows, "base": of_arm["base"], "ffn": of_arm["ffn"], "run_id": run.id}


def main() -> None:
    """Write the table, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    asked = parser.parse_args()
    table = pd.DataFrame([found for folder in asked.folders if (found := line(folder))])
    table = table.astype({"seeds": str}).sort_values(ORDER)[[*ORDER, "base", "ffn", "run_id"]]
    table.to_csv(asked.csv, index=False, float_format="%.6g")
    print(table.to_string(index=False, float_format="%.4f"))


if __name__ == "__main__":
    main()
