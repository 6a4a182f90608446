"""Proves that tensor copies and products move what the tile program says: the ``map`` obligation of a certificate.

Everything is read from the lowered kernel and compared with the tile program:

    tensors    a map's address, extents and strides are the tensor's, for all arguments of the class
    loads      every element of an operand's tile lands where the product's instructions read it: the boxes' coordinates
               are the load's plus constants (as polynomials), the bytes inside the tile are compared one by one; those
               of pages are what `page_tables` says; those of tiles that threads convert in between, `converted_tiles`
    products   the instructions pair the same k of both operands, and each row, column and k once; the first along k of
               a product that adds to nothing ignores what its registers held, all others add
    stores     every element of a panel lies where a copy to global memory looks for it, the hardware's or threads'; the
               hardware's copies of a domain that ends before its tensor stand behind the test that the tile is whole,
               or end with it (``ragged_copies``)

Landing follows the map's box order and swizzle (PTX ISA 9.1, 5.5.5), reading the canonical layouts of a descriptor's
fields (9.7.15.5.1.2). Vectors of steps are compared in `stage_vectors`, operands that threads stage element by element
in `staged_operands`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.expr import TRUE, Any_, Compare, Const, Expr, Sym, all_of, conjuncts, maximum
from tilewright.base.verdict import Discharged, Proof, Proved, Refuted
from tilewright.compiler.proofs.converted_tiles import conversion, converted_side, excludes
from tilewright.compiler.proofs.epilogue_copies import (
    INTERIOR,
    CopyMismatchError,
    Ints,
    box_bytes,
    name_of,
    numbers_of,
    panel,
    place_of,
    rows_of_panel,
    swizzled,
    tensor_of,
)
from tilewright.compiler.proofs.gathered_rows import Rows, rows_of
from tilewright.compiler.proofs.loaded import clips_of
from tilewright.compiler.proofs.operand_domains import Ragged, ends_with_tensor, excluded
from tilewright.compiler.proofs.page_tables import Pages, pages_of, row_of
from tilewright.compiler.proofs.product_queries import added_in_place, casts_before, loaded_operand
from tilewright.compiler.proofs.ragged_copies import METHOD, RAGGED, ended, fault_of_copy, fault_of_map, places
from tilewright.compiler.proofs.stage_vectors import read_vectors
from tilewright.compiler.proofs.staged_operands import staged_operand
from tilewright.compiler.proofs.thread_copies import place_copies
from tilewright.hw.rules.wgmma import CORE_ROW_BYTES, CORE_ROWS, INSTRUCTION_K_BITS, INSTRUCTION_M
from tilewright.hw.tensormap import ELEMENT_BITS, PATTERNS, Swizzle
from tilewright.lang.axes import Coord, Span
from tilewright.legal.domain import ShapeDomain
from tilewright.legal.facts import Facts
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations
from tilewright.tile.queries import coords_of, line_of, tensor_name
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import OperandNumbers, TmaNumbers

_LOOK_AHEAD = (0, -1, 1, -2, 2)
"""A software-pipelined loop reads the stage of a step before or after the one that the producer's counter names."""


def prove_copies(kernel: tile.Kernel, lowered: t.Kernel) -> Proof[str]:
    """Whether the copies and products of ``lowered`` are those of ``kernel``."""
    try:
        program, inside = operations(kernel), operations(lowered)
        maps = [op for op in inside if isinstance(op, a.TensorMap)]
        known, clips = where_it_matters(tuple(x.expr for x in lowered.assumptions)), clips_of(kernel)
        for op in maps:
            _tensor(op, known)
        loads = _loads(kernel, program, inside)
        converted = set[Operation]()
        operands = sum(_product(kernel, inside, group, loads, converted, (known, clips)) for group in _products(inside))
        vectors = read_vectors(program, [op for op in inside if op not in converted])
        stores = [op for op in program if isinstance(op, tile.Store)]
        copies = {op: numbers_of(op) for op in inside if isinstance(op, a.TmaLoad | a.TmaStore)}
        copied = [panel(stores, copy, known, clips) for copy in copies if isinstance(copy, a.TmaStore)]
        panels = len(copied) + sum(rows_of_panel(stores, rows) for rows in inside if isinstance(rows, a.CopyOut))
    except CopyMismatchError as error:
        return Refuted("map", str(error))
    subject = f"{len(maps)} tensors, {operands} operands, {panels} panels" + (f", {vectors} vectors" * bool(vectors))
    interiors = dict.fromkeys(all_of(tests) for tests in copied if tests)
    whole = (Discharged(INTERIOR, "asked of every tile", f"copied where {tests}") for tests in interiors)
    clipped = (Discharged(RAGGED, METHOD, what) for what in ended(copies))
    return Proved((Discharged("map", "identity, enumerated", subject), *whole, *clipped))


