"""What numerics="accurate" and "fast" allow, written as ops: contraction, reciprocals, functions by one instruction.

Here alone arithmetic becomes other arithmetic than the program's; code generation and the assembler round every op as
it stands. ``strict`` kernels have none of this but the products of ``dot`` on ordinary arithmetic.

``accurate`` and ``fast`` compute ``exp`` of a difference, or of a difference times a factor, by base 2, if what is
diminished was itself rounded; differences of what was loaded are subtracted first, which is exact between neighbours,
and under ``accurate`` those of floats of 16 bits or fewer alone: within (3 |d| + 4) u, where the half ulp by which such
an a was rounded is worth at least 2^12 |f a| u.
With u = 2^-24, d = f (a - b) and c = f log2(e), ``ex2(fma(a, c, -(b c)))`` is within (2 |d| + |f b| + 4) u of exp(d),
relatively; (2 |d| + 2) u is the bound of each operation rounded, and the rounding of a alone is worth |f a| u: the
bound is at most about twice what it was. Weights that are divided by their sum share the error of ``b c``, which
leaves (2 |d| + 4) u. Of differences of which each element has its own subtrahend (factors between maxima) both
products are rounded, so that equal values still give 1. This holds while |b c| < 2^28 (of a subtrahend of its own, and
|a c|) and the result is not below 2^-126. From there on floats are so far apart that the lesser one's weight is at
most 2^-14: beside a shared b that was computed, as maxima are, it is 0 (``transport.exponent_scale``); elements' own
ones are subtracted first.

A quotient of what was itself rounded and a divisor that several elements share, rounded to floats of 16 bits or fewer,
is ``a * (1 / b)``: within 1.5 ulp of f32 before it is rounded, for b from 2^-126 to 2^126.

A sum of products on tensor cores, scaled and added to something, ``p s + x`` where nothing else reads ``p s``, is one
fma: within u |p s + x| of the exact value, where two roundings are within u (|p s| + |p s + x|), but for terms in u^2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.dtypes import DType, f32
from tilewright.base.expr import Sym
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn, CompareFn, Numerics
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_in
from tilewright.tile.queries import element
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_SUMS = (BinaryFn.ADD, BinaryFn.SUB)
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453
_FAR = 2.0**28
"""Products from here on would be rounded by 16 and more (``transport.exponent_scale``)."""


def contracted(kernel: t.Kernel) -> t.Kernel:
    """The kernel with its maps contracted as far as its policy allows."""
    policy, origins = kernel.numerics.data, _Origins()
    if policy == Numerics.STRICT:
        return kernel
    for op in [op for op in kernel.walk() if isinstance(op, t.Map)]:
        own = [x for x, read in zip(op.body.block.args, op.reads, strict=True) if read.expr == Sym(t.REGISTER)]
        body = _Body(op.body.block, own, origins)
        body.contract() if policy == Numerics.FAST else body.within_bounds()
    return kernel


class _Origins:
    """What was rounded when it was computed: sums, products, functions, what is chosen of them; not what is loaded."""

    def rounded(self, value: SSAValue) -> bool:
        """An element of a map's body, and all that it may be chosen of but constants."""
        return self._rounded(value, set()) is True

    def _rounded(self, value: SSAValue, seen: set[SSAValue]) -> bool | None:
        """None for constants, and for what is looked at already."""
        read = _read(value)
        if read is not None:
            return self._buffer(read, seen)
        match value.owner:
            case tile.Constant():
                return None
            case tile.Binary(fn=fn) if fn.data not in (BinaryFn.MAX, BinaryFn.MIN):
                return element(value).is_float
            case tile.Binary() | tile.Select() as op:
                return _all_of(self._rounded(v, seen) for v in (op.a, op.b))
            case tile.Unary(fn=fn, x=x) if fn.data in (UnaryFn.NEG, UnaryFn.ABS):
                return self._rounded(x, seen)
            case tile.Unary() | tile.Fma() | t.Fma() | t.Approximate():
                return element(value).is_float
            case _:
                return False

    def loaded(self, value: SSAValue) -> bool:
        """An element of memory as it is, or converted."""
        while isinstance(value.owner, tile.Cast):
            value = value.owner.x
        read = _read(value)
        writers = [] if read is None else _writers(read)
        return bool(writers) and all(map(_loads, writers))

    def narrow(self, value: SSAValue, seen: frozenset[SSAValue] = frozenset()) -> bool:
        """A float of 16 bits or fewer as it was loaded, by way of registers too: it was rounded when it was stored."""
        while isinstance(value.owner, tile.Cast):
            value = value.owner.x
        read = _read(value)
        if read is None or read in seen:
            return False
        if self.loaded(value):
            return element(value).is_float and element(value).bits <= 16
        writers = _writers(read)
        return bool(writers) and all(
            isinstance(op, t.Map) and all(self.narrow(v, seen | {read}) for v in _written(op, read)) for op in writers
        )

    def multiplied(self, value: SSAValue) -> bool:
        """A sum of products on tensor cores, in the registers in which it is added up."""
        read = _read(value)
        return read is not None and _accumulates(read)

    def _buffer(self, buffer: SSAValue, seen: set[SSAValue]) -> bool | None:
        """Registers that products or maps write, and nothing else."""
        if buffer in seen:
            return None
        seen.add(buffer)
        parts: list[bool | None] = []
        for op in _writers(buffer):
            match op:
                case t.Map():
                    parts += (self._rounded(v, seen) for v in _written(op, buffer))
                case a.Wgmma() | a.Mma():
                    parts.append(True)
                case _:
                    return False
        return _all_of(parts)


