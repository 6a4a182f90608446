"""Protocols proved for each value of their symbols: no more of them than a limit."""

from __future__ import annotations

import pytest

from tilewright.base.verdict import Proved, Unknown
from tilewright.protocol.model import Protocol, Symbol
from tilewright.verify.parametric import proof


@pytest.mark.parametrize(("symbols", "answer"), [(1, Proved), (3, Proved), (4, Unknown), (40, Unknown)])
def test_values_of_symbols_are_counted(symbols: int, answer: type, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def graph_of(protocol: Protocol, _: frozenset[str]) -> str:
        asked.append(len(protocol.symbols))
        return "a symbol is left" if protocol.symbols else ""

    def judged(reason: str) -> proof.GraphProof | Unknown:
        return Unknown("event graph", reason) if reason else proof.GraphProof()

    monkeypatch.setattr(proof, "graph_of", graph_of)
    monkeypatch.setattr(proof, "_open", judged)
    found = proof.prove(Protocol("p", (), (), symbols=tuple(Symbol(f"s{n}", 0, 3) for n in range(symbols))))
    assert isinstance(found, answer)
    assert len(asked) <= 1 + 4 + 16 + 64
    if isinstance(found, Unknown):
        assert "64 protocols" in found.reason
