"""Plain shapes: the arithmetic of bare numbers equals what the site finder reads off a real architecture."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, MixtralConfig

from harness.errors import UserError
from harness.ledger.anatomy import shape_of_config
from harness.ledger.config import ShapeNumbers
from harness.ledger.params import by_role, summary, totals
from harness.ledger.shape import plain_shape, round_up


@settings(max_examples=15, deadline=None)
@given(
    layers=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    shared_by=st.integers(1, 3),
    head_dim=st.sampled_from([4, 6, 16]),
    d_model=st.integers(2, 40),
    d_ff=st.integers(1, 90),
    vocab=st.integers(1, 200),
    tied=st.booleans(),
)
def test_plain_shape_equals_llama(
    layers: int, kv_heads: int, shared_by: int, head_dim: int, d_model: int, d_ff: int, vocab: int, tied: bool
) -> None:
    heads = kv_heads * shared_by
    d_model *= heads  # llama's own rule
    plain = plain_shape(
        ShapeNumbers(
            layers=layers,
            d_model=d_model,
            d_ff=d_ff,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocab=vocab,
            tied=tied,
        )
    )
    config = LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=d_model,
        intermediate_size=d_ff,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab,
        tie_word_embeddings=tied,
        pad_token_id=None,
    )
    read = shape_of_config(config, "llama")
    assert set(plain.matrices) == set(read.matrices)
    assert (plain.embedding, plain.head, plain.tied) == (read.embedding, read.head, read.tied)
    assert read.others == {"norm": (2 * layers + 1) * d_model}


def test_plain_experts_equal_mixtral() -> None:
    plain = plain_shape(
        ShapeNumbers(layers=2, d_model=64, d_ff=96, heads=4, kv_heads=2, vocab=128, experts=5, active_experts=2)
    )
    config = MixtralConfig(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128,
        num_local_experts=5,
        num_experts_per_tok=2,
    )
    read = shape_of_config(config, "mixtral")
    assert set(plain.matrices) == set(read.matrices)
    assert read.others["router"] == plain.others["router"] == 2 * 64 * 5


def test_roles_add_up_to_the_totals() -> None:
    shape = plain_shape(ShapeNumbers(layers=3, d_model=64, d_ff=96, heads=4, kv_heads=2, vocab=128))
    rows = by_role(shape)
    assert sum(row["total"] for row in rows) == totals(shape)["all"]
    assert sum(row["total_share"] for row in rows) == pytest.approx(1)
    assert sum(row["layer_share"] for row in rows if row["layer_share"]) == pytest.approx(1)
    counts = summary(shape)["params"]
    assert 3 * counts["layer"]["all"] + counts["total"]["embedding"] == counts["total"]["all"]


@given(st.integers(1, 10**6), st.integers(1, 1000))
def test_round_up(value: int, multiple_of: int) -> None:
    rounded = round_up(value, multiple_of)
    assert rounded % multiple_of == 0
    assert value <= rounded < value + multiple_of


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({}, "model.shape.layers is missing"),
        ({"layers": 2}, "model.shape.d_model is missing"),
        ({"layers": 2, "d_model": 64}, "model.shape.d_ff is missing"),
        ({"layers": 0, "d_model": 64, "d_ff": 4}, "model.shape.layers=0"),
        ({"layers": 2, "d_model": -64, "d_ff": 4}, "model.shape.d_model=-64"),
        ({"layers": 10**9, "d_model": 64, "d_ff": 4}, "from 1 to 10,000"),
        ({"layers": 2, "d_model": 64, "d_ff": 4, "matrices": 4}, "matrices=4"),
        ({"layers": 2, "d_model": 64, "ratio": "wide"}, "ratio=wide"),
        ({"layers": 2, "d_model": 64, "ratio": "8/0"}, "ratio=8/0"),
        ({"layers": 2, "d_model": 64, "ratio": "-1"}, "ratio=-1"),
        ({"layers": 2, "d_model": 64, "d_ff": 4, "heads": 3}, "does not divide into 3 heads"),
        ({"layers": 2, "d_model": 64, "d_ff": 4, "heads": 4, "kv_heads": 3}, "cannot share 3 kv_heads"),
        ({"layers": 2, "d_model": 64, "d_ff": 4, "kv_heads": 3}, "heads is missing"),
        ({"layers": 2, "d_model": 64, "d_ff": 4, "experts": 2, "active_experts": 3}, "active_experts=3"),
    ],
)
def test_bad_numbers_are_named(numbers: dict, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        plain_shape(ShapeNumbers(**numbers))
    assert len(str(error.value).splitlines()) == 1
