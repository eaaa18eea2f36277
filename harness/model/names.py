"""Which tensor of a checkpoint fills which tensor of a model: names and shapes only, nothing is read.

The model is a skeleton on the meta device. Checkpoint names are translated with transformers' own tables (old names,
a missing or additional `model.` prefix, experts stored one by one), so this check and transformers' loader agree. What
it does not translate must fit exactly: transformers 5 itself fills a missing tensor with random numbers and prints a
table.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import prod

from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from harness.errors import UserError
from harness.model.checkpoint import Checkpoint, listed

Shapes = Mapping[str, tuple[int, ...]]


def match_tensors(skeleton: PreTrainedModel, checkpoint: Checkpoint) -> dict[str, str] | None:
    """Model tensor -> checkpoint tensor, where each fills one; None where transformers has to read or convert them.

    UserError names tensors that are missing, not expected or of another shape.
    """
    if not checkpoint.tensors:
        return None
    expected = {name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()}
    sources, converted = _translate(skeleton, checkpoint.tensors)
    if converted is None:
        return None
    absent = missing(skeleton, expected, sources, skeleton._keys_to_ignore_on_load_missing or [])
    problems = [f"{name} {shape} is missing" for name, shape in absent.items()]
    problems += [f"{name} is not expected" for name in unexpected(skeleton, expected, sources)]
    for name in sources.keys() & expected.keys():
        shapes = [checkpoint.tensors[source].shape for source in sources[name]]
        weights = sum(prod(shape) for shape in shapes)
        if weights != prod(expected[name]) or (name not in converted and shapes != [expected[name]]):
            problems.append(f"{name} has shape {expected[name]}, the file holds {shapes}")
    if problems:
        raise UserError(
            f"{checkpoint.folder} does not fit {type(skeleton).__name__} as its config.json describes it:\n"
            + listed(sorted(problems))
        )
    one_to_one = {name: names[0] for name, names in sources.items() if name in expected}
    complete = not missing(skeleton, expected, sources, ignored=[])
    return one_to_one if complete and not converted else None


def _translate(skeleton: PreTrainedModel, names: Iterable[str]) -> tuple[dict[str, list[str]], set[str] | None]:
    """Checkpoint tensors by the model tensor they go to, and those model tensors that need a conversion.

    The second is None where one checkpoint tensor is split over several model tensors: not followed here.
    """
    transforms = get_model_conversion_mapping(skeleton)
    renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    splitting = {pattern for c in converters if len(c.target_patterns) > 1 for pattern in c.source_patterns}
    state = skeleton.state_dict()
    sources: dict[str, list[str]] = defaultdict(list)
    converted = set()
    for name in names:
        target, pattern = rename_source_key(name, renamings, converters, skeleton.base_model_prefix, state)
        if target not in state and name in state:
            target, pattern = name, None  # was right as it was
        if pattern in splitting:
            return sources, None
        sources[target].append(name)
        if pattern is not None:
            converted.add(target)
    return sources, converted


def missing(skeleton: PreTrainedModel, expected: Shapes, present: Iterable[str], ignored: Iterable[str]) -> Shapes:
    """Expected tensors that no file holds, except where a tied one is there or a pattern says to ignore them."""
    present, ignored = set(present), list(ignored)
    tied = {name for pair in skeleton.all_tied_weights_keys.items() if present & set(pair) for name in pair}
    return {
        name: shape
        for name, shape in expected.items()
        if name not in present and name not in tied and not any(re.search(pattern, name) for pattern in ignored)
    }


def unexpected(skeleton: PreTrainedModel, expected: Iterable[str], present: Iterable[str]) -> list[str]:
    """Tensors that the model has no place for, except what transformers ignores (rotary tables of old files)."""
    ignored = [*(skeleton._keys_to_ignore_on_load_unexpected or []), r"rotary_emb\.inv_freq", r"(^|\.)position_ids$"]
    return [name for name in set(present) - set(expected) if not any(re.search(pattern, name) for pattern in ignored)]
