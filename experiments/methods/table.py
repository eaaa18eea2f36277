"""One row a run: what each method costs in the FFN, in attention and in both, with the bits that it stores.

    python experiments/methods/table.py --csv experiments/methods/methods.csv outputs/sweeps/TIME ...

Reads the runs that the sweeps' jobs ended in, or folders of single runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config import CalibConfig
from harness.report.stored import read_report
from harness.scheme import Scheme
from harness.supported import INTEGERS, wants_inputs

BLOCKS = ("ffn", "attention")
ARMS = (*BLOCKS, "both")
SAID = ("method", "precision", "group_size", "range", "symmetric")  # in columns of their own
PLAIN, PLAIN_CALIB = asdict(Scheme()), asdict(CalibConfig())
SHOWN = (("moby_dick", "nll"), ("moby_dick", "kl"), ("qh_city_country", "kl"), ("qh_adjective_order", "kl"))


def row(folder: Path) -> dict[str, Any]:
    """Scheme, stored bits and losses of a run."""
    report, sites = read_report(folder / "report.csv"), pd.read_csv(folder / "sites.csv")
    config = json.loads(report["config"][0])
    scheme = config["quant"]["ffn"]
    both, label = sites[sites["arm"] == "both"], report.loc[report["arm"] == "both", "ffn_precision"].iloc[0]
    size = both["out_features"] * both["in_features"]
    ranged = scheme["precision"] in INTEGERS and scheme["method"] != "bnb"
    found: dict[str, Any] = {
        "method": scheme["method"],
        "precision": label,  # LLM.int8 is w8a8
        "group_size": scheme["group_size"],
        "range": both["realised_range"].iloc[0] if ranged else "",
        "options": " ".join(_options(config)),
        "bits_per_weight": round((both["bits_per_weight"] * size).sum() / size.sum(), 4),
    }
    for block in BLOCKS:
        errors = both[both["block"] == block]
        found[f"{block}_weight_error"] = round(errors["relative_weight_error"].mean(), 4)
    for task, metric in SHOWN:
        own = report[(report["task"] == task) & (report["metric"] == metric) & report["band"].isna()].set_index("arm")
        for arm in ARMS:
            for part in ("loss", "loss_lo", "loss_hi"):
                found[f"{task}_{metric}_{arm}_{part}"] = own[part].get(arm, float("nan"))
    return found | {"run_id": folder.name}


def _options(config: dict[str, Any]) -> Iterator[str]:
    """What differs from the defaults and has no column of its own."""
    yield from (f"{k}={v}" for k, v in config["quant"]["ffn"].items() if k not in SAID and v != PLAIN[k])
    if wants_inputs(Scheme(**config["quant"]["ffn"])):
        yield from (f"calib.{k}={v}" for k, v in config["calib"].items() if k != "keep" and v != PLAIN_CALIB[k])


def runs(folder: Path) -> list[Path]:
    """The run folders that a sweep's jobs ended in; a run's folder itself."""
    if (folder / "report.csv").is_file():
        return [folder]
    jobs = [json.loads(path.read_text("utf-8")) for path in sorted((folder / "jobs").glob("*.json"))]
    return [Path(job["folder"]) for job in jobs if job["status"] == "done"]


def table(rows: pd.DataFrame, task: str, metric: str) -> str:
    """Markdown, the cheapest first, then by the loss of both."""
    lines = [
        "| method | precision | group | range | options | bits | ffn | attention | both |",
        "|---" * 9 + "|",
    ]
    scored = rows[rows[f"{task}_{metric}_both_loss"].notna()]
    for one in scored.sort_values(["bits_per_weight", f"{task}_{metric}_both_loss"]).to_dict("records"):
        cells = [_cell(one, f"{task}_{metric}_{arm}") for arm in ARMS]
        start = [one[name] for name in ("method", "precision", "group_size", "range", "options")]
        start.append(f"{one['bits_per_weight']:.2f}")
        lines.append(f"| {' | '.join(map(str, [*start, *cells]))} |")
    return "\n".join(lines)


def _cell(one: dict[str, Any], name: str) -> str:
    return f"{one[f'{name}_loss']:+.3f} [{one[f'{name}_loss_lo']:+.3f}, {one[f'{name}_loss_hi']:+.3f}]"


def main() -> None:
    """Write every figure, print the prose tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    asked = parser.parse_args()
    rows = pd.DataFrame([row(run) for folder in asked.folders for run in runs(folder)]).drop_duplicates("run_id")
    rows.to_csv(asked.csv, index=False, float_format="%.6g")
    for task, metric in SHOWN:
        print(f"\n{task}, {metric}\n\n{table(rows, task, metric)}")


if __name__ == "__main__":
    main()
