"""lm-eval's tasks, scored by the engine: its prompts, few-shot rules and metrics; our log-probabilities.

The requests of a task are built once and turned into token sequences. For every arm the log-probabilities are played
back into the task's own `process_results`, so whatever it computes (accuracy, mutual information, perplexities) is
its own. Beside its metrics stand two that resolve a loss at small item counts: `nll`, -log p of the right answer per
token, and `margin`, log p of the right answer minus that of the best wrong one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.errors import UserError
from harness.packs import TokenSequence, slots
from harness.score.encode import Encoder
from harness.score.measure import Measure, Results, Summary, by_sequence, digest
from harness.stream import Scores

UNITS = {
    "nll": "nats/token",
    "margin": "nats",
    "kl": "nats/token",
    "acc": "share of items",
    "acc_norm": "share of items",
}
LOWER_IS_BETTER = ("nll", "kl")
TEMPLATE = (
    "doc_to_text", "doc_to_target", "doc_to_choice", "description", "target_delimiter", "fewshot_delimiter",
    "num_fewshot", "fewshot_split", "output_type", "repeats",
)  # fmt: skip


@dataclass
class Question:
    """One document of a task: its requests and what is known of it."""

    doc: dict[str, Any]
    instances: list[Any]  # lm_eval Instances
    gold: list[int]  # right choices; empty where the task has none
    item: str
    document: str
    band: str


@dataclass
class TaskItems:
    """A task whose requests are built: the engine scores `sequences`."""

    subset: str
    name: str
    task: Any  # an lm_eval Task; its annotations say less than it does
    questions: list[Question]
    encoder: Encoder
    vocab_size: int
    sampler: str = "default"
    is_text: bool = False
    sequences: list[TokenSequence] = field(default_factory=list)
    _spans: dict[int, range] = field(default_factory=dict)  # sequences of a request, by id(instance)

    def __post_init__(self) -> None:
        for question in self.questions:
            for instance in question.instances:
                made = self._encode(instance, question)
                self._spans[id(instance)] = range(len(self.sequences), len(self.sequences) + len(made))
                self.sequences += made

    def _encode(self, instance: Any, question: Question) -> list[TokenSequence]:
        item = f"{self.name}, item {question.item}"
        if instance.request_type == "loglikelihood":
            return [self.encoder.pair(*instance.args, item=item)]
        if instance.request_type == "loglikelihood_rolling":
            return self.encoder.rolling(instance.args[0], item)
        raise UserError(
            f"{self.name} asks for {instance.request_type}, which needs a whole model, not only its log-probabilities."
        )

    def results(self, scores: Scores) -> Results:
        """The task's own metrics, and nll, margin and KL of the right answer."""
        starts = slots(self.sequences)
        sums = {
            "logp": by_sequence(scores.logp_AS, starts),
            "misses": by_sequence(~scores.greedy_AS, starts),
            "kl": by_sequence(scores.kl_AS, starts),
            "agree": by_sequence(scores.agree_AS.astype(float), starts),
        }
        values: dict[str, list[Any]] = defaultdict(list)  # metric -> arm -> question
        for arm in range(len(scores.logp_AS)):
            for metric, column in self._play_back(sums["logp"][arm], sums["misses"][arm] == 0).items():
                values[metric].append(column)
        kl_AN, agree_AN, tokens_N = self._right_answers(sums, np.diff(starts))
        values["nll"] = list(-self._gold_sum(sums["logp"]) / tokens_N)
        values["kl"] = list(kl_AN)
        if margin := self._margins(sums["logp"]):
            values["margin"] = margin
        measures, summaries = self._sort_out(values, kl_AN, agree_AN, tokens_N)
        return Results(measures, summaries, self._protocol(), self._data_hash(), self._template_hash())

    def _play_back(self, logp_S: np.ndarray, greedy_S: np.ndarray) -> dict[str, list[Any]]:
        """One arm's answers through the task's filters and metrics: metric -> one value a question."""
        for question in self.questions:
            for instance in question.instances:
                span = self._spans[id(instance)]
                total = float(logp_S[span.start : span.stop].sum())
                rolling = instance.request_type == "loglikelihood_rolling"
                answer = total if rolling else (total, bool(greedy_S[span.start]))
                instance.resps = [answer] * (instance.repeats or 1)
                instance.filtered_resps = {}
        self.task.apply_filters()
        columns: dict[str, list[Any]] = defaultdict(list)
        for question in self.questions:
            for name in question.instances[0].filtered_resps:
                answers = [instance.filtered_resps[name] for instance in question.instances]
                for metric, value in self.task.process_results(question.doc, answers).items():
                    columns[metric if name == "none" else f"{metric},{name}"].append(value)
        return columns

    def _gold_spans(self) -> list[range]:
        """Sequences of the right answer; all of a question's where it has no choices."""
        spans = []
        for question in self.questions:
            chosen = question.instances[question.gold[0]] if question.gold else question.instances[0]
            spans.append(self._spans[id(chosen)])
        return spans

    def _gold_sum(self, sums_AS: np.ndarray) -> np.ndarray:
        return np.stack([sums_AS[:, s.start : s.stop].sum(1) for s in self._gold_spans()], axis=1)

    def _right_answers(self, sums: dict[str, np.ndarray], n_S: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tokens_N = self._gold_sum(n_S[None])[0]
        return self._gold_sum(sums["kl"]) / tokens_N, self._gold_sum(sums["agree"]) / tokens_N, tokens_N

    def _margins(self, logp_AS: np.ndarray) -> list[np.ndarray] | None:
        columns = []
        for question in self.questions:
            choices = self.task.doc_to_choice(question.doc) if question.gold else []
            firsts = [self._spans[id(i)].start for i in question.instances[: len(choices)]]
            wrong = [s for n, s in enumerate(firsts) if n not in question.gold]
            if not question.gold or not wrong:
                return None
            right = logp_AS[:, [firsts[g] for g in question.gold]].max(1)
            columns.append(right - logp_AS[:, wrong].max(1))
        return list(np.stack(columns, axis=1))

    def _sort_out(
        self, values: dict[str, list[Any]], kl_AN: np.ndarray, agree_AN: np.ndarray, tokens_N: np.ndarray
    ) -> tuple[list[Measure], list[Summary]]:
        """Means over items become measures; everything else is one number an arm."""
        measures, summaries = [], []
        for metric, columns in values.items():
            better = metric not in LOWER_IS_BETTER and self.task.higher_is_better().get(metric.split(",")[0], True)
            if not all(np.isscalar(v) for v in columns[0]) or self._aggregation(metric) not in (None, "mean"):
                how = self.task.aggregation()[metric.split(",")[0]]
                value_A = np.array([how(list(column)) for column in columns], dtype=float)
                summaries.append(Summary(self.subset, self.name, metric, "", better, value_A, len(self.questions)))
                continue
            measures.append(
                Measure(
                    subset=self.subset,
                    task=self.name,
                    metric=metric,
                    unit=UNITS.get(metric, ""),
                    higher_is_better=better,
                    values_AN=np.array([list(column) for column in columns], dtype=float),
                    items=[q.item for q in self.questions],
                    documents=[q.document for q in self.questions],
                    bands=[q.band for q in self.questions],
                    n_tokens=tokens_N,
                    weights_N=np.ones(len(self.questions)),
                    worst=self._worst(metric),
                    kl_AN=kl_AN,
                    agree_AN=agree_AN,
                )
            )
        return measures, summaries

    def _aggregation(self, metric: str) -> str | None:
        """Name of lm-eval's aggregation; None for our own metrics."""
        how = self.task.aggregation().get(metric.split(",")[0]) if metric not in ("nll", "kl", "margin") else None
        return None if how is None else how.__name__

    def _worst(self, metric: str) -> float:
        if metric == "nll":
            return float(np.log(self.vocab_size))
        if metric in ("acc", "acc_norm") and all(q.gold for q in self.questions):
            return float(np.mean([len(q.gold) / max(len(q.instances), 1) for q in self.questions]))
        return float("nan")

    @property
    def item_documents(self) -> list[str]:
        """The document of every question."""
        return [question.document for question in self.questions]

    @property
    def fingerprint(self) -> str:
        """Hash of prompts, data and token ids."""
        return digest([self._data_hash(), self._template_hash(), [(s.tokens, s.start) for s in self.sequences]])

    def _protocol(self) -> dict[str, Any]:
        return {
            "num_fewshot": self.task.config.num_fewshot or 0,
            "sampler": self.sampler,
            "bos": self.encoder.bos,
            "output_type": str(self.task.OUTPUT_TYPE),
            "target_delimiter": self.task.config.target_delimiter,
            "acc_norm": "log-likelihood over characters of the choice",
            "version": str(self.task.VERSION),
        }

    def _data_hash(self) -> str:
        return digest([q.doc for q in self.questions])

    def _template_hash(self) -> str:
        config = self.task.dump_config()
        return digest([{k: config.get(k) for k in TEMPLATE}, self.sampler])
