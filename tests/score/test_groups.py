"""Means over several tasks."""

import numpy as np
import pytest

from harness.score.groups import group_results
from harness.score.measure import Measure, Results


class Work:
    """What a group needs to know of a task."""

    def __init__(self, subset, group="", is_text=False):
        self.subset, self.group, self.is_text = subset, group, is_text


def results(task, values_AN, metrics=("nll",), worst=10.0, subset="knowledge"):
    """A task with the same values in each metric."""
    values_AN = np.array(values_AN, dtype=float)
    count = values_AN.shape[1]
    items, ones = [str(n) for n in range(count)], np.ones(count)
    measures = [
        Measure(subset, task, m, "nats", False, values_AN, items, items, [""] * count, ones, ones, worst)
        for m in metrics
    ]
    return Results(measures, protocol={"num_fewshot": 0}, data_hash=task, template_hash="same")


def by_name(found):
    return {(m.task, m.metric): m for one in found for m in one.measures}


def test_items_or_tasks_count_the_same():
    work = [Work("knowledge", "mmlu"), Work("knowledge", "mmlu"), Work("knowledge")]
    tasks = [results("law", [[1, 1, 1], [2, 2, 2]]), results("virology", [[5], [9]]), results("city", [[0], [0]])]
    found = by_name(group_results(work, tasks))
    assert set(found) == {(f"{g}, by {w}", "nll") for g in ("mmlu", "all") for w in ("item", "task")}
    means = {
        name: np.average(measure.values_AN, axis=1, weights=measure.weights_N) for (name, _), measure in found.items()
    }
    assert means["mmlu, by item"] == pytest.approx([2, (6 + 9) / 4])
    assert means["mmlu, by task"] == pytest.approx([3, (2 + 9) / 2])
    assert means["all, by item"] == pytest.approx([8 / 5, 15 / 5])
    assert means["all, by task"] == pytest.approx([6 / 3, 11 / 3])
    assert found["mmlu, by item", "nll"].items == ["law 0", "law 1", "law 2", "virology 0"]


def test_what_knows_nothing_is_weighed_like_the_items():
    work = [Work("knowledge")] * 2
    found = by_name(group_results(work, [results("a", [[1, 1, 1]], worst=2), results("b", [[1]], worst=4)]))
    assert found["all, by item", "nll"].worst == pytest.approx(2.5)
    assert found["all, by task", "nll"].worst == pytest.approx(3)


def test_only_metrics_that_all_tasks_have_and_no_running_text():
    work = [Work("general"), Work("general"), Work("general", is_text=True)]
    tasks = [results("a", [[1]], ("nll", "acc")), results("b", [[1]], ("acc", "f1")), results("book", [[1]])]
    assert {metric for _, metric in by_name(group_results(work, tasks))} == {"acc"}


def test_one_task_is_no_group():
    assert group_results([Work("general"), Work("knowledge")], [results("a", [[1]]), results("b", [[1]])]) == []


def test_groups_of_other_data_cannot_be_subtracted():
    work = [Work("general")] * 2
    first, second = (group_results(work, [results("a", [[1]]), results(b, [[1]])])[0] for b in ("b", "c"))
    assert first.data_hash != second.data_hash and first.template_hash == second.template_hash
