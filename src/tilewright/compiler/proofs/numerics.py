"""Checks that a kernel's arithmetic is its program's, or a form that its numerics policy allows; error bounds hold for
operands of certain origins alone (``docs/language.md``, numerics)."""

from __future__ import annotations

from collections.abc import Iterable, Set
from enum import Enum, auto

from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.dtypes import f32
from tilewright.base.expr import Sym
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn, CompareFn, Numerics
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations
from tilewright.tile.queries import line_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_FAR = 2.0**28
"""Products of exponents that are subtracted are below it: greater ones were rounded by 16 and more."""


def other_numerics(kernel: tile.Kernel, lowered: t.Kernel) -> tuple[str, ...]:
    """The ops of a kernel whose arithmetic its program's policy does not allow."""
    policy = lowered.numerics.data
    if policy != kernel.numerics.data.value:
        return (f"the program's numerics, {kernel.numerics.data.value}",)
    maps = [op for op in operations(lowered) if isinstance(op, t.Map)]
    scales = (op for m in maps for op in m.body.block.ops if isinstance(op, t.ExponentScale))
    if any(not _is_exponent(scale) for scale in scales):
        return ("the scale of an exponent elsewhere than beside what it was chosen for",)
    if policy == Numerics.FAST:
        return ()
    products = {line_of(op) for op in operations(kernel) if isinstance(op, tile.Dot)}
    own = {line_of(op) for op in operations(kernel) if _is_reciprocal(op)}
    other = (m for m in maps if _Arithmetic(m, policy, own).is_other())
    # a product by ordinary arithmetic is a sum of fmas under any policy
    return tuple(f"{policy} arithmetic at {m.loc}" for m in other if m.loc is None or m.loc.data not in products)


class _Arithmetic:
    """The arithmetic of a map. ``own_reciprocals`` are the source lines of the program's reciprocals."""

    def __init__(self, op: t.Map, policy: str, own_reciprocals: Set[str]):
        self.ops = list(op.body.block.ops)
        self.policy, self.own_reciprocals = policy, own_reciprocals
        reads = zip(op.body.block.args, op.reads, strict=True)
        self.own: set[SSAValue] = {x for x, read in reads if read.expr == Sym(t.REGISTER)}
        """Values that differ between elements; others are shared by several elements."""
        for each in self.ops:
            if not self.own.isdisjoint(each.operands):
                self.own.update(each.results)

    def is_other(self) -> bool:
        """Whether some op is neither the program's arithmetic nor allowed by the policy."""
        return any(self._is_other(op) for op in self.ops)

    def _is_other(self, op: Operation) -> bool:
        """Other than an exponential of a difference by base 2, a scaled sum of products on tensor cores that is added
        to something, or a reciprocal whose products narrow floats are made of."""
        if _is_reciprocal(op) and line_of(op) not in self.own_reciprocals:
            return self.policy == Numerics.STRICT or not self._divides(op.results[0])
        if self.policy == Numerics.STRICT:
            return isinstance(op, t.Approximate | t.Fma)
        if isinstance(op, t.Fma):
            readers = [use.operation for use in op.result.uses]
            power = all(isinstance(r, t.Approximate) and r.fn.data == "ex2" for r in readers)
            return not power and not any(_is_sum_of_products(x) for x in (op.a, op.b))
        return isinstance(op, t.Approximate) and not (op.fn.data == "ex2" and self._is_difference(op.x))

    def _divides(self, reciprocal: SSAValue) -> bool:
        """Whether a computed value is multiplied by a reciprocal that several elements share, and rounded to floats of
        16 bits or fewer."""
        products = [use.operation for use in reciprocal.uses]
        return reciprocal not in self.own and all(
            _is_rounded_product(op) and all(v == reciprocal or _is_computed(v) for v in op.operands) for op in products
        )

    def _is_difference(self, x: SSAValue) -> bool:
        """Whether a value is ``(a - b) c``, the exponent of a power of 2, in a form that the bound allows."""
        match x.owner:
            case t.Fma(a=minuend, b=scale):
                subtrahend = _other_factor(_subtracted(x.owner), scale)
                return subtrahend is not None and self._is_fused(minuend, subtrahend, scale)
            case tile.Select(cond=far, a=subtracted, b=multiplied):
                found = _products(multiplied)
                return found is not None and self._is_far(far, found) and _is_of(subtracted, found)
            case tile.Binary(fn=fn) if fn.data is BinaryFn.MUL:
                differences = [d for v in x.owner.operands if (d := _binary(v, BinaryFn.SUB)) is not None]
                return any(_origins(d.a) == {_Origin.NARROW} for d in differences)
            case _:
                return False

    def _is_fused(self, minuend: SSAValue, subtrahend: SSAValue, scale: SSAValue) -> bool:
        """``fma(a, c, -(b c))``: several elements share b, and c is chosen for it unless it was loaded."""
        chosen = isinstance(scale.owner, t.ExponentScale) and scale.owner.b == subtrahend
        return (chosen or _is_loaded(subtrahend)) and subtrahend not in self.own and _is_computed(minuend)

    def _is_far(self, far: SSAValue, products: tuple[tile.Binary, tile.Binary]) -> bool:
        """Products of which one is so great that it was rounded to nothing of use."""
        test = far.owner
        if not isinstance(test, tile.Compare) or test.fn.data is not CompareFn.GE:
            return False
        greatest, bound = _binary(test.a, BinaryFn.MAX), test.b.owner
        if greatest is None or not isinstance(bound, tile.Constant) or not bound.value.data <= _FAR:  # nor a NaN
            return False
        sizes = [v.owner for v in greatest.operands]
        sized = {s.x for s in sizes if isinstance(s, tile.Unary) and s.fn.data is UnaryFn.ABS}
        return sized == {p.result for p in products}


