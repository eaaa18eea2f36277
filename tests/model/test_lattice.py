"""Lattices in weights: found where they are, never in float weights, and nested where rounding would be exact."""

import pytest
import torch
from gguf import GGMLQuantizationType as Ggml
from gguf import quants
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model.lattice import common_lattice, find_lattice, nests
from harness.quantize import Scheme, quantize

NF4 = torch.tensor([-1, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0, 0.0796, 0.1609, 0.2461, 0.3379])


def normal(rows=96, columns=256, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def through_gguf(w_OI, kind):
    return torch.from_numpy(quants.dequantize(quants.quantize(w_OI.numpy(), kind), kind))


def rounded(w_OI, **scheme):
    return quantize(w_OI, Scheme(method="rtn", scale_dtype="float32", **scheme), None).dequantize()


@pytest.mark.parametrize(
    ("kind", "lattice"),
    [
        (Ggml.Q4_0, "int4 symmetric groups of 32"),
        (Ggml.Q4_1, "int4 asymmetric groups of 32"),
        (Ggml.Q5_0, "int5 symmetric groups of 32"),
        (Ggml.Q5_1, "int5 asymmetric groups of 32"),
        (Ggml.Q8_0, "int8 symmetric groups of 32"),
    ],
)
def test_gguf_types(kind, lattice):
    assert find_lattice(through_gguf(normal(), kind)) == lattice


@pytest.mark.parametrize(
    ("scheme", "lattice"),
    [
        ({"precision": "int4", "group_size": 64}, "int4 symmetric groups of 64"),
        ({"precision": "int4", "group_size": 128, "symmetric": False}, "int4 asymmetric groups of 128"),
        ({"precision": "int3", "group_size": 64}, "int3 symmetric groups of 64"),
        ({"precision": "int4", "group_size": -1, "symmetric": False}, "int4 asymmetric rows"),
        ({"precision": "int8", "group_size": -1}, "int8 symmetric rows"),
    ],
)
def test_rounded_weights(scheme, lattice):
    assert find_lattice(rounded(normal(), **scheme)) == lattice


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_survives_16_bit_storage(dtype):
    assert find_lattice(rounded(normal(), group_size=64).to(dtype)) == "int4 symmetric groups of 64"


def test_codebook():
    groups = normal().reshape(-1, 64)
    scale = groups.abs().amax(1, keepdim=True)
    nearest = ((groups / scale).unsqueeze(-1) - NF4).abs().argmin(-1)
    assert find_lattice((NF4[nearest] * scale).view(96, 256)) == "4-bit codebook groups of 64"


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    columns=st.sampled_from([48, 64, 96, 576]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    heavy=st.booleans(),
)
def test_says_nothing_of_float_weights(seed, columns, dtype, heavy):
    w_OI = normal(64, columns, seed)
    w_OI = w_OI**3 if heavy else w_OI
    assert find_lattice((w_OI * 0.02).to(dtype)) == ""


@pytest.mark.parametrize("w_OI", [torch.zeros(64, 128), torch.ones(64, 128), torch.eye(128)])
def test_says_nothing_of_constants(w_OI):
    assert find_lattice(w_OI) == ""


def test_scaled_columns_leave_the_lattice():
    w_OI = through_gguf(normal(), Ggml.Q4_1)
    assert find_lattice(w_OI * torch.exp(0.1 * normal(1, 256, seed=1))) == ""


def test_first_lattice_among_several():
    assert common_lattice([normal(), through_gguf(normal(), Ggml.Q4_1)]) == "int4 asymmetric groups of 32"
    assert common_lattice([normal(), normal(seed=1)]) == ""


@pytest.mark.parametrize(
    ("group_size", "symmetric", "precision", "expected"),
    [
        (32, False, "int4", True),
        (16, False, "int4", True),
        (32, False, "int8", True),
        (64, False, "int4", False),  # a group spans two of the source's
        (-1, False, "int4", False),
        (32, True, "int4", False),  # 0 is not on the source's grid
        (32, False, "int3", False),  # fewer levels than the source has
        (32, False, "nf4", False),
        (32, False, "fp8_e4m3", False),
    ],
)
def test_what_nests(group_size, symmetric, precision, expected):
    assert nests("int4 asymmetric groups of 32", group_size, symmetric, precision) is expected


def test_what_nests_elsewhere():
    assert not nests("", 32, False, "int4")
    assert nests("int8 symmetric rows", -1, True, "int8")
    assert nests("int8 symmetric rows", 64, True, "int8")
    assert nests("4-bit codebook groups of 64", 32, True, "nf4")
    assert not nests("4-bit codebook groups of 64", 64, False, "int8")


@pytest.mark.parametrize("precision", ["int4", "int8"])
def test_nested_means_lossless(precision):
    w_OI = rounded(normal(), precision="int4", group_size=32, symmetric=False)
    assert nests(find_lattice(w_OI), 32, False, precision)
    torch.testing.assert_close(rounded(w_OI, precision=precision, group_size=32, symmetric=False), w_OI)
    assert (rounded(w_OI, precision=precision, group_size=64, symmetric=False) - w_OI).abs().max() > 1e-3
