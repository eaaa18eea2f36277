"""Keep a finished run as an experiment's record: its CSV files, its pictures, and tables for a README.

    python experiments/record.py outputs/int4_split/RUN_ID experiments/ffn_share

Writes report.csv (its column `config` once, as config.json; no bands of noise arms), groups.csv, sensitivity.csv,
attribution.csv and pictures into the folder, and prints Markdown tables of losses, shares and claimed shares
(`attribute.claims`).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pandas as pd

from harness.attribute import read_effects
from harness.report.attribution_plots import draw_all
from harness.report.stored import read_report, write_table

ATTRIBUTED = ("nll", "kl")


def losses(report: pd.DataFrame) -> str:
    """A Markdown table: a row per task and metric, a column per arm."""
    rows = report[report["band"].isna() & report["metric"].isin(["nll", "perplexity", "acc", "kl"])]
    arms = [a for a in dict.fromkeys(rows["arm"]) if a != "base" and not a.startswith(("noise.", "all-"))]
    lines = ["| subset | task | metric | items | base | " + " | ".join(arms) + " |", "|---" * (5 + len(arms)) + "|"]
    for (subset, task, metric), group in rows.groupby(["subset", "task", "metric"], sort=False):
        by_arm = {row["arm"]: row for row in group.to_dict("records")}
        base = by_arm["base"]
        cells = [_cell(by_arm[arm]) for arm in arms]
        lines.append(
            f"| {subset} | {task} | {metric} | {base['n_items']} | {base['value']:.4g} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def _cell(row: dict) -> str:
    interval = f" [{row['loss_lo']:+.3f}, {row['loss_hi']:+.3f}]" if pd.notna(row["loss_lo"]) else ""
    verdict = f" {row['verdict']}" if pd.notna(row["verdict"]) else ""
    return f"{row['loss']:+.4f}{interval}{verdict}"


def shares(effects: pd.DataFrame) -> str:
    """A Markdown table: every player's alone, restored, mean, share and mean loss by weight, for nll and KL."""
    rows = effects[effects["metric"].isin(ATTRIBUTED)].to_dict("records")
    parts: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        parts.setdefault((row["subset"], row["task"], row["metric"], row["player"]), {})[row["kind"]] = row
    head = "| subset | task | metric | player | alone | restored | mean (Shapley) | share | per 10^9 weights |"
    lines = [head, "|---" * 9 + "|"]
    for key, kinds in parts.items():
        if "shapley" in kinds:
            mean, (alone, restored) = kinds["shapley"], (kinds.get(k, {}).get("loss") for k in ("alone", "restored"))
            pair = " | ".join("" if v is None else f"{v:+.4f}" for v in (alone, restored))
            weight = mean["loss_per_gweight"]
            share = f"{_share(mean)} | {weight:.2f}" if pd.notna(weight) else f"{_share(mean)} | "
            lines.append(f"| {' | '.join(map(str, key))} | {pair} | {_interval(mean, 'loss', 'lo', 'hi')} | {share} |")
    return "\n".join(lines)


def claims(effects: pd.DataFrame) -> str:
    """A Markdown table: a player's part minus a claimed share of the total, for nll and KL; empty without claims."""
    rows = effects[effects["metric"].isin(ATTRIBUTED) & (effects["kind"] == "contrast")].to_dict("records")
    lines = ["| subset | task | metric | player | part minus claimed share | verdict |", "|---" * 6 + "|"]
    for row in rows:
        where = " | ".join(row[name] for name in ("subset", "task", "metric", "player"))
        verdict = row["verdict"] if pd.notna(row["verdict"]) else ""
        lines.append(f"| {where} | {_interval(row, 'loss', 'lo', 'hi')} | {verdict} |")
    return "\n".join(lines) if rows else ""


def _interval(row: dict, value: str, low: str, high: str) -> str:
    text = f"{row[value]:+.4f}"
    return f"{text} [{row[low]:+.3f}, {row[high]:+.3f}]" if pd.notna(row[low]) else text


def _share(row: dict) -> str:
    if pd.isna(row["share"]):
        return "withheld" if isinstance(row["reason"], str) else ""
    return f"{row['share']:.2f} [{row['share_lo']:.2f}, {row['share_hi']:.2f}]"


def main() -> None:
    """Copy, draw, print."""
    run, folder = map(Path, sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run / "attribution.csv", folder / "attribution.csv")
    report = read_report(run / "report.csv")
    (folder / "config.json").write_text(report["config"][0] + "\n", encoding="utf-8")  # the same in every row
    noise_by_band = report["arm"].str.startswith("noise.") & report["band"].notna()  # many rows, and read by none
    write_table(report.loc[~noise_by_band].drop(columns="config"), folder / "report.csv")
    shutil.copyfile(run / "sensitivity.csv", folder / "sensitivity.csv")
    if (run / "groups.csv").is_file():
        write_table(read_report(run / "groups.csv").drop(columns="config"), folder / "groups.csv")
    effects = [effect for effect in read_effects(folder / "attribution.csv") if effect.metric in ATTRIBUTED]
    draw_all(effects, folder)
    print(losses(read_report(folder / "report.csv")))
    print()
    attribution = read_report(folder / "attribution.csv")
    print(shares(attribution), claims(attribution), sep="\n\n")


if __name__ == "__main__":
    main()