def _products(x: SSAValue) -> tuple[tile.Binary, tile.Binary] | None:
    """The two products whose difference ``x`` is."""
    found = _binary(x, BinaryFn.SUB)
    first, second = (None, None) if found is None else (_binary(v, BinaryFn.MUL) for v in found.operands)
    return None if first is None or second is None else (first, second)


def _is_of(x: SSAValue, products: tuple[tile.Binary, tile.Binary]) -> bool:
    """``(a - b) c`` where the products are ``a c`` and ``b c`` of what was computed."""
    product = _binary(x, BinaryFn.MUL)
    for difference, scale in () if product is None else (product.operands, reversed(product.operands)):
        found = _binary(difference, BinaryFn.SUB)
        if found is not None and [_other_factor(p, scale) for p in products] == [found.a, found.b]:
            return _is_computed(found.a) and _is_computed(found.b)
    return False


def _other_factor(product: Operation | Block | None, factor: SSAValue) -> SSAValue | None:
    """The other factor of a product by ``factor``."""
    if not isinstance(product, tile.Binary) or product.fn.data is not BinaryFn.MUL:
        return None
    return product.b if product.a == factor else product.a if product.b == factor else None


def _binary(value: SSAValue, fn: BinaryFn) -> tile.Binary | None:
    op = value.owner
    return op if isinstance(op, tile.Binary) and op.fn.data is fn else None


def _is_reciprocal(op: Operation) -> bool:
    """Whether a value is ``1 / b`` of floats."""
    by = op.a.owner if isinstance(op, tile.Binary) and op.fn.data is BinaryFn.DIV else None
    while isinstance(by, tile.Broadcast | tile.Expand):
        by = by.operands[0].owner
    return isinstance(by, tile.Constant) and by.value.data == 1.0


def _is_rounded_product(op: Operation) -> bool:
    """A product of f32 that is read when it has been rounded to a float of 16 bits or fewer."""
    if not isinstance(op, tile.Binary) or op.fn.data is not BinaryFn.MUL or tile.tile_type(op.result).element != f32:
        return False
    kinds = [tile.tile_type(r.result).element for use in op.result.uses if isinstance(r := use.operation, tile.Cast)]
    return len(kinds) == len(list(op.result.uses)) and all(kind.is_float and kind.bits <= 16 for kind in kinds)


def _is_exponent(scale: t.ExponentScale) -> bool:
    """The scale is read by ``fma(a, scale, -(b scale))`` alone, beside the ``b`` that it was chosen for."""
    readers = {use.operation for use in scale.result.uses}
    products = {
        r for r in readers if isinstance(r, tile.Binary) and r.fn.data is BinaryFn.MUL and scale.b in r.operands
    }
    return all(isinstance(r, t.Fma) and _subtracted(r) in products for r in readers - products)


def _subtracted(op: t.Fma) -> Operation | Block | None:
    """The x of an fma ``a * b - x``."""
    less = op.c.owner
    return less.x.owner if isinstance(less, tile.Unary) and less.fn.data is UnaryFn.NEG else None


# -- where values come from --------------------------------------------------------------------------------------------
class _Origin(Enum):
    COMPUTED = auto()
    """The origin of a result that was rounded: a sum, a product, a function."""
    NARROW = auto()
    """The origin of a loaded float of 16 bits or fewer."""
    OTHER = auto()


