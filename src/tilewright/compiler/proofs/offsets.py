"""Vectors begin at multiples of their size, and offsets fit: the ``aligned`` and ``offsets`` obligations.

Read from the lowered kernel alone. An access of several elements at once lies along an axis whose stride its
assumptions make 1; the tensor's address and its other strides are multiples of the vector's bytes by those assumptions,
and the coordinate along the axis is one of the vector's elements, whatever the thread; an axis of one element has
coordinate 0, for no access leaves its tensor (``stores``). Where offsets are formed in 32 bits, the assumptions say
that those of every element fit. What assumptions say is asked of every launch.

In tiles that are laid from a boundary before their row (``schedule.misaligned_rows``) the coordinate is one of the
vector's elements less a distance, ``q % n``: where q elements lie before the vector, but for a multiple of its own, it
begins at a boundary. Of a tensor whose rows start like those of another, q counts the other's. Vectors that are shifted
by such a distance lie in two that begin where theirs would without it, and before: these are at multiples, and so the
distance is less than a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tilewright.base import verdict
from tilewright.base.expr import TRUE, Const, Expr, Mod, Sym, divisor, maximum, simplify
from tilewright.base.verdict import Proof, Proved, Unknown
from tilewright.compiler.proofs.copies import where_it_matters
from tilewright.compiler.timing import timed
from tilewright.legal.facts import Facts
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations, tensor_type
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

ALIGNED, OFFSETS = "aligned", "offsets"
METHODS = {ALIGNED: "multiples", OFFSETS: "facts of the launch"}
Access: TypeAlias = t.Load | t.Store | a.CopyOut | a.CpAsync


def vectors_of(lowered: t.Kernel) -> tuple[Access, ...]:
    """The accesses that move several elements at once."""
    return tuple(op for op in operations(lowered) if isinstance(op, Access) and op.vector.data > 1)


def narrow_of(lowered: t.Kernel) -> tuple[tile.TensorType, ...]:
    """The tensors whose offsets are computed in 32 bits."""
    kinds = (arg.type for arg in lowered.body.block.args)
    return tuple(k for k in kinds if isinstance(k, tile.TensorType)) if lowered.index_bits.data == 32 else ()


@timed("prove")
def prove_offsets(lowered: t.Kernel) -> Proof[str]:
    """Whether every vector begins at a multiple of its bytes, and every offset fits, for all arguments of the class."""
    accesses, narrow = vectors_of(lowered), narrow_of(lowered)
    assumptions = tuple(x.expr for x in lowered.assumptions)
    known = where_it_matters(assumptions)
    distances = {op.symbol.data: op.value.expr for op in operations(lowered) if isinstance(op, t.Let)}
    for op in accesses:
        for open_ in _open(op, known, distances):
            where = op.loc.data if op.loc is not None else "no line"
            return Unknown(ALIGNED, f"{op.name} at {where}: {open_}", f"vectors of {_bytes(op)} bytes at multiples")
    for kind in narrow:
        fits = _reach(kind) < Const(1 << 31)
        if fits not in (TRUE, *assumptions):
            return Unknown(OFFSETS, f"{fits} is open", "offsets of 64 bits, or an assumption")
    vectors = ", ".join(dict.fromkeys(tensor_type(op.tensor).tensor_name.data for op in accesses))
    offsets = ", ".join(kind.tensor_name.data for kind in narrow)
    found = ((ALIGNED, vectors), (OFFSETS, offsets))
    return Proved(tuple(verdict.Discharged(name, METHODS[name], of) for name, of in found if of))


def _reach(kind: tile.TensorType) -> Expr:
    """The greatest offset of an element, in elements."""
    reach: Expr = Const(0)
    for axis, dim in enumerate(kind.dims):
        stride = Sym(f"{kind.tensor_name.data}.stride{axis}")
        reach = reach + maximum(dim.expr - 1, 0) * maximum(stride, -stride)
    return reach


def _bytes(op: Access) -> int:
    """The bytes that an access moves at once."""
    return op.vector.data * tensor_type(op.tensor).element.bytes


def _open(op: Access, known: Facts, distances: Mapping[str, Expr]) -> Iterator[str]:
    """The conditions that are not implied; ``distances`` are those from 16-byte boundaries, by symbol."""
    coords = [c.expr for c in op.coords]
    if isinstance(op, t.Load) and op.shifted is not None:
        distance = distances.get(op.shifted)
        if not isinstance(distance, Mod) or distance.denominator != Const(op.vector.data):
            yield f"{distance} is no distance from a boundary"
            return
        coords = [coord.substitute({op.shifted: Const(0)}) for coord in coords]
    for symbol in coords[op.axis.data].symbols & distances.keys():
        distance = distances[symbol]
        if isinstance(distance, Mod) and any(s.endswith(".address") for s in distance.symbols):
            yield from _open_from_boundary(op, distance, symbol, known)
            return
    kind, size = tensor_type(op.tensor), _bytes(op)
    name = kind.tensor_name.data
    if known.residual((Sym(f"{name}.address") % size).eq(0)) != TRUE:
        yield f"{name}.address % {size} is open"
    for axis, coord in enumerate(coords):
        stride = Sym(f"{name}.stride{axis}")
        if axis == op.axis.data:
            width = op.vector.data
            begin = simplify(coord.substitute({t.REGISTER: Sym(t.REGISTER) * width}), {t.REGISTER: (0, None)})
            if isinstance(op, t.Load | t.Store) and divisor(begin, {}) % width:
                yield f"{begin} % {width} is open"
            if known.residual(stride.eq(1)) != TRUE:
                yield f"{stride} is not 1"
        elif (
            coord != Const(0)
            and kind.dims.data[axis].expr != Const(1)
            and known.residual((stride * kind.element.bytes % size).eq(0)) != TRUE
        ):
            yield f"{stride} * {kind.element.bytes} % {size} is open"


def _open_from_boundary(op: Access, distance: Mod, name: str, known: Facts) -> Iterator[str]:
    """The same for a tile that begins at a boundary ``distance`` elements before its row; ``name`` is its symbol."""
    match distance:
        case Mod(elements, Const(between)) if between * tensor_type(op.tensor).element.bytes % _bytes(op) == 0:
            pass
        case _:
            yield f"{distance} is no distance from a boundary"
            return
    kind, width = tensor_type(op.tensor), op.vector.data
    own, element = kind.tensor_name.data, kind.element.bytes
    (base,) = (s.removesuffix(".address") for s in distance.symbols if s.endswith(".address"))
    asked = [Sym(f"{tensor}.address") % element for tensor in dict.fromkeys((own, base))]
    asked += [(Sym(f"{own}.address") - Sym(f"{base}.address")) % _bytes(op)]
    before = Sym(f"{base}.address") // element
    for axis, coord in enumerate(c.expr for c in op.coords):
        stride = Sym(f"{own}.stride{axis}")
        if axis == op.axis.data:
            before = before + coord.substitute({t.REGISTER: Sym(t.REGISTER) * width}) + Sym(name)
            asked += [stride - 1]
        else:
            counted = Sym(f"{base}.stride{axis}")
            before = before + coord * counted
            if coord != Const(0) and kind.dims.data[axis].expr != Const(1):
                asked += [(stride - counted) * element % _bytes(op)]
    yield from (f"{value} is not 0" for value in asked if known.residual(value.eq(0)) != TRUE)
    begin = simplify(before - elements, {t.REGISTER: (0, None)})
    if divisor(begin, {}) % width:
        yield f"{begin} % {width} is open"
