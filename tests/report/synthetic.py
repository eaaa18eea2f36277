"""Run folders as a run leaves them, made in milliseconds: losses of two blocks over precisions and group sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.attribute import Game, Scores, arm_losses, attribute, mean_stderr, to_frame
from harness.config import AttributeConfig
from harness.files import RunFolder, to_json
from harness.report.stored import COLUMNS, write_table

ARMS = {"base": (), "ffn": ("ffn",), "attention": ("attention",), "both": ("ffn", "attention")}
SENSITIVITY = {"ffn": 0.2, "attention": 0.1}  # nats at int4, groups of 64
WEIGHTS = {"ffn": 79_626_240, "attention": 26_542_080}
TASKS = {("general", "moby_dick"): (60, 1.0), ("knowledge", "capitals"): (40, 1.5)}  # documents, times the loss
GAME = Game(
    {arm: frozenset(players) for arm, players in ARMS.items()},
    weights=WEIGHTS,
    bytes_saved={block: int(11.75 * weights / 8) for block, weights in WEIGHTS.items()},
)


def bits(precision: str, group: int) -> float:
    """Stored bits of a weight."""
    return float(precision.removeprefix("int")) + (16 / group if group > 0 else 0.02)


def make_config(experiment: str, precision: str, group: int, **changes: Any) -> dict[str, Any]:
    """The part of a run's configuration that reports look at."""
    scheme = {"method": "rtn", "precision": precision, "group_size": group, "keep_columns": 0.0}
    config: dict[str, Any] = {
        "experiment": experiment,
        "model": {"name": "small", "path": ""},
        "quant": {"ffn": dict(scheme), "attention": {**scheme, "group_size": 64}, "overrides": []},
        "design": {"players": "blocks", "arms": "all"},
        "attribute": {"primary_metric": "nll", "margin": 0.01, "level": 0.95, "claims": {"ffn": 0.7}},
        "harness": {"force": False},
        "outputs": "outputs",
    }
    for name, value in changes.items():
        *path, last = name.split(".")
        place = config
        for key in path:
            place = place[key]
        place[last] = value
    return config


