"""A plan by NumPy: what the kernels compute, in the words of a stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.ops.packing.policy import PackPolicy

Array = npt.NDArray[Any]


def planned(ids: Array, buckets: int, policy: PackPolicy) -> dict[str, Array]:
    """The arrays of a plan by name, for ids of (tokens, choices)."""
    flat = ids.reshape(-1).astype(np.int64)
    chosen = np.where((flat >= 0) & (flat < buckets), flat, buckets)
    counts = np.bincount(chosen, minlength=buckets + 1)[:buckets]
    kept = counts if policy.capacity is None else np.minimum(counts, policy.capacity)
    align = policy.align
    offsets = np.concatenate([[0], np.cumsum(-(-kept // align) * align)])
    order = np.argsort(chosen, kind="stable")[: counts.sum()]
    bucket = chosen[order]
    within = np.arange(order.size) - (np.cumsum(counts) - counts)[bucket]
    held = within < kept[bucket]
    order, slot = order[held], (offsets[bucket] + within)[held]
    blocks = policy.block_count(flat.size, buckets)
    slots, pairs = np.full(flat.size, -1), np.full(blocks * align, -1)
    slots[order], pairs[slot] = slot, order
    ends = np.searchsorted(offsets[1:], np.arange(blocks) * align, side="right")
    return {
        "slots": slots.reshape(ids.shape),
        "rows": np.where(pairs < 0, -1, pairs // max(ids.shape[1], 1)),
        "pairs": pairs,
        "blocks": np.where(ends < buckets, ends, -1),
        "offsets": offsets,
        "kept": kept,
    }


def are_converse(forth: Array, back: Array) -> bool:
    """Whether two tables, -1 where they lead nowhere, hold one relation: forth[i] = p wherever back[p] = i, and nowhere
    else. Each is a function, so no two places of either lead to one: that is what ``tw.Unique`` asks for."""
    forth, back = forth.reshape(-1), back.reshape(-1)
    for table, other in ((forth, back), (back, forth)):
        (held,) = np.nonzero(table >= 0)
        led = table[held]
        if (table < -1).any() or (led >= other.size).any() or (other[led] != held).any():
            return False
    return True
