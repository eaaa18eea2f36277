"""Loss against popularity: does quantizing cost rare facts more?

    python experiments/long_tail/slope.py outputs/long_tail/RUN_ID [--chance 0.25] [--out slopes.csv]

For every task with a popularity, arm and metric: ordinary least squares of an item's loss (arm against base) on log10
popularity,

    loss_i = a + b log10(popularity_i) + e_i

with the standard error of b clustered by entity (CR1: sandwich, G/(G-1) (N-1)/(N-2)) and Student's t on G-1 degrees of
freedom. b < 0: rare facts lose more; -b is what a tenfold rarer entity loses beside. Only bands where base is at least
10 points above chance count (others have nothing to lose); which they are is in column `bands`. Items without a
popularity above zero are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

LEAST_ACCURACY = 0.1  # of base above chance
KEYS = ["subset", "task", "item_id"]


def slope(x_N: np.ndarray, y_N: np.ndarray, entity_N: np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """(b, low, high), clustered by entity."""
    design_N2 = np.column_stack([np.ones(len(x_N)), x_N])
    inverse_22 = np.linalg.inv(design_N2.T @ design_N2)
    beta_2 = inverse_22 @ design_N2.T @ y_N
    score_N2 = design_N2 * (y_N - design_N2 @ beta_2)[:, None]
    _, group_N = np.unique(entity_N, return_inverse=True)
    groups, items = int(group_N.max()) + 1, len(x_N)
    score_G2 = np.stack([np.bincount(group_N, column) for column in score_N2.T], axis=1)
    factor = groups / (groups - 1) * (items - 1) / (items - 2)
    covariance_22 = factor * inverse_22 @ (score_G2.T @ score_G2) @ inverse_22
    half = stats.t.ppf((1 + level) / 2, groups - 1) * np.sqrt(covariance_22[1, 1])
    return float(beta_2[1]), float(beta_2[1] - half), float(beta_2[1] + half)


def slopes(items: pd.DataFrame, questions: pd.DataFrame, chance: float) -> pd.DataFrame:
    """A row for every task, arm and metric of a run's items.parquet."""
    known = questions[questions["popularity"] > 0]
    facts = items.merge(known[[*KEYS, "popularity"]], on=KEYS)
    rows: list[dict[str, Any]] = []
    for (subset, task), own in facts.groupby(["subset", "task"], sort=False):
        bands = mastered(own, chance)
        own = own[own["band"].isin(bands)]
        rows += [{"subset": subset, "task": task, "bands": " ".join(bands), **row} for row in _by_arm(own)]
    return pd.DataFrame(rows)


def mastered(items: pd.DataFrame, chance: float) -> list[str]:
    """Bands of a task where base is far enough above chance."""
    base = items[(items["arm"] == "base") & (items["metric"] == "acc")].groupby("band")["value"].mean()
    return [str(band) for band in base.index[base >= chance + LEAST_ACCURACY]]


def _by_arm(items: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for metric in ("nll", "kl", "prob", "acc"):
        table = items[items["metric"] == metric].pivot(
            index=["item_id", "doc_id", "popularity"], columns="arm", values="value"
        )
        for arm in [name for name in table if name != "base" and not str(name).startswith("noise.")]:
            change_N = (table[arm] - table["base"]).to_numpy()
            loss_N = -change_N if metric in ("prob", "acc") else change_N
            popularity_N = table.index.get_level_values("popularity").to_numpy(dtype=float)
            entity_N = table.index.get_level_values("doc_id").to_numpy()
            b, low, high = slope(np.log10(popularity_N), loss_N, entity_N)
            counts = {"n_items": len(loss_N), "n_entities": len(set(entity_N))}
            yield {"metric": metric, "arm": arm, **counts, "loss": loss_N.mean(), "slope": b, "lo": low, "hi": high}


def main() -> None:
    """Print and write the slopes of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--chance", type=float, default=0.25)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = slopes(
        pd.read_parquet(args.run / "items.parquet"), pd.read_parquet(args.run / "questions.parquet"), args.chance
    )
    print(found.to_string(index=False, float_format="{:+.4f}".format))
    if args.out:
        found.to_csv(args.out, index=False, lineterminator="\r\n")


if __name__ == "__main__":
    main()
