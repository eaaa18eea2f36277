"""Rows of a text file, and tokens of a text."""

import pytest

from harness.model.byte_tokenizer import byte_tokenizer
from harness.text import bare_ids, joined
from tests.runs import composed


def test_blank_rows_are_emptied_and_newlines_kept():
    assert joined("one\n \ntwo", "\n\n") == "one\n\n\n\n\ntwo"
    assert joined("one\n \ntwo", "") == "one\n \ntwo"


@pytest.mark.parametrize("given", ["'\\n\\n'", '"\\n\\n"', "'\n\n'"])
@pytest.mark.parametrize("field", ["calib", "eval.perplexity"])
def test_newlines_can_be_given_on_the_command_line_and_are_the_same_setting(field, given):
    config = composed("eval=quick", f"{field}.joiner={given}")
    joiner = (config.calib if field == "calib" else config.eval.perplexity).joiner
    assert joiner == "\n\n" and joined("one\ntwo\n", joiner) == "one\n\n\ntwo\n"


def test_a_text_alone_has_no_special_token():
    assert 0 not in bare_ids(byte_tokenizer(add_bos=True), "abc") and len(bare_ids(byte_tokenizer(), "abc")) == 3
