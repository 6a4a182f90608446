"""Programs that CTAs draw from a queue run once each, all of them, and every role of a CTA does the same ones.

A counter in global memory is 0 when a launch of more programs than CTAs begins (``proofs.steps``). A CTA of number c of
g does program c first, then what it draws, g + n where n is what it found in the counter when it added 1 to it: atomic
additions to one word have an order, so the numbers g, g + 1, ... are drawn once each, and no CTA stops before it was
given one that is no program's. They are all drawn, because each CTA that still has a program draws again when that is
done; a draw waits for no other CTA. In a launch of as many CTAs as programs each has one, and then is told g, which no
program has. What has to be shown of the text::

    all roles   walk programs of one grid by the same name, which each binds once a program (``uniform``: to one value)
                name a counter with a period in nothing that the period changes
    one thread  draws, once a program, from the counter that nothing else touches
                writes just that to the element of shared memory that the name is read from
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TypeVar

from xdsl.ir import Operation

from tilewright.base import verdict
from tilewright.base.expr import Const, Interval, Sym, simplify
from tilewright.base.verdict import Proof, Proved, Unknown
from tilewright.compiler.proofs.uniform import elector, once_per_program, read_of
from tilewright.compiler.timing import timed
from tilewright.tile import dialect as tile
from tilewright.tile.ops import NEXT, operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.parameters import expressions

QUEUE = "queue"
METHOD = "numbers of one counter"
Op = TypeVar("Op", bound=Operation)


def has_program_queue(lowered: t.Kernel) -> bool:
    """Whether CTAs draw anything."""
    return any(isinstance(op, t.Draw) or (isinstance(op, t.Programs) and op.drawn is not None) for op in lowered.walk())


@timed("prove")
def prove_queue(kernel: tile.Kernel, lowered: t.Kernel) -> Proof[str]:
    """Whether each program is drawn once, and executed by all roles of its CTA; nothing to prove without a queue."""
    if not has_program_queue(lowered):
        return Proved(())
    fault = next(_faults(kernel, lowered), None)
    if fault is not None:
        return Unknown(QUEUE, fault, "one thread that draws once a program, and roles that are told the number")
    return Proved((verdict.Discharged(QUEUE, METHOD, lowered.sym_name.data),))


def _faults(kernel: tile.Kernel, lowered: t.Kernel) -> Iterator[str]:
    walks, draws, binds = _all(lowered, t.Programs), _all(lowered, t.Draw), _bound(lowered)
    if any(walk.drawn is None or walk.drawn.data != NEXT for walk in walks):
        yield "programs are dealt to some roles, and drawn by others"
    if len({id(a.role_of(walk)) for walk in walks}) < len(walks):
        yield "a role walks programs twice"
    if sorted(id(once_per_program(bind)) for bind in binds) != sorted(map(id, walks)):
        yield f"{NEXT} is not bound once a program in each role"
    yield from _aperiodic(lowered)
    if len(draws) != 1:
        yield f"{len(draws)} draws"
        return
    (draw,) = draws
    role = a.role_of(draw)
    one = elector(draw) is not None and role is not None and role.threads.data == a.WARPGROUP_THREADS
    if not one or once_per_program(draw) not in walks:
        yield "not one thread draws once a program"
    args = zip(lowered.arg_names, lowered.body.block.args, strict=True)
    own = [value for name, value in args if kernel.queue is not None and name.data == kernel.queue.data]
    if own != [draw.tensor] or len(list(draw.tensor.uses)) != 1:
        yield "the counter is not the program's queue alone"
    if any(draw.programs.expr != prod((e.expr for e in walk.extents), start=Const(1)) for walk in walks):
        yield "programs are drawn where there are no more than CTAs, or are not where there are more"
    if any(not _told(lowered, bind, draw) for bind in binds):
        yield f"{NEXT} is not what was drawn"


def _told(lowered: t.Kernel, bind: t.Bind, draw: t.Draw) -> bool:
    """Whether the shared element that a role reads has one writer, which writes the drawn number."""
    read = read_of(bind)
    writes = [op for op in _all(lowered, t.SharedWrite) if read is not None and op.shared == read.shared]
    if len(writes) != 1 or writes[0].buffer != draw.buffer or writes[0].parent is not draw.parent:
        return False
    users = [use.operation for use in draw.buffer.uses]
    return draw.is_before_in_block(writes[0]) and set(users) == {draw, writes[0]}


def _aperiodic(lowered: t.Kernel) -> Iterator[str]:
    """Uses of a periodic counter other than modulo its period."""
    periods = {op.symbol.data: op.period.data for op in _all(lowered, a.Counter) if op.period is not None}
    later = {name: Sym(name) + period for name, period in periods.items()}
    known: dict[str, Interval] = dict.fromkeys(periods, (0, None))
    for op in operations(lowered):
        for e in (e for attribute in op.attributes.values() for e in expressions(attribute)):
            if not e.symbols.isdisjoint(periods) and simplify(e.substitute(later), known) != simplify(e, known):
                yield f"{e} depends on more than the remainder of {', '.join(sorted(e.symbols & set(periods)))}"


def _bound(lowered: t.Kernel) -> list[t.Bind]:
    return [bind for bind in _all(lowered, t.Bind) if bind.symbol.data == NEXT]


def _all(lowered: t.Kernel, kind: type[Op]) -> list[Op]:
    return [op for op in operations(lowered) if isinstance(op, kind)]