# -- tensors ----------------------------------------------------------------------------------------------------------
def _tensor(op: a.TensorMap, known: Facts) -> None:
    """A map's fields against the tensor's own."""
    kind = op.tensor.type
    assert isinstance(kind, t.TensorType)
    name, numbers = kind.tensor_name.data, op.numbers
    size = kind.element.bytes
    if numbers.address != Sym(f"{name}.address") or ELEMENT_BITS[numbers.data_type] != 8 * size:
        raise CopyMismatchError(f"{op.hint.data}: {numbers.data_type.name} at {numbers.address}")
    if len(set(numbers.axes)) != len(numbers.axes):
        raise CopyMismatchError(f"{op.hint.data}: axes {numbers.axes}")
    for axis, dim in enumerate(kind.dims):
        if axis not in numbers.axes and dim.expr != Const(1):
            raise CopyMismatchError(f"{op.hint.data}: no dimension for axis {axis} of {name}")
    named, dims = len(numbers.axes), [*numbers.dims]
    if numbers.ragged_axis is not None:
        if fault := fault_of_map(numbers):
            raise CopyMismatchError(f"{op.hint.data}: {fault}")
        dims[numbers.axes.index(numbers.ragged_axis)] = kind.dims.data[numbers.ragged_axis].expr
    steps = (Const(size), *numbers.strides_bytes)
    for axis, extent, step in zip(numbers.axes, dims[:named], steps[:named], strict=True):
        own = Sym(f"{name}.stride{axis}") * size
        if extent != kind.dims.data[axis].expr:
            raise CopyMismatchError(f"{op.hint.data}: extent {extent} for axis {axis} of {name}")
        if extent != Const(1) and not _same_stride(step, own, known):
            raise CopyMismatchError(
                f"{op.hint.data}: a step of {step} bytes along axis {axis} of {name}, which has {own}"
            )


@lru_cache(maxsize=64)
def where_it_matters(assumptions: tuple[Expr, ...]) -> Facts:
    """A kernel's assumptions about axes with more than one element: strides of other axes address nothing. Cached,
    because the kernels of a class have the same assumptions."""
    found: list[Expr] = []
    for assumption in (part for each in assumptions for part in conjuncts(each)):
        match assumption:
            case Any_((Compare("<=", _, Const(1)), rest)) | Any_((rest, Compare("<=", _, Const(1)))):
                found.append(rest)
            case other:
                found.append(other)
    return ShapeDomain.of(*found).facts


