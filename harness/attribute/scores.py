"""Scores of all arms on the same items: what attribution reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.attribute.intervals import Array
from harness.attribute.losses import document_sums
from harness.errors import UserError


@dataclass(frozen=True)
class Scores:
    """One metric of one task: values [arms, items], one document id an item; an id names the same text in every task.

    `weights_N`: an item's weight in the mean (tokens of a window). `bands_N`: what kind of item, "" for none. `worst`:
    the value of a model that knows nothing (uniform nll, chance accuracy). `divergence`: a distance from base, as KL:
    never negative, and 0 for base.
    UserError: arms that did not score the same items.
    """

    subset: str
    task: str
    metric: str
    arms: Sequence[str]
    values_AN: ArrayLike
    documents_N: ArrayLike
    higher_is_better: bool
    weights_N: ArrayLike | None = None
    worst: float = float("nan")
    divergence: bool = False
    bands_N: Sequence[str] = ()

    def __post_init__(self) -> None:
        values_AN = np.asarray(self.values_AN, dtype=np.float64)
        where = f"{self.subset}/{self.task}/{self.metric}"
        if values_AN.ndim != 2 or len(values_AN) != len(self.arms):
            raise UserError(f"{where}: {len(self.arms)} arms, values of shape {values_AN.shape}; give [arms, items]")
        if "base" not in self.arms:
            raise UserError(f"{where}: no scores of arm base among {', '.join(self.arms)}")
        missing_A = (~np.isfinite(values_AN)).sum(1)
        if missing_A.any():
            worst = int(missing_A.argmax())
            raise UserError(
                f"{where}: arm {self.arms[worst]} lacks {missing_A[worst]} of {values_AN.shape[1]} items. "
                "Losses are paired: every arm must score the same items; run the arms together."
            )
        object.__setattr__(self, "values_AN", values_AN)

    def only(self, chosen_N: NDArray[np.bool_]) -> Scores:
        """The same of some of the items."""
        return replace(
            self,
            values_AN=np.asarray(self.values_AN)[:, chosen_N],
            documents_N=np.asarray(self.documents_N)[chosen_N],
            weights_N=None if self.weights_N is None else np.asarray(self.weights_N)[chosen_N],
            bands_N=[band for band, chosen in zip(self.bands_N, chosen_N, strict=True) if chosen],
        )

    @property
    def losses_AN(self) -> Array:  # noqa: N802
        """How much worse than base, per item."""
        values_AN = np.asarray(self.values_AN)
        change_AN = values_AN - values_AN[list(self.arms).index("base")]
        return -change_AN if self.higher_is_better else change_AN

    def losses_by_document(self) -> tuple[list[str], Array, Array]:
        """Document labels, summed losses [D, A], summed weights [D]."""
        sums = [document_sums(loss_N, self.documents_N, self.weights_N) for loss_N in self.losses_AN]
        return sums[0][0], np.stack([loss_D for _, loss_D, _ in sums], axis=1), sums[0][2]

    def means(self) -> dict[str, float]:
        """Mean value of every arm."""
        weights_N = None if self.weights_N is None else np.asarray(self.weights_N, dtype=np.float64)
        mean_A = np.average(np.asarray(self.values_AN), axis=1, weights=weights_N)
        return dict(zip(self.arms, map(float, mean_A), strict=True))
