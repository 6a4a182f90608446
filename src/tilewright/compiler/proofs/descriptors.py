"""Judges the descriptors of a kernel from its text alone: no plan, no schedule, only what the dialect says.

For every tensor map: the rules of ``legal``, decided for all arguments that satisfy the kernel's assumptions. For every
wgmma operand in shared memory: the tile that its attribute names is planned anew; the descriptor must be the one that
follows, and the matrices that the instruction is pointed at must lie inside the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import gcd, prod

from xdsl.ir import SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import Const, Expr, Interval, all_of, divisor
from tilewright.base.verdict import Illegal
from tilewright.compiler.proofs.epilogue_copies import conditions_of
from tilewright.hw.rules.wgmma import CORE_ROW_BYTES, INSTRUCTION_K_BITS, INSTRUCTION_M
from tilewright.hw.target import Target
from tilewright.hw.tensormap import ELEMENT_BITS, PATTERNS, Direction
from tilewright.legal import wgmma
from tilewright.legal.domain import ShapeDomain, SymbolicMap
from tilewright.legal.facts import Facts
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.symbolic import DecidedRules, decide_rules
from tilewright.tile.ops import operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import OperandNumbers

_DIMS: Interval = (1, 2**31 - 1)
"""Extents are 32-bit parameters of a kernel; the launch refuses others (RUN017), and encodes 1 for 0."""


@dataclass(frozen=True)
class DescriptorFault:
    """A descriptor that is not legal: the rule or requirement, and what was found; ``place`` is the user's line."""

    name: str
    place: str
    found: str

    def __str__(self) -> str:
        return f"{self.name}: {self.found}" + (f" ({self.place})" if self.place else "")


@dataclass(frozen=True)
class DescriptorVerdicts:
    """``faults`` are certain to matter for some arguments of the class; without any, all descriptors are legal for the
    launches in which ``guard`` holds."""

    maps: int
    operands: int
    faults: tuple[DescriptorFault, ...]
    guard: Expr


def check_descriptors(kernel: t.Kernel) -> DescriptorVerdicts:
    """The descriptors of a kernel, on its target."""
    facts, target = _facts(kernel), kernel.target
    faults: list[DescriptorFault] = []
    guards: list[Expr] = []
    inside = operations(kernel)
    maps = [op for op in inside if isinstance(op, a.TensorMap)]
    for op in maps:
        users = [use.operation for use in op.map.uses]
        for direction, kind in _COPIES.items():
            copies = [user for user in users if isinstance(user, kind)]
            if copies:
                found, guard = _judge_map(op, copies, direction, facts, target)
                faults += found
                guards.append(guard)
    products = [op for op in inside if isinstance(op, a.Wgmma)]
    faults += dict.fromkeys(fault for op in products for fault in _judge_product(op, target))
    return DescriptorVerdicts(
        len(maps), len({o for op in products for o in _operands(op)}), tuple(faults), all_of(guards)
    )


_COPIES: dict[Direction, type[a.TmaLoad] | type[a.TmaStore]] = {
    Direction.LOAD: a.TmaLoad,
    Direction.STORE: a.TmaStore,
}


# -- tensor maps ------------------------------------------------------------------------------------------------------
def _facts(kernel: t.Kernel) -> Facts:
    """What is known of all arguments that the kernel's assumptions allow."""
    kinds = (argument.type for argument in kernel.body.block.args)
    tensors = tuple(kind for kind in kinds if isinstance(kind, t.TensorType))
    return _known(tuple(x.expr for x in kernel.assumptions), tensors, kernel.index_bits.data)


@lru_cache(maxsize=64)
def _known(assumptions: tuple[Expr, ...], tensors: tuple[t.TensorType, ...], index_bits: int) -> Facts:
    """The same, cached: the kernels of a class have the same assumptions."""
    facts = ShapeDomain.of(*assumptions).facts
    bounds = dict(facts.bounds)
    for tensor in tensors:
        for axis, dim in enumerate(tensor.dims):
            bounds |= {symbol: _extents(bounds.get(symbol, (None, None))) for symbol in dim.expr.symbols}
            if index_bits == 32:
                bounds.setdefault(f"{tensor.tensor_name.data}.stride{axis}", (-(2**31), 2**31 - 1))
    return Facts(bounds, facts.divisors, facts.equal, facts.assumed)


def _extents(known: Interval) -> Interval:
    """The extents among the values within ``known``."""
    (low, high), (least, most) = known, _DIMS
    assert least is not None
    assert most is not None
    return least if low is None else max(low, least), most if high is None else min(high, most)


def _judge_map(
    op: a.TensorMap, copies: list[a.TmaLoad | a.TmaStore], direction: Direction, facts: Facts, target: Target
) -> tuple[list[DescriptorFault], Expr]:
    numbers, name = op.numbers, op.hint.data
    described = SymbolicMap(
        numbers.data_type,
        numbers.address,
        numbers.dims,
        numbers.strides_bytes,
        numbers.box,
        swizzle=numbers.swizzle,
        l2_promotion=numbers.l2_promotion,
        direction=direction,
    )
    aligned = reduce(gcd, (_alignment(*place) for place in {(c.shared, c.offset.expr) for c in copies}))
    first = reduce(gcd, (_divisor(start) for start in {c.coords.data[0].expr for c in copies}))
    for condition in sorted(frozenset[Expr].intersection(*(conditions_of(c) for c in copies)), key=str):
        facts = facts.assume(condition)
    decision = _decided(described, aligned, first, facts, target)
    place = copies[0].loc.data if copies[0].loc is not None else ""
    faults = [DescriptorFault(u.violation.rule, place, f"{name}: {u.violation.found}") for u in decision.unmet]
    size = prod(numbers.box) * ELEMENT_BITS[numbers.data_type] // 8
    wrong = [c.box_bytes.data for c in copies if c.box_bytes.data != size]
    if wrong:
        faults.append(DescriptorFault("box bytes", place, f"{name}: copies of {wrong[0]} bytes, boxes of {size}"))
    return faults, decision.guard


