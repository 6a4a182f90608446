"""What numerics="fast" allows, written as ops: contraction, reciprocals, functions by one instruction.

Here alone arithmetic becomes other arithmetic than the program's; code generation and the assembler round every op as
it stands. ``precise`` kernels have none of this but the products of ``dot`` on ordinary arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.dtypes import DType, f32
from tilewright.base.expr import Sym
from tilewright.lang.fns import BinaryFn, Numerics, UnaryFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_in
from tilewright.tile.queries import element
from tilewright.transport import dialect as t

_SUMS = (BinaryFn.ADD, BinaryFn.SUB)
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453


def contracted(kernel: t.Kernel) -> t.Kernel:
    """The kernel with its maps contracted where its policy allows that."""
    if kernel.numerics.data == Numerics.FAST:
        for op in list(kernel.walk()):
            if isinstance(op, t.Map):
                own = [x for x, read in zip(op.body.block.args, op.reads, strict=True) if read.expr == Sym(t.REGISTER)]
                _Body(op.body.block, own).contract()
    return kernel


class _Body:
    """The body of a map. ``own`` are its values of which each element has its own; others are shared by several."""

    def __init__(self, block: Block, own: Sequence[SSAValue]):
        self.block = block
        self.own = set(own)
        self.at: Operation | None = None

    def contract(self) -> None:
        """Functions first, so that ``exp`` still finds the difference that it takes; then sums of products."""
        for op in ops_in(self.block):
            if not self.own.isdisjoint(op.operands):
                self.own.update(op.results)
        self._rewrite(self._function)
        self._rewrite(self._sum)

    def _rewrite(self, instead: Callable[[Operation], SSAValue | None]) -> None:
        """Replaces ops by what ``instead`` puts before them; what nothing reads any longer goes."""
        for op in ops_in(self.block):
            self.at = op
            if (found := instead(op)) is not None:
                op.results[0].replace_all_uses_with(self._cast(found, element(op.results[0])))
        for op in reversed(ops_in(self.block)):
            if op.results and not any(result.uses for result in op.results):
                op.detach()
                op.erase()

    def _function(self, op: Operation) -> SSAValue | None:
        match op:
            case tile.Unary() if element(op.result).is_float:
                return self._unary(op.fn.data, op.x)
            case tile.Binary() if op.fn.data is BinaryFn.DIV:
                return self._mul(self._wide(op.a), self._approximate("rcp", self._wide(op.b)))
            case _:
                return None

    def _unary(self, fn: UnaryFn, x: SSAValue) -> SSAValue | None:
        match fn:
            case UnaryFn.EXP:
                return self._approximate("ex2", self._exponent(x))
            case UnaryFn.EXP2:
                return self._approximate("ex2", self._wide(x))
            case UnaryFn.LOG:
                return self._mul(self._approximate("lg2", self._wide(x)), self._constant(_LN_2))
            case UnaryFn.LOG2:
                return self._approximate("lg2", self._wide(x))
            case UnaryFn.SIGMOID:
                power = self._approximate("ex2", self._mul(self._wide(x), self._constant(-_LOG2_E)))
                return self._approximate("rcp", self._put(tile.Binary(BinaryFn.ADD, self._constant(1.0), power)))
            case _:
                return None

    def _exponent(self, x: SSAValue) -> SSAValue:
        """``x * log2(e)``. Of a difference whose subtrahend several elements share it is one fma: the rounding of
        ``b * log2(e)`` is then one factor for all of them.

        A subtrahend of its own would make exp(a - a) differ from 1, which a running maximum multiplies up step by step.
        """
        op = x.owner
        if isinstance(op, tile.Binary) and op.fn.data is BinaryFn.SUB and op.b not in self.own and element(x) == f32:
            return self._fma(op.a, self._constant(_LOG2_E), self._neg(self._mul(op.b, self._constant(_LOG2_E))))
        return self._mul(self._wide(x), self._constant(_LOG2_E))

    def _sum(self, op: Operation) -> SSAValue | None:
        """An fma where a term is a product that nothing else reads."""
        if not isinstance(op, tile.Binary) or op.fn.data not in _SUMS or element(op.result) != f32:
            return None
        minus = op.fn.data is BinaryFn.SUB
        if (product := _product(op.a)) is not None:
            return self._fma(product.a, product.b, self._neg(op.b) if minus else op.b)
        if (product := _product(op.b)) is not None:
            return self._fma(self._neg(product.a) if minus else product.a, product.b, op.a)
        return None

    # -- ops before the one that is rewritten -------------------------------------------------------------------------
    def _put(self, op: Operation) -> SSAValue:
        assert self.at is not None
        if "loc" in self.at.attributes:
            op.attributes["loc"] = self.at.attributes["loc"]
        self.block.insert_op_before(op, self.at)
        if not self.own.isdisjoint(op.operands):
            self.own.add(op.results[0])
        return op.results[0]

    def _constant(self, value: float) -> SSAValue:
        return self._put(tile.Constant(value, f32))

    def _approximate(self, fn: str, x: SSAValue) -> SSAValue:
        return self._put(t.Approximate(fn, x))

    def _fma(self, a: SSAValue, b: SSAValue, c: SSAValue) -> SSAValue:
        return self._put(t.Fma(a, b, c))

    def _mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self._put(tile.Binary(BinaryFn.MUL, a, b))

    def _neg(self, x: SSAValue) -> SSAValue:
        return self._put(tile.Unary(UnaryFn.NEG, x))

    def _wide(self, x: SSAValue) -> SSAValue:
        return self._cast(x, f32)

    def _cast(self, x: SSAValue, dtype: DType) -> SSAValue:
        return x if element(x) == dtype else self._put(tile.Cast(x, dtype))


def _product(value: SSAValue) -> tile.Binary | None:
    """The product that ``value`` is, if only one op reads it, once."""
    op = value.owner
    if isinstance(op, tile.Binary) and op.fn.data is BinaryFn.MUL and len(list(value.uses)) == 1:
        return op
    return None
