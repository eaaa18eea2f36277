"""lm-eval's tasks, scored by the engine: its prompts, few-shot rules and metrics; our log-probabilities.

The requests of a task are built once and turned into token sequences. For every arm the log-probabilities are played
back into the task's own `process_results`, so whatever it computes (accuracy, mutual information, perplexities) is
its own. Beside its metrics stand `nll`, -log p of the right answer per token, and KL and agreement on its tokens; with
choices `prob`, `margin` and `ece` (harness.score.choices).

A task that writes text has its answers written by harness.score.generate. Its nll and KL are those of the reference
answer (the first, where there are several) after the same prompt, so that such a task can be attributed too.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.errors import UserError
from harness.packs import TokenSequence, slots
from harness.score.choices import PROTOCOL, Choices
from harness.score.encode import Encoder
from harness.score.examples import Prompting
from harness.score.measure import Measure, Results, Summary, by_sequence, digest
from harness.score.own_code import own_code
from harness.score.questions import Question
from harness.score.tokens import Request, tokenized
from harness.stream import Scores
from harness.words import LOWER_IS_BETTER

UNITS = {
    "nll": "nats/token",
    "prob": "probability",
    "margin": "nats",
    "kl": "nats/token",
    "acc": "share of items",
    "acc_norm": "share of items",
    "exact_match": "share of items",
}
OURS = ("nll", "kl", "margin", "prob")
TEMPLATE = (
    "doc_to_text", "doc_to_target", "doc_to_choice", "description", "target_delimiter", "fewshot_delimiter",
    "num_fewshot", "fewshot_split", "output_type", "repeats", "generation_kwargs", "filter_list", "metric_list",
    "process_results",
)  # fmt: skip
WRITES = "generate_until"
FREE = ("acc", "exact_match")  # whether an answer is right that is given without choices


@dataclass
class TaskItems:
    """A task whose requests are built: the engine scores `sequences`."""

    subset: str
    name: str
    task: Any  # an lm_eval Task; its annotations say less than it does
    questions: list[Question]
    encoder: Encoder
    vocab_size: int
    prompting: Prompting
    group: str = ""
    is_text: bool = False
    sequences: list[TokenSequence] = field(default_factory=list)
    answers: list[list[str]] = field(default_factory=list)  # by arm, of `writes`; filled by harness.score.generate
    _spans: dict[int, range] = field(default_factory=dict)  # sequences of a request, by id(instance)

    def __post_init__(self) -> None:
        asked = [(instance, question) for question in self.questions for instance in question.instances]
        requests = [self._request(*one) for one in asked]
        for (instance, _), made in zip(asked, tokenized(requests, self.encoder, self.name), strict=True):
            self._spans[id(instance)] = range(len(self.sequences), len(self.sequences) + len(made))
            self.sequences += made

    @property
    def writes(self) -> list[Any]:
        """Requests for text, in order."""
        return [i for q in self.questions for i in q.instances if i.request_type == WRITES]

    def _request(self, instance: Any, question: Question) -> Request:
        item = f"{self.name}, item {question.item}"
        if instance.request_type == "loglikelihood":
            return Request(*instance.args, item=item)
        if instance.request_type == "loglikelihood_rolling":
            return Request(None, instance.args[0], item)
        if instance.request_type == WRITES:
            return Request(instance.args[0], self._reference(question), item)
        raise UserError(f"{self.name} asks for {instance.request_type}, which no arm can answer.")

    def _reference(self, question: Question) -> str:
        """The answer that a text is compared with, or the first of them."""
        target = self.task.doc_to_target(question.doc)
        target = target[0] if isinstance(target, list) else target
        if self.task.config.doc_to_choice is not None and isinstance(target, int):  # lm-eval then means a choice
            choices = self.task.doc_to_choice(question.doc)
            if not 0 <= target < len(choices):
                where = f"{self.name}, item {question.item}"
                raise UserError(f"{where}: right answer {target} is not among {len(choices)} choices.")
            target = choices[target]
        delimiter = "" if self.prompting.chat_template else self.task.config.target_delimiter
        return f"{delimiter}{target}"

    def results(self, scores: Scores) -> Results:
        """The task's own metrics, and ours beside them."""
        starts = slots(self.sequences)
        sums = {
            "logp": by_sequence(scores.logp_AS, starts),
            "misses": by_sequence(~scores.greedy_AS, starts),
            "kl": by_sequence(scores.kl_AS, starts),
            "agree": by_sequence(scores.agree_AS.astype(float), starts),
        }
        values: dict[str, list[Any]] = defaultdict(list)  # metric -> arm -> question
        for arm in range(len(scores.logp_AS)):
            for metric, column in self._play_back(arm, sums["logp"][arm], sums["misses"][arm] == 0).items():
                values[metric].append(column)
        tokens_N = self._gold_sum(np.diff(starts)[None])[0]
        kl_AN, agree_AN = (self._gold_sum(sums[name]) / tokens_N for name in ("kl", "agree"))
        logp_AN = self._gold_sum(sums["logp"])
        values |= {"nll": list(-logp_AN / tokens_N), "kl": list(kl_AN)}
        choices = self._choices(sums["logp"])
        if choices:
            values |= {"prob": list(choices.prob_AN), "margin": list(choices.margin_AN)}
        elif self.task.OUTPUT_TYPE != "loglikelihood_rolling":
            values["prob"] = list(np.exp(logp_AN))
        measures, summaries = self._sort_out(values, kl_AN, agree_AN, tokens_N)
        if choices:
            bands = [question.band for question in self.questions]
            summaries += choices.calibration(self.item_documents, bands, subset=self.subset, task=self.name)
        return Results(
            measures,
            summaries,
            self._protocol(),
            self._data_hash(),
            self._template_hash(),
            [q.popularity for q in self.questions],
            [q.shots for q in self.questions],
        )

    def _play_back(self, arm: int, logp_S: np.ndarray, greedy_S: np.ndarray) -> dict[str, list[Any]]:
        """One arm's answers through the task's filters and metrics: metric -> one value a question."""
        texts = iter(self.answers[arm]) if self.writes else iter(())
        for question in self.questions:
            for instance in question.instances:
                answer = (
                    next(texts) if instance.request_type == WRITES else self._likelihood(instance, logp_S, greedy_S)
                )
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

    def _likelihood(self, instance: Any, logp_S: np.ndarray, greedy_S: np.ndarray) -> Any:
        span = self._spans[id(instance)]
        total = float(logp_S[span.start : span.stop].sum())
        return total if instance.request_type == "loglikelihood_rolling" else (total, bool(greedy_S[span.start]))

    def _gold_spans(self) -> list[range]:
        """Sequences of the right answer; all of a question's where it has no choices."""
        spans = []
        for question in self.questions:
            chosen = question.instances[question.gold[0]] if question.gold else question.instances[0]
            spans.append(self._spans[id(chosen)])
        return spans

    def _gold_sum(self, sums_AS: np.ndarray) -> np.ndarray:
        return np.stack([sums_AS[:, s.start : s.stop].sum(1) for s in self._gold_spans()], axis=1)

    def _choices(self, logp_AS: np.ndarray) -> Choices | None:
        """Log-likelihoods by question; None where one has no wrong choice."""
        columns = []
        for question in self.questions:
            choices = self.task.doc_to_choice(question.doc) if question.gold else []
            if len(set(question.gold)) == len(choices):
                return None
            columns.append(logp_AS[:, [self._spans[id(i)].start for i in question.instances[: len(choices)]]])
        return Choices(columns, [question.gold for question in self.questions])

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
                    unit=UNITS.get(metric.split(",")[0], ""),
                    higher_is_better=better,
                    values_AN=np.array([list(column) for column in columns], dtype=float),
                    items=[q.item for q in self.questions],
                    documents=self.item_documents,
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
        how = self.task.aggregation().get(metric.split(",")[0]) if metric not in OURS else None
        return None if how is None else how.__name__

    def _worst(self, metric: str) -> float:
        if metric == "nll":
            return float(np.log(self.vocab_size))
        name = metric.split(",")[0]
        if name in FREE and self.task.OUTPUT_TYPE in ("loglikelihood", WRITES):
            return 0.0  # an answer that nothing suggests is not right by chance
        if name in ("acc", "acc_norm") and all(q.gold for q in self.questions):
            # Of the choices, not of the requests: mutual information asks for each choice twice.
            return float(np.mean([len(set(q.gold)) / len(self.task.doc_to_choice(q.doc)) for q in self.questions]))
        return float("nan")

    @property
    def item_documents(self) -> list[str]:
        """The document of every question."""
        return [question.document for question in self.questions]

    @property
    def metrics(self) -> list[str]:
        """Ours (a margin where there are choices), and the task's own that are means over questions, by filter."""
        ours = [name for name in OURS if name != "margin" or all(question.gold for question in self.questions)]
        own = [name for name in self.task.aggregation() if self._aggregation(name) == "mean"]
        filters = [made.name for made in self.task._filters]
        return [*ours, *(name if f == "none" else f"{name},{f}" for f in filters for name in own)]

    @property
    def fingerprint(self) -> str:
        """Hash of prompts, data, token ids, and of what turns their scores into rows."""
        facts = [(q.document, q.band, q.popularity) for q in self.questions]
        tokens = [(s.tokens, s.start) for s in self.sequences]
        return digest([self._data_hash(), self._template_hash(), self._protocol(), tokens, facts, own_code(self.task)])

    def _protocol(self) -> dict[str, Any]:
        shown = any(q.shots for q in self.questions)
        return {
            "num_fewshot": self.task.config.num_fewshot or 0,
            "sampler": self.prompting.sampler or "default",
            "shots": digest([q.shots for q in self.questions]) if shown else "none",
            "shots_seed": self.prompting.seed if shown else "none",
            "chat_template": self.prompting.dress(self.encoder.tokenizer),
            "bos": self.encoder.bos,
            "output_type": str(self.task.OUTPUT_TYPE),
            "target_delimiter": self.task.config.target_delimiter,
            "acc_norm": "log-likelihood over characters of the choice",
            **(PROTOCOL if self.task.OUTPUT_TYPE == "multiple_choice" else {"prob": "of the whole answer"}),
            "version": str(self.task.VERSION),
        }

    def _data_hash(self) -> str:
        return digest([q.doc for q in self.questions])

    def _template_hash(self) -> str:
        config = self.task.dump_config()
        dress = self.prompting.dress(self.encoder.tokenizer)
        template = json.dumps({k: config.get(k) for k in TEMPLATE}, sort_keys=True, default=str)
        template = re.sub(r" at 0x[0-9a-f]+", "", template)  # where a function with bound arguments lies in memory
        return digest([template, self.prompting.sampler or "default", dress])