def _all_of(parts: Iterable[bool | None]) -> bool | None:
    """Whether all hold that are known; None where nothing is."""
    known = [part for part in parts if part is not None]
    return all(known) if known else None


def _writers(buffer: SSAValue) -> list[Operation]:
    """What writes the registers, or may."""
    return [op for op in dict.fromkeys(use.operation for use in buffer.uses) if not _only_reads(op, buffer)]


def _only_reads(op: Operation, buffer: SSAValue) -> bool:
    match op:
        case t.Store() | t.SharedWrite() | t.AtomicReduce() | a.StoreMatrix() | a.WgmmaWait() | t.Pin():
            return True
        case t.Map():
            return buffer not in op.outputs
        case t.Load() | t.SharedRead() | t.ClusterRead():
            return buffer != op.buffer  # of which others say where
        case a.Wgmma() | a.Mma():
            return buffer != op.accumulator
        case t.Fold():
            return buffer not in op.targets
        case t.RegisterSelect() | t.Exchange():
            return buffer != op.target
        case _:
            return False


def _read(value: SSAValue) -> SSAValue | None:
    """The registers that an argument of a map's body reads; None for what the body computes, and for arguments of what
    is around the map: a scalar of the kernel, the index of a loop."""
    block = value.owner
    around = block.parent_op() if isinstance(block, Block) else None
    if not isinstance(block, Block) or not isinstance(around, t.Map):
        return None
    return around.inputs[block.args.index(value)]


def _accumulates(buffer: SSAValue) -> bool:
    """Products on tensor cores are added up in these registers."""
    return any(isinstance(use.operation, a.Wgmma) and use.operation.accumulator == buffer for use in buffer.uses)


def _loads(op: Operation) -> bool:
    """Whether the op loads from global memory into registers, directly or through shared memory."""
    if isinstance(op, t.SharedRead):
        return not any(isinstance(use.operation, t.SharedWrite | a.StoreMatrix) for use in op.shared.uses)
    return isinstance(op, t.Load)


def _written(op: t.Map, buffer: SSAValue) -> list[SSAValue]:
    """The elements that a map writes to a buffer."""
    last = op.body.block.last_op
    assert last is not None
    return [value for value, output in zip(last.operands, op.outputs, strict=True) if output == buffer]


