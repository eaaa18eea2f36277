"""Packed codes: rows of a bit stream, least significant bit first, each row padded to a whole byte.

3-bit codes a b c ...   ->   byte 0 = c1 c0 b2 b1 b0 a2 a1 a0,   byte 1 starts with c2
"""

from __future__ import annotations


def packed_bits(out_features: int, in_features: int, bits: int) -> int:
    """Bits that an [O, I] matrix of codes takes when packed."""
    return out_features * 8 * -(-in_features * bits // 8)
