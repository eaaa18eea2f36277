"""The FFN's share by precision and group size, from 2 x 2 runs that scored the same items.

    python experiments/ffn_share/precisions.py outputs/int3_split/* outputs/int4_split/* outputs/int8_split/* \
        --csv experiments/ffn_share/precisions.csv

A row per run, task and metric: the loss of both blocks together, the FFN's share of it (Shapley) and the contrast with
the claimed share, with 95 % intervals, as the runs' attribution.csv have them. Prints prose and cities as Markdown.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from harness.report.stored import read_report, write_table

METRICS = ("nll", "kl")
KINDS = ("total", "shapley", "contrast")


def rows_of(run: Path) -> list[dict]:
    """What a run says of the FFN's share."""
    report = read_report(run / "report.csv")
    both = report[report["arm"] == "both"].iloc[0]
    scheme = {"precision": both["ffn_precision"], "group_size": both["ffn_group_size"], "bits": both["bits_per_weight"]}
    effects = read_report(run / "attribution.csv")
    effects = effects[effects["metric"].isin(METRICS) & effects["kind"].isin(KINDS)]
    found = []
    for (subset, task, metric), own in effects.groupby(["subset", "task", "metric"], sort=False):
        by_kind = {(row["kind"], row["player"]): row for row in own.to_dict("records")}
        total, part = by_kind[("total", "all")], by_kind[("shapley", "ffn")]
        found.append(scheme | {"subset": subset, "task": task, "metric": metric} | _numbers(total, part, by_kind))
    return found


def _numbers(total: dict, part: dict, by_kind: dict) -> dict:
    claimed = by_kind.get(("contrast", "ffn"), {})
    return {
        **{f"total{end}": total[name] for end, name in (("", "loss"), ("_lo", "lo"), ("_hi", "hi"))},
        **{name: part[name] for name in ("share", "share_lo", "share_hi")},
        **{f"contrast{end}": claimed.get(name) for end, name in (("", "loss"), ("_lo", "lo"), ("_hi", "hi"))},
        "verdict": claimed.get("verdict"),
        "reason": part["reason"],
    }


def main() -> None:
    """Gather, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    options = parser.parse_args()
    table = pd.DataFrame([row for run in options.runs if (run / "result.json").is_file() for row in rows_of(run)])
    table = table.sort_values(["bits", "group_size"], kind="stable")
    write_table(table, options.csv)
    print(
        "| precision | group | bits | task | metric | total | FFN share | FFN minus 0.7 of the total |\n"
        + "|---" * 8
        + "|"
    )
    for row in table[table["task"].isin(["moby_dick", "qh_city_country"])].to_dict("records"):
        share = (
            "withheld"
            if pd.isna(row["share"])
            else f"{row['share']:.2f} [{row['share_lo']:.2f}, {row['share_hi']:.2f}]"
        )
        gap = f"{row['contrast']:+.4f} [{row['contrast_lo']:+.4f}, {row['contrast_hi']:+.4f}] {row['verdict']}"
        print(
            f"| {row['precision']} | {row['group_size']} | {row['bits']:.2f} | {row['task']} | {row['metric']} | "
            f"{row['total']:+.4f} [{row['total_lo']:+.3f}, {row['total_hi']:+.3f}] | {share} | {gap} |"
        )


if __name__ == "__main__":
    main()
