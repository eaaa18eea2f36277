"""Losses over several tasks."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from harness.config import AttributeConfig
from harness.plan import Arm, base_arm
from harness.report.group_rows import group_report
from harness.report.tables import Sheet
from harness.score.measure import Measure, Results

ARMS = [base_arm(), Arm("ffn", frozenset({"ffn"}), {})]


@dataclass
class Work:
    """What a group needs to know of a task."""

    subset: str = "knowledge"
    group: str = ""
    is_text: bool = False


def results(task, values_AN, metrics=("nll",), better=False):
    """A task with the same values in each metric."""
    values_AN = np.array(values_AN, dtype=float)
    count = values_AN.shape[1]
    items, ones = [str(n) for n in range(count)], np.ones(count)
    documents = [f"{task} {item}" for item in items]
    measures = [
        Measure("knowledge", task, m, "nats", better, values_AN, items, documents, [""] * count, ones, ones, 10.0)
        for m in metrics
    ]
    return Results(measures, protocol={"num_fewshot": 0}, data_hash=task, template_hash="same")


def report(work, tasks):
    cells = [{"arm": arm.name} for arm in ARMS]
    return group_report(Sheet({"experiment": "own"}, ARMS, cells, tasks, AttributeConfig(resamples=500)), work)


def losses(work, tasks):
    found = report(work, tasks)
    return found[found["arm"] == "ffn"].set_index(["task", "metric"])


def test_items_or_tasks_count_the_same():
    work = [Work(group="mmlu"), Work(group="mmlu"), Work()]
    tasks = [results("law", [[1, 1, 1], [2, 2, 2]]), results("virology", [[5], [9]]), results("city", [[0], [0]])]
    found = losses(work, tasks)["loss"]
    assert dict(found) == {
        ("mmlu, by item", "nll"): pytest.approx((3 + 4) / 4),
        ("mmlu, by task", "nll"): pytest.approx((1 + 4) / 2),
        ("all, by item", "nll"): pytest.approx((3 + 4) / 5),
        ("all, by task", "nll"): pytest.approx((1 + 4) / 3),
    }
    whole = report(work, tasks)
    assert whole["n_items"].tolist() == [4, 4, 4, 4, 5, 5, 5, 5] and (whole["value"] - whole["base_value"])[1] > 0


def test_controls_are_no_part_of_a_groups_mean():
    plain = [results("copy", [[1, 2], [2, 4]]), results("city", [[0], [0]])]
    mixed = results("copy", [[1, 50, 2], [2, 90, 4]])
    (measure,) = mixed.measures
    measure.bands, measure.controls = ["second", "first", "second"], frozenset({"first"})
    measure.documents = ["copy 0", "copy 0", "copy 1"]
    work = [Work(), Work()]
    pd.testing.assert_frame_equal(report(work, [mixed, plain[1]]), report(work, plain))


def test_tasks_are_no_sample_of_tasks():
    """Every item of a task loses about the same, and the tasks do not: that is no uncertainty of their mean."""
    rng = np.random.default_rng(0)
    tasks = [results(name, [np.zeros(40), level + 0.01 * rng.normal(size=40)]) for name, level in (("a", 0), ("b", 9))]
    row = losses([Work(), Work()], tasks).loc[("all, by item", "nll")]
    assert row["loss"] == pytest.approx(4.5, abs=0.01) and row["loss_hi"] - row["loss_lo"] < 0.02
    assert row["verdict"] == "worse" and row["p_value"] < 0.01


def test_a_p_value_is_that_of_the_mean_it_stands_beside():
    """Many items of one task get better, few of another worse: by item a gain, by task a loss."""
    large = results("large", [[0.0] * 13 + [1.0] * 187, [1.0] * 200], ("acc",), better=True)
    small = results("small", [[1.0] * 30, [0.0] * 12 + [1.0] * 18], ("acc",), better=True)
    found = losses([Work(), Work()], [large, small])
    by_item, by_task = (found.loc[(f"all, by {way}", "acc")] for way in ("item", "task"))
    assert by_item["loss"] < 0 < by_task["loss"] and by_task["p_value"] < 0.05 < by_item["p_value"]
    assert by_task["loss_lo"] > 0


def test_only_metrics_that_all_tasks_have_and_mean_the_same_by():
    work, same = [Work(), Work(), Work(is_text=True)], [[1], [1]]
    tasks = [results("a", same, ("nll", "acc")), results("b", same, ("acc", "f1")), results("book", same)]
    assert set(report(work, tasks)["metric"]) == {"acc"}
    assert report(work[:2], [results("a", same), results("b", same, better=True)]).empty


def test_one_task_is_no_group_and_all_of_a_named_one_is_not_said_twice():
    assert report([Work(), Work("general")], [results("a", [[1], [1]]), results("b", [[1], [1]])]).empty
    mmlu = report([Work(group="mmlu")] * 2, [results("a", [[1], [1]]), results("b", [[1], [1]])])
    assert set(mmlu["task"]) == {"mmlu, by item", "mmlu, by task"}


def test_groups_of_other_data_cannot_be_subtracted():
    first, second = (report([Work()] * 2, [results("a", [[1], [1]]), results(b, [[1], [1]])]) for b in ("b", "c"))
    assert first["data_hash"][0] != second["data_hash"][0] and first["template_hash"][0] == second["template_hash"][0]
