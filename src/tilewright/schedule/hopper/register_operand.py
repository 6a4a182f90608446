"""Left operands that can stay in the registers of the threads that computed them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from tilewright.schedule.classes import classify
from tilewright.tile import dialect as tile


class RegisterRows:
    """Left operands that lie in registers as the rows of their product do.

    No axis can be the rows of one product and the columns of another: accumulators spread those over different
    threads. The contracted axis of an operand in registers lies as columns do.
    """

    def __init__(self, kernel: tile.Kernel, products: Sequence[tile.Dot]):
        self.classes = classify(kernel)
        self.products = products
        self.taken: list[SSAValue] = []

    def take(self, dot: tile.Dot) -> bool:
        """Whether the left operand can stay in registers beside those taken before; if so it is taken."""
        find = self.classes.find
        own, rows = find((dot.a, 0)), find((dot.result, 0))
        every = {rows} | {find((other.result, 0)) for other in self.products}
        columns = {find((other.result, 1)) for other in self.products}
        columns |= {find((value, 1)) for value in (dot.a, *self.taken)}
        if {rows if c == own else c for c in every} & {rows if c == own else c for c in columns}:
            return False
        if not self.classes.join([((dot.a, 0), (dot.result, 0))]):
            return False
        self.taken.append(dot.a)
        return True
