"""The model checker's opinion of a protocol; the checker is never asked here."""

from __future__ import annotations

from campaign.corpus import TILES
from tilewright.protocol import Protocol
from tilewright.protocol.edit import apart
from tilewright.verify.model_checker import Finding, adversarial, exhaust

INSTANCES = ((2, 1), (0, 1), (5, 1), (1, 2), (3, 2))
"""(steps, tiles): as many steps as two stages, none, a ring of two turned twice and one more; one tile, several."""

RUNS = 200
"""Adversarial runs where some instance can't be exhausted."""


def sizes(protocol: Protocol, steps: int, tiles: int):
    """The trip counts of an instance, within what the symbols allow."""
    symbols = {s.name: s for s in protocol.symbols}

    def value(name: str, context: int) -> int:
        s = symbols[name]
        wanted = tiles if name in TILES else steps
        least = s.least + -(-max(wanted - s.least, 0) // s.multiple_of) * s.multiple_of
        return least if s.most is None else min(least, s.most)

    return value


def instances(protocol: Protocol) -> list[tuple[int, int]]:
    """The instances that differ for this protocol."""
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for steps, tiles in INSTANCES:
        value = sizes(protocol, steps, tiles)
        found.setdefault(tuple(value(s.name, 0) for s in protocol.symbols), (steps, tiles))
    return list(found.values())


def opinion(protocol: Protocol, max_states: int, seed: int) -> tuple[str, str]:
    """'bad', 'good' (every instance exhausted) or 'open', and how it was found. After one that is not exhausted there
    are random runs only."""
    protocol, complete = apart(protocol), True
    for steps, tiles in instances(protocol):
        outcome = exhaust(protocol, sizes(protocol, steps, tiles), max_states=max_states)
        if outcome.finding is not None:
            return "bad", _words(outcome.finding, steps, tiles)
        if not outcome.complete:
            complete = False
            break
    if complete:
        return "good", "exhausted"
    for steps, tiles in ((3, 2), (5, 1)):
        outcome = adversarial(protocol, sizes(protocol, steps, tiles), runs=RUNS // 2, seed=seed)
        if outcome.finding is not None:
            return "bad", _words(outcome.finding, steps, tiles)
    return "open", f"{RUNS} adversarial runs"


def _words(finding: Finding, steps: int, tiles: int) -> str:
    return f"{finding.rule.code} at {steps} steps, {tiles} tiles: {finding.detail}"
