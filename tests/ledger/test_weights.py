"""Bytes of a model under a plan, by hand-made sites."""

import pytest

from harness.ledger import model_bytes
from harness.model.sites import Site


def site(name: str, block: str, rows: int, columns: int) -> Site:
    layer = -1 if block in ("embedding", "head") else 0
    return Site(name, layer, block, name.split(".")[-1], "module", "weight", rows, columns)


UP, Q = site("layers.0.ffn.up", "ffn", 30, 10), site("layers.0.attention.q", "attention", 10, 10)
EMBEDDING, HEAD = site("embedding", "embedding", 50, 10), site("head", "head", 50, 10)
NORMS = 20


def test_untouched_model_is_two_bytes_a_parameter() -> None:
    result = model_bytes(420, [UP, Q], {})
    assert (result.weight_bytes, result.ffn_bytes_saved, result.attention_bytes_saved) == (840, 0, 0)
    assert result.bits_per_weight == 16


def test_scales_are_part_of_the_bits() -> None:
    result = model_bytes(420, [UP, Q], {UP.name: 4 + 16 / 10})
    assert result.ffn_bytes_saved == 300 * (16 - 5.6) / 8
    assert result.weight_bytes == 840 - result.ffn_bytes_saved
    assert result.bits_per_weight == pytest.approx((300 * 5.6 + 100 * 16) / 400)


def test_blocks_add_up() -> None:
    ffn, attention = ({s.name: 4.125} for s in (UP, Q))
    alone = [model_bytes(420, [UP, Q], bits).weight_bytes for bits in (ffn, attention)]
    both = model_bytes(420, [UP, Q], ffn | attention)
    assert 2 * 420 - both.weight_bytes == pytest.approx(sum(2 * 420 - b for b in alone), abs=1)


@pytest.mark.parametrize(
    ("bits", "stored_bits"),
    [
        ({}, 500 * 16),
        ({"embedding": 8, "head": 8}, 500 * 8),  # still one tensor
        ({"head": 4}, 500 * 16 + 500 * 4),  # untied: the embedding stays as it was, the head is a second tensor
        ({"embedding": 4}, 500 * 4 + 500 * 16),
        ({"embedding": 8, "head": 4}, 500 * 8 + 500 * 4),
    ],
)
def test_tied_table_is_counted_once_while_its_ends_agree(bits: dict[str, float], stored_bits: float) -> None:
    result = model_bytes(NORMS + 500, [EMBEDDING, HEAD], bits, tied=True)
    assert result.weight_bytes == (NORMS * 16 + stored_bits) / 8


def test_untied_tables_are_two_tensors() -> None:
    result = model_bytes(NORMS + 1000, [EMBEDDING, HEAD], {"head": 4})
    assert result.weight_bytes == (NORMS * 16 + 500 * 16 + 500 * 4) / 8
