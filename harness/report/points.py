"""The rows that pictures and advice are made from: one point per run and arm, in one metric a task.

A panel holds what may be compared: one model, subset and task, scored alike. Arms that serve as controls
(harness.words) are no settings to choose from and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.report.rows import Row, column, distinct, grouped
from harness.report.runs import DONE, flat
from harness.report.sweep import cohorts
from harness.scheme import BLOCKS
from harness.words import is_control

METRICS = ("nll", "kl", "margin", "acc_norm", "acc")  # which one speaks for a task that lacks the primary metric
SCHEME_FIELDS = ("method", "precision", "group_size")  # a report row has them per block
CHOSEN = ("quant.", "calib.")  # settings to choose between; models and protocols are set apart, not chosen


@dataclass(frozen=True)
class Panel:
    """Points that may be compared with each other. `rows`: one per run and arm, with cells added by `points`."""

    title: str
    model: str
    subset: str
    task: str
    metric: str
    unit: str
    rows: list[Row]


def block_of(arm: str) -> str:
    """`ffn`, `attention`, or `both` for arms (or players) of several blocks or none in particular."""
    blocks = {part.split(".")[0] for part in arm.split("+")}
    return blocks.pop() if len(blocks) == 1 and blocks <= set(BLOCKS) else "both"


def whole_tasks(rows: Iterable[Row]) -> list[Row]:
    """Rows of finished runs over all items of a task, bands left out."""
    return [row for row in rows if row["status"] == DONE and row["band"] is None]


def speaking_metric(metrics: Sequence[str], primary: str) -> str:
    """The primary metric where a task has it, else the most telling one that it has."""
    return next((name for name in (primary, *METRICS) if name in metrics), metrics[0])


def points(rows: Sequence[Row], primary: str, swept: Sequence[str] = ()) -> list[Row]:
    """Losses of all arms in each task's speaking metric, with cells block, setting, cohort. `swept`: as columns."""
    rows = [row for row in whole_tasks(rows) if row["arm"] != "base" and not is_control(row["arm"])]
    rows = [row for row in rows if row["loss"] is not None]
    speaking = {
        task: speaking_metric(distinct(own, "metric"), primary) for task, own in grouped(rows, "subset", "task").items()
    }
    rows = [row for row in rows if row["metric"] == speaking[row["subset"], row["task"]]]
    methods = {row[f"{block}_method"] for row in rows for block in BLOCKS} - {None, "keep"}
    others = [name for name in swept if name.startswith(CHOSEN) and not _in_scheme(name) and not is_seed(name)]
    found: dict[tuple[Any, ...], Row] = {}
    for row, cohort in zip(rows, cohorts(rows), strict=True):
        more = {"block": block_of(row["arm"]), "setting": setting(row, len(methods) > 1, others), "cohort": cohort}
        same = (row["model"], row["subset"], row["task"], cohort, row["arm"], more["setting"], row["loss"])
        found.setdefault(same, {**row, **more})  # an arm that a sweep does not touch is there once
    return list(found.values())


def panels(rows: Sequence[Row]) -> Iterator[Panel]:
    """Points by model, task and way of scoring."""
    several = len(distinct(rows, "model")) > 1
    for where, apart in grouped(rows, "model", "subset", "task").items():
        model, subset, task = map(str, where)
        title = f"{subset} \N{MIDDLE DOT} {task}" + (f" \N{MIDDLE DOT} {model}" if several else "")
        groups = grouped(apart, "cohort")
        for number, own in enumerate(groups.values(), start=1):
            named = f"{title} (scored otherwise, {number})" if len(groups) > 1 else title
            yield Panel(named, model, subset, task, own[0]["metric"], own[0]["unit"] or "", own)


def is_seed(name: str) -> bool:
    """Whether a setting is a draw: runs that differ in nothing else are repeats of one setting."""
    return name.split(".")[-1] in ("seed", "seeds")


def _in_scheme(name: str) -> bool:
    return name.split(".")[-1] in SCHEME_FIELDS and name.split(".")[:-1] in (["quant", b] for b in BLOCKS)


def setting(row: Row, with_method: bool, others: Sequence[str] = ()) -> str:
    """`int4 g64`, `ffn int4 g32, attention int4 g64`, with further swept settings behind it."""
    texts = {block: _scheme(row, block, with_method) for block in BLOCKS}
    texts = {block: text for block, text in texts.items() if text}
    unlike = len(set(texts.values())) > 1
    own = [f"{block} {text}" for block, text in texts.items()] if unlike else list(texts.values())[:1]
    acting = [name for name in others if acts(name, row["arm"]) and row[name] is not None]
    return ", ".join([*own, *(f"{_last(name, others)} {row[name]}" for name in acting)]) or str(row["arm"])


def acts(name: str, arm: str) -> bool:
    """Whether a setting can change an arm: those of the other block cannot."""
    part = name.split(".")
    return part[0] != "quant" or part[1] not in BLOCKS or block_of(arm) in ("both", part[1])


def _last(name: str, others: Sequence[str]) -> str:
    last = name.split(".")[-1]
    return last if sum(other.split(".")[-1] == last for other in others) == 1 else name


def _scheme(row: Row, block: str, with_method: bool) -> str:
    method, precision, group = (row[f"{block}_{name}"] for name in SCHEME_FIELDS)
    if method in (None, "keep") or precision is None:
        return ""
    size = "" if group is None else " per row" if group == -1 else f" g{int(group)}"
    return f"{method} {precision}{size}" if with_method else f"{precision}{size}"


def group_of(row: Row, swept: Sequence[str] = ()) -> int | None:
    """The group size of an arm, in the block whose size is swept if one is; None where blocks differ or have none."""
    blocks = [block for block in BLOCKS if f"quant.{block}.group_size" in swept] or BLOCKS
    sizes = {int(row[f"{b}_group_size"]) for b in blocks if row[f"{b}_group_size"] is not None}
    return sizes.pop() if len(sizes) == 1 else None


def pareto(bits: Sequence[float], losses: Sequence[float]) -> list[int]:
    """Positions of points that no other beats in both, from the fewest bits up. Equal points: the first."""
    order = sorted(range(len(bits)), key=lambda n: (bits[n], losses[n], n))
    front, best = [], float("inf")
    for n in order:
        if losses[n] < best:
            front.append(n)
            best = losses[n]
    return front


def front_of(panel: Panel) -> list[Row]:
    """A panel's Pareto front over bits a weight and loss, from the fewest bits up.

    It ends with the first point whose loss is not told from zero: what lies lower still is noise.
    """
    rows = sized(panel.rows)
    front = [rows[n] for n in pareto(column(rows, "bits_per_weight"), column(rows, "loss"))]
    noise = (n for n, row in enumerate(front) if row["loss_lo"] is not None and row["loss_lo"] <= 0)
    return front[: next(noise, len(front)) + 1]


def sized(rows: Sequence[Row]) -> list[Row]:
    """Rows whose bits are known."""
    return [row for row in rows if row["bits_per_weight"] is not None]


def primary_metric(configs: Sequence[dict[str, Any]]) -> str:
    """The declared metric that most runs agree on."""
    names = [str(dict(flat(config)).get("attribute.primary_metric", METRICS[0])) for config in configs]
    return max(names, key=names.count) if names else METRICS[0]
