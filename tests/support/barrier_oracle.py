"""Where threads of a kernel without roles meet too late, by walking its text; the judge of the proved protocols.

Every branch may go either way and every loop is walked twice, which is enough: what may be open at the end of its body
is open from the first time on. An access is *open* until all threads meet. Python sets of bytes and threads, no tables,
no protocol.
"""

from __future__ import annotations

from xdsl.ir import Block, Operation

from tilewright.transport import dialect as t
from tilewright.transport.ops.roles import WARPGROUP, WARPGROUP_THREADS

Bytes = dict[int, set[int]]


def races(kernel: t.Kernel) -> bool:
    """Whether some two accesses that clash may be open together."""
    return _Walk(kernel).run()


class _Walk:
    def __init__(self, kernel: t.Kernel):
        self.kernel = kernel
        self.found = False
        self.bytes: dict[Operation, Bytes] = {}

    def run(self) -> bool:
        self.block(self.kernel.body.block, frozenset(), frozenset())
        return self.found

    def block(self, block: Block, cta: frozenset[Operation], warp: frozenset[Operation]):
        """``cta``, ``warp``: accesses since the last barrier of the CTA, and since the last one of either kind."""
        for op in block.ops:
            match op:
                case t.Barrier():
                    cta = warp = frozenset()
                case t.WarpBarrier():
                    warp = frozenset()
                case t.SharedRead() | t.SharedWrite():
                    self.found |= isinstance(op, t.SharedWrite) and any(
                        len(who) > 1 for who in self.touched(op).values()
                    )
                    self.found |= any(self.clash(x, op, across_warps=True) for x in cta)
                    self.found |= any(self.clash(x, op, across_warps=False) for x in warp)
                    cta, warp = cta | {op}, warp | {op}
                case t.If():
                    ways = [self.block(region.block, cta, warp) for region in op.regions]
                    cta, warp = (frozenset().union(*sides) for sides in zip(*ways, strict=True))
                case t.For() | t.Programs():
                    once = isinstance(op, t.Programs) and not op.persistent.data
                    for _ in range(1 if once else 2):
                        after = self.block(op.body.block, cta, warp)
                        cta, warp = cta | after[0], warp | after[1]
                case _:
                    pass
        return cta, warp

    def clash(self, x: Operation, y: Operation, *, across_warps: bool) -> bool:
        if not isinstance(x, t.SharedWrite) and not isinstance(y, t.SharedWrite):
            return False
        if x.shared is not y.shared:
            return False
        mine, others = self.touched(x), self.touched(y)
        pairs = ((a, b) for byte in mine.keys() & others.keys() for a in mine[byte] for b in others[byte] if a != b)
        return any((a // 32 != b // 32) is across_warps for a, b in pairs)

    def touched(self, op: Operation) -> Bytes:
        if op not in self.bytes:
            found: Bytes = {}
            width = op.vector.data
            for tid in range(self.kernel.threads.data):
                for r in range(0, t.registers_of(op.buffer).count.data, width):
                    at = {t.THREAD: tid, t.REGISTER: r, WARPGROUP: tid // WARPGROUP_THREADS}
                    if op.guard.expr.evaluate(at):
                        first = op.offset.expr.evaluate(at)
                        for element in range(first, first + width):
                            found.setdefault(element, set()).add(tid)
            self.bytes[op] = found
        return self.bytes[op]
