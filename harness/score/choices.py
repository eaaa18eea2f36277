"""What the log-likelihoods of a question's choices say beside which one is largest.

prob    the right choice's share of the choices' probability: softmax over their log-likelihoods, several right
        ones summed. Where an answer stands alone, its own probability.
margin  log p(right) - log p(best wrong), cut at +-MARGIN_CUT: beyond it a question is decided, and a few long choices
        must not outweigh all others (a winsorized mean, by a fixed cut, so that it is the same in every arm and run).
ece     calibration error (Guo et al. 2017): the first choice's `prob` is the confidence, BINS bins of equal width
        on [0, 1], sum over bins of share x |accuracy - mean confidence|. No mean over items, and biased upwards where
        bins hold few: compare arms, not tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax

from harness.score.measure import Summary

MARGIN_CUT = 10.0  # nats
BINS = 10
PROTOCOL = {
    "prob": "among the choices",
    "margin": f"cut at +-{MARGIN_CUT:g} nats",
    "ece": f"{BINS} bins of equal width",
}


@dataclass
class Choices:
    """Log-likelihoods [arms, choices] of every question, and which of them are right."""

    logp: Sequence[np.ndarray]
    gold: Sequence[Sequence[int]]

    @property
    def right_AN(self) -> np.ndarray:  # noqa: N802
        """1 where the likeliest choice is right."""
        return self._stack([np.isin(logp_AC.argmax(1), gold) for logp_AC, gold in self._pairs()])

    @property
    def margin_AN(self) -> np.ndarray:  # noqa: N802
        """Cut margins."""
        columns = []
        for logp_AC, gold in self._pairs():
            wrong_AC = np.delete(logp_AC, gold, axis=1)
            columns.append(logp_AC[:, gold].max(1) - wrong_AC.max(1))
        return np.clip(self._stack(columns), -MARGIN_CUT, MARGIN_CUT)

    @property
    def prob_AN(self) -> np.ndarray:  # noqa: N802
        """Probability of the right choices among all."""
        return self._stack([_share(logp_AC)[:, gold].sum(1) for logp_AC, gold in self._pairs()])

    def calibration(self, documents: Sequence[str], bands: Sequence[str], **named: Any) -> list[Summary]:
        """`ece` of all questions, then of every band by itself."""
        summaries = [self._calibration_error(documents, **named)]
        for band in sorted(set(bands) - {""}):
            own = [n for n, of in enumerate(bands) if of == band]
            part = Choices([self.logp[n] for n in own], [self.gold[n] for n in own])
            summaries.append(part._calibration_error([documents[n] for n in own], band=band, **named))
        return summaries

    def _calibration_error(self, documents: Sequence[str], **named: Any) -> Summary:
        """`ece` by arm, with what a bootstrap of its documents needs."""
        confidence_AN = self._stack([_share(logp_AC).max(1) for logp_AC in self.logp])
        gap_AN = self.right_AN - confidence_AN
        bin_AN = np.minimum((confidence_AN * BINS).astype(int), BINS - 1)

        def errors(weight_RN: np.ndarray) -> np.ndarray:
            by_arm = [
                np.abs(weight_RN @ (np.eye(BINS)[bin_N] * gap_N[:, None])).sum(1)
                for bin_N, gap_N in zip(bin_AN, gap_AN, strict=True)
            ]
            return np.stack(by_arm, axis=1) / weight_RN.sum(1, keepdims=True)

        value_A = errors(np.ones((1, len(documents))))[0]
        return Summary(
            metric="ece",
            unit="probability",
            higher_is_better=False,
            value_A=value_A,
            n_items=len(documents),
            documents=documents,
            weighted=errors,
            **named,
        )

    def _pairs(self) -> Sequence[tuple[np.ndarray, list[int]]]:
        return [(logp_AC, list(gold)) for logp_AC, gold in zip(self.logp, self.gold, strict=True)]

    def _stack(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack(columns, axis=1).astype(float)


def _share(logp_AC: np.ndarray) -> np.ndarray:
    return np.exp(log_softmax(logp_AC, axis=1))
