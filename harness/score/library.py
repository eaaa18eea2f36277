"""Find and build lm-eval tasks: by name, or from a YAML file in lm-eval's format.

In a YAML file of ours, relative `data_files` are meant from the file's own folder (lm-eval itself would take the
working directory). What `metadata` may say of its rows: harness.score.questions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import datasets
from lm_eval.api.task import Task
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from harness.config import EvalConfig, TooLong
from harness.errors import TooLongError, UserError
from harness.score.encode import Encoder
from harness.score.examples import Prompting
from harness.score.generate import check_answers
from harness.score.questions import questions
from harness.score.tasks import TaskItems

log = logging.getLogger(__name__)
SUITES = Path(__file__).parent.parent / "data" / "suites"


class Found(NamedTuple):
    """A task, and the name that was asked for where that stands for several."""

    subset: str
    task: Task
    group: str


def find_tasks(config: EvalConfig, base: Path) -> list[Found]:
    """Every task of every subset, its data loaded. UserError names an unknown task, or data that cannot be had."""
    quiet()
    if odd := [(subset, s) for subset, specs in config.by_subset().items() for s in specs if not isinstance(s, str)]:
        raise UserError(
            f"eval.{odd[0][0]}: {odd[0][1]!r} is no task. List names or paths of YAML files: [arc_easy, my.yaml]."
        )
    found = [one for subset, specs in config.by_subset().items() for s in specs for one in _found(subset, s, base)]
    names = Counter((subset, task.task_name) for subset, task, _ in found)
    if twice := [f"{task} in eval.{subset}" for (subset, task), count in names.items() if count > 1]:
        raise UserError(f"{', '.join(twice)}: listed twice. List every task once.")
    if idle := sorted(set(config.task_options) - {task for _, task in names}):
        known = ", ".join(task for _, task in names) or "no task at all"
        raise UserError(f"eval.task_options.{idle[0]}: this run has {known}, and none of that name.")
    _check_limits(config, [task for _, task, _ in found])
    return found


def _found(subset: str, spec: str, base: Path) -> list[Found]:
    tasks = load(spec, base)
    return [Found(subset, task, Path(spec).stem if len(tasks) > 1 else "") for task in tasks]


def _check_limits(config: EvalConfig, tasks: Sequence[Any]) -> None:
    """A limit above a task's size, or one for all tasks that none of them reaches, is not meant."""
    sizes = {task.task_name: len(task.eval_docs) for task in tasks}
    for name, options in config.task_options.items():
        if options.limit and options.limit > sizes[name]:
            raise UserError(f"eval.task_options.{name}.limit={options.limit}: the task has {sizes[name]} questions.")
    if config.limit and sizes and config.limit > (largest := max(sizes.values())):
        raise UserError(f"eval.limit={config.limit}: no task has so many questions; the largest has {largest}.")
    whole = [f"{name} ({size})" for name, size in sizes.items() if config.limit and size < config.limit]
    if whole:
        log.info("eval.limit=%d: scored whole, as they have fewer questions: %s", config.limit, ", ".join(whole))


def build_tasks(tasks: Sequence[Found], config: EvalConfig, encoder: Encoder, vocab_size: int) -> list[TaskItems]:
    """Requests of every task, tokenized. UserError names a row of which no request can be made."""
    built, left_out = [], set()
    for found in tasks:
        try:
            items = _items(found, config, encoder, vocab_size)
            check_answers(items)
            built.append(items)
        except TooLongError as error:
            if config.too_long is TooLong.error:
                raise
            left_out.add((found.subset, found.group or found.task.task_name))
            log.warning("eval.too_long=drop leaves %s out: %s", found.group or found.task.task_name, error)
    # A group's mean over some of its tasks would be another figure under the same name.
    return [items for items in built if (items.subset, items.group or items.name) not in left_out]


