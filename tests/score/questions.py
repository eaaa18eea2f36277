"""Small tasks written as a user would: a YAML file in lm-eval's format beside its rows."""

import json
from pathlib import Path

import yaml

ROWS = [
    {"query": f"Q{n}: which is {word}?", "choices": ["red", "blue", "deep green"], "gold": n % 3, "topic": f"t{n // 2}"}
    for n, word in enumerate(("warm", "cold", "calm", "bright", "dull", "é→"))
]
CHOICE = {
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{query}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "gold",
    "metric_list": [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_norm")],
}


def write_task(folder: Path, name: str = "own", rows: list | None = None, **changes) -> str:
    """Write `name`.yaml and `name`.jsonl; the name of the YAML file."""
    lines = [json.dumps(row, ensure_ascii=False) for row in (ROWS if rows is None else rows)]
    (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = {"dataset_kwargs": {"data_files": {"test": f"{name}.jsonl"}}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, **CHOICE, **files, **changes}), encoding="utf-8")
    return f"{name}.yaml"
