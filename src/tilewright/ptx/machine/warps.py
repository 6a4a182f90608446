"""Warp-level functions: shfl, vote, match, redux, elect (PTX ISA 9.1, 9.7.9, 9.7.13).

Values are [warps, 32] with ``present``, the lanes that execute. A lane that reads from one that does not execute gets
its own value, where the ISA leaves the result undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ptx.opcodes.bit_vectors import number, unsigned
from tilewright.ptx.opcodes.rows import Bits

_U32 = np.uint32
_LANE = np.arange(32, dtype=np.int64)


def shuffle(mode: str, value: Bits, b: Bits, c: Bits, present: Bits) -> tuple[Bits, Bits]:
    """``shfl.sync``: (values, predicates). ``c`` packs a clamp in bits 0 to 4 and a segment mask in bits 8 to 12."""
    lane, b, c = _LANE, b.astype(np.int64), c.astype(np.int64)
    distance, clamp, segment = b & 31, c & 31, c >> 8 & 31
    low = lane & segment
    high = low | clamp & ~segment & 31
    source = {
        "up": lane - distance,
        "down": lane + distance,
        "bfly": lane ^ distance,
        "idx": low | distance & ~segment & 31,
    }[mode]
    # for .up the clamp is the lowest lane of the segment
    inside = source >= high if mode == "up" else source <= high
    source = np.where(inside, source, lane) & 31
    rows = np.arange(len(value))[:, None]
    there = present[rows, source]
    return np.where(there, value[rows, source], value), inside


def vote(mode: str, holds: Bits, present: Bits) -> Bits:
    """``vote.sync``: predicates, or the ballot."""
    if mode == "ballot":
        bits = ((holds & present).astype(_U32) << _LANE.astype(_U32)).sum(1, dtype=_U32)
        return np.broadcast_to(bits[:, None], holds.shape)
    yes: Any = (holds | ~present).all(1)
    no: Any = (~holds | ~present).all(1)
    found: Bits = {"all": yes, "any": ~no, "uni": yes | no}[mode]
    return np.broadcast_to(found[:, None], holds.shape)


def match(mode: str, value: Bits, present: Bits) -> tuple[Bits, Bits]:
    """``match.sync``: (masks of the lanes with the same value, whether all agree)."""
    equal = (value[:, :, None] == value[:, None, :]) & present[:, None, :]
    masks = (equal.astype(_U32) << _LANE.astype(_U32)).sum(2, dtype=_U32)
    everybody = ((present.astype(_U32)) << _LANE.astype(_U32)).sum(1, dtype=_U32)[:, None]
    agree = masks == everybody
    return (np.where(agree, masks, _U32(0)), agree) if mode == "all" else (masks, agree)


_REDUCE: dict[str, Callable[..., Bits]] = {
    "add": np.add.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}


def reduce(operation: str, type: str, value: Bits, present: Bits) -> Bits:
    """``redux.sync`` of 32-bit integers."""
    n = number(value, type)
    info = np.iinfo(n.dtype)
    neutral = {"min": info.max, "max": info.min, "and": -1 if info.min else info.max}.get(operation, 0)
    kept = np.where(present, n, n.dtype.type(neutral))
    found = _REDUCE[operation](kept, axis=1).astype(n.dtype).view(unsigned(type))
    return np.broadcast_to(found[:, None], value.shape)


def elect(present: Bits) -> tuple[Bits, Bits]:
    """``elect.sync``: (the leader's lane, whether a lane is it): here the lowest that executes, as sm_90 does."""
    leader = present.argmax(1).astype(_U32)[:, None]
    return np.broadcast_to(leader, present.shape), leader == _LANE
