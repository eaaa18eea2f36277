"""A text scored in windows of tokens, under a protocol that is stated with every number.

The same model has many perplexities: Llama-2-7B on WikiText-2 is 5.47 at a window of 2048, 5.12 at 4096, and about
8.79 as word perplexity. Window, stride, joiner, BOS rule and the fate of a short last window are therefore part of
the result. Every token is scored at most once; its value is -log p in nats, and perplexity is exp of the mean over
tokens. The first token of a text, and a BOS, are never scored.

Word perplexity is exp of the mean over words: what stands between blanks in the text. Where only a part of the tokens
is scored, that part of the words is counted. It compares models with different tokenizers, token perplexity does not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.config import BosRule, LastWindow, PerplexityConfig
from harness.errors import UserError
from harness.packs import TokenSequence, slots
from harness.score.measure import WINDOW, Measure, Results, Summary, by_sequence, digest
from harness.stream import Scores
from harness.text import bare_ids, joined

SHIPPED = Path(__file__).parent.parent / "data" / "prose"
PUBLISHED = {"wikitext2": "the test file of WikiText-2 raw (wiki.test.raw of wikitext-2-raw-v1)"}  # by task name


@dataclass
class TextWindows:
    """A text cut into windows, each an item."""

    config: PerplexityConfig
    sequences: list[TokenSequence]
    documents: list[str]
    data_hash: str
    vocab_size: int
    tokens_per_word: float
    subset: str = field(init=False)
    name: str = field(init=False)
    group: str = field(init=False, default="")
    is_text: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        self.subset, self.name = self.config.subset, self.config.name

    def results(self, scores: Scores) -> Results:
        """nll a token, KL and agreement, by window."""
        starts = slots(self.sequences)
        n_N = np.diff(starts)
        kl_AN = by_sequence(scores.kl_AS, starts) / n_N
        agree_AN = by_sequence(scores.agree_AS.astype(float), starts) / n_N
        shared = {
            "subset": self.subset,
            "task": self.name,
            "items": [f"window{n}" for n in range(len(self.sequences))],
            "documents": self.documents,
            "bands": [""] * len(self.sequences),
            "n_tokens": n_N,
            "weights_N": n_N.astype(float),
            "higher_is_better": False,
            "kl_AN": kl_AN,
            "agree_AN": agree_AN,
        }
        nll_AN = -by_sequence(scores.logp_AS, starts) / n_N
        measures = [
            Measure(
                metric="nll",
                unit="nats/token",
                values_AN=nll_AN,
                worst=float(np.log(self.vocab_size)),
                is_text=True,
                **shared,
            ),
            Measure(metric="kl", unit="nats/token", values_AN=kl_AN, **shared),
        ]
        return Results(measures, [self._word_perplexity(nll_AN * n_N, n_N)], self._protocol(), self.data_hash)

    def _word_perplexity(self, sum_AN: np.ndarray, n_N: np.ndarray) -> Summary:
        def perplexity(weight_RN: np.ndarray) -> np.ndarray:
            with np.errstate(over="ignore"):  # a text without spaces is one word of any length
                value_RA = np.exp(weight_RN @ sum_AN.T / (weight_RN @ n_N)[:, None] * self.tokens_per_word)
            return np.where(np.isfinite(value_RA), value_RA, np.nan)

        return Summary(
            subset=self.subset,
            task=self.name,
            metric="word_perplexity",
            unit="per word",
            higher_is_better=False,
            value_A=perplexity(np.ones((1, len(n_N))))[0],
            n_items=len(n_N),
            documents=self.documents,
            weighted=perplexity,
        )

    @property
    def item_documents(self) -> list[str]:
        """The document of every window."""
        return self.documents

    @property
    def metrics(self) -> list[str]:
        """What a window has."""
        return ["nll", "kl"]

    @property
    def fingerprint(self) -> str:
        """Hash of the windows' token ids and documents, and of the whole text, whose words are counted."""
        windows = [(s.tokens, s.start) for s in self.sequences]
        return digest([windows, self.documents, self.data_hash, self.tokens_per_word])

    def _protocol(self) -> dict[str, Any]:
        protocol = asdict(self.config) | {"unit": "token", "windows": len(self.sequences)}
        del protocol["path"], protocol["name"], protocol["subset"]
        return protocol


