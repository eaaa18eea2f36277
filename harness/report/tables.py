"""Results as tables: report.csv, items.parquet, sites.csv. One meaning a column, the same in every run.

Missing values are empty cells. Words in cells never collide with what readers take for missing: an untouched block's
method is `keep`, its precision and group size are empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from harness.attribute import mean_stderr, paired_loss
from harness.config import AttributeConfig
from harness.errors import UserError
from harness.score.measure import Measure, Results, Summary

COLUMNS = (
    "experiment run_id model model_sha base_lattice arm subset task band metric unit n_items n_documents n_tokens "
    "value stderr base_value loss loss_lo loss_hi p_value p_adjusted verdict below_noise flips_to_wrong "
    "flips_to_right kl_mean top1_agreement ffn_method ffn_precision ffn_group_size attention_method "
    "attention_precision attention_group_size calib_inputs calib_overlap quantized_share bits_per_weight weight_bytes "
    "ffn_bytes_saved attention_bytes_saved protocol config template_hash data_hash seed dtype device batch_tokens "
    "seconds peak_bytes harness_version status reason"
).split()

WHOLE_NUMBERS = (
    "n_items n_documents n_tokens flips_to_wrong flips_to_right ffn_group_size attention_group_size weight_bytes "
    "ffn_bytes_saved attention_bytes_saved seed batch_tokens peak_bytes"
).split()


@dataclass
class Sheet:
    """All rows of a run: what is the same everywhere, what belongs to an arm, and the results."""

    run: dict[str, Any]
    arms: Sequence[dict[str, Any]]  # base first
    results: Sequence[Results]
    attribute: AttributeConfig
    _rows: list[dict[str, Any]] = field(default_factory=list)

    def report(self) -> pd.DataFrame:
        """report.csv: a row per arm x subset x task x metric x band."""
        rows = [row for results in self.results for row in self._task_rows(results)]
        frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
        for name in WHOLE_NUMBERS:
            frame[name] = frame[name].astype("Int64")
        return frame

    def _task_rows(self, results: Results) -> Iterator[dict[str, Any]]:
        made_with = {
            "protocol": results.protocol,
            "data_hash": results.data_hash,
            "template_hash": results.template_hash,
        }
        for measure in results.measures:
            for band in bands(measure):
                chosen = np.array([band in ("", own) for own in measure.bands])
                for arm in range(len(self.arms)):
                    yield self._row(arm, made_with, self._measured(measure, arm, band, chosen))
                    if measure.is_text:
                        yield self._row(arm, made_with, perplexity(measure, arm, band, chosen))
        for summary in results.summaries:
            for arm in range(len(self.arms)):
                yield self._row(arm, made_with, summarized(summary, arm))

    def _row(self, arm: int, made_with: dict[str, Any], cells: dict[str, Any]) -> dict[str, Any]:
        return {**self.run, **self.arms[arm], **made_with, "status": "done", **cells}

    def _measured(self, measure: Measure, arm: int, band: str, chosen: np.ndarray) -> dict[str, Any]:
        values_N, base_N = measure.values_AN[arm, chosen], measure.values_AN[0, chosen]
        documents = np.array(measure.documents)[chosen]
        weights_N = measure.weights_N[chosen]
        value, stderr = mean_stderr(values_N, documents, weights_N)
        cells = {
            **_named(measure, band),
            "n_items": len(values_N),
            "n_documents": len(set(documents)),
            "n_tokens": measure.n_tokens[chosen].sum(),
            "value": value,
            "stderr": stderr,
            "base_value": np.average(base_N, weights=weights_N),
            **_against_base(measure, arm, chosen, weights_N),
        }
        if arm == 0:
            return cells
        if measure.metric in ("acc", "acc_norm"):
            cells["flips_to_wrong"] = ((base_N == 1) & (values_N == 0)).sum()
            cells["flips_to_right"] = ((base_N == 0) & (values_N == 1)).sum()
        return {**cells, **self._loss(measure, arm, chosen)}

    def _loss(self, measure: Measure, arm: int, chosen: np.ndarray) -> dict[str, Any]:
        """Loss with its interval; KL is always positive, so it gets an interval but no test against zero."""
        loss, low, high, p_value = paired_loss(
            measure.values_AN[0, chosen],
            measure.values_AN[arm, chosen],
            np.array(measure.documents)[chosen],
            higher_is_better=measure.higher_is_better,
            resamples=self.attribute.resamples,
            seed=self.attribute.seed,
            level=self.attribute.level,
            weights_N=measure.weights_N[chosen],
        )
        cells = {"loss": loss, "loss_lo": low, "loss_hi": high}
        if measure.metric == "kl":
            return cells
        return {**cells, "p_value": p_value, "verdict": verdict(low, high, self.attribute.margin)}

    def items(self) -> pd.DataFrame:
        """items.parquet: every item's value in every arm."""
        frames = [
            pd.DataFrame(
                {
                    "arm": self.arms[arm]["arm"],
                    "subset": measure.subset,
                    "task": measure.task,
                    "doc_id": measure.documents,
                    "item_id": measure.items,
                    "band": measure.bands,
                    "metric": measure.metric,
                    "value": measure.values_AN[arm],
                    "n_tokens": measure.n_tokens,
                }
            )
            for results in self.results
            for measure in results.measures
            for arm in range(len(self.arms))
        ]
        return pd.concat(frames, ignore_index=True)


