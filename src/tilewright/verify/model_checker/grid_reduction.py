"""Partial-order reduction for CTAs of a grid: what only one CTA can see is explored at once.

CTAs of a grid meet in global memory alone. If every thread of a CTA next does something that no other CTA can see or
disturb, or waits for another thread of its CTA, then whatever the others do leaves these moves as they are: they are a
persistent set (``reduce``). A plain access to global memory counts as such a move: that it clashes with another one is
found from what threads know of each other, whichever comes first. Not so where copies run through global memory, nor
of tensor maps, whose fences hold from the moment that they are executed.
"""

from __future__ import annotations

from typing import Any

from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import steps
from tilewright.verify.model_checker.instance import ProtocolInstance
from tilewright.verify.model_checker.moves import Move
from tilewright.verify.model_checker.op_semantics import OBSERVABLE
from tilewright.verify.model_checker.world import Bytes, World


class GridReduction:
    """Chooses the moves of a CTA whose next moves are its own affair; all moves where there is none."""

    def __init__(self, g: ProtocolInstance):
        self.g = g
        code = [s.op for role in g.protocol.roles for s in steps(role.body)]
        self.copies = any(
            (isinstance(op, ops.TmaStore) and op.dst is not None)
            or (isinstance(op, ops.TmaLoad) and op.source is not None)
            for op in code
        )

        self.described = frozenset(
            b.name
            for b in g.protocol.buffers
            if b.space is Space.GLOBAL and g.describes(Bytes(("global",), b.offset, b.offset + b.size))
        )

    def chosen(self, w: World, enabled: list[Move], last: Move | None = None) -> list[Move]:
        """A persistent part of ``enabled``."""
        by_cta: dict[int, list[Move]] = {}
        for move in enabled:
            if not move.begins:
                by_cta.setdefault(self._cta(move), []).append(move)
        for cta, found in by_cta.items():
            if all(self._own(w, t) for t in self.g.everyone if self.g.threads[t].cta == cta):
                return found
        return enabled

    def _cta(self, move: Move) -> int:
        return self.g.threads[move.thread].cta if move.completion is None else self.g.cta_of_bar[move.completion.bar]

    def _own(self, w: World, t: int) -> bool:
        """Whether the thread's next move, and what follows at once, is of its CTA alone."""
        program, at = self.g.programs[t], w.at[t]
        if self.g.ended(w, t):
            return True
        call = program.call(at)
        while call is not None:
            if not self._alone(call.op):
                return False
            at = program.after(at, w.trips)
            call = program.call(at)
            if call is None or isinstance(call.op, OBSERVABLE):
                return True
        return True

    def _alone(self, op: Any) -> bool:
        match op:
            case ops.AtomAdd() | ops.FlagStore() | ops.SpinWait():
                return False
            case ops.TensormapReplace() | ops.TensormapRelease() | ops.TensormapAcquire():
                return False
            case ops.TmaStore() | ops.TmaLoad():
                return not self.copies and op.tensormap is None
            case ops.FenceProxyAsync() | ops.BulkWait():
                return not self.copies
            case ops.Write() if op.region.buffer in self.described:
                return False
            case ops.Read() | ops.Write():
                return not self.copies or self.g.buffers[op.region.buffer].space is not Space.GLOBAL
            case _:
                return True
