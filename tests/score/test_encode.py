"""From texts to tokens: lm-eval's rule at the boundary, one BOS at most, no answer without a token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.api.model import TemplateLM
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from harness.config import BosUse
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.score.encode import Encoder

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "o k"]


def merging_tokenizer(add_bos=False):
    """Bytes, `hello` and ` world` as single tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = ["<s>", "</s>", *letters, *(merge.replace(" ", "") for merge in MERGES)]
    merges = [tuple(merge.split()) for merge in MERGES]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, merges=merges))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


class Reference(TemplateLM):
    """lm-eval's own rule for a pair, and nothing else of it."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    @property
    def eot_token_id(self):
        return self.tokenizer.bos_token_id

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens is not False)

    def _loglikelihood_tokens(self, requests, **kwargs):
        return [(context, answer) for _, context, answer in requests]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise AssertionError("only log-likelihoods are asked of it")

    def generate_until(self, requests, disable_tqdm=False):
        raise AssertionError("only log-likelihoods are asked of it")

    def pair(self, context, answer):
        request = type("Request", (), {"args": (context, answer)})
        return self.loglikelihood([request], disable_tqdm=True)[0]  # pyright: ignore


def encoder(tokenizer=None, bos=BosUse.auto, longest=512):
    return Encoder(tokenizer or byte_tokenizer(), bos, longest)


PAIRS = [
    ("What is it?", " an answer"), ("hello", " world"), ("hello wo", "rld"), ("hello ", "world"), ("a  ", " b"),
    ("", "hello"),
    ("é", "ü"), ("he", "llo"), ("hello\n", "ok"), ("<s>hello", " world"),
]  # fmt: skip


@pytest.mark.case("F4")
@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize(("context", "answer"), PAIRS)
def test_a_pair_is_split_where_lm_eval_splits_it(context, answer, add_bos):
    tokenizer = merging_tokenizer(add_bos)
    before, after = Reference(tokenizer).pair(context, answer)
    while before[:2] == [0, 0]:
        before = before[1:]  # lm-eval 0.4.13 leaves a doubled BOS
    if not after:
        with pytest.raises(UserError, match="has no token of its own"):
            encoder(tokenizer).pair(context, answer, "item")
        return
    got = encoder(tokenizer).pair(context, answer, "item")
    assert (list(got.tokens), got.start) == ([*before, *after], len(before))


@given(st.text("helo wrd", max_size=12), st.text("helo wrd", min_size=1, max_size=8))
def test_the_split_is_lm_evals_for_any_text(context, answer):
    tokenizer = merging_tokenizer()
    if not context.strip() or not answer.strip():
        return
    before, after = Reference(tokenizer).pair(context, answer)
    if not after:
        with pytest.raises(UserError):
            encoder(tokenizer).pair(context, answer, "item")
        return
    got = encoder(tokenizer).pair(context, answer, "item")
    assert (list(got.tokens), got.start) == ([*before, *after], len(before))


@pytest.mark.case("F4")
@pytest.mark.parametrize(
    ("context", "answer"), [("hello wor", "ld"), ("hello", ""), ("hello", " "), ("hello ", "  \n"), ("", "<s>")]
)
def test_an_answer_without_a_token_of_its_own_is_an_error_that_names_the_item(context, answer):
    with pytest.raises(UserError, match=r"task, item 7: the answer .* has no token of its own"):
        encoder(merging_tokenizer()).pair(context, answer, "task, item 7")


@pytest.mark.case("F4")
def test_a_request_longer_than_the_model_is_an_error_that_names_the_item():
    encoder(longest=9).pair("12345", "67890", "item 3")  # the last token is never an input
    with pytest.raises(UserError, match="item 3: 10 tokens, but the model has 9 positions"):
        encoder(longest=9).pair("12345", "678901", "item 3")


def test_an_empty_context_gets_the_prefix_token_and_all_of_the_answer_is_scored():
    got = encoder().pair("", "ab", "item")
    assert got.tokens[0] == 0 and got.start == 1 and len(got.tokens) == 3
    blank = encoder().pair("  ", "ab", "item")
    assert blank.tokens[0] == 0 and blank.scored == 4  # lm-eval's rule: the spaces belong to the answer


@pytest.mark.case("F2")
@pytest.mark.parametrize("text", ["hello", "<s>hello", "<s><s>hello"])
@pytest.mark.parametrize(
    ("add_bos", "rule", "count"),
    [
        (False, "always", 1),
        (True, "always", 1),
        (True, "auto", 1),
        (False, "never", 0),
        (True, "never", 0),
        (False, "auto", 0),
    ],
)
def test_one_bos_or_none_by_the_rule(text, add_bos, rule, count):
    ids = encoder(merging_tokenizer(add_bos), BosUse(rule)).encode(text)
    written = text.count("<s>")
    assert ids[: count + 1].count(0) == max(count, min(written, 1))
    assert ids.count(0) <= 1


@pytest.mark.case("F2")
def test_a_bos_that_does_not_exist_cannot_be_asked_for():
    tokenizer = merging_tokenizer()
    tokenizer.bos_token = None
    with pytest.raises(UserError, match=r"eval\.bos=always"):
        encoder(tokenizer, BosUse.always).encode("hello")


@pytest.mark.case("F3")
@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize("text", ["hello world", "<s>hello world", "a" * 50])
def test_rolling_text_has_one_bos_that_is_never_scored_and_every_token_once(text, add_bos):
    windows = encoder(merging_tokenizer(add_bos), longest=16).rolling(text, "item")
    plain = merging_tokenizer()(text.removeprefix("<s>"))["input_ids"]
    assert [token for w in windows for token in w.tokens[w.start :]] == plain
    assert windows[0].tokens[0] == 0 and sum(w.tokens.count(0) for w in windows) == 1
    assert all(len(w.tokens) - 1 <= 16 for w in windows)


def test_an_empty_rolling_text_is_an_error_that_names_the_item():
    with pytest.raises(UserError, match="item 2: the text is empty"):
        encoder().rolling("", "item 2")


def test_a_tokenizer_without_bos_begins_with_its_end_token():
    tokenizer = byte_tokenizer()
    tokenizer.bos_token = None
    assert encoder(tokenizer).pair("", "ab", "item").tokens[0] == 1
