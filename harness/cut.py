"""How the sequences of a run are cut into packs and batches: known before any weight is read, the same for all arms."""

from __future__ import annotations

from collections.abc import Sequence

from harness.config import RunConfig
from harness.model.outline import Outline
from harness.packs import Pack, TokenSequence, batches, pack_plain, pack_trees
from harness.plan import Arm


def cut_batches(
    config: RunConfig, model: Outline, arms: Sequence[Arm], sequences: Sequence[TokenSequence]
) -> list[list[Pack]]:
    """What is scored together, the same for all arms."""
    alone = any(arm.is_live for arm in arms)  # what is scored together changes what LLM.int8 takes for outliers
    packs = pack_plain(sequences) if alone else form_packs(config, model, sequences)
    return list(batches(packs, 1 if alone else config.engine.batch_tokens, model.notes.rope))


def form_packs(config: RunConfig, model: Outline, sequences: Sequence[TokenSequence]) -> list[Pack]:
    """Packed trees as far as the model can take their mask and it is asked for, else plain sequences."""
    tree = model.notes.tree
    if not config.engine.packing or tree.tokens == 0:
        return pack_plain(sequences)
    return pack_trees(sequences, config.engine.pack_tokens, tokens=tree.tokens, depth=tree.depth)
