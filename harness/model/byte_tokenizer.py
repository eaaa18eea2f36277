"""A tokenizer without a vocabulary file, for random models: one token a byte, so every text has tokens.

0 <s>   1 </s>   2..257 the bytes, in the printable alphabet of GPT-2's byte-level BPE (no merges)
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

BOS, EOS = "<s>", "</s>"
SIZE = 258


def byte_tokenizer(add_bos: bool = False) -> PreTrainedTokenizerFast:
    """The tokenizer, with or without a BOS before every text."""
    vocabulary = [BOS, EOS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    assert len(vocabulary) == SIZE
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, merges=[]))
    tokenizer.add_special_tokens([BOS, EOS])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, 0)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=EOS)
