"""Expressions of thread and register as tables: their values at every thread, and at every register of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.base.expr import Expr, conjuncts
from tilewright.transport import dialect as t
from tilewright.transport.roles import WARPGROUP, WARPGROUP_THREADS

Ints: TypeAlias = npt.NDArray[Any]

THREAD_SYMBOLS = frozenset((t.THREAD, t.REGISTER, WARPGROUP))
"""What tells one access of a thread from another; other symbols are the same for all threads of a CTA."""


def values_at(node: Expr, at: Mapping[str, Ints]) -> Ints:
    """An expression at every thread, and at every register or copy of it, as ``at`` lists them."""
    return np.broadcast_to(np.asarray(node.evaluate(at)), at[t.THREAD].shape)


@lru_cache(maxsize=1024)
def touched(
    offset: Expr, guard: Expr, threads: int, registers: range, elements: int, size: int
) -> tuple[Ints, Ints, bool] | None:
    """The least and the greatest thread that touch each of ``size`` elements of a buffer, -1 where none does, and
    whether two threads touch one element in the same execution.

    Each thread touches ``elements`` elements from ``offset`` on, at each of ``registers`` where ``guard`` holds; of a
    guard that asks for more than thread and register any answer is possible. None where the offset asks for more, or
    lies beyond the buffer.
    """
    if not offset.symbols <= THREAD_SYMBOLS:
        return None
    thread, register = np.meshgrid(np.arange(threads), np.array(registers), indexing="ij")
    at = {t.THREAD: thread, t.REGISTER: register, WARPGROUP: thread // WARPGROUP_THREADS}
    taken = np.ones(thread.shape, np.bool_)
    for condition in conjuncts(guard):
        if condition.symbols <= THREAD_SYMBOLS:
            taken &= values_at(condition, at).astype(np.bool_)
    first, who = values_at(offset, at)[taken], np.repeat(thread[taken], elements)
    if first.size and (first.min() < 0 or first.max() + elements > size):
        return None
    where = (first[:, None] + np.arange(elements)).ravel()
    least, most = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    most[where] = who  # threads ascend, and of several values assigned to one element the last one stays
    least[where[::-1]] = who[::-1]
    return least, most, bool((least != most).any())