def load(spec: str, base: Path) -> list[Task]:
    """The tasks behind a name, a group's name, a shipped suite (`qh_...`) or a path of a YAML file."""
    path = base / spec
    shipped = SUITES / f"{spec.removeprefix('qh_')}.yaml"
    if not path.suffix and spec.startswith("qh_") and shipped.is_file():
        path = shipped
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            near = get_close_matches(path.name, [p.name for p in path.parent.glob("*.y*ml")], n=3)
            hint = f" Nearest there: {', '.join(near)}." if near else ""
            raise UserError(f"eval: task file {spec} does not exist (looked for {path}).{hint}")
        source: Any = _from_file(path)
        manager = TaskManager(include_defaults=False)
    else:
        source, manager = spec, _all_tasks()
        if spec not in manager.all_tasks:
            shipped_names = [f"qh_{p.stem}" for p in SUITES.glob("*.yaml")]
            near = get_close_matches(spec, [*manager.all_tasks, *shipped_names], n=4, cutoff=0.5)
            raise UserError(f"eval: no task is called {spec!r}. Nearest names: {', '.join(near) or 'none'}.")
    try:
        tasks = list(manager.load([source])["tasks"].values())
    except Exception as error:  # whatever its YAML, its templates, its data or the network make lm-eval raise
        raise UserError(
            f"eval: task {spec} cannot be loaded: {_reason(error)}.\n"
            "Data on the hub: is it reachable? A local file always works: dataset_path: json (or parquet) and "
            "dataset_kwargs: {data_files: {test: FILE}}.\n"
            "Local data: are all fields there, every answer among its choices, no choice empty?"
        ) from error
    for task in tasks:
        _check_metrics(task)
    return tasks


def _check_metrics(task: Any) -> None:
    """A metric that lm-eval does not know is left out of its results without a word."""
    known = task.config.process_results or getattr(task, "_metric_fn_list", {})
    if not callable(known) and (unknown := [name for name, function in known.items() if function is None]):
        raise UserError(f"eval: task {task.task_name}: lm-eval knows no metric {', '.join(unknown)}.")


def _reason(error: BaseException) -> str:
    """The first line of what went wrong first."""
    while error.__cause__:
        error = error.__cause__
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def quiet() -> None:
    """Keep the progress bars and notices of datasets and lm-eval out of the run's own output."""
    datasets.disable_progress_bars()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)


@cache
def _all_tasks() -> TaskManager:
    return TaskManager()


def _from_file(path: Path) -> dict[str, Any]:
    try:
        config = load_yaml(path)
    except Exception as error:  # not YAML, no mapping, an `include` that is not there
        raise UserError(f"eval: {path} is no task file: {_reason(error)}.") from error
    files = (config.get("dataset_kwargs") or {}).get("data_files")
    if files:
        config["dataset_kwargs"]["data_files"] = _absolute(files, path.parent)
    return config


def _absolute(files: Any, folder: Path) -> Any:
    if isinstance(files, dict):
        return {split: _absolute(value, folder) for split, value in files.items()}
    if isinstance(files, list):
        return [_absolute(value, folder) for value in files]
    path = folder / files
    if not path.is_file():
        raise UserError(f"eval: data file {files} is not there (looked for {path}).")
    if not path.stat().st_size:
        raise UserError(f"eval: data file {path} is empty.")
    return str(path)


def _items(found: Found, config: EvalConfig, encoder: Encoder, vocab_size: int) -> TaskItems:
    task: Any = found.task
    prompting = Prompting.of(config, task.task_name, task.config.num_fewshot)
    try:
        shots = prompting.build(task, encoder.tokenizer)
    except UserError:
        raise
    except Exception as error:  # whatever its templates and rows, or too few examples, make lm-eval raise
        raise UserError(
            f"eval: no requests can be made of task {task.task_name} with {task.config.num_fewshot or 0} examples: "
            f"{_reason(error)}.\nAre there enough rows for them, all fields in each, its answer among its choices?"
        ) from error
    if task.config.num_fewshot and not _has_examples(task):
        log.warning(
            "%s has no split for its examples: they are questions, the one asked among them. Set fewshot_split.",
            task.task_name,
        )
    asked = list(questions(task, shots))
    _check_all_asked(task, {question.item for question in asked}, prompting.limit)
    return TaskItems(found.subset, task.task_name, task, asked, encoder, vocab_size, prompting, found.group)


def _check_all_asked(task: Any, asked: Collection[str], limit: int | None) -> None:
    """lm-eval leaves out a row of which its templates make no request, without a word."""
    rows = range(len(task.eval_docs))[:limit]
    if silent := [row for row in map(str, rows) if row not in asked]:
        raise UserError(
            f"{task.task_name}, item {', '.join(silent[:5])}: no request can be made of it. Has it no choices? "
            "Complete the row or take it out."
        )


def _has_examples(task: Any) -> bool:
    """Whether few-shot examples are other rows than the question: another split, or its own without the question."""
    return bool(task.fewshot_cfg.split or task.has_training_docs() or task.has_validation_docs())
