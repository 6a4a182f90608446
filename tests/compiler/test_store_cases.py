"""A kernel whose branches on extents go too many ways is not decided."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.base.expr import TRUE, Const, Expr, Sym
from tilewright.base.verdict import Proved, Unknown
from tilewright.compiler.proofs import stores
from tilewright.protocol.access import AccessKind, AccessMap, KernelAccesses, LaunchParameter

_KERNEL: Any = None
"""No text: its accesses are given."""


def _read(condition: Expr) -> AccessMap:
    return AccessMap("load", "kernel.py:3", "x", "x", AccessKind.READ, (Sym("M"),), (), (condition,), TRUE, (Const(0),))


@pytest.mark.parametrize(("branches", "answer"), [(3, Proved), (9, Unknown), (60, Unknown)])
def test_ways_through_branches_are_counted(branches: int, answer: type, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = tuple(_read(Sym("M") > number) for number in range(branches))
    given = KernelAccesses("kernel", (LaunchParameter("M", 1, 1000),), (), reads)

    def accesses_of(_: object) -> KernelAccesses:
        return given

    monkeypatch.setattr(stores, "accesses_of", accesses_of)
    found = stores.prove_domains(_KERNEL, ())
    assert isinstance(found, answer)
    if isinstance(found, Unknown):
        assert "256 ways" in found.reason
