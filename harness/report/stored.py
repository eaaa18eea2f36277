"""The columns of report.csv, and tables on disk. What reads results needs this and no model.

Missing values are empty cells. Words stay words: a hash or run_id of digits only, or one that looks like `12e34`, is
text, and a task called `NA` is not missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import UserError
from harness.files import to_json, write_atomic

_COLUMNS = """
    experiment run_id model model_sha base_lattice arm subset task band metric unit n_items n_documents n_tokens
    value stderr base_value loss loss_lo loss_hi p_value p_adjusted verdict below_noise flips_to_wrong flips_to_right
    kl_mean top1_agreement ffn_method ffn_precision ffn_group_size attention_method attention_precision
    attention_group_size calib_inputs calib_overlap quantized_share bits_per_weight weight_bytes ffn_bytes_saved
    attention_bytes_saved protocol config template_hash data_hash seed dtype device batch_tokens seconds peak_bytes
    harness_version status reason
"""
COLUMNS = _COLUMNS.split()

_WHOLE_NUMBERS = """
    n_items n_documents n_tokens flips_to_wrong flips_to_right ffn_group_size attention_group_size weight_bytes
    ffn_bytes_saved attention_bytes_saved seed batch_tokens peak_bytes weights bytes_saved
"""
WHOLE_NUMBERS = _WHOLE_NUMBERS.split()

_WORDS = """
    experiment run_id model model_sha base_lattice arm subset task band metric unit verdict ffn_method ffn_precision
    attention_method attention_precision calib_inputs protocol config template_hash data_hash dtype device
    harness_version status reason player kind site block role
"""
WORDS = _WORDS.split()


def read_report(path: Any) -> pd.DataFrame:
    """A table back as it was written: words stay words, whole numbers stay whole, only empty cells are missing."""
    try:
        types: Any = dict.fromkeys(WORDS, "str") | dict.fromkeys(WHOLE_NUMBERS, "Int64")
        return pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=types, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a report ({error}). With harness.force=true its run is made again.") from error


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """A whole parquet or CSV file, or none: UTF-8, RFC 4180, dictionaries as JSON cells, empty cells where unknown."""
    if path.suffix == ".parquet":
        return write_atomic(path, lambda aside: frame.to_parquet(aside, index=False))
    cells = frame.copy()
    for name in [name for name in cells if cells[name].dtype == object]:
        cells[name] = [to_json(cell, indent=None) if isinstance(cell, dict) else cell for cell in cells[name]]
    return write_atomic(path, lambda aside: cells.to_csv(aside, index=False, encoding="utf-8", lineterminator="\r\n"))