def write_run(
    folder: Path,
    precision: str = "int4",
    group: int = 64,
    *,
    seed: int = 0,
    resamples: int = 200,
    cells: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """A finished run. `cells`: report cells to put in every row; `changes`: configuration by dotted name."""
    folder.mkdir(parents=True)
    config = make_config(folder.parent.name, precision, group, **changes)
    options = AttributeConfig(resamples=resamples)
    scores = [_scores(where, size, precision, group, seed) for where, size in TASKS.items()]
    report = _report(scores, options, {"run_id": folder.name, **_run_cells(config), **(cells or {})}, precision, group)
    write_table(report, folder / "report.csv")
    write_table(to_frame(attribute(scores, GAME, options)), folder / "attribution.csv")
    write_table(_sites(precision, group), folder / "sites.csv")
    _items(scores).to_parquet(folder / "items.parquet", index=False)
    result = {"status": "done", "experiment": config["experiment"], "model": "small", "arms": list(ARMS)}
    facts = {"config": config, "seconds": 61.5, "peak_bytes": 2**30, "code_version": "c0de", "harness_version": "0.1.0"}
    versions = {"torch": "2.13.0", "python": "3.11.7"}
    names = ["report.csv", "attribution.csv", "sites.csv", "items.parquet"]
    RunFolder(folder).finish({**result, **facts, "versions": versions}, names)
    return folder


def write_failed(folder: Path, reason: str, precision: str = "int4", group: int = 64, **changes: Any) -> Path:
    """What a failed run leaves."""
    folder.mkdir(parents=True)
    config = make_config(folder.parent.name, precision, group, **changes)
    (folder / "failed.json").write_text(to_json({"reason": reason, "config": config}), encoding="utf-8")
    return folder


def write_partial(folder: Path, precision: str = "int4", group: int = 64) -> Path:
    """What a killed run leaves: a configuration, and tables that nothing vouches for."""
    whole = write_run(folder, precision, group)
    config = json.loads((whole / "result.json").read_text(encoding="utf-8"))["config"]
    (whole / "result.json").unlink()
    (whole / "attempts" / "0").mkdir(parents=True)
    (whole / "attempts" / "0" / "config.json").write_text(to_json(config), encoding="utf-8")
    return whole


def _scores(where: tuple[str, str], size: tuple[int, float], precision: str, group: int, seed: int) -> Scores:
    """nll of every arm. Documents differ in how much they lose; the same documents in every run."""
    documents, factor = size
    rng = np.random.default_rng(documents)
    base_N = rng.normal(3.2, 0.5, documents)
    weight_of = {block: rng.gamma(4.0, 0.25, documents) for block in SENSITIVITY}
    noise = {block: _noise(seed, documents, precision, group if block == "ffn" else 64) for block in SENSITIVITY}
    loss = {block: factor * SENSITIVITY[block] * _growth(block, precision, group) for block in SENSITIVITY}
    values = []
    for players in ARMS.values():
        together = 0.15 * min(loss.values()) if len(players) == 2 else 0
        own_N = sum((loss[player] * weight_of[player] for player in players), np.full(documents, together))
        values.append(base_N + own_N + 0.05 * sum(noise[player] for player in players))
    labels = [f"document{n}" for n in range(documents)]
    return Scores(*where, "nll", list(ARMS), np.array(values), labels, False, worst=10.8)


def _noise(seed: int, documents: int, precision: str, group: int) -> np.ndarray:
    """The same for an arm that a sweep does not touch."""
    return np.random.default_rng([seed, documents, group + 1, int(precision[-1])]).normal(size=documents)


def _growth(block: str, precision: str, group: int) -> float:
    own = group if block == "ffn" else 64
    return 4.2 ** (4 - float(precision.removeprefix("int"))) * ((own if own > 0 else 576) / 64) ** 0.35


def _run_cells(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "experiment": config["experiment"],
        "model": config["model"]["name"],
        "model_sha": "5ha",
        "config": {"quant": config["quant"]},
        "data_hash": "da7a",
        "template_hash": "7e3",
        "dtype": "float32",
        "device": "cpu",
        "seed": 0,
        "batch_tokens": 2048,
        "seconds": 61.5,
        "peak_bytes": 2**30,
        "harness_version": "0.1.0",
        "status": "done",
        "calib_inputs": "none",
    }


def _report(
    scores: list[Scores], options: AttributeConfig, run: dict[str, Any], precision: str, group: int
) -> pd.DataFrame:
    rows = []
    for one, losses in zip(scores, arm_losses(scores, options), strict=True):
        for arm, value_N in zip(one.arms, np.asarray(one.values_AN), strict=True):
            value, stderr = mean_stderr(value_N, one.documents_N)
            known = vars(losses[arm]) if arm in losses else {}
            cells = {name: known.get(name) for name in ("loss", "p_value", "p_adjusted", "verdict", "below_noise")}
            rows.append(
                {
                    "protocol": {"window": 384, "stride": 0},
                    **run,
                    **_arm_cells(arm, precision, group),
                    **{"arm": arm, "subset": one.subset, "task": one.task, "metric": "nll", "unit": "nats/token"},
                    **{"n_items": len(value_N), "n_documents": len(value_N), "n_tokens": 384 * len(value_N)},
                    **{"value": value, "stderr": stderr, "base_value": np.asarray(one.values_AN)[0].mean()},
                    **{**cells, "loss_lo": known.get("lo"), "loss_hi": known.get("hi"), "reason": known.get("reason")},
                }
            )
    return pd.DataFrame(rows).reindex(columns=COLUMNS)


def _arm_cells(arm: str, precision: str, group: int) -> dict[str, Any]:
    players, sizes = ARMS[arm], {"ffn": group, "attention": 64}
    stored = {b: bits(precision, sizes[b]) if b in players else 16.0 for b in WEIGHTS}
    total = sum(stored[b] * w for b, w in WEIGHTS.items())
    cells: dict[str, Any] = {
        "bits_per_weight": total / sum(WEIGHTS.values()),
        "weight_bytes": int(total / 8) + 56_623_104,
    }
    for block, weights in WEIGHTS.items():
        on = block in players
        cells[f"{block}_method"] = "rtn" if on else "keep"
        cells[f"{block}_precision"] = precision if on else None
        cells[f"{block}_group_size"] = sizes[block] if on else None
        cells[f"{block}_bytes_saved"] = int((16 - stored[block]) * weights / 8)
    return {**cells, "quantized_share": 1.0 if players else None}


def _sites(precision: str, group: int, layers: int = 4) -> pd.DataFrame:
    """Every site of every arm."""
    roles = [("ffn", role) for role in ("gate", "up", "down")] + [("attention", role) for role in "qkvo"]
    sizes = {"ffn": group, "attention": 64}
    return pd.DataFrame(
        [
            {
                "arm": arm,
                "site": f"layers.{layer}.{block}.{role}",
                **{"block": block, "role": role, "layer": layer, "out_features": 576, "in_features": 576},
                **{"requested_method": "rtn", "requested_precision": precision, "requested_group_size": sizes[block]},
                "realised_group_size": sizes[block],
                "bits_per_weight": bits(precision, sizes[block]),
                "relative_weight_error": 0.1 + 0.01 * layer + 0.005 * number,
            }
            for arm, players in ARMS.items()
            for layer in range(layers)
            for number, (block, role) in enumerate(roles)
            if block in players
        ]
    )


def _items(scores: list[Scores]) -> pd.DataFrame:
    return pd.concat(
        pd.DataFrame(
            {
                "arm": arm,
                **{"subset": one.subset, "task": one.task, "doc_id": one.documents_N, "metric": "nll", "band": ""},
                "control": False,
                "item_id": [f"item{n}" for n in range(len(value_N))],
                "value": value_N,
                "n_tokens": 384,
            }
        )
        for one in scores
        for arm, value_N in zip(one.arms, np.asarray(one.values_AN), strict=True)
    )
