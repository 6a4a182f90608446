"""What CTAs of one launch compute once: expressions of threads, registers and the launch's arguments."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.expr import Expr, Sym
from tilewright.simulate.symbols import LaunchNumbers, RegisterNumbers, Symbols, Value

TID, R, N, PLACE = Sym("$tid"), Sym("$r"), Sym("N"), Sym("$p0")


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Expr]:
    found: list[Expr] = []
    before = Symbols._compute

    def compute(self: Symbols, node: Expr, count: int) -> Value:
        found.append(node)
        return before(self, node, count)

    monkeypatch.setattr(Symbols, "_compute", compute)
    return found


def agent(shared: LaunchNumbers, place: int) -> Symbols:
    symbols = Symbols(np.arange(4), shared)
    symbols.bind_all([("N", 7), ("$p0", place)])
    return symbols


def test_what_no_cta_changes_is_computed_once(computed: list[Expr]) -> None:
    shared, fixed, own = LaunchNumbers.over({"N": 7}), TID * 8 + R % N, TID + PLACE * 4
    for place in range(5):
        symbols = agent(shared, place)
        np.testing.assert_array_equal(symbols.of(fixed, 16), np.arange(4)[:, None] * 8 + np.arange(16) % 7)
        np.testing.assert_array_equal(symbols.of(own, 16), np.arange(4)[:, None] + place * 4)
    assert computed.count(fixed) == 1
    assert computed.count(own) == 5


def test_indices_follow_what_they_are_computed_from() -> None:
    shared = LaunchNumbers.over({"N": 7})
    for place in (0, 1, 0):
        index = agent(shared, place).index(R + PLACE, 8)
        assert isinstance(index, RegisterNumbers)
        assert (index.low, index.high, index.plain) == (place, place + 7, place == 0)
        np.testing.assert_array_equal(index.registers, np.arange(8) + place)
