"""Windows of a text: every token at most once, and the protocol that decides which."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import BosRule, LastWindow, PerplexityConfig
from harness.errors import UserError
from harness.model.byte_tokenizer import byte_tokenizer
from harness.score.perplexity import cut, cut_text, read_text
from harness.stream import Scores

BOS = 1000
RULES = st.builds(
    PerplexityConfig,
    window=st.integers(2, 12),
    stride=st.integers(0, 12),
    bos=st.sampled_from(BosRule),
    last_window=st.sampled_from(LastWindow),
).filter(lambda config: config.stride < config.window)


def windows(length, config):
    """Windows over tokens 0, 1, 2 ..., so that a token tells its place."""
    ids = list(range(length)) if config.bos is BosRule.none else [BOS, *range(length)]
    return list(cut(ids, config))


def scored(made):
    return [token for window in made for token in window.tokens[window.start :]]


@given(st.integers(0, 60), RULES)
def test_every_token_is_scored_at_most_once_in_order_and_no_bos_ever(length, config):
    made = windows(length, config)
    got = scored(made)
    assert got == sorted(set(got)) and BOS not in got
    assert all(2 <= len(window.tokens) <= config.window for window in made)


@given(st.integers(2, 60), RULES)
def test_with_overlap_or_bos_the_last_window_scored_nothing_but_the_first_token_is_left_out(length, config):
    config.last_window = LastWindow.score
    got = scored(windows(length, config))
    if config.bos is BosRule.window:
        assert got == list(range(length))
    elif config.stride:
        assert got == list(range(config.bos is BosRule.none, length))


@given(st.integers(0, 60), st.integers(2, 12), st.sampled_from(BosRule))
def test_dropping_keeps_whole_windows_only(length, size, bos):
    config = PerplexityConfig(window=size, bos=bos)
    made = windows(length, config)
    assert all(len(window.tokens) == size for window in made)
    new = size - (bos is BosRule.window)
    assert len(made) == (length + (bos is BosRule.first)) // new


@given(st.integers(0, 60), RULES)
def test_what_stands_before_a_scored_token_is_the_text_before_it(length, config):
    for n, window in enumerate(windows(length, config)):
        body = [token for token in window.tokens if token != BOS]
        assert body == list(range(body[0], body[0] + len(body)))
        has_bos = config.bos is BosRule.window or (config.bos is BosRule.first and n == 0)
        assert window.tokens.count(BOS) == has_bos == (window.tokens[0] == BOS)


def test_papers_windows_stand_side_by_side_and_score_all_but_their_first_token():
    made = windows(300, PerplexityConfig(window=64))
    assert [w.tokens[0] for w in made] == [0, 64, 128, 192] and all(w.scored == 63 for w in made)


@pytest.mark.case("F12")
def test_the_same_text_has_many_perplexities_and_the_protocol_says_which():
    text = "word " * 60  # 300 tokens
    rules = [
        PerplexityConfig(window=32, path="a"),
        PerplexityConfig(window=64, path="a"),
        PerplexityConfig(window=64, stride=32, path="a"),
        PerplexityConfig(window=64, last_window=LastWindow.score, path="a"),
        PerplexityConfig(window=64, bos=BosRule.window, path="a"),
        PerplexityConfig(window=64, bos=BosRule.first, path="a"),
        PerplexityConfig(window=64, joiner="\n\n", path="a"),
    ]
    made = [cut_text(text, config, byte_tokenizer(), 258) for config in rules]
    assert [sum(s.scored for s in m.sequences) for m in made] == [
        9 * 31,
        4 * 63,
        63 + 7 * 32,
        295,
        4 * 63,
        4 * 63,
        4 * 63,
    ]
    protocols = [m.results(scores(m)).protocol for m in made]
    assert len({json.dumps(p, sort_keys=True, default=str) for p in protocols}) == len(rules)
    assert all(p["unit"] == "token" and "path" not in p for p in protocols)
    assert len({m.data_hash for m in made}) == 1


def scores(text, arms=2, rng=None):
    """Log-probabilities made up for every token of a text."""
    rng = rng or np.random.default_rng(0)
    slots = sum(s.scored for s in text.sequences)
    logp = -rng.gamma(2.0, size=(arms, slots))
    return Scores(
        logp, np.zeros((arms, slots), bool), rng.gamma(1.0, size=(arms, slots)), rng.random((arms, slots)) < 0.5
    )


@pytest.mark.case("F12")
def test_the_mean_is_over_tokens_the_short_last_window_included():
    config = PerplexityConfig(path="a", window=64, last_window=LastWindow.score)
    text = cut_text("word " * 20, config, byte_tokenizer(), 258)  # 100 tokens: 63 + 35 scored
    given_scores = scores(text)
    nll, kl = text.results(given_scores).measures
    assert list(nll.n_tokens) == [63, 35]
    mean = np.average(nll.values_AN, weights=nll.weights_N, axis=1)
    np.testing.assert_allclose(mean, -given_scores.logp_AS.mean(axis=1))
    np.testing.assert_allclose(np.average(kl.values_AN, weights=kl.weights_N, axis=1), given_scores.kl_AS.mean(axis=1))
    assert nll.agree_AN is not None
    np.testing.assert_allclose(
        np.average(nll.agree_AN, weights=nll.weights_N, axis=1), given_scores.agree_AS.mean(axis=1)
    )
    assert nll.worst == pytest.approx(np.log(258)) and nll.is_text and not kl.is_text


@pytest.mark.case("F12")
def test_words_are_counted_as_far_as_tokens_are_scored():
    whole = PerplexityConfig(path="a", window=50, bos=BosRule.window, last_window=LastWindow.score)
    text = cut_text("word " * 20, whole, byte_tokenizer(), 258)  # 100 tokens, all scored
    given_scores = scores(text)
    (summary,) = text.results(given_scores).summaries
    want = np.exp(-given_scores.logp_AS.sum(axis=1) / 20)
    assert (summary.metric, summary.unit) == ("word_perplexity", "per word")
    np.testing.assert_allclose(summary.value_A, want)
    whole.max_windows = 1
    part = cut_text("word " * 20, whole, byte_tokenizer(), 258)
    part_scores = scores(part)
    n_words = 20 * part_scores.logp_AS.shape[1] / 100
    (summary,) = part.results(part_scores).summaries
    np.testing.assert_allclose(summary.value_A, np.exp(-part_scores.logp_AS.sum(axis=1) / n_words))


def test_a_text_without_spaces_has_no_perplexity_by_word():
    text = cut_text("x" * 2000, PerplexityConfig(path="a", window=50), byte_tokenizer(), 258)
    (summary,) = text.results(scores(text)).summaries
    assert np.isnan(summary.value_A).all()


def test_windows_do_not_cross_documents_and_may_be_bounded_in_each():
    text = "before " * 3 + "\nCHAPTER 1\n" + "a" * 30 + "\nCHAPTER 2\n" + "b" * 70
    config = PerplexityConfig(path="a", window=16, document_regex=r"^CHAPTER \d+", last_window=LastWindow.score)
    made = cut_text(text, config, byte_tokenizer(), 258)
    decode = byte_tokenizer().decode
    for sequence in made.sequences:
        assert not {"a", "b"} <= set(decode(sequence.tokens))
    assert list(dict.fromkeys(made.documents)) == ["document0", "document1", "document2"]
    config.max_windows_per_document = 1
    assert cut_text(text, config, byte_tokenizer(), 258).documents == ["document0", "document1", "document2"]
    config.max_windows = 2
    assert len(cut_text(text, config, byte_tokenizer(), 258).sequences) == 2


def test_without_boundaries_every_window_is_its_own_document():
    made = cut_text("a" * 40, PerplexityConfig(path="a", window=10), byte_tokenizer(), 258)
    assert made.documents == [f"window{n}" for n in range(4)]


@pytest.mark.case("F2")
@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize(
    ("rule", "begins"), [("none", [False] * 3), ("first", [True, False, False]), ("window", [True] * 3)]
)
def test_a_bos_stands_where_the_rule_says_whatever_the_tokenizer_does(add_bos, rule, begins):
    config = PerplexityConfig(path="a", window=10, bos=BosRule(rule), max_windows=3)
    made = cut_text("word " * 20, config, byte_tokenizer(add_bos), 258)
    assert [s.tokens[0] == 0 for s in made.sequences] == begins
    assert all(
        s.tokens.count(0) == b and 0 not in s.tokens[s.start :] for s, b in zip(made.sequences, begins, strict=True)
    )


@pytest.mark.case("F2")
def test_a_bos_that_does_not_exist_cannot_be_asked_for():
    tokenizer = byte_tokenizer()
    tokenizer.bos_token = None
    with pytest.raises(UserError, match=r"eval\.perplexity\.bos=window"):
        cut_text("text", PerplexityConfig(path="a", bos=BosRule.window), tokenizer, 258)


def test_rows_are_joined_as_papers_do(tmp_path):
    (tmp_path / "wiki.txt").write_bytes(b"= Title =\n \nOne row .\n\nTwo")
    config = PerplexityConfig(path="wiki.txt", joiner="\n\n")
    assert read_text(config, tmp_path) == "= Title =\n\n\n\n\nOne row .\n\n\n\n\nTwo"
    config.joiner = ""
    assert read_text(config, tmp_path) == "= Title =\n \nOne row .\n\nTwo"
    config.max_chars = 5
    assert read_text(config, tmp_path) == "= Tit"


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no such file"), (b"", "the file is empty"), (b" \n\n", "the file is empty"), (b"caf\xe9", "not UTF-8")],
)
def test_a_file_that_is_no_text_is_named(tmp_path, content, words):
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(UserError, match=rf"eval\.perplexity\.path=text\.txt: {words}"):
        read_text(PerplexityConfig(path="text.txt"), tmp_path)


def test_a_published_text_that_is_missing_is_named_and_no_other_offered(tmp_path):
    words = r"wiki\.test\.raw: no such file.*WikiText-2 raw.*eval\.perplexity\.path=FILE"
    with pytest.raises(UserError, match=words) as refusal:
        read_text(PerplexityConfig(path="wiki.test.raw", name="wikitext2"), tmp_path)
    assert "shipped:moby_dick" not in str(refusal.value)


def test_a_shipped_text_is_read_from_the_package_and_a_wrong_name_is_told_the_right_ones(tmp_path):
    assert "Ishmael" in read_text(PerplexityConfig(path="shipped:moby_dick"), tmp_path)
    with pytest.raises(UserError, match="shipped:moby_dick"):
        read_text(PerplexityConfig(path="shipped:moby"), tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"window": 64}, "no window of 64 tokens in 19 characters"), ({"document_regex": "CHAPTER"}, "matches nothing")],
)
def test_a_text_too_short_or_without_boundaries_is_an_error_with_the_way_out(change, words):
    with pytest.raises(UserError, match=words):
        cut_text("nineteen characters", PerplexityConfig(path="a", **change), byte_tokenizer(), 258)


def test_the_fingerprint_changes_with_tokens_and_documents():
    def mark(text, **change):
        return cut_text(text, PerplexityConfig(path="a", window=10, **change), byte_tokenizer(), 258).fingerprint

    assert mark("a" * 40) == mark("a" * 40)
    marks = [
        mark("a" * 40),
        mark("a" * 50),
        mark("b" * 40),
        mark("a" * 40, stride=5),
        mark("a" * 40, document_regex="^a"),
    ]
    assert len(set(marks)) == len(marks)
