"""Compares one kernel's PTX with its Transport IR, given its launch arguments."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterable, Mapping, Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.artifact.schema import (
    FloatScalar,
    IntScalar,
    KernelArg,
    TensorMapArg,
    TensorPointer,
    WorkspacePointer,
)
from tilewright.base.expr import Expr, Min, Sym
from tilewright.ptx.reader import read
from tilewright.ptx.syntax import Module
from tilewright.tile.dialect import TensorType, TileType
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.alignment import Alignment
from tilewright.validate.cases import Cases, Condition
from tilewright.validate.launch_requirements import given_of, grid_of, touched_by
from tilewright.validate.library import Library
from tilewright.validate.match import Difference, Matcher, regions_of
from tilewright.validate.memory import SHARED
from tilewright.validate.needs import Fact, Prover, TensorExtents
from tilewright.validate.polynomials import Poly
from tilewright.validate.ptx_declarations import constants_of, otherwise_declared
from tilewright.validate.ptx_program import PtxProgram
from tilewright.validate.regions import LoopBody
from tilewright.validate.registers import EntryRegisters
from tilewright.validate.signed_quotients import Negative
from tilewright.validate.terms import Terms
from tilewright.validate.transport_ir.ops import OPS
from tilewright.validate.transport_ir.parameters import scalar_parameter
from tilewright.validate.transport_ir.plan import BranchedLoop, LaunchGrid, Plan
from tilewright.validate.undecided import Undecided
from tilewright.validate.unswitched import Unswitched, unswitched
from tilewright.validate.values import Value, Values

DEEPEST = 4_000
"""Python calls, one in another: a sum of a long row is an operation in an operation."""


ALL = 1 << 31
"""More differences than a comparison finds."""


def compare(
    kernel: t.Kernel, ptx: str, arguments: Sequence[KernelArg], grid: Expr, most: int = ALL
) -> tuple[Difference, ...]:
    """The first ``most`` places where the PTX is not shown to implement the IR, for all arguments of the kernel's
    class; empty if it does. ``arguments`` are the launch arguments of the entry's parameters, in order; ``grid`` is the
    number of CTAs."""
    return _Comparison(kernel, arguments, grid).of(ptx, most)


def carried_out(
    kernel: t.Kernel, ptx: str, arguments: Sequence[KernelArg], grid: Expr
) -> tuple[tuple[Operation, tuple[int, ...]], ...]:
    """The ops of the IR, in order, each with the lines of the PTX that implement it: synchronising instructions, loads
    and stores. Empty where the PTX is not shown to implement the IR."""
    comparison = _Comparison(kernel, arguments, grid)
    return () if comparison.of(ptx, 1) else comparison.lines()


class _Comparison:
    """The two evaluations, and what they share."""

    def __init__(self, kernel: t.Kernel, arguments: Sequence[KernelArg], grid: Expr):
        self.kernel, self.arguments = kernel, arguments
        self.first_slot = min((x.slot for x in arguments if isinstance(x, TensorMapArg)), default=0)
        self.given = {value: Sym(name) for name, value in given_of(kernel).items()}
        """The symbols of the text that arguments are, which a launch computes."""
        if self.given and grid == grid_of(kernel):
            grid = grid_of(kernel, given=False)
        self.grid, self.most_ctas = grid, self._most(grid)
        self.tensors = {
            name.data: arg
            for name, arg in zip(kernel.arg_names, kernel.body.block.args, strict=True)
            if isinstance(arg.type, TensorType)
        }
        self.maps = [op.hint.data for op in kernel.body.block.ops if isinstance(op, a.TensorMap)]
        self.unswitched: dict[t.For, Expr] = {}
        """Loops of the IR that are compared as two, with the condition of the first one."""
        self.signed: frozenset[int] = frozenset()
        """Lines of the PTX that divide, by a reciprocal, what may be negative."""
        self.kept: dict[t.For, None] = {}
        """Loops of at most one iteration that the PTX has, too."""

    def _begin(self) -> None:
        """Nothing is known of values."""
        self.terms = Terms(self.kernel.threads.data, clustered=self.kernel.cluster is not None)
        self.cases = Cases(self.terms)
        self.values = Values(self.terms, self.cases)

    def of(self, ptx: str, most: int) -> tuple[Difference, ...]:
        """The first ``most`` differences."""
        limit, collecting = sys.getrecursionlimit(), gc.isenabled()
        sys.setrecursionlimit(max(limit, DEEPEST))
        gc.disable()  # values are many and make no cycles: looking for some took a quarter of the time
        try:
            return self._run_unswitched(read(ptx), most)
        except Undecided as error:
            return (Difference(error.where, self.kernel.sym_name.data, error.what),)
        except OverflowError:
            return (Difference("", self.kernel.sym_name.data, "numbers of more than 64 bits"),)
        except RecursionError:
            return (Difference("", self.kernel.sym_name.data, "values are nested too deeply"),)
        finally:
            sys.setrecursionlimit(limit)
            if collecting:
                gc.enable()

    def lines(self) -> tuple[tuple[Operation, tuple[int, ...]], ...]:
        """By op what carries it out, of what was compared last."""
        matcher, found = self.matcher, dict[int, dict[int, None]]()
        for _, region in regions_of(matcher.root):
            for event in region.events:
                partner = matcher.partners.get(id(event)) or matcher.sources.get(id(event))
                if partner is not None:
                    found.setdefault(partner.order, {})[int(event.where.split()[-1])] = None
        ops: dict[Operation, dict[int, None]] = {}
        for order, lines in sorted(found.items()):
            ops.setdefault(matcher.plan.op_of[order], {}).update(lines)
        return tuple((op, tuple(sorted(lines))) for op, lines in ops.items())

    def _run_unswitched(self, module: Module, most: int) -> tuple[Difference, ...]:
        """``_run``, again for each loop that turns out to be two in the PTX, or one where a branch was expected, and
        where dividends may be negative."""
        while True:
            try:
                return self._run(module, most)
            except Unswitched as found:
                self.unswitched[found.loop] = found.guard
            except _Kept as found:
                self.kept[found.loop] = None
            except Negative as found:
                self.signed |= found.lines

    def _run(self, module: Module, most: int) -> tuple[Difference, ...]:
        """Evaluate both sides and compare."""
        self._begin()
        self.entry, self.module, self.constants = module.entry(self.kernel.entry), module, constants_of(module)
        names = self._shared_names()
        sizes = {name: t.shared_of(buffer).dtype.dtype.bytes for buffer, name in names.items()}
        told = (self.kernel, self.module, self.entry, self.arguments, self._scalar_bytes(), sizes)
        odd = next(otherwise_declared(*told), None)
        if odd is not None:
            return (Difference(self.entry.name, self.kernel.sym_name.data, odd),)
        self.terms.alignments.update((v.name, v.align) for v in self.entry.shared)
        element_bytes = self._element_bytes()
        versioned = self._versioned()
        ctas = self.terms.of(32, self.terms.atom("nctaid", low=1, high=self.most_ctas))
        launch = LaunchGrid(self.grid, self.most_ctas, ctas, names)
        library = Library(self.values)
        plan = Plan(
            self.kernel, self.values, launch, element_bytes, versioned, library, OPS, self.unswitched, self.kept
        )
        plan.run()
        pairing = _Pairing(plan)
        parameters = self._parameters(plan)
        registers = EntryRegisters(self.entry)
        given = element_bytes, versioned, pairing, plan.bounds, self.constants, self._changing(), library.loops
        program = PtxProgram(registers, self.values, parameters, ctas, *given, self.signed)
        root = program.run()
        alignment = Alignment(self.cases, (x.expr for x in self.kernel.assumptions))
        self.matcher = Matcher(plan, program, root, self._provers(plan), alignment, library.loops, most)
        found = self.matcher.run()
        around_0 = program.arithmetic.signed_quotients.around_0
        if found and around_0 - self.signed:
            raise Negative(around_0)
        return found

    def _most(self, grid: Expr) -> int:
        """The most CTAs that a launch has."""
        if isinstance(grid, Min):
            return min(self._most(arg) for arg in grid.args)
        constant = grid.constant
        return (1 << 31) - 1 if constant is None else constant

    def _scalar_bytes(self) -> dict[str, int]:
        args = zip(self.kernel.arg_names, self.kernel.body.block.args, strict=True)
        return {name.data: arg.type.dtype.dtype.bytes for name, arg in args if isinstance(arg.type, TileType)}

    def _element_bytes(self) -> dict[str, int]:
        found = {name: arg.type.dtype.dtype.bytes for name, arg in self.tensors.items()}  # pyright: ignore
        shared = [t.shared_of(op.buffer).dtype.dtype.bytes for op in self.kernel.walk() if isinstance(op, t.Shared)]
        return {**found, SHARED: min(shared, default=4)}

    def _versioned(self) -> frozenset[str]:
        """Tensors that are read and written, and shared memory."""
        read, written = set[SSAValue](), set[SSAValue]()
        for op in self.kernel.walk():
            if isinstance(op, t.Load | a.CpAsync | a.LoadStore | a.LoadCoordinate):
                read.add(op.tensor)
            elif isinstance(op, t.Store | t.AtomicReduce | a.CopyOut):
                written.add(op.tensor)
        return frozenset(name for name, arg in self.tensors.items() if arg in read & written) | {SHARED}

    def _changing(self) -> frozenset[str]:
        """Tensors that are written while the kernel runs, by itself or by the one that it waits for."""
        if self.kernel.dependent is not None:
            return frozenset(self.tensors)
        placed = (w.tensor.data for w in self.kernel.workspaces or ())
        return frozenset(touched_by(self.kernel)[1]).union(placed if self.kernel.waits is not None else ())

    def _shared_names(self) -> dict[SSAValue, str]:
        """The variables of the PTX that static shared buffers are, by name, size and order; where it declares fewer, by
        the number that the name ends in."""
        free = [v for v in self.entry.shared if not v.external]
        buffers = [op for op in self.kernel.walk() if isinstance(op, t.Shared) and op.offset is None]
        found: dict[SSAValue, str] = {}
        for op in buffers:
            kind, hint = t.shared_of(op.buffer), op.hint.data
            size = kind.count.data * kind.dtype.dtype.bytes
            named = [other for other in buffers if other.hint == op.hint]
            fits = [v for v in free if v.bytes == size and re.search(_named(hint, r"_?(_\d+)?"), v.name)]
            if len(fits) < sum(other.buffer.type == op.buffer.type and other.buffer not in found for other in named):
                number = named.index(op)
                fits = [v for v in fits if re.search(_named(hint, f"_{number}" if number else ""), v.name)]
            if fits:
                found[op.buffer] = fits[0].name
                free.remove(fits[0])
        return found

    def _parameters(self, plan: Plan) -> Mapping[str, Value]:
        """The meanings of the entry's parameters."""
        found: dict[str, Value] = {}
        for declared, argument in zip(self.entry.parameters, self.arguments, strict=True):
            match argument:
                case TensorPointer(name):
                    found[declared.name] = self.terms.of(64, self.terms.atom("address", name, low=0))
                case WorkspacePointer(index):
                    name = next(w.tensor.data for w in self.kernel.workspaces or () if w.index.data == index)
                    found[declared.name] = self.terms.of(64, self.terms.atom("address", name, low=0))
                case TensorMapArg(slot):
                    name = self.maps[slot - self.first_slot]
                    found[declared.name] = self.terms.of(64, self.terms.atom("map", name, low=0))
                case FloatScalar(name):
                    found[declared.name] = scalar_parameter(self.values, name)
                case IntScalar(value, bits):
                    found[declared.name] = self.values.resize(plan.expr(self.given.get(value, value)), bits)
        return found

    def _provers(self, plan: Plan) -> Mapping[str, Prover]:
        """For each region, a prover with the facts that hold in it."""
        tensors: dict[str, TensorExtents] = {}
        for name, arg in self.tensors.items():
            assert isinstance(arg.type, TensorType)
            extents = [plan.expr(d.expr) for d in arg.type.dims]
            strides = [plan.symbol(f"{name}.stride{i}") for i in range(len(extents))]
            assert all(isinstance(x, Poly) for x in (*extents, *strides))
            tensors[name] = TensorExtents(tuple(extents), tuple(strides), arg.type.dtype.dtype.bytes)  # pyright: ignore
        bits = 31 if self.kernel.index_bits.data == 32 else 63
        found: dict[str, Prover] = {}

        def add(region: LoopBody, above: Sequence[Fact]) -> None:
            facts = [*above, *plan.facts.get(region.name, ())]
            found[region.name] = Prover(self.terms, self.cases, tensors, facts, bits)
            for loop in region.loops:
                add(loop, facts)

        add(plan.region, ())
        return found