def read_text(config: PerplexityConfig, base: Path) -> str:
    """The text, lines joined as asked. Relative paths start at `base`. UserError for a file that cannot be used."""
    shipped = config.path.startswith("shipped:")
    path = SHIPPED / f"{config.path.removeprefix('shipped:')}.txt" if shipped else base / config.path
    if not path.is_file():
        raise UserError(f"eval.perplexity.path={config.path}: no such file. {_instead(config)}")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"eval.perplexity.path={config.path}: not UTF-8 ({error}). Convert it first.") from error
    if config.max_chars:
        text = text[: config.max_chars]
    text = joined(text, config.joiner)
    if not text.strip():
        raise UserError(f"eval.perplexity.path={config.path}: the file is empty.")
    return text


def _instead(config: PerplexityConfig) -> str:
    """What to give in place of a missing file. For a number that papers give no other text will do."""
    if config.name in PUBLISHED:
        return (
            f"eval.perplexity.name={config.name} is {PUBLISHED[config.name]}, which is not shipped: give its place as "
            "eval.perplexity.path=FILE."
        )
    names = ", ".join(f"shipped:{p.stem}" for p in sorted(SHIPPED.glob("*.txt")))
    return f"Give a text file, or one of: {names}."


def cut_text(text: str, config: PerplexityConfig, tokenizer: Any, vocab_size: int) -> TextWindows:
    """Tokenize a text and cut it into windows. UserError where it is too short for one."""
    encode = _encoder(config, tokenizer)
    parts = [encode(part) for part in _split(text, config.document_regex)]
    found = [
        (window, f"document{number}" if config.document_regex else "")
        for number, part in enumerate(parts)
        for window in islice(cut(part, config), config.max_windows_per_document or None)
    ][: config.max_windows or None]
    sequences = [window for window, _ in found]
    documents = [document or f"{WINDOW}{n}" for n, (_, document) in enumerate(found)]
    if not sequences:
        raise UserError(
            f"eval.perplexity.path={config.path}: no window of {config.window} tokens in {len(text)} characters. "
            "Set a smaller eval.perplexity.window, or eval.perplexity.last_window=score."
        )
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    tokens_per_word = sum(len(part) - (config.bos is not BosRule.none) for part in parts) / len(text.split())
    return TextWindows(config, sequences, documents, digest, vocab_size, tokens_per_word)


def cut(ids: list[int], config: PerplexityConfig) -> Iterator[TokenSequence]:
    """Windows of a token list; each scores only what no window before it has scored.

    A BOS at the start of every window takes the place of one token of it.
    """
    prefix = ids[:1] if config.bos is BosRule.window else []
    body = ids[1:] if config.bos is BosRule.window else ids
    width = config.window - len(prefix)
    stride = config.stride or width
    done = 0
    for begin in range(0, len(body), stride):
        end = begin + width
        if end > len(body):
            if config.last_window is LastWindow.drop or len(body) - done < 1:
                return
            end = len(body)
        first = max(done, begin)
        start = max(1, len(prefix) + first - begin)
        if start < len(prefix) + end - begin:
            yield TokenSequence((*prefix, *body[begin:end]), start)
        done = end
        if end == len(body):
            return


def _encoder(config: PerplexityConfig, tokenizer: Any) -> Callable[[str], list[int]]:
    if config.bos is not BosRule.none and tokenizer.bos_token_id is None:
        raise UserError(f"eval.perplexity.bos={config.bos}: this tokenizer has no BOS token. Set it to none.")

    def encode(text: str) -> list[int]:
        ids = bare_ids(tokenizer, text)
        if config.bos is BosRule.none:
            return ids
        return ids if ids[:1] == [tokenizer.bos_token_id] else [tokenizer.bos_token_id, *ids]

    return encode


def _split(text: str, regex: str) -> list[str]:
    """Documents: a match of the regex begins a new one; what stands before the first match is one too."""
    if not regex:
        return [text]
    at = [m.start() for m in re.finditer(regex, text, re.MULTILINE)]
    if not at:
        raise UserError(f"eval.perplexity.document_regex={regex!r} matches nothing in this text.")
    ends = [*at, len(text)]
    parts = [text[: at[0]], *(text[a:b] for a, b in pairwise(ends))]
    return [part for part in parts if part.strip()]