def _is_computed(value: SSAValue) -> bool:
    return _origins(value) == {_Origin.COMPUTED}


def _origins(value: SSAValue) -> set[_Origin]:
    """What an element of a map's body is, or is chosen of; constants, which have no rounding, are left out."""
    found, seen, pending = set[_Origin](), set[SSAValue](), [value]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        match value.owner:
            case Block():
                held = _held(value)
                pending += _written(held, found) if held is not None else ()
                found |= {_Origin.OTHER} if held is None else set()
            case tile.Constant():
                pass
            case tile.Cast() as op:
                pending.append(op.x)
            case tile.Binary(fn=fn) as op if fn.data in (BinaryFn.MAX, BinaryFn.MIN):
                pending += op.operands
            case tile.Select() as op:
                pending += (op.a, op.b)
            case tile.Unary(fn=fn) as op if fn.data in (UnaryFn.NEG, UnaryFn.ABS):
                pending.append(op.x)
            case tile.Binary() | tile.Unary() | tile.Fma() | t.Fma() | t.Approximate():
                found.add(_Origin.COMPUTED if tile.tile_type(value).element.is_float else _Origin.OTHER)
            case _:
                found.add(_Origin.OTHER)
    return found


def _written(buffer: SSAValue, found: set[_Origin]) -> Iterable[SSAValue]:
    """The elements that maps write to registers; to ``found`` what others do, or may do."""
    for op in {use.operation for use in buffer.uses}:
        match op:
            case t.Map() if buffer in op.outputs:
                last = op.body.block.last_op
                assert last is not None
                yield from (v for v, output in zip(last.operands, op.outputs, strict=True) if output == buffer)
            case t.Load() | t.SharedRead() | t.ClusterRead() if op.buffer == buffer:
                kind = t.registers_of(buffer).dtype.dtype
                narrow = isinstance(op, t.Load) or not _shared_by_threads(op)
                found.add(_Origin.NARROW if narrow and kind.is_float and kind.bits <= 16 else _Origin.OTHER)
            case a.Wgmma() | a.Mma() if op.accumulator == buffer:
                found.add(_Origin.COMPUTED)
            case _ if not _only_reads(op, buffer):
                found.add(_Origin.OTHER)
            case _:
                pass


def _only_reads(op: Operation, buffer: SSAValue) -> bool:
    """Whether an op is known not to write the registers. The rewrites, which are checked here, have a list of their
    own."""
    match op:
        case t.Store() | t.SharedWrite() | t.AtomicReduce() | a.StoreMatrix() | a.WgmmaWait() | t.Pin():
            return True
        case t.Map():
            return buffer not in op.outputs
        case t.Load() | t.SharedRead() | t.ClusterRead():
            return buffer != op.buffer  # an index of what is read
        case a.Wgmma() | a.Mma():
            return buffer != op.accumulator
        case t.Fold():
            return buffer not in op.targets
        case t.RegisterSelect() | t.Exchange():
            return buffer != op.target
        case _:
            return False


def _shared_by_threads(op: t.SharedRead | t.ClusterRead) -> bool:
    """Whether threads write the shared memory that is read."""
    return any(isinstance(use.operation, t.SharedWrite | a.StoreMatrix) for use in op.shared.uses)


def _held(value: SSAValue) -> SSAValue | None:
    """The registers that an argument of a map's body reads; None for values from outside the map."""
    around = value.owner.parent_op() if isinstance(value.owner, Block) else None
    if not isinstance(value.owner, Block) or not isinstance(around, t.Map):
        return None
    return around.inputs[value.owner.args.index(value)]


def _is_loaded(value: SSAValue) -> bool:
    """Whether a value is an element of memory, perhaps converted."""
    while isinstance(value.owner, tile.Cast):
        value = value.owner.x
    held = _held(value)
    if held is None:
        return False
    loads, others = list[t.Load | t.SharedRead](), list[Operation]()
    for op in {use.operation for use in held.uses}:
        loads.append(op) if isinstance(op, t.Load | t.SharedRead) and op.buffer == held else others.append(op)
    if not loads or any(isinstance(op, t.SharedRead) and _shared_by_threads(op) for op in loads):
        return False
    return all(_only_reads(op, held) for op in others)


def _is_sum_of_products(x: SSAValue) -> bool:
    """Whether a map reads registers in which tensor cores accumulate."""
    held = _held(x)
    users = () if held is None else (use.operation for use in held.uses)
    return any(isinstance(op, a.Wgmma) and op.accumulator == held for op in users)