def bands(measure: Measure) -> list[str]:
    """All items first, then each band by itself."""
    return ["", *sorted({band for band in measure.bands if band})]


def verdict(low: float, high: float, margin: float) -> str:
    """What the interval says of the loss."""
    if np.isnan(low):
        return "undecided"
    if -margin < low and high < margin:
        return "equivalent"
    if low > 0:
        return "worse"
    return "better" if high < 0 else "undecided"


def perplexity(measure: Measure, arm: int, band: str, chosen: np.ndarray) -> dict[str, Any]:
    """exp of the mean nll. Shown, never attributed: it is no mean over items, so it gets no interval."""
    weights_N = measure.weights_N[chosen]
    value, base = (np.exp(np.average(measure.values_AN[a, chosen], weights=weights_N)) for a in (arm, 0))
    cells = {
        **_named(measure, band),
        "metric": "perplexity",
        "unit": "per token",
        "n_items": chosen.sum(),
        "n_tokens": measure.n_tokens[chosen].sum(),
        "value": value,
        "base_value": base,
    }
    return cells if arm == 0 else {**cells, "loss": value - base}


def summarized(summary: Summary, arm: int) -> dict[str, Any]:
    """A metric with one value an arm."""
    value, base = summary.value_A[arm], summary.value_A[0]
    cells = {
        "subset": summary.subset,
        "task": summary.task,
        "metric": summary.metric,
        "unit": summary.unit,
        "n_items": summary.n_items,
        "value": value,
        "base_value": base,
    }
    return cells if arm == 0 else {**cells, "loss": base - value if summary.higher_is_better else value - base}


def _named(measure: Measure, band: str) -> dict[str, Any]:
    return {
        "subset": measure.subset,
        "task": measure.task,
        "band": band,
        "metric": measure.metric,
        "unit": measure.unit,
    }


def _against_base(measure: Measure, arm: int, chosen: np.ndarray, weights_N: np.ndarray) -> dict[str, float]:
    if measure.kl_AN is None or measure.agree_AN is None:
        return {}
    return {
        "kl_mean": float(np.average(measure.kl_AN[arm, chosen], weights=weights_N)),
        "top1_agreement": float(np.average(measure.agree_AN[arm, chosen], weights=weights_N)),
    }


def read_report(path: Any) -> pd.DataFrame:
    """A report back as it was written: words stay words, whole numbers stay whole, only empty cells are missing."""
    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""], encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a report ({error}).") from error
    for name in set(WHOLE_NUMBERS) & set(frame):
        frame[name] = frame[name].astype("Int64")
    return frame


def to_csv(frame: pd.DataFrame, path: Any, json_columns: Iterable[str] = ()) -> None:
    """UTF-8, RFC 4180; dictionaries as JSON cells; NaN and None as empty cells."""
    from harness.files import to_json

    frame = frame.copy()
    for name in json_columns:
        frame[name] = [" ".join(to_json(cell).split()) if isinstance(cell, dict) else cell for cell in frame[name]]
    frame.to_csv(path, index=False, encoding="utf-8", lineterminator="\r\n")