@lru_cache(maxsize=256)
def _decided(described: SymbolicMap, aligned: int, first: int, facts: Facts, target: Target) -> DecidedRules:
    """The rules of a tensor map whose boxes lie in shared memory at multiples of ``aligned`` and begin, along the
    innermost dimension, at multiples of ``first``; cached for the kernels of a class."""
    fields = described.fields()
    fields["shared_address"] = Const(aligned)
    fields["start_coordinate_0"] = Const(first)
    return decide_rules(fields, facts, target)


def _alignment(shared: SSAValue, offset: Expr) -> int:
    """The alignment, in bytes, of every address of ``offset`` in the buffer."""
    declared = shared.owner
    assert isinstance(declared, t.Shared)
    assert declared.offset is not None, "tensor copies use dynamic shared memory"
    return gcd(_divisor(offset), declared.offset.data, t.SHARED_BASE_ALIGN_BYTES)


@lru_cache(maxsize=1024)
def _divisor(offset: Expr) -> int:
    """The greatest known divisor of an expression, cached."""
    return divisor(offset, {})


# -- operands of wgmma ------------------------------------------------------------------------------------------------
def _operands(op: a.Wgmma) -> Iterator[tuple[SSAValue, OperandNumbers]]:
    """Shared operands, by buffer."""
    if op.a_operand is not None:
        yield op.a, op.a_operand.data
    yield op.b, op.b_operand.data


def operand_tile(numbers: OperandNumbers, dtype: DType) -> SmemTile:
    """The tile of an operand: panels as wide as its swizzle, or as a core matrix."""
    width = PATTERNS[numbers.swizzle].span_bytes or CORE_ROW_BYTES
    extents = (numbers.mn, numbers.k) if numbers.major else (numbers.k, numbers.mn)
    return SmemTile(extents, width // dtype.bytes, dtype.bytes, numbers.swizzle)


def _judge_product(op: a.Wgmma, target: Target) -> Iterator[DescriptorFault]:
    if op.a_operand is not None:
        size = (op.a_region.expr, op.a_bytes.data)
        yield from _judge_operand(op, op.a, wgmma.OperandRole.A, op.a_operand.data, op.a_offset.expr, size, target)
    size = (op.b_region.expr, op.b_bytes.data)
    yield from _judge_operand(op, op.b, wgmma.OperandRole.B, op.b_operand.data, op.b_offset.expr, size, target)


def _judge_operand(
    op: a.Wgmma,
    shared: SSAValue,
    role: wgmma.OperandRole,
    numbers: OperandNumbers,
    offset: Expr,
    region: tuple[Expr, int],
    target: Target,
) -> Iterator[DescriptorFault]:
    place = op.loc.data if op.loc is not None else ""
    dtype, accumulator = op.dtype.dtype, t.registers_of(op.accumulator).dtype.dtype
    answer = _planned(role, numbers, dtype, accumulator.name, op.n.data, target)
    if isinstance(answer, Illegal):
        yield from (DescriptorFault(v.rule, place, f"operand {role.value}: {v.found}") for v in answer.core)
        return
    tile, plan, starts = answer
    fields = (numbers.leading_bytes, numbers.stride_bytes)
    if fields != (plan.leading_bytes, plan.stride_bytes):
        wanted = f"{plan.leading_bytes}, {plan.stride_bytes}"
        yield DescriptorFault(
            "descriptor", place, f"operand {role.value}: leading and stride {fields}, by its tile {wanted}"
        )
    begin, size = region
    if _alignment(shared, begin) % tile.align_bytes:
        yield DescriptorFault(
            "alignment", place, f"operand {role.value} at {begin}: not a multiple of {tile.align_bytes}"
        )
    if size != tile.size_bytes:
        yield DescriptorFault("region", place, f"operand {role.value}: {size} bytes, a tile of {tile.size_bytes}")
    for warpgroup in range(a.warpgroups_of(op)):
        at = (offset - begin).substitute({a.WARPGROUP: warpgroup}).constant
        if at is None or int(at) not in starts:
            yield DescriptorFault(
                "start", place, f"operand {role.value} of warpgroup {warpgroup} at {offset}: no matrix there"
            )


@lru_cache(maxsize=1024)
def _planned(
    role: wgmma.OperandRole, numbers: OperandNumbers, dtype: DType, accumulator: str, n: int, target: Target
) -> tuple[SmemTile, wgmma.WgmmaOperandPlan, frozenset[int]] | Illegal:
    """The tile of an operand, its plan, and the bytes at which its matrices begin; cached for a kernel's
    instructions."""
    tile = operand_tile(numbers, dtype)
    answer = wgmma.plan(wgmma.WgmmaOperand(role, dtype, tile, wgmma.Major(numbers.major), n, accumulator), target)
    if isinstance(answer, Illegal):
        return answer
    plan = answer.fields
    rows = INSTRUCTION_M if role is wgmma.OperandRole.A else n
    step = 8 if numbers.major == 0 else tile.panel
    starts = frozenset(
        plan.mn_offset(first) + k
        for first in range(0, numbers.mn - rows + 1, step)
        for k in plan.k_offsets
        if numbers.k * dtype.bits % INSTRUCTION_K_BITS == 0
    )
    return tile, plan, starts
