"""Expressions evaluated for all threads and registers at once agree with one evaluation at each place."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilewright.base.expr import Expr, ExprError, all_of, any_of, ceildiv, expr, maximum, minimum, negate, sym
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import values_at

SYMBOLS = tuple(map(sym, (t.THREAD, t.REGISTER, "k0")))


def _number(rng: random.Random, depth: int) -> Expr:
    if depth == 0:
        return rng.choice([*SYMBOLS, expr(rng.randint(-9, 9))])
    a, b = _number(rng, depth - 1), _number(rng, depth - 1)
    positive = maximum(b, 1)
    made = (
        lambda: a + b,
        lambda: a * b,
        lambda: a - b,
        lambda: minimum(a, b, 7),
        lambda: maximum(a, b),
        lambda: a // positive,
        lambda: a % positive,
        lambda: ceildiv(a, 5),
        lambda: maximum(a, 0) ^ maximum(b, 0),
    )
    return rng.choice(made)()


def _truth(rng: random.Random, depth: int) -> Expr:
    a, b = _number(rng, depth), _number(rng, depth)
    found = rng.choice([a < b, a <= b, a.eq(b), a.ne(b)])
    if depth == 0:
        return found
    other = _truth(rng, depth - 1)
    return rng.choice([all_of([found, other]), any_of([found, other]), negate(all_of([found, other]))])


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_evaluate(seed: int) -> None:
    rng = random.Random(seed)
    node = (_truth if seed % 2 else _number)(rng, rng.randint(1, 3))
    thread, register = np.meshgrid(np.arange(12), np.arange(4), indexing="ij")
    at = {t.THREAD: thread, t.REGISTER: register, "k0": np.full_like(thread, rng.randint(0, 5))}
    found = values_at(node, at)
    for place in np.ndindex(thread.shape):
        env = {name: int(values[place]) for name, values in at.items()}
        assert int(found[place]) == int(node.evaluate(env)), node


def test_a_divisor_that_is_zero_somewhere() -> None:
    thread = np.arange(4)
    with pytest.raises(ExprError):
        values_at(sym("n") // sym(t.THREAD), {t.THREAD: thread, "n": thread})
    assert list(values_at(sym("n") // sym(t.THREAD), {t.THREAD: thread + 1, "n": thread})) == [0, 0, 0, 0]