class _Body:
    """The body of a map. ``own`` are its values of which each element has its own; others are shared by several."""

    def __init__(self, block: Block, own: Sequence[SSAValue], origins: _Origins):
        self.block = block
        self.own = set(own)
        self.origins = origins
        self.at: Operation | None = None
        self.bounded = False

    def contract(self) -> None:
        """Functions first, so that ``exp`` still finds the difference that it takes; then sums of products."""
        self._own_results()
        self._rewrite(self._function)
        self._rewrite(self._sum)

    def within_bounds(self) -> None:
        """What the bounds above allow, and nothing else."""
        self.bounded = True
        self._own_results()
        self._rewrite(self._power)
        self._rewrite(self._quotient)
        self._rewrite(self._scaled_products)

    def _own_results(self) -> None:
        for op in ops_in(self.block):
            if not self.own.isdisjoint(op.operands):
                self.own.update(op.results)

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
                exponent = self._exponent(x)
                exponent = self._mul(self._wide(x), self._constant(_LOG2_E)) if exponent is None else exponent
                return self._approximate("ex2", exponent)
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

    def _exponent(self, x: SSAValue) -> SSAValue | None:
        """``x * log2(e)`` of a difference that takes no exact value: without its rounding, where that was computed."""
        found = self._scaled_difference(x)
        if found is None:
            return None
        if self._computed(found[0]):
            return self._difference(*found)
        return self._mul(x, self._constant(_LOG2_E)) if self.origins.narrow(found[0].a) else None

    def _power(self, op: Operation) -> SSAValue | None:
        """An exponential of such a difference."""
        if not isinstance(op, tile.Unary) or op.fn.data is not UnaryFn.EXP:
            return None
        exponent = self._exponent(op.x)
        return None if exponent is None else self._approximate("ex2", exponent)

    def _quotient(self, op: Operation) -> SSAValue | None:
        """A quotient of what was computed by what several elements share, rounded to floats of 16 bits or fewer. To
        integers it would be rounded towards 0, where an ulp less than a whole number is another one."""
        if not isinstance(op, tile.Binary) or op.fn.data is not BinaryFn.DIV or element(op.result) != f32:
            return None
        readers = [use.operation for use in op.result.uses]
        kinds = [element(r.result) if isinstance(r, tile.Cast) else f32 for r in readers]
        narrow = all(kind.is_float and kind.bits <= 16 for kind in kinds)
        if not narrow or op.b in self.own or not self.origins.rounded(op.a):
            return None
        return self._mul(op.a, self._put(tile.Binary(BinaryFn.DIV, self._constant(1.0), op.b)))

    def _scaled_products(self, op: Operation) -> SSAValue | None:
        """A sum of products on tensor cores that is scaled before it is added to something."""
        return self._sum(op, lambda product: any(map(self.origins.multiplied, product.operands)))

    def _computed(self, difference: tile.Binary) -> bool:
        """What is diminished was rounded, and so was a subtrahend of its own."""
        values = [difference.a] if difference.b not in self.own else [difference.a, difference.b]
        return all(self.origins.rounded(v) for v in values)

    def _scaled_difference(self, x: SSAValue) -> tuple[tile.Binary, SSAValue | None] | None:
        """The f32 difference that ``x`` is, and the factor that all elements share; None where ``x`` is none."""
        if element(x) != f32:
            return None
        if (difference := _binary(x, BinaryFn.SUB)) is not None:
            return difference, None
        product = _binary(x, BinaryFn.MUL)
        for value, factor in () if product is None else ((product.a, product.b), (product.b, product.a)):
            if (difference := _binary(value, BinaryFn.SUB)) is not None and factor not in self.own:
                return difference, factor
        return None

    def _difference(self, difference: tile.Binary, factor: SSAValue | None) -> SSAValue:
        """``(a - b) * factor * log2(e)``: an fma where several elements share b, whose product's rounding is then one
        factor for all; else of two rounded products, so that equal values still give 0, which a running maximum
        multiplies up step by step. Within bounds great products, whose rounding is beyond any exponent, are avoided."""
        scale = self._constant(_LOG2_E)
        scale = scale if factor is None else self._mul(factor, scale)
        a, b = difference.a, difference.b
        if b not in self.own:
            if not self.origins.loaded(b):
                scale = self._put(t.ExponentScale(scale, b))
            return self._fma(a, scale, self._neg(self._mul(b, scale)))
        products = [self._mul(x, scale) for x in (a, b)]
        near = self._put(tile.Binary(BinaryFn.SUB, *products))
        if not self.bounded:
            return near
        greater = self._put(tile.Binary(BinaryFn.MAX, *(self._put(tile.Unary(UnaryFn.ABS, x)) for x in products)))
        far = self._put(tile.Compare(CompareFn.GE, greater, self._constant(_FAR)))
        return self._put(tile.Select(far, self._mul(difference.result, scale), near))

    def _sum(self, op: Operation, wanted: Callable[[tile.Binary], bool] = lambda _: True) -> SSAValue | None:
        """An fma where a term is a wanted product that nothing else reads."""
        if not isinstance(op, tile.Binary) or op.fn.data not in _SUMS or element(op.result) != f32:
            return None
        minus = op.fn.data is BinaryFn.SUB
        if (product := _product(op.a)) is not None and wanted(product):
            return self._fma(product.a, product.b, self._neg(op.b) if minus else op.b)
        if (product := _product(op.b)) is not None and wanted(product):
            sums, scale = (product.a, product.b) if self.origins.multiplied(product.a) else (product.b, product.a)
            return self._fma(sums, self._neg(scale) if minus else scale, op.a)
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


def _binary(value: SSAValue, fn: BinaryFn) -> tile.Binary | None:
    """The ``fn`` of two elements that ``value`` is."""
    op = value.owner
    return op if isinstance(op, tile.Binary) and op.fn.data is fn else None


def _product(value: SSAValue) -> tile.Binary | None:
    """The product that ``value`` is, if only one op reads it, once."""
    return _binary(value, BinaryFn.MUL) if len(list(value.uses)) == 1 else None
