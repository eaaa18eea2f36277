"""The way data flows is the way modules import: later stages import earlier ones, never back."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "harness"

# Earlier lines never import from later ones.
STAGES = [
    "errors",
    "scheme words supported config overrides check refusals odd_scalars paths colours",
    "files makers identity",
    "workers",
    "model",
    "entries",
    "plan design controls",
    "quantize",
    "packs replay trunks live data text cut",
    "stream calibrate expert_inputs calibration overlap weigh materialize",
    "keys",
    "score",
    "attribute",
    "effects",
    "ledger",
    "report console",
    "reuse stale failures jobs apart gpus needs preflight cache ranks sweep",
    "scoring",
    "pipeline",
    "app",
    "__main__",
]
STAGE = {name: n for n, line in enumerate(STAGES) for name in line.split()}


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("harness."):
            yield node.module
        elif isinstance(node, ast.ImportFrom) and node.module == "harness":
            yield from (f"harness.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("harness."))


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_module_imports_a_later_stage(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "__init__":
        return
    assert parts[0] in STAGE, f"{parts[0]} has no place in the flow"
    back = [m for m in imports(path) if STAGE[m.split(".")[1]] > STAGE[parts[0]]]
    assert not back
