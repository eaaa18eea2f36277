"""Write shares.csv: the FFN's share of every shipped model. Run from anywhere: python record.py"""

import csv
from pathlib import Path

from harness.ledger.config import Source
from harness.ledger.params import summary
from harness.ledger.presets import choices, shape_of

COLUMNS = ("model", "parameters", "active_parameters", "layer_ffn", "total_ffn", "active_ffn", "ratio")


def rows() -> list[tuple]:
    """One row a shipped model, in the order of the presets."""
    found = []
    for name, choice in choices().items():
        shipped = choice.source is Source.preset or choice.shape.layers
        if shipped and name not in ("tiny", "smollm2_135m_raw", "smollm2_135m_hub"):
            counts = summary(shape_of(choice))
            params, share = counts["params"], counts["share"]
            shares = (share["layer_ffn"], share["total_ffn"], share["active_ffn"], share["ratio"])
            found.append((name, params["total"]["all"], params["active"]["all"], *(round(s, 6) for s in shares)))
    return found


if __name__ == "__main__":
    with Path(__file__).with_name("shares.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows()])
