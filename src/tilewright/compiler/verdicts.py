"""The verdict of ``legal`` on every access of a kernel, and how the lowered kernel makes it: what a plan shows.

Each load and store of the tile program is asked for as a tile of its tensor; operands of products in any layout that
wgmma reads, with repairs where it is not legal as it lies. How it is made is read from the lowered ops of its line, and
with it the repair that was taken; the others are shown with their price, or with what keeps this access from them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from tilewright.base.expr import TRUE, Expr
from tilewright.base.readable import condition
from tilewright.base.verdict import Illegal, Legal, Repair, Repairs, Violation
from tilewright.hw.target import Target
from tilewright.hw.tensormap import Swizzle
from tilewright.lang.axes import Span
from tilewright.legal import tma
from tilewright.legal.repair_types import Change, Remedy
from tilewright.legal.repairs import legalise
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.product_schedules import schedules_of
from tilewright.schedule.tile_accesses import legal_facts, tile_access
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, line_of, source_of, tensor_name
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import MAJORS, OperandNumbers, WgmmaOperandAttr

CP_ASYNC, THREADS = "cp.async", "threads"
Answer: TypeAlias = Legal[TensorMapPlan] | Repairs[Remedy] | Illegal


@dataclass(frozen=True)
class AccessVerdict:
    """The verdict on one access: its tensor and line, whether TMA could perform it, and which op performs it."""

    place: str
    word: str
    tensor: str
    tile: tuple[int | None, ...]
    answer: Answer
    made: tuple[str, ...]
    taken: Repair[Remedy] | None = None
    """The repair that was chosen, if any."""

    @property
    def core(self) -> tuple[Violation, ...]:
        """The rules that forbid a tensor copy."""
        return () if isinstance(self.answer, Legal) else self.answer.core

    @property
    def condition(self) -> Expr:
        """The condition of the tensor map at launch."""
        return self.answer.fields.guard if isinstance(self.answer, Legal) else TRUE

    @property
    def repair(self) -> str:
        """What the repair changes; empty where there is none."""
        return "" if self.taken is None else self.taken.action

    @property
    def rejected(self) -> tuple[tuple[str, str], ...]:
        """The repairs that were not chosen, with the reasons."""
        if not isinstance(self.answer, Repairs) or self.taken is None:
            return ()
        others = (r for r in self.answer.repairs if r is not self.taken)
        return tuple((r.action, _why_not(r, self.taken)) for r in others)

    @property
    def lines(self) -> tuple[str, ...]:
        """The verdict, and a line for each repair that was not taken."""
        rejected = (f"{self.place}: {self.tensor}, rejected: {action} ({why})" for action, why in self.rejected)
        return (str(self), *rejected)

    def __str__(self) -> str:
        extents = " x ".join("1" if n is None else str(n) for n in self.tile)
        verdict = "legal for tensor copies" + (f" where {condition(self.condition)}" if self.condition != TRUE else "")
        if self.core:
            verdict = f"not legal for tensor copies: {', '.join(v.rule for v in self.core)} ({self.core[0].found})"
        price = f" ({_microseconds(self.taken)})" if self.taken is not None else ""
        made = self.repair + price + "; " * bool(self.repair) + " and ".join(self.made)
        return f"{self.place}: {self.word} {self.tensor} [{extents}] {verdict}; by {made or 'nothing'}"


_UNSUITED = {
    Change.PHASES: "the rows of its tile lie shifted, wgmma reads rows at one pitch",
    Change.WIDEN: "the tile's columns are the product's",
    Change.SPLIT_COLUMNS: "both parts would have to be one operand's tile",
    Change.RESHAPE: "tiles of folded axes are not the product's rows and columns",
    Change.CONDITION: "arguments that satisfy it are served by a program of their own",
}
"""Methods that no operand of a product can be copied by."""


def _why_not(other: Repair[Remedy], taken: Repair[Remedy]) -> str:
    reason = _UNSUITED.get(other.fields.change)
    if reason is not None:
        return reason
    dearer = "dearer" if other.cost > taken.cost else "another kernel of the program makes it, where it pays"
    return f"{_microseconds(other)}: {dearer}"


def _microseconds(repair: Repair[Remedy]) -> str:
    """The predicted price of a repair for sizes of 4096."""
    return f"{1e6 * repair.cost:.1f} us more than tensor copies at extents of 4096"


def verdicts(
    kernel: tile.Kernel, lowered: t.Kernel, facts: CallFacts, staged: Collection[str], target: Target
) -> tuple[AccessVerdict, ...]:
    """A verdict for each access of ``kernel`` in order; ``facts`` are those of the arguments, ``staged`` the tensors
    that it reads from a workspace."""
    operands = {source_of(v)[0].owner for op in kernel.walk() if isinstance(op, tile.Dot) for v in (op.a, op.b)}
    known = legal_facts(kernel, facts)
    made, swizzles = _methods(lowered), schedules_of(target).swizzles
    found: list[AccessVerdict] = []
    for op in kernel.walk():
        if not isinstance(op, tile.Load | tile.Store | tile.AtomicReduce):
            continue
        extents = tuple(c.size if isinstance(c, Span) else None for c in coords_of(op))
        if op in operands:
            answer: Answer = _legalised(tile_access(op, extents, swizzles, known), known, target)
        else:
            planned = _planned(tile_access(op, extents, (), known), known, target)
            assert isinstance(planned, Legal | Illegal)
            answer = planned
        name, where = tensor_name(op), line_of(op)
        methods = tuple(
            dict.fromkeys(method for n, at, note, method in made if (n, at, note) == (name, where, op.name))
        )
        word = {"tile.load": "load of", "tile.store": "store to"}.get(op.name, "addition to")
        taken = _taken(answer, methods, staged=name in staged)
        found.append(AccessVerdict(where, word, name, extents, answer, methods, taken))
    return tuple(found)


# The variants of a kernel access the same tiles.
_legalised, _planned = lru_cache(maxsize=1 << 10)(legalise), lru_cache(maxsize=1 << 10)(tma.plan)


def _taken(answer: Answer, methods: Sequence[str], *, staged: bool) -> Repair[Remedy] | None:
    """The repair that the lowered kernel uses."""
    offered = answer.repairs if isinstance(answer, Repairs) else ()
    if staged:
        change = Change.PAD
    elif any(method.startswith(CP_ASYNC) for method in methods):
        change = Change.CP_ASYNC
    elif any(method.startswith(THREADS) for method in methods):
        change = Change.LOADS
    else:
        return None
    return next((r for r in offered if r.fields.change is change), None)


def _methods(lowered: t.Kernel) -> list[tuple[str, str, str, str]]:
    """Tensor, line, tile op and method of every lowered access."""
    found: list[tuple[str, str, str, str]] = []
    for op in lowered.walk():
        match op:
            case a.TmaLoad() | a.TmaStore():
                declared = op.map.owner
                assert isinstance(declared, a.TensorMap)
                value, method = declared.tensor, "tensor copies"
                if declared.numbers.ragged_axis is not None:
                    method = f"tensor copies that the hardware clips at {op.coords.data[-2].expr}"
            case a.CpAsync():
                value, method = op.tensor, f"{CP_ASYNC}, {op.copy_bytes} bytes at a time"
            case a.LoadStore() | a.CopyOut():
                value, method = op.tensor, f"{THREADS}, {op.copy_bytes} bytes at a time"
            case t.Load() | t.Store() | t.AtomicReduce():
                size = t.registers_of(op.buffer).dtype.dtype.bytes * op.vector.data
                value, method = op.tensor, f"{THREADS}, {size} bytes at a time"
            case _:
                continue
        kind = value.type
        assert isinstance(kind, t.TensorType)
        note, loc = op.note.data if op.note is not None else "", op.loc.data if op.loc is not None else ""
        found.append((kind.tensor_name.data, loc, note, method))
    return found


def operand_verdicts(lowered: t.Kernel) -> tuple[str, ...]:
    """The shared-memory operands of products, by line, as their descriptors say."""
    read: dict[tuple[str, str, WgmmaOperandAttr | None], None] = {}
    for op in lowered.walk():
        if isinstance(op, a.Wgmma):
            where = op.loc.data if op.loc is not None else ""
            read |= {(where, "left", op.a_operand): None, (where, "right", op.b_operand): None}
    found: list[str] = []
    for where, side, operand in read:
        held = "in registers" if operand is None else _operand(operand.data)
        found.append(f"{where}: {side} operand of wgmma {held}")
    return tuple(found)


def _operand(d: OperandNumbers) -> str:
    """A descriptor as text."""
    swizzle = "no swizzle" if d.swizzle is Swizzle.NONE else f"{d.swizzle.name.removeprefix('B')}-byte swizzle"
    return (
        f"in shared memory: {MAJORS[d.major]}-major, {d.mn} x {d.k}, {swizzle}, leading offset {d.leading_bytes} and "
        f"stride offset {d.stride_bytes} bytes"
    )
