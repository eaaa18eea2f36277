"""The ledger: where a model's parameters, bytes, FLOPs and milliseconds sit, from its config alone.

    python -m harness.ledger model=llama2_7b

No weight is read. Names and shapes come from the engine's own site finder over a model on the meta device, or from
bare numbers (`model=shape`). `model_bytes` serves the byte columns of every run's report.
"""

from harness.ledger.weights import ModelBytes, model_bytes

__all__ = ["ModelBytes", "model_bytes"]
