"""Estimated times of tiles of products, by a model of few parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from math import prod

from xdsl.ir import Operation

from tilewright.base.expr import Const, Expr, Sym, ceildiv, maximum, minimum
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.lang.axes import Span
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.unrolled import scalar_instructions
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, element, is_arithmetic, source_of, tensor_name

LINE_BYTES, SECTOR_BYTES = 128, 32
"""Units of the L2 cache. Rows that begin inside of a sector touch one more for every line: tiles that share nothing
take 1.3 to 1.7 times as long a step, pairs of 128 x 256 1.03 times. Rows that begin with a sector inside of a line cost
at most a tenth."""

HIDING_ROWS = 256
"""Rows of a tile whose products take longer than the copies of any panel."""

INSTRUCTION, LOAD = 3.3, 110
"""Picoseconds of an instruction and of a load for an element of the result, where two warpgroups share a tile (H200, 12
shapes with GELU, with a residual and with both: 128 x 256 takes 4.5, 3.3 and 8.1 us longer than without, 128 x 128 2.1,
2.0 and 4.0)."""

READ = 320
"""Nanoseconds in which a megabyte is read, at least."""


@dataclass(frozen=True)
class Price:
    """What a tile's launch costs, in nanoseconds: the launch itself, a wave of tiles beside their steps, a step of 128
    bytes of K, what is added to a step where all SMs are at work, and where rows begin inside of sectors, and a
    megabyte of the operands."""

    launch: int
    wave: int
    step: int
    crowded: int
    inside: int
    megabyte: int

    def copying(self, panel: int, shape: tuple[int, ...]) -> Price:
        """That of a tile of such rows and columns which copies whole panels of the right operand's rows. Most of what
        it copies in vain is seen, but with many rows (H200, A B: 128 x 208 takes 1.08 times as long as of A B^T, 192 x
        160 1.10, 256 x 160 1.01, whole panels .98 to 1.00)."""
        rows, columns = shape
        more = 1 + (0.75 * (-columns % panel) / (rows + columns) if rows < HIDING_ROWS else 0)
        step, crowded, inside = (round(own * more) for own in (self.step, self.crowded, self.inside))
        return replace(self, step=step, crowded=crowded, inside=inside)

    def between(self, other: Price, part: float) -> Price:
        """The interpolated price of a tile between two others: ``part`` of the way from this one."""
        return Price(*(round(a + (b - a) * part) for a, b in zip(astuple(self), astuple(other), strict=True)))

    def time(self, launch: ProductLaunch) -> Expr:
        """The nanoseconds of a launch: at least those that it takes to read the operands. A tenth of what it costs
        beside that tells tiles apart that all wait for memory."""
        crowd = minimum(launch.programs, launch.sms) * self.crowded // launch.sms
        steps = launch.steps * (crowd + launch.inside * self.inside + self.step)
        cost = launch.waves * (steps + self.wave + launch.epilogue) + launch.operand_bytes * self.megabyte // 1_000_000
        return maximum(cost, launch.operand_bytes * READ // 1_000_000) + cost // 10 + self.launch


@dataclass(frozen=True)
class ProductLaunch:
    """What a price depends on: CTAs with a tile or a part of one, in whole clusters, and how many run at one time;
    steps of each; whether rows begin inside of sectors (0 or 1); bytes of the operands; nanoseconds that a tile's
    results take in the end."""

    programs: Expr
    sms: int
    steps: Expr
    inside: Expr
    operand_bytes: Expr
    epilogue: Expr

    @property
    def waves(self) -> Expr:
        """How often all SMs take one."""
        return ceildiv(self.programs, self.sms)

    def in_parts(self, parts: Expr, sms: int) -> ProductLaunch:
        """The same with the stream cut into parts."""
        return replace(self, programs=self.programs * parts, sms=sms, steps=ceildiv(self.steps, parts))


def copied_whole(kernel: tile.Kernel, facts: CallFacts) -> bool:
    """Whether tensor copies can read all operands that are loaded as they lie."""
    given = [facts.of(tensor_name(load)) for load, _ in _operands(kernel)]
    return all(own.unit_axis is not None and own.align_bytes >= MAX_VECTOR_BYTES for own in given)


def instructions_beside(kernel: tile.Kernel) -> float:
    """Instructions for an element of the result, beside the products."""
    return sum(map(scalar_instructions, _epilogue(kernel)))


def loads_beside(kernel: tile.Kernel) -> list[tile.Load]:
    """Loads of tiles like the result, beside the products' operands."""
    return [op for op in _epilogue(kernel) if isinstance(op, tile.Load)]


def _epilogue(kernel: tile.Kernel) -> Iterator[Operation]:
    """What is computed and loaded for each element of the result, beside the products; but for conversions, which
    prices of products have."""
    inside = {op for stream in kernel.walk() if isinstance(stream, tile.StreamLoop) for op in stream.walk()}
    shape = max((tile.tile_type(dot.result).shape for dot in kernel.walk() if isinstance(dot, tile.Dot)), key=prod)
    for op in kernel.walk():
        counted = isinstance(op, tile.Load) or (is_arithmetic(op) and not isinstance(op, tile.Cast))
        if counted and op not in inside and tile.tile_type(op.results[0]).shape == shape:
            yield op


def straddles(kernel: tile.Kernel, facts: CallFacts, unit: int) -> Expr:
    """1 if rows of an operand begin inside of such a unit of the cache, else 0; 0 where tensor copies can't read one as
    it lies."""
    if not copied_whole(kernel, facts):
        return Const(0)
    found: list[Expr] = []
    for load, bytes_ in _operands(kernel):
        own = facts.of(tensor_name(load))
        pitches = [axis for axis, c in enumerate(coords_of(load)) if isinstance(c, Span) and axis != own.unit_axis]
        found += [minimum(Sym(f"{tensor_name(load)}.stride{axis}") * bytes_ % unit, 1) for axis in pitches]
    return maximum(*dict.fromkeys(found)) if len(found) > 1 else found[0] if found else Const(0)


def panel_columns(kernel: tile.Kernel, facts: CallFacts) -> int:
    """Columns of the right operands that are copied together, where their rows run along the result's; else 1."""
    found = 1
    for dot in (op for op in kernel.walk() if isinstance(op, tile.Dot)):
        load = source_of(dot.b)[0].owner
        if not isinstance(load, tile.Load):
            continue
        unit = facts.of(tensor_name(load)).unit_axis
        along = None if unit is None else coords_of(load)[unit]
        if isinstance(along, Span) and along.size == tile.tile_type(dot.result).shape[1]:
            found = max(found, LINE_BYTES // element(dot.b).bytes)
    return found


def operand_bytes(kernel: tile.Kernel) -> Expr:
    """Bytes of the tensors that operands are loaded from."""
    kinds = {load.tensor: tile.tensor_type(load.tensor) for load, _ in _operands(kernel)}
    return sum((prod((d.expr for d in k.dims), start=Const(k.element.bytes)) for k in kinds.values()), Const(0))


def _operands(kernel: tile.Kernel) -> Iterator[tuple[tile.Load, int]]:
    """The loads that operands of products come from, with the bytes of an element of the operand."""
    for value in (v for dot in kernel.walk() if isinstance(dot, tile.Dot) for v in (dot.a, dot.b)):
        load = source_of(value)[0].owner
        if isinstance(load, tile.Load):
            yield load, element(value).bytes
