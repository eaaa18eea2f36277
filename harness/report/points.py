"""The rows that pictures and advice are made from: one point per run and arm, in one metric a task.

A panel holds what may be compared: one model, subset and task, scored alike. Arms that serve as controls (noise draws,
repeated calibration) are no settings to choose from and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.report.numbers import missing
from harness.report.runs import DONE
from harness.report.sweep import cohorts, flat

METRICS = ("nll", "kl", "margin", "acc_norm", "acc")  # which one speaks for a task that lacks the primary metric
SCHEME_FIELDS = ("method", "precision", "group_size")  # a report row has them per block
BLOCKS = ("ffn", "attention")


@dataclass(frozen=True)
class Panel:
    """Points that may be compared with each other. `rows`: one per run and arm, with columns added by `points`."""

    title: str
    model: str
    subset: str
    task: str
    metric: str
    unit: str
    rows: pd.DataFrame


def block_of(arm: str) -> str:
    """`ffn`, `attention`, or `both` for arms (or players) of several blocks or none in particular."""
    blocks = {part.split(".")[0] for part in arm.split("+")}
    return blocks.pop() if len(blocks) == 1 and blocks <= set(BLOCKS) else "both"


def is_control(arm: str) -> bool:
    """Arms that measure an error, not a setting: noise draws, matched noise, random sites, calibration draws."""
    return "@" in arm or "noise" in arm or arm.startswith(("random", "spliced"))


def whole_tasks(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of finished runs over all items of a task, bands left out."""
    return frame[(frame["status"] == DONE) & (frame["band"].isna() | (frame["band"] == ""))]


def speaking_metric(metrics: Sequence[str], primary: str) -> str:
    """The primary metric where a task has it, else the most telling one that it has."""
    for name in (primary, *METRICS):
        if name in metrics:
            return name
    return metrics[0]


def points(frame: pd.DataFrame, primary: str, swept: Sequence[str] = ()) -> pd.DataFrame:
    """Losses of all arms in each task's speaking metric, with columns block, setting, cohort. `swept`: as columns."""
    rows = whole_tasks(frame)
    rows = rows[(rows["arm"] != "base") & ~rows["arm"].map(is_control) & rows["loss"].notna()]
    if rows.empty:
        return rows.assign(block="", setting="", cohort=0)
    chosen = rows.groupby(["subset", "task"])["metric"].transform(lambda m: speaking_metric(list(m.unique()), primary))
    rows = rows[rows["metric"] == chosen]
    rows = rows.assign(block=rows["arm"].map(block_of), setting=_settings(rows, swept), cohort=cohorts(rows))
    same = ["model", "subset", "task", "cohort", "arm", "setting", "loss"]  # an arm that a sweep does not touch
    return rows.drop_duplicates(same, ignore_index=True)


def panels(rows: pd.DataFrame) -> Iterator[Panel]:
    """Points by model, task and way of scoring."""
    several = rows["model"].nunique() > 1
    for (model, subset, task, cohort), own in rows.groupby(["model", "subset", "task", "cohort"], sort=False):
        apart = rows[(rows["model"] == model) & (rows["subset"] == subset) & (rows["task"] == task)]
        title = f"{subset} \N{MIDDLE DOT} {task}" + (f" \N{MIDDLE DOT} {model}" if several else "")
        title += f" (scored otherwise, {int(cohort) + 1})" if apart["cohort"].nunique() > 1 else ""
        first = own.iloc[0]
        yield Panel(title, model, subset, task, first["metric"], _text(first["unit"]), own)


def _settings(rows: pd.DataFrame, swept: Sequence[str]) -> list[str]:
    methods = pd.unique(rows[[f"{block}_method" for block in BLOCKS]].to_numpy().ravel())
    several = len({m for m in methods if not missing(m)} - {"keep"}) > 1
    others = [name for name in swept if not _in_scheme(name) and name != "model.name"]
    return [setting(row, several, others) for row in rows.to_dict("records")]


def _in_scheme(name: str) -> bool:
    return name.split(".")[-1] in SCHEME_FIELDS and name.split(".")[:-1] in (["quant", b] for b in BLOCKS)


def setting(row: Any, with_method: bool, others: Sequence[str] = ()) -> str:
    """`int4 g64`, `ffn int4 g32, attention int4 g64`, with further swept settings behind it."""
    texts = {block: _scheme(row, block, with_method) for block in BLOCKS}
    texts = {block: text for block, text in texts.items() if text}
    unlike = len(set(texts.values())) > 1
    own = [f"{block} {text}" for block, text in texts.items()] if unlike else list(texts.values())[:1]
    acting = [name for name in others if acts(name, row["arm"]) and not missing(row[name])]
    return ", ".join([*own, *(f"{_last(name, others)} {row[name]}" for name in acting)]) or str(row["arm"])


def acts(name: str, arm: str) -> bool:
    """Whether a setting can change an arm: those of the other block cannot."""
    part = name.split(".")
    return part[0] != "quant" or part[1] not in BLOCKS or block_of(arm) in ("both", part[1])


def _last(name: str, others: Sequence[str]) -> str:
    last = name.split(".")[-1]
    return last if sum(other.split(".")[-1] == last for other in others) == 1 else name


def _scheme(row: Any, block: str, with_method: bool) -> str:
    method, precision, group = (row[f"{block}_{name}"] for name in SCHEME_FIELDS)
    if missing(method) or method == "keep" or missing(precision):
        return ""
    size = "" if missing(group) else " per row" if group == -1 else f" g{int(group)}"
    return f"{method} {precision}{size}" if with_method else f"{precision}{size}"


def group_of(row: Any, swept: Sequence[str] = ()) -> int | None:
    """The group size of an arm, in the block whose size is swept if one is; None where blocks differ or have none."""
    blocks = [block for block in BLOCKS if f"quant.{block}.group_size" in swept] or BLOCKS
    sizes = {int(row[f"{b}_group_size"]) for b in blocks if not missing(row[f"{b}_group_size"])}
    return sizes.pop() if len(sizes) == 1 else None


def pareto(bits: Sequence[float], losses: Sequence[float]) -> list[int]:
    """Positions of points that no other beats in both, from the fewest bits up. Equal points: the first."""
    order = sorted(range(len(bits)), key=lambda n: (bits[n], losses[n], n))
    front, best = [], np.inf
    for n in order:
        if losses[n] < best:
            front.append(n)
            best = losses[n]
    return front


def front_of(panel: Panel) -> pd.DataFrame:
    """A panel's Pareto front over bits a weight and loss, from the fewest bits up.

    It ends with the first point whose loss is not told from zero: what lies lower still is noise.
    """
    rows = panel.rows[panel.rows["bits_per_weight"].notna()]
    front = rows.iloc[pareto(rows["bits_per_weight"].tolist(), rows["loss"].tolist())]
    lossless = np.flatnonzero(front["loss_lo"].fillna(np.inf) <= 0)
    return front.iloc[: lossless[0] + 1] if len(lossless) else front


def primary_metric(configs: Sequence[dict[str, Any]]) -> str:
    """The declared metric that most runs agree on."""
    names = [str(dict(flat(config)).get("attribute.primary_metric", METRICS[0])) for config in configs]
    return max(names, key=names.count) if names else METRICS[0]


def _text(cell: Any) -> str:
    return "" if missing(cell) else str(cell)
