"""Results as tables: report.csv, items.parquet, questions.parquet. One meaning a column, the same in every run.

Missing values are empty cells. Words in cells never collide with what readers take for missing: an untouched block's
method is `keep`, its precision and group size are empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from harness.attribute import ArmLoss, arm_losses, mean_stderr
from harness.config import AttributeConfig
from harness.effects import scores_of
from harness.plan import Arm
from harness.report.resampled import Resampled, resampled_loss
from harness.report.sensitivity import sensitivity
from harness.report.stored import COLUMNS, WHOLE_NUMBERS
from harness.report.stored import read_report as read_report
from harness.report.stored import write_table as write_table
from harness.score.measure import Measure, Results, Summary, bands, in_band

NO_MEAN = "no mean over items: no interval"
PERCENTILES = "no mean over items: percentiles over resampled documents, no test"


@dataclass
class Sheet:
    """All rows of a run: what is the same everywhere, what belongs to an arm, and the results."""

    run: dict[str, Any]
    arms: Sequence[Arm]  # base first
    arm_cells: Sequence[dict[str, Any]]
    results: Sequence[Results]
    attribute: AttributeConfig

    def report(self) -> pd.DataFrame:
        """report.csv: a row per arm x subset x task x metric x band."""
        rows = [row for results in self.results for row in self._rows(results)]
        return as_report(rows)

    @cached_property
    def losses(self) -> dict[tuple[int, str], dict[str, ArmLoss]]:
        """Loss of every arm by measure (its id) and band, with intervals; whole tasks and bands are tested apart."""
        pairs = [(measure, band) for measure in self.measures for band in bands(measure)]
        whole, banded = ([p for p in pairs if bool(p[1]) == has_band] for has_band in (False, True))
        return self._losses(whole) | self._losses(banded)

    def _losses(self, pairs: Sequence[tuple[Measure, str]]) -> dict[tuple[int, str], dict[str, ArmLoss]]:
        scores = [scores_of(measure, self.arms, band) for measure, band in pairs]
        noise = [arm.name for arm in self.arms if arm.is_noise]
        found = arm_losses(scores, self.attribute, noise)
        return {(id(measure), band): losses for (measure, band), losses in zip(pairs, found, strict=True)}

    @property
    def measures(self) -> list[Measure]:
        """Every measure of every task."""
        return [measure for results in self.results for measure in results.measures]

    @property
    def summaries(self) -> list[Summary]:
        """Every summary of every task."""
        return [summary for results in self.results for summary in results.summaries]

    @cached_property
    def resampled(self) -> dict[int, Resampled | None]:
        """Loss of every arm by summary (its id), with intervals where it can be resampled."""
        return {id(summary): resampled_loss(summary, self.attribute) for summary in self.summaries}

    def _rows(self, results: Results) -> Iterator[dict[str, Any]]:
        made_with = {
            "protocol": results.protocol,
            "data_hash": results.data_hash,
            "template_hash": results.template_hash,
        }
        for arm in range(len(self.arms)):
            same = {**self.run, **self.arm_cells[arm], **made_with, "status": "done"}
            for measure in results.measures:
                for band in bands(measure):
                    yield {**same, **self._measured(measure, arm, band)}
                    if measure.is_text:
                        yield {**same, **perplexity(measure, arm, band)}
            for summary in results.summaries:
                yield {**same, **summarized(summary, arm, self.resampled[id(summary)])}

    def _measured(self, measure: Measure, arm: int, band: str) -> dict[str, Any]:
        chosen = in_band(measure, band)
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
            "base_value": mean_stderr(base_N, documents, weights_N)[0],
            **_against_base(measure, arm, chosen, weights_N),
        }
        if arm and right_or_wrong(measure):
            cells["flips_to_wrong"] = ((base_N == 1) & (values_N == 0)).sum()
            cells["flips_to_right"] = ((base_N == 0) & (values_N == 1)).sum()
        if arm == 0:
            return cells
        worse = cells["base_value"] - value if measure.higher_is_better else value - cells["base_value"]
        found = self.losses[id(measure), band].get(self.arms[arm].name)
        return cells | (loss_cells(found) if found else {"loss": worse})  # noise sets the floor and is not tested

    def questions(self) -> pd.DataFrame:
        """questions.parquet: what is known of every item, whatever the arm."""
        frames = []
        for results in self.results:
            one = results.measures[0]
            columns = {"item_id": one.items, "doc_id": one.documents, "band": one.bands}
            frame = pd.DataFrame({"subset": one.subset, "task": one.task, **columns})
            frame["popularity"] = pd.Series(results.popularity or [None] * len(one.items), dtype=float)
            frame["shots"] = [list(own) for own in results.shots or [()] * len(one.items)]
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def sensitivity(self) -> pd.DataFrame:
        """sensitivity.csv: how well each metric sees each arm's loss."""
        scores = [scores_of(measure, self.arms) for measure in self.measures]
        resampled = [(summary, self.resampled[id(summary)]) for summary in self.summaries if not summary.band]
        found = sensitivity(scores, resampled, [arm.name for arm in self.arms])
        return found.loc[~found["arm"].isin([arm.name for arm in self.arms if arm.is_noise])]

    def items(self) -> pd.DataFrame:
        """items.parquet: every item's value in every arm. `control`: no part of its task's mean in report.csv."""
        frames = [
            pd.DataFrame(
                {
                    "arm": self.arms[arm].name,
                    "subset": measure.subset,
                    "task": measure.task,
                    "doc_id": measure.documents,
                    "item_id": measure.items,
                    "band": measure.bands,
                    "control": [band in measure.controls for band in measure.bands],
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


def as_report(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Rows in the columns of report.csv; whole numbers stay whole beside empty cells."""
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    return frame.astype({name: "Int64" for name in WHOLE_NUMBERS if name in frame})


def right_or_wrong(measure: Measure) -> bool:
    """Whether an item is either right, 1, or wrong, 0, whatever the metric is called: then items flip."""
    return measure.higher_is_better and bool(np.isin(measure.values_AN, (0.0, 1.0)).all())


def loss_cells(found: ArmLoss) -> dict[str, Any]:
    """The inference columns of a row."""
    return {
        "loss": found.loss,
        "loss_lo": found.lo,
        "loss_hi": found.hi,
        "p_value": found.p_value,
        "p_adjusted": found.p_adjusted,
        "verdict": found.verdict,
        "below_noise": found.below_noise,
        "reason": found.reason,
    }


def perplexity(measure: Measure, arm: int, band: str) -> dict[str, Any]:
    """exp of the mean nll. Shown, never attributed: it is no mean over items, so it gets no interval."""
    chosen = in_band(measure, band)
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
    return cells if arm == 0 else {**cells, "loss": value - base, "reason": NO_MEAN}


def summarized(summary: Summary, arm: int, found: Resampled | None) -> dict[str, Any]:
    """A metric with one value an arm."""
    value, base = summary.value_A[arm], summary.value_A[0]
    cells = {
        "subset": summary.subset,
        "task": summary.task,
        "band": summary.band,
        "metric": summary.metric,
        "unit": summary.unit,
        "n_items": summary.n_items,
        "n_documents": len(set(summary.documents)) or None,
        "value": value,
        "base_value": base,
    }
    if arm == 0:
        return cells
    loss = base - value if summary.higher_is_better else value - base
    if found is None:
        return {**cells, "loss": loss, "reason": NO_MEAN}
    return {**cells, "loss": loss, "loss_lo": found.low_A[arm], "loss_hi": found.high_A[arm], "reason": PERCENTILES}


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
