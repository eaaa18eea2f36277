"""How much of what is scored was seen in calibration."""

import pytest

from harness.calibrate import Draw
from harness.model.byte_tokenizer import byte_tokenizer
from harness.overlap import describe, line_overlap, ngram_overlap

TOKENIZER = byte_tokenizer()
LINE = "a line of more than twenty letters"


def ids(text):
    return TOKENIZER(text)["input_ids"]


def test_thirteen_tokens_in_a_row():
    draw = Draw((tuple(ids("abcdefghijklmnopqrstuvwxyz")),), 1, 0)
    assert ngram_overlap([draw], [ids(t) for t in ("..abcdefghijklm..", "..abcdefghijkl..", "..")]) == pytest.approx(
        1 / 3
    )


def test_whole_lines():
    draw = Draw((tuple(ids(f"start\n  {LINE}\nshort\nend")),), 1, 0)
    texts = [f"x\n{LINE}", f"{LINE} and more", "short\nshort"]
    assert line_overlap([draw], [ids(t) for t in texts], TOKENIZER.decode) == pytest.approx(1 / 3)
    assert line_overlap([draw], [], TOKENIZER.decode) == 0


def test_each_draw_is_described():
    draw = Draw((tuple(ids(LINE)), tuple(ids(LINE[::-1]))), 5, 3, 4)
    (said,) = describe([draw], [7], [ids(LINE), ids("something else entirely, and long")], TOKENIZER)
    assert said == {
        "seed": 7, "samples": 2, "tokens": 2 * len(LINE), "repeated_tokens": 4, "usable_samples": 5,
        "dropped_short_texts": 3, "sample_hash": draw.digest,
        "scored_with_13_tokens_in_common": 0.5, "scored_with_a_line_in_common": 0.5,
    }  # fmt: skip
