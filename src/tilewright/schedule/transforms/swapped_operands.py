"""Swapped operands: ``C^T = B^T A^T``, so that the columns of a product become the rows of wgmma.

An instruction has 64 rows, and 8 or more columns: of a product of few rows most would be padding. Swapped, its rows are
columns. The fragment of ``f += a b`` is held transposed, and read transposed::

    f = zeros(n, m);   f += b.T a.T for each step;   epilogue of f.T
"""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from tilewright.lang.enums import BinaryFn
from tilewright.tile import dialect as tile
from tilewright.tile.copying import Copier, Names
from tilewright.tile.ops import ops_in

_TURN = (1, 0)


def swapped(kernel: tile.Kernel) -> tile.Kernel | None:
    """The program with the operands of all products swapped; None where a product is not accumulated in a fragment of
    its own."""
    sums: set[Operation] = set()
    transposed: set[SSAValue] = set()
    for dot in kernel.walk():
        if isinstance(dot, tile.Dot):
            total = _total(dot)
            if total is None:
                return None
            sums.add(total)
            transposed |= {v.owner.frag for v in total.operands if isinstance(v.owner, tile.FragmentRead)}
    for fragment in transposed:
        writes = (use.operation for use in fragment.uses if isinstance(use.operation, tile.FragmentWrite))
        if any(write.value.owner not in sums for write in writes):
            return None
    return _Swap(kernel, sums, transposed).run() if transposed else None


def _total(dot: tile.Dot) -> tile.Binary | None:
    """``f + dot``, if it is written to f and has no other use."""
    uses = [use.operation for use in dot.result.uses]
    total = uses[0] if len(uses) == 1 else None
    if not isinstance(total, tile.Binary) or total.fn.data is not BinaryFn.ADD:
        return None
    after = [use.operation for use in total.result.uses]
    reads = [v.owner for v in total.operands if isinstance(v.owner, tile.FragmentRead)]
    if len(after) != 1 or len(reads) != 1 or not isinstance(after[0], tile.FragmentWrite):
        return None
    alone = len(list(reads[0].result.uses)) == 1
    return total if alone and reads[0].frag is after[0].frag else None


class _Swap(Copier):
    """Copies the program; ``sums`` are the additions of products, ``transposed`` the fragments that are held
    transposed."""

    def __init__(self, source: tile.Kernel, sums: set[Operation], transposed: set[SSAValue]):
        super().__init__(source)
        self._sums, self._turned = sums, transposed

    def run(self) -> tile.Kernel:
        for op in ops_in(self.source.body.block):
            self.add(op, {})
        return self.kernel([extent.expr for extent in self.source.grid])

    def add(self, op: Operation, names: Names, block: Block | None = None) -> None:
        def turn(value: SSAValue) -> SSAValue:
            return self.emit(tile.Transpose(value, _TURN), like=op, block=block).results[0]

        match op:
            case tile.Dot():
                a, b = (turn(self.values[v]) for v in (op.a, op.b))
                made = self.emit(tile.Dot(b, a, promoted=op.promoted is not None), like=op, block=block)
            case tile.FragmentInit() if op.result in self._turned:
                made = self.emit(tile.FragmentInit(turn(self.values[op.init])), like=op, block=block)
            case tile.Binary() if op in self._sums:
                made = self.emit(tile.Binary(op.fn.data, *(self.values[v] for v in op.operands)), like=op, block=block)
            case tile.FragmentRead() if op.frag in self._turned:
                made = self.emit(tile.FragmentRead(self.values[op.frag]), like=op, block=block)
                if not any(use.operation in self._sums for use in op.result.uses):
                    self.values[op.result] = turn(made.results[0])
                    return
            case _:
                super().add(op, names, block)
                return
        self.values.update(zip(op.results, made.results, strict=True))