def _named(hint: str, number: str) -> str:
    """A pattern of the names of static shared variables."""
    return rf"\d(v_)?{re.escape(hint)}{number}(_\$_0)?$"


class _Kept(Exception):
    """Raised where the PTX has a loop for one of at most one iteration."""

    def __init__(self, loop: t.For):
        super().__init__(loop.counter.data)
        self.loop = loop


class _Pairing:
    """Which loop of the IR a loop of the PTX is: the first of its region that is entered under the same condition."""

    def __init__(self, plan: Plan):
        self.plan, self.cases = plan, plan.cases
        self.regions: dict[str, LoopBody] = {}
        self.entries: dict[str, Condition] = {}
        """Where the PTX enters the loops that are taken."""
        self._add(plan.region)

    def _add(self, region: LoopBody) -> None:
        self.regions[region.name] = region
        for loop in region.loops:
            self._add(loop)

    def __call__(self, parent: str, entry: Condition, line: int, top: bool) -> str:
        free = [loop for loop in self.regions[parent].loops if loop.name not in self.entries]
        chosen = next((x for x in free if (x.around if top else x.entry) == entry), None)
        if chosen is None:
            self._keep(x for x, at in self._branched(parent) if (at.around if top else at.entry) == entry)
            chosen = next((x for x in free if self.cases.both(x.around, entry) != 0), None)
        if chosen is None:
            self._unswitch(parent, entry)
            self._keep(x for x, at in self._branched(parent) if self.cases.both(at.around, entry) != 0)
            raise Undecided("a loop that the IR has not", f"line {line}")
        self.entries[chosen.name] = entry
        return chosen.name

    def _branched(self, parent: str) -> list[tuple[t.For, BranchedLoop]]:
        """Loops of a region that are compared as branches."""
        return [(op, at) for op, at in self.plan.branched.items() if at.region == parent]

    def _keep(self, loops: Iterable[t.For]) -> None:
        """Raises ``_Kept`` for the first of some loops that is of the kernel's text."""
        found = next((x for x in loops if x in self.plan.kernel.walk()), None)
        if found is not None:
            raise _Kept(found)

    def _unswitch(self, parent: str, entry: Condition) -> None:
        """Raises ``Unswitched`` where a loop that is taken is this one, too."""
        ops = {name: op for op, name in self.plan.regions.items()}
        for name in (x.name for x in self.regions[parent].loops if self.cases.both(x.around, entry) != 0):
            found = unswitched(self.plan, ops[name], self.entries[name], entry)
            if found is not None:
                raise found


__all__ = ["carried_out", "compare"]
