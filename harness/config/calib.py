"""Settings of the group `calib`: the tokens that methods with input statistics look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class CalibSource(StrEnum):
    """Where calibration tokens come from."""

    shipped = "shipped"  # State of the Union speeches in the package
    text = "text"  # a text file
    jsonl = "jsonl"  # a jsonl file with a text field, or token ids
    dataset = "dataset"  # a `datasets` set


class CalibInputs(StrEnum):
    """Whose activations the statistics see: the unquantized model's, or those of the arm's own quantized prefix."""

    float = "float"
    quantized = "quantized"


class CalibPacking(StrEnum):
    """How texts become samples of equal length."""

    stream = "stream"  # texts joined into one stream of tokens, cut anywhere
    rows = "rows"  # one sample a text, cut to the length; shorter texts are dropped and counted


class CalibDraw(StrEnum):
    """Which samples are taken."""

    random = "random"  # drawn with the seed
    start = "start"  # from the start, one after the other


@dataclass
class CalibConfig:
    """Calibration tokens for methods that need input statistics."""

    source: CalibSource = CalibSource.shipped
    path: str = ""  # file, or dataset name
    config_name: str = ""  # dataset configuration
    split: str = "train"
    text_field: str = "text"  # jsonl and datasets: the column of text or of token ids
    joiner: str = ""  # text files: as eval.perplexity.joiner
    samples: int = 32
    length: int = 512  # tokens a sample
    packing: CalibPacking = CalibPacking.stream
    draw: CalibDraw = CalibDraw.random
    bos: bool = False  # a BOS as the first token of each sample
    seeds: list[int] = field(default_factory=lambda: [0])
    inputs: CalibInputs = CalibInputs.float
    keep: bool = True  # keep statistics of float inputs in the cache folder for later runs

    def __post_init__(self) -> None:
        """Newlines as a command line writes them."""
        self.joiner = self.joiner.replace("\\n", "\n")
