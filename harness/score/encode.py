"""From lm-eval's texts to token ids: its boundary rule, one BOS at most, and no answer that cannot be scored.

A token may span the end of the context and the beginning of the answer. lm-eval's rule (`TemplateLM._encode_pair`):
spaces at the context's end move to the answer; context and answer are tokenized together, and what is beyond the
length of the context tokenized alone is the answer. Its HF backend stops with a bare assertion where that leaves
nothing; here the item is named before anything is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from harness.config import BosUse
from harness.errors import TooLongError, UserError
from harness.files import key_of
from harness.packs import TokenSequence
from harness.text import bare_ids


@dataclass
class Encoder:
    """A tokenizer with a BOS rule and the longest input it may make."""

    tokenizer: Any
    bos: BosUse
    max_length: int  # positions of the model
    reuse: bool = False  # take token ids of large tasks from the cache folder, and leave them there

    @cached_property
    def identity(self) -> str:
        """Hash of all that the tokenizer does; "" for one in Python, which does not tell."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return ""
        special = [self.tokenizer.bos_token_id, self.tokenizer.eos_token_id, self.tokenizer.split_special_tokens]
        return key_of([type(self.tokenizer).__name__, special, backend.to_str()])

    @property
    def prefix(self) -> int:
        """The token that stands before a text without context: BOS, else EOS."""
        bos = self.tokenizer.bos_token_id
        return self.tokenizer.eos_token_id if bos is None else bos

    @property
    def lead(self) -> tuple[int, ...]:
        """What `encode` puts before a text: one BOS, or nothing."""
        bos = self.tokenizer.bos_token_id
        return (bos,) if bos is not None and self.encode("a")[:1] == [bos] else ()

    @property
    def bos_text(self) -> str:
        """What to write before a prompt for a program that only asks the tokenizer for a BOS: one, if it adds none."""
        bos = self.tokenizer.bos_token_id
        adds = self.tokenizer("a", verbose=False)["input_ids"][:1] == [bos]
        return self.tokenizer.bos_token if self.bos == BosUse.always and not adds else ""

    def encode(self, text: str) -> list[int]:
        """Token ids, with one BOS or none."""
        bos = self.tokenizer.bos_token_id
        if self.bos == BosUse.always and bos is None:
            raise UserError("eval.bos=always: this tokenizer has no BOS token. Use auto or never.")
        ids = self.tokenizer(text, add_special_tokens=self.bos == BosUse.auto, verbose=False)["input_ids"]
        if self.bos == BosUse.always and ids[:1] != [bos]:
            return [bos, *ids]
        while bos is not None and ids[:2] == [bos, bos]:
            ids = ids[1:]
        return ids

    def pair(self, context: str, answer: str, item: str) -> TokenSequence:
        """Context and answer, the answer scored. UserError names an item that leaves nothing to score, or too much."""
        if context:
            spaces = len(context) - len(context.rstrip())
            head = context[: len(context) - spaces]
            before = self.encode(head)
            after = self.encode(context + answer)[len(before) :]
        else:
            before, after = [self.prefix], bare_ids(self.tokenizer, answer)
            if after[:1] == before:
                after = after[1:]
        if not before:  # a context of spaces only
            before = [self.prefix]
        if not after or not answer.strip():
            raise UserError(
                f"{item}: the answer {answer!r} has no token of its own behind the context {context[-40:]!r}. "
                "Give the answer text, or let it begin at a word boundary."
            )
        self._check_length(len(before) + len(after) - 1, item)
        return TokenSequence((*before, *after), len(before))

    def rolling(self, text: str, item: str) -> list[TokenSequence]:
        """A whole text: every token scored once, behind one prefix token that is not scored."""
        ids = bare_ids(self.tokenizer, text)
        if ids[:1] == [self.prefix]:
            ids = ids[1:]
        if not ids:
            raise UserError(f"{item}: the text is empty.")
        windows = map(make_disjoint_window, get_rolling_token_windows(ids, self.prefix, self.max_length, 1))
        return [TokenSequence((*context, *answer), len(context)) for context, answer in windows]

    def _check_length(self, length: int, item: str) -> None:
        if length > self.max_length:
            raise TooLongError(
                f"{item}: {length} tokens, but the model has {self.max_length} positions. "
                "Use fewer examples (eval.num_fewshot) or a model with a longer context."
            )
