"""Packed codes: every row is a stream of bits, least significant bit first, padded to a whole byte.

    3-bit codes a b c ...   ->   byte 0 = c1 c0 b2 b1 b0 a2 a1 a0,   byte 1 starts with c2

Codes are stored as they are, zero points too: nothing is taken off them (GPTQ's first file format stores "zero - 1",
and reading one format as the other shifts every weight by a whole step).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def packed_bits(out_features: int, in_features: int, bits: int) -> int:
    """Bits that an [O, I] matrix of codes takes when packed."""
    return out_features * 8 * -(-in_features * bits // 8)


def pack(codes_OI: Tensor, bits: int) -> Tensor:
    """Bytes [O, ceil(I * bits / 8)] of codes in 0 .. 2^bits - 1."""
    assert codes_OI.numel() == 0 or int(codes_OI.max()) < 2**bits, f"codes do not fit {bits} bits"
    bit_OIB = (codes_OI.unsqueeze(-1) >> torch.arange(bits, device=codes_OI.device)) & 1
    stream_OS = bit_OIB.flatten(1).to(torch.uint8)
    stream_OS = pad(stream_OS, (0, -stream_OS.shape[1] % 8))
    return _from_bits(stream_OS.unflatten(1, (-1, 8)))


def unpack(bytes_OB: Tensor, bits: int, in_features: int) -> Tensor:
    """Codes [O, I] back from their bytes."""
    bit_OB8 = (bytes_OB.unsqueeze(-1) >> torch.arange(8, device=bytes_OB.device)) & 1
    stream_OS = bit_OB8.flatten(1)[:, : in_features * bits]
    return _from_bits(stream_OS.unflatten(1, (in_features, bits)))


def _from_bits(bit_NMB: Tensor) -> Tensor:
    """Numbers from their bits along the last axis, least significant first."""
    weight_B = 2 ** torch.arange(bit_NMB.shape[-1], device=bit_NMB.device)
    return (bit_NMB * weight_B).sum(-1).to(torch.uint8)
