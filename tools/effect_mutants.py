"""Alters the effects of each op in turn: some protocol must then set a prover and the explorer at odds.

    python tools/effect_mutants.py [--json FILE] [--only OP] [--drawn N]

The provers read ``protocol.effects``, the explorer does not. If the table says of an op what is not so, a protocol must
show it: one that the explorer breaks is proved, or one that the explorer exhausts without a problem is proved no more.
An alteration drops an effect, or changes one field of one: a flag, a choice, a count, a queue. Protocols are those of
the other campaigns, mutants of them, and small ones drawn (``random_agree``).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agree import answers
from campaign.corpus import everything
from campaign.judge import opinion
from campaign.operators import mutants
from random_agree import drawn
from tilewright.base.expr import Expr
from tilewright.protocol import Protocol, ops
from tilewright.protocol.effects import QUEUES, Effect, Queue
from tilewright.protocol.model import steps
from tilewright.protocol.validate import problems

STATES = 1_200
"""States that the explorer may visit in an instance."""

RUNS = 60
"""Decision points of the canonical runs."""

MOST_STEPS = 45
MOST_ASKED = 60
"""Steps of a protocol, and protocols asked about one alteration: the smallest ones."""

Alter = Callable[[tuple[Effect, ...]], tuple[Effect, ...]]


@dataclass(frozen=True)
class Alteration:
    """A change to the effects of an op class."""

    op: type[ops.Op]
    what: str
    alter: Alter


@dataclass(frozen=True)
class Case:
    """A protocol with the explorer's opinion, 'good' or 'bad', and which prover proves it as things are."""

    name: str
    protocol: Protocol
    opinion: str
    proved: tuple[bool, bool]

    def bears(self, alteration: Alteration) -> bool:
        """Whether an alteration changes the effects of an op in it."""
        mine = (s.op for role in self.protocol.roles for s in steps(role.body) if type(s.op) is alteration.op)
        return any(alteration.alter(op.effects) != op.effects for op in mine)


# -- alterations -------------------------------------------------------------------------------------------------------
def alterations(samples: dict[type[ops.Op], list[ops.Op]]) -> Iterator[Alteration]:
    """All alterations of the effects that the samples have; equal ones once."""
    for kind, found in samples.items():
        seen: set[str] = set()
        for op in found:
            for i, effect in enumerate(op.effects):
                name = f"{i} {type(effect).__name__}"
                for what, alter in ((f"drop {name}", _dropping(i)), *_changes(i, name, effect)):
                    if what not in seen:
                        seen.add(what)
                        yield Alteration(kind, what, alter)


def _dropping(i: int) -> Alter:
    return lambda found: found[:i] + found[i + 1 :]


def _changes(i: int, name: str, effect: Effect) -> Iterator[tuple[str, Alter]]:
    for f in fields(effect):
        if not f.compare:
            continue
        for value in _others(f.name, getattr(effect, f.name)):
            shown = value.name if isinstance(value, Enum | Queue) else value
            yield f"{name}.{f.name} = {shown}", _changing(i, f.name, value)


def _changing(i: int, field: str, value: object) -> Alter:
    def alter(found: tuple[Effect, ...]) -> tuple[Effect, ...]:
        if i >= len(found) or field not in {f.name for f in fields(found[i])}:
            return found
        new = value
        if isinstance(value, str) and value.startswith("+"):
            old = getattr(found[i], field)
            new = old + int(value) if isinstance(old, int) else old
        changed: Any = replace(found[i], **{field: new})
        return (*found[:i], changed, *found[i + 1 :])

    return alter


def _others(field: str, value: object) -> Iterator[object]:
    """What else a field may say."""
    match value:
        case bool():
            yield not value
        case Enum():
            yield from (x for x in type(value) if x is not value)
        case Queue():
            yield from (x for x in QUEUES if x is not value)
            if field == "until":
                yield None
        case int() if field in ("arrivals", "expects", "lands", "pending", "threads", "registers"):
            yield "+1" if field in ("arrivals", "pending") else "+16"
        case ops.Slot() if field == "until":
            yield None
        case tuple() if value:
            yield ()
        case Expr() if field in ("parity", "by"):
            yield 1 - value
        case _:
            pass


@contextmanager
def altered(alteration: Alteration) -> Iterator[None]:
    """The effects of a class while they are altered; a property comes before what ops remember."""
    original = alteration.op.__dict__["effects"]
    alteration.op.effects = property(lambda op: alteration.alter(original.func(op)))  # type: ignore[assignment]
    try:
        yield
    finally:
        alteration.op.effects = original


# -- protocols ---------------------------------------------------------------------------------------------------------
def cases(count: int, each: int) -> list[Case]:
    """Protocols whose opinion is settled, small ones first."""
    pool = [(name, p) for name, p in everything().items()]
    for name, p in list(pool):
        found = [(word, m) for word, m in mutants(name, p) if not any(problems(m))]
        pool += Random(name).sample(found, min(each, len(found)))
    for number in range(count):
        one = drawn(number)
        if one is not None:
            pool.append((f"{one[0]} {number}", one[1]))
    out: list[Case] = []
    for name, p in pool:
        if sum(1 for role in p.roles for _ in steps(role.body)) > MOST_STEPS:
            continue
        judged = opinion(p, STATES, 0)[0]
        if judged != "open":
            out.append(Case(name, p, judged, answers(p, RUNS)))
    return sorted(out, key=lambda c: sum(1 for role in c.protocol.roles for _ in steps(role.body)))


def at_odds(case: Case) -> str:
    """How a prover contradicts the explorer; empty if none does."""
    try:
        graph, runs = answers(case.protocol, RUNS)
    except Exception as error:  # an engine that an effect brings down has noticed it
        return f"{type(error).__name__} on {case.name}"
    for who, before, now in zip(("event graph", "canonical runs"), case.proved, (graph, runs), strict=True):
        if case.opinion == "bad" and now:
            return f"{who} prove what is bad: {case.name}"
        if case.opinion == "good" and before and not now:
            return f"{who} prove no more what is good: {case.name}"
    return ""


def main() -> None:
    """Prints what was found for each alteration, survivors last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--drawn", type=int, default=400)
    parser.add_argument("--each", type=int, default=4)
    args = parser.parse_args()
    begun = time.process_time()
    found = cases(args.drawn, args.each)
    samples: dict[type[ops.Op], list[ops.Op]] = {}
    for case in found:
        for role in case.protocol.roles:
            for step in steps(role.body):
                samples.setdefault(type(step.op), []).append(step.op)
    print(f"{len(found)} protocols, {round(time.process_time() - begun)} s", flush=True)
    rows: list[dict[str, str]] = []
    for alteration in alterations(samples):
        if args.only and alteration.op.__name__ != args.only:
            continue
        asked = [case for case in found if case.bears(alteration)][:MOST_ASKED]
        with altered(alteration):
            shown = next(filter(None, map(at_odds, asked)), "")
        rows.append({"op": alteration.op.__name__, "altered": alteration.what, "shown": shown})
        if not shown:
            print(f"SURVIVES {alteration.op.__name__}: {alteration.what}", flush=True)
    left = [row for row in rows if not row["shown"]]
    print(f"{len(rows)} alterations, {len(left)} not shown by any protocol, {round(time.process_time() - begun)} s")
    if args.json:
        args.json.write_text(json.dumps({"protocols": len(found), "alterations": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