@lru_cache(maxsize=256)
def _same_stride(step: Expr, own: Expr, known: Facts) -> bool:
    """Whether ``step`` equals ``own``, or is ``own`` rounded as a map requires where rounding changes nothing."""
    if known.residual(own.eq(step)) == TRUE or known.apply(own) == step:
        return True
    whole = known.residual((own % 16).eq(0)) == TRUE
    (symbol,) = own.symbols or {""}
    forward = known.residual(Const(0) < Sym(symbol)) == TRUE
    return step == maximum(own // 16 * 16, 16) and whole and forward


# -- loads and products -----------------------------------------------------------------------------------------------
_Reader: TypeAlias = tuple[str, str]
"""A side (``a``, ``b``) of the product on a source line: several products may read one tile along different axes."""


@dataclass(frozen=True, eq=False)
class _Source:
    """A load of the tile program, or a gather from pages or of rows, with the tensor axes that are mn and k for each
    reader. For a gather, the range of its pages or rows replaces the loaded coordinate."""

    load: tile.Load | tile.Gather
    where: tuple[str, str]
    coords: tuple[Coord, ...]
    axes: Mapping[_Reader, Sequence[tuple[int, int]]]
    pages: Pages | None = None
    rows: Rows | None = None


def _sources(kernel: tile.Kernel, program: Sequence[Operation]) -> list[_Source]:
    axes: dict[Operation, dict[_Reader, list[tuple[int, int]]]] = {}
    gathers = [op for op in program if isinstance(op, tile.Gather)]
    pages = {op: found for op in gathers if (found := pages_of(op, kernel)) is not None}
    rows = {op: found for op in gathers if (found := rows_of(op)) is not None}
    dims: dict[tile.Gather, tuple[int, int]] = {op: (p.dims[0], p.dims[1]) for op, p in pages.items()}
    dims |= {op: found.dims for op, found in rows.items()}
    for dot in program:
        if isinstance(dot, tile.Dot):
            for side, operand, mn, k in (("a", dot.a, 0, 1), ("b", dot.b, 1, 0)):
                reader = (side if not casts_before(operand) else converted_side(side), line_of(dot))
                found = loaded_operand(operand) or _gathered(operand, dims)
                if found is not None:
                    load, of = found
                    axes.setdefault(load, {}).setdefault(reader, []).append((of[mn], of[k]))
    loads = (op for op in program if isinstance(op, tile.Load))
    return [
        *(_Source(x, (tensor_name(x), line_of(x)), coords_of(x), axes.get(x, {})) for x in loads),
        *(_Source(x, (tensor_name(x), line_of(x)), found.coords, axes.get(x, {}), found) for x, found in pages.items()),
        *(
            _Source(x, (tensor_name(x), line_of(x)), found.coords, axes.get(x, {}), rows=found)
            for x, found in rows.items()
        ),
    ]


def _gathered(
    operand: SSAValue, dims: Mapping[tile.Gather, tuple[int, int]]
) -> tuple[tile.Gather, tuple[int, int]] | None:
    """The gather from pages or of rows that an operand is, with the tensor axes that are the operand's axes 0 and 1;
    ``dims`` are those of each gather's axes."""
    flips, op = 0, operand.owner
    while isinstance(op, tile.Transpose | tile.Cast):
        flips += isinstance(op, tile.Transpose) and [p.data for p in op.perm] == [1, 0]
        op = op.x.owner
    if not isinstance(op, tile.Gather) or op not in dims:
        return None
    first, second = dims[op]
    return op, (second, first) if flips % 2 else (first, second)


_Brought: TypeAlias = tuple[_Source, tuple[int, int]]
"""A load, with the tensor axes that are mn and k for a reader."""


@dataclass(frozen=True)
class _Load:
    """A copy as the CTA of rank ``receiver`` receives it, and the loads of the tile program that it may implement. For
    copies by threads ``offset`` is that of the whole tile; their coordinates are read from the op."""

    op: a.TmaLoad | a.ThreadCopies
    receiver: int
    coords: tuple[Expr, ...]
    offset: Expr
    sources: tuple[_Source, ...]


def _loads(
    kernel: tile.Kernel, program: Sequence[Operation], lowered: Sequence[Operation]
) -> dict[SSAValue, list[_Load]]:
    """The copies that fill each buffer."""
    sources = _sources(kernel, program)
    programs = next(op for op in lowered if isinstance(op, t.Programs))
    found: dict[SSAValue, list[_Load]] = {}
    for op in lowered:
        if isinstance(op, a.TmaLoad):
            mine = tuple(s for s in sources if s.where == (tensor_of(op), place_of(op)))
            for sender, receiver in _deliveries(op, programs):
                rank = {a.CTA_RANK: sender}
                coords = tuple(c.expr.substitute(rank) for c in op.coords)
                found.setdefault(op.shared, []).append(
                    _Load(op, receiver, coords, op.offset.expr.substitute(rank), mine)
                )
        elif isinstance(op, a.ThreadCopies):
            mine = tuple(s for s in sources if s.where == (name_of(op.tensor), place_of(op)))
            found.setdefault(op.shared, []).append(_Load(op, 0, (), op.base.expr, mine))
    return found


def _deliveries(op: a.TmaLoad, programs: t.Programs) -> Iterator[tuple[int, int]]:
    """Ranks of the issuing and receiving CTAs of a multicast. The tile must be the same for both: its coordinates do
    not depend on a program coordinate in which the two differ."""
    shape, names = programs.cluster_shape, [n.data for n in programs.names]
    size = shape[0] * shape[1]
    for sender in range(size):
        receivers = [int(c.expr.evaluate({a.CTA_RANK: sender})) for c in op.ctas] or [sender]
        for receiver in receivers:
            differs = (sender // shape[1] != receiver // shape[1], sender % shape[1] != receiver % shape[1])
            apart = {n for n, d in zip(names[-2:], differs, strict=False) if d}
            if apart & {s for c in op.coords for s in c.expr.symbols}:
                raise CopyMismatchError(f"a copy for several CTAs at {', '.join(str(c.expr) for c in op.coords)}")
            yield sender, receiver


def _products(lowered: Sequence[Operation]) -> Iterator[list[a.Wgmma]]:
    """The instructions of each product: those of one source line on the same tiles."""
    groups: dict[object, list[a.Wgmma]] = {}
    for op in lowered:
        if isinstance(op, a.Wgmma):
            key = (place_of(op), op.accumulator, op.a, op.b, op.a_region.expr, op.b_region.expr, op.parent_block())
            groups.setdefault(key, []).append(op)
    yield from groups.values()


def _product(
    kernel: tile.Kernel,
    lowered: Sequence[Operation],
    group: Sequence[a.Wgmma],
    loads: dict[SSAValue, list[_Load]],
    converted: set[Operation],
    limits: tuple[Facts, Mapping[str, Expr]],
) -> int:
    """Both operands of a product, and the pairing of its instructions; returns how many operands were compared. Reads
    of stages whose elements are converted are added to ``converted``."""
    first = group[0]
    bits = first.dtype.dtype.bits
    step = INSTRUCTION_K_BITS // bits
    warpgroups = range(a.warpgroups_of(first))
    right = _reading(first.b_operand.data, bits)
    left = _reading(first.a_operand.data, bits) if first.a_operand is not None else None
    seen: dict[tuple[int, int], set[tuple[int, int, int]]] = {}
    compared = 0
    for side, reading in (("a", left), ("b", right)):
        copies = loads.get(first.a if side == "a" else first.b, [])
        if reading is None:
            continue
        if not copies and (read := _converted(group, side, reading, loads)) is not None:
            converted.add(read)
            compared += 1
            continue
        if not copies:
            staged_operand(kernel, lowered, first, side, reading.swizzled, reading.bytes)
            compared += 1
            continue
        region = first.a_region.expr if side == "a" else first.b_region.expr
        brought = _lands(reading, copies, region, (side, place_of(first)))
        if not brought:
            raise CopyMismatchError(f"operand {side} of {place_of(first)}: its tile is not where the copies put it")
        if any(isinstance(copy.op, a.TmaLoad) for copy in copies):
            _excluded(group, side, [x for x in brought if not _end_with_domain(copies, *x, *limits)], reading)
        compared += 1
    for op in group:
        for w in warpgroups:
            b_start = _start(op.b_offset.expr - op.b_region.expr, w)
            column, k = _matrix(right, b_start, op.n.data, step, op)
            if left is not None:
                row, k_left = _matrix(left, _start(op.a_offset.expr - op.a_region.expr, w), INSTRUCTION_M, step, op)
            else:
                depth = first.b_operand.data.k // step
                block, k_index = divmod(op.a_register.data // (step // 2), depth)
                row, k_left = (block * len(warpgroups) + w) * INSTRUCTION_M, k_index * step
            if k_left != k:
                raise CopyMismatchError(f"product of {place_of(op)}: k of {k_left} on the left, {k} on the right")
            seen.setdefault((op.first.data, w), set()).add((row, column, k))
    depth = first.b_operand.data.k // step
    if len(group) * len(warpgroups) != sum(map(len, seen.values())):
        raise CopyMismatchError(f"product of {place_of(first)}: an instruction twice")
    if any(len({(r, c) for r, c, _ in s}) != 1 or len(s) != depth for s in seen.values()):
        raise CopyMismatchError(f"product of {place_of(first)}: accumulators of several tiles, or of part of k")
    if len({next(iter(s))[:2] for s in seen.values()}) != len(seen):
        raise CopyMismatchError(f"product of {place_of(first)}: a tile of the result in two accumulators")
    _adds(kernel, group)
    return compared


def _converted(
    group: Sequence[a.Wgmma], side: str, reading: _Reading, loads: Mapping[SSAValue, Sequence[_Load]]
) -> t.SharedRead | None:
    """The read of the stage from which an operand was converted, checked against the program; None for an operand that
    was made otherwise."""
    first = group[0]
    found = conversion(first, side, reading.swizzled, reading.bytes)
    if found is None:
        return None
    numbers = replace(reading.numbers, swizzle=Swizzle.NONE)
    landed = _Reading(numbers, t.shared_of(found.read.shared).dtype.dtype.bytes, found.bytes, found.bytes)
    reader = (converted_side(side), place_of(first))
    brought = _lands(landed, loads.get(found.read.shared, ()), found.begin, reader)
    if not brought:
        raise CopyMismatchError(f"operand {side} of {place_of(first)}: its stage holds another tile than is converted")
    for span, ragged in _ragged(brought, landed):
        if not excludes(found, first, ragged):
            raise CopyMismatchError(f"operand {side} of {place_of(first)}: elements from {span.stop} on are multiplied")
    return found.read


def _ragged(brought: Iterable[_Brought], reading: _Reading) -> Iterator[tuple[Span, Ragged]]:
    """The domains along k that may end before their tensor. Rows that loaded integers name are zero outside of their
    domain (``thread_copies``)."""
    for source, k_axis in dict.fromkeys((source, axes[1]) for source, axes in brought):
        extents, span = tile.tensor_type(source.load.tensor).dims.data, source.coords[k_axis]
        assert isinstance(span, Span)
        if source.rows is not None and k_axis == source.rows.dimension:
            continue
        paged = source.pages is not None and k_axis == source.pages.slot
        if paged or not ends_with_tensor(span, extents[k_axis].expr):
            stream = source.load.parent_op()
            yield span, Ragged(span, stream if isinstance(stream, tile.StreamLoop) else None, reading.swizzled)


def _end_with_domain(
    copies: Sequence[_Load], source: _Source, axes: tuple[int, int], known: Facts, clips: Mapping[str, Expr]
) -> bool:
    """Whether the copies of a load, of axes mn and k, bring zeros for what lies behind its domain along k."""
    load, mine = source.load, [copy.op for copy in copies if source in copy.sources]
    return (
        isinstance(load, tile.Load)
        and bool(mine)
        and all(
            isinstance(op, a.TmaLoad)
            and numbers_of(op).ragged_axis == axes[1]
            and not fault_of_copy(op, numbers_of(op), load, known, clips)
            for op in mine
        )
    )


def _excluded(group: Sequence[a.Wgmma], side: str, brought: Iterable[_Brought], reading: _Reading) -> None:
    """Requires that elements inside the tensor but outside of the operand's domain along k take no part in a
    product."""
    buffer, region = (group[0].a, group[0].a_region) if side == "a" else (group[0].b, group[0].b_region)
    for span, ragged in _ragged(brought, reading):
        if not excluded(group[0], buffer, region.expr, ragged):
            raise CopyMismatchError(
                f"operand {side} of {place_of(group[0])}: elements from {span.stop} on are multiplied"
            )


def _adds(kernel: tile.Kernel, group: Sequence[a.Wgmma]) -> None:
    """Requires that the first instruction on each accumulator adds to it or overwrites it as the program says, and the
    others add."""
    here = [op for op in operations(kernel) if isinstance(op, tile.Dot) and line_of(op) == place_of(group[0])]
    fresh = {not added_in_place(dot) for dot in here}
    scales: dict[int, list[int]] = {}
    for op in group:
        scales.setdefault(op.first.data, []).append(op.scale_d.data)
    for first, *others in scales.values():
        if (first == 0) not in fresh or 0 in others:
            found = ", ".join("adds" if scale else "ignores" for scale in (first, *others))
            raise CopyMismatchError(f"product of {place_of(group[0])}: what the accumulators held it {found}")


@dataclass(frozen=True, eq=False)
class _Reading:
    """The byte of every (mn, k) of a tile, relative to its begin, as descriptors address it, without (``plain``) and
    with swizzle."""

    numbers: OperandNumbers
    bytes: int
    plain: Ints
    swizzled: Ints


@lru_cache(maxsize=64)
def _reading(numbers: OperandNumbers, bits: int) -> _Reading:
    size = bits // 8
    mn, k = np.arange(numbers.mn)[:, None], np.arange(numbers.k)[None, :]
    leading, stride = numbers.leading_bytes, numbers.stride_bytes
    span = PATTERNS[numbers.swizzle].span_bytes
    unit = CORE_ROW_BYTES // size
    if numbers.major and span:  # rows of one k along mn; leading between chunks of mn, stride between groups of k
        width = span // size
        of_mn = mn // width * leading + mn % width * size
        of_k = k // CORE_ROWS * stride + k % CORE_ROWS * span
    elif numbers.major:
        of_mn = mn // unit * stride + mn % unit * size
        of_k = k // CORE_ROWS * leading + k % CORE_ROWS * CORE_ROW_BYTES
    elif span:  # a panel for every span of k, one after the other; the descriptor knows only one of them
        width = span // size
        of_mn = mn // CORE_ROWS * stride + mn % CORE_ROWS * span
        of_k = k // width * (numbers.mn * span) + k % width * size
    else:
        of_mn = mn // CORE_ROWS * stride + mn % CORE_ROWS * CORE_ROW_BYTES
        of_k = k // unit * leading + k % unit * size
    plain = of_mn + of_k
    return _Reading(numbers, size, plain, swizzled(plain, numbers.swizzle))


def _matrix(reading: _Reading, start: int, rows: int, step: int, op: a.Wgmma) -> tuple[int, int]:
    """The first row (or column) and first k of the matrix at byte ``start`` of a tile."""
    found = _matrix_at(reading, start, rows, step)
    if isinstance(found, str):
        raise CopyMismatchError(f"product of {place_of(op)}: {found}")
    return found


@lru_cache(maxsize=1024)
def _matrix_at(reading: _Reading, start: int, rows: int, step: int) -> tuple[int, int] | str:
    """The same, cached for all instructions with this start; a message if there is no such matrix."""
    found = np.flatnonzero(reading.plain == start)
    if len(found) != 1:
        return f"no matrix at byte {start} of its tile"
    mn, k = divmod(int(found[0]), reading.numbers.k)
    part = reading.plain[mn : mn + rows, k : k + step]
    alone = _reading(replace(reading.numbers, mn=rows, k=step), 8 * reading.bytes).plain
    if part.shape != (rows, step) or not np.array_equal(part - start, alone):
        return f"the matrix at byte {start} leaves its tile"
    return mn, k


def _start(offset: Expr, warpgroup: int) -> int:
    value = offset.substitute({a.WARPGROUP: warpgroup}).constant
    if value is None:
        raise CopyMismatchError(f"the offset {offset} inside a tile is no constant")
    return int(value)


def _lands(reading: _Reading, copies: Sequence[_Load], region: Expr, reader: _Reader) -> frozenset[_Brought]:
    """The loads of the tile program, with the axes along which they are read, that the copies implement for some
    look-ahead. Empty where the copies do not bring exactly the tile."""
    counters = sorted({s for copy in copies for s in copy.offset.symbols})
    for ahead in _LOOK_AHEAD:
        moved = {name: Sym(name) + ahead for name in counters}
        # a loop may be peeled: every copy of it fills the ring, in every CTA of a cluster
        sites: dict[tuple[Block | None, int], list[tuple[int, _Load]]] = {}
        for copy in copies:
            at = (copy.offset.substitute(moved) - region).constant
            if at is not None and 0 <= int(at) < reading.plain.size * reading.bytes:
                sites.setdefault((copy.op.parent_block(), copy.receiver), []).append((int(at), copy))
        brought = [frozenset(_brings(reading, inside, reader)) for inside in sites.values()]
        if brought and all(brought):
            return frozenset[_Brought]().union(*brought)
    return frozenset()


def _brings(reading: _Reading, copies: Sequence[tuple[int, _Load]], reader: _Reader) -> Iterator[_Brought]:
    """The loads whose every element the copies put where it is read, with the axes of mn and k."""
    for source in {s for _, copy in copies for s in copy.sources}:
        if not all(source in copy.sources for _, copy in copies):
            continue
        for axes in dict.fromkeys(source.axes.get(reader, ())):
            if any(_covers(reading, copies, source, axes, step) for step in _steps(source.load)):
                yield source, axes


def _covers(
    reading: _Reading,
    copies: Sequence[tuple[int, _Load]],
    source: _Source,
    axes: tuple[int, int],
    step: Mapping[str, Expr],
) -> bool:
    landed = np.full(reading.plain.shape, -1)
    fits = (_place(landed, at, copy, source, step, axes, reading) for at, copy in copies)
    return all(fits) and np.array_equal(landed, reading.swizzled)


def _steps(source: tile.Load | tile.Gather) -> Iterator[dict[str, Expr]]:
    """The steps of its stream that a copy may be for: a software-pipelined loop fills a stage for a nearby step, and
    the last one after the loop. That steps come in order is proved of the pipeline's phases by the protocol."""
    stream = source.parent_op()
    if not isinstance(stream, tile.StreamLoop):
        yield {}
        return
    name = stream.counter.data
    for begin in (Sym(name), stream.trip.expr):
        yield from ({name: begin + ahead} for ahead in _LOOK_AHEAD)


def _first_row(
    copy: a.TmaLoad, coords: Mapping[int, Expr], numbers: TmaNumbers, pages: Pages, step: Mapping[str, Expr]
) -> int | None:
    """The row of a paged tile with which a box begins; None if the box is elsewhere."""
    extents = dict(zip(numbers.axes, numbers.box, strict=True))
    if not coords.keys() >= {pages.number, pages.slot}:
        return None
    begin, stop = (e.substitute(step) for e in (pages.span.origin, pages.span.stop))
    return row_of(copy, pages, coords[pages.number], coords[pages.slot], extents[pages.slot], begin, stop)


def _place(
    landed: Ints,
    at: int,
    copy: _Load,
    source: _Source,
    step: Mapping[str, Expr],
    axes: tuple[int, int],
    reading: _Reading,
) -> bool:
    """Writes the bytes of one copy's elements to ``landed``; False where its coordinates are not the load's."""
    if isinstance(copy.op, a.ThreadCopies):
        load = source.rows or source.load
        return not isinstance(load, tile.Gather) and place_copies(landed, at, copy.op, load, step, axes)
    numbers, (mn_axis, k_axis) = numbers_of(copy.op), axes
    if numbers.swizzle is not reading.numbers.swizzle or source.rows is not None:
        return False
    if numbers.ragged_axis not in (None, k_axis):
        return False
    coords = dict(zip(numbers.axes, places(numbers, copy.coords), strict=True))
    first: dict[int, int] = {}
    if source.pages is not None:
        row = _first_row(copy.op, coords, numbers, source.pages, step)
        if row is None:
            return False
        first[source.pages.slot] = row
    for axis, coordinate in coords.items():
        if source.pages is not None and axis in (source.pages.number, source.pages.slot):
            continue
        own = source.coords[axis]
        begin = (own.origin if isinstance(own, Span) else own).substitute(step)
        offset = (coordinate - begin).constant
        if offset is None or (axis not in axes and offset != 0):
            return False
        first[axis] = int(offset)
    extents = dict(zip(numbers.axes, numbers.box[: len(numbers.axes)], strict=True))
    if not first.keys() >= set(axes) or any(x > 1 for d, x in extents.items() if d not in axes):
        return False
    (mn, rows), (k, columns) = (first[mn_axis], extents[mn_axis]), (first[k_axis], extents[k_axis])
    part = landed[mn : mn + rows, k : k + columns]
    if mn < 0 or k < 0 or part.shape != (rows, columns) or (part != -1).any():
        return False
    whole, begin = divmod(at, t.SHARED_BASE_ALIGN_BYTES)
    # innermost varies fastest
    if numbers.axes.index(k_axis) < numbers.axes.index(mn_axis):
        bytes_ = box_bytes(columns, rows, reading.bytes, numbers.swizzle, begin)
    else:
        bytes_ = box_bytes(rows, columns, reading.bytes, numbers.swizzle, begin).T
    part[:] = bytes_ + whole * t.SHARED_BASE_ALIGN_BYTES
    return True
