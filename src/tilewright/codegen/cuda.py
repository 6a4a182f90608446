"""Prints Transport IR as one readable CUDA C++ file without includes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import TRUE, Expr, Interval, Sym, expr, interval, simplify
from tilewright.codegen.asynchronous_ops import ASYNCHRONOUS, AsynchronousEmitter
from tilewright.codegen.c_expr import c_type, identifier
from tilewright.codegen.conversion import CONVERSIONS, ConversionEmitter
from tilewright.codegen.elements import ElementWriter
from tilewright.codegen.fusion import feeds_only, late_loads
from tilewright.codegen.prelude import prelude
from tilewright.codegen.shared_addresses import SharedAddresses
from tilewright.codegen.storage import Storage
from tilewright.tile.dialect import TensorType
from tilewright.tile.ops import ops_in
from tilewright.transport import dialect as t
from tilewright.transport.asynchronous import CTA_RANK, CopyOut
from tilewright.transport.parameters import Kind, Parameter, parameters_of

_ADDRESS_BITS = 0x7FFFFFFF
"""So much of an address fits an int."""


@dataclass(frozen=True)
class Emitted:
    """CUDA source of one kernel, and the bytes of shared memory that it declares itself."""

    source: str
    entry: str
    shared_bytes: int


def emit_kernel(kernel: t.Kernel, *, debug: bool = False) -> Emitted:
    """The CUDA C++ of ``kernel``: comments name the tile op and the source line that each block came from.

    With ``debug``, waits are bounded and the counters of roles are compared (``codegen.debug``).
    """
    return Emitter(kernel, debug).run()


class Emitter(ElementWriter):
    """Walks one kernel and writes lines."""

    def __init__(self, kernel: t.Kernel, debug: bool = False):
        super().__init__(kernel)
        self.shared_bytes = 0
        addresses = SharedAddresses(self)
        self.asynchronous = AsynchronousEmitter(self, addresses, self.block, debug=debug)
        self.conversions = ConversionEmitter(self, addresses)
        self.late: set[Operation] = set()
        self.placed = {w.tensor.data for w in kernel.workspaces or ()}

    # -- kernel ---------------------------------------------------------------------------------------------------
    def run(self) -> Emitted:
        body = self.kernel.body.block
        for arg, name in self.symbols.items():
            self.names[arg] = identifier(name)
        if self.kernel.shared_bytes is not None:
            self.asynchronous.opening()
        self.block(body)
        self.asynchronous.closing()
        parameters = parameters_of(self.kernel)
        unknown = self.used.keys() - {p.symbol for p in parameters}
        assert not unknown, f"{', '.join(sorted(unknown))}: in the text, and no parameter"
        name, entry = self.kernel.sym_name.data, self.kernel.entry
        threads, ctas = self.kernel.threads.data, self.kernel.min_ctas.data
        text = "\n".join(self.lines)
        head = [*self._addresses(), *(f"  {line}" for line in self.bases.values())]
        wrappers, functions = self.asynchronous.prelude(), prelude([*head, *self.lines])
        source = (
            f"// {name}: {threads} threads a CTA. Emitted by Tilewright from transport IR.\n\n"
            + (wrappers + "\n\n" if wrappers else "")
            + (functions + "\n\n" if functions else "")
            + f'extern "C" __global__ void __launch_bounds__({threads}, {ctas}) {entry}(\n'
            + ",\n".join(f"    {self._declare(p)}" for p in parameters)
            + ") {\n"
            + "  const int tid = threadIdx.x;\n"
            + "".join(f"{line}\n" for line in (*self._order(), *head))
            + text
            + "\n}\n"
        )
        return Emitted(source, entry, self.shared_bytes)

    def _order(self) -> list[str]:
        """The ``griddepcontrol`` instructions of programmatic dependent launch (PTX ISA 9.1, 9.7.13.13). Dependents are
        launched after the wait, so that at most one kernel waits: more would occupy SMs that the remaining CTAs of this
        one need (a decode layer of split attention, H200: 145.6 us without, 157.1 with the launch before the wait,
        140.4 after it)."""
        asked = {"wait": self.kernel.waits, "launch_dependents": self.kernel.releases}
        return [f'  asm volatile("griddepcontrol.{do};" ::: "memory");' for do, flag in asked.items() if flag]

    def _addresses(self) -> list[str]:
        """The low bits of the pointer arguments; expressions use addresses only modulo powers of two."""
        pointers = {f"{symbol}.address": self.names[arg] for arg, symbol in self.symbols.items()}
        return [
            f"  const int {identifier(symbol)} = (int)((unsigned long long){pointers[symbol]} & {_ADDRESS_BITS:#x});"
            for symbol in self.addresses
        ]

    def _declare(self, parameter: Parameter) -> str:
        match parameter.kind:
            case Kind.TENSOR:
                arg = next(arg for arg, symbol in self.symbols.items() if symbol == parameter.symbol)
                assert isinstance(arg.type, TensorType)
                written = any(
                    isinstance(use.operation, t.Store | t.AtomicReduce | t.Draw | CopyOut) for use in arg.uses
                )
                read = any(isinstance(use.operation, t.Load) for use in arg.uses)
                element = Storage(arg.type.dtype.dtype, 1).memory
                placed = self.kernel.waits is not None and parameter.symbol in self.placed
                late = placed or self.kernel.dependent is not None  # written while we wait
                qualifiers = "" if (written and read) or late else "__restrict__ "
                return f"{'' if written else 'const '}{element}* {qualifiers}{self.names[arg]}"
            case Kind.TENSOR_MAP:
                return f"const __grid_constant__ TensorMap {self.asynchronous.maps[parameter.symbol]}"
            case Kind.FLOAT:
                return f"const float {identifier(parameter.symbol)}"
            case Kind.INTEGER:
                return f"const {'long long' if parameter.bits == 64 else 'int'} {identifier(parameter.symbol)}"

    def block(self, block: Block) -> None:
        ops = ops_in(block)
        self.late |= late_loads(ops)
        while ops:
            op = ops.pop(0)
            if isinstance(op, t.Map) and ops and feeds_only(op, ops[0]):
                self.fused(op, ops.pop(0))
            elif op not in self.late:
                self.op(op)

    def fused(self, op: t.Map, reader: Operation) -> None:
        """Emits a map whose values only the next op reads together with that op in one loop, so that a long row exists
        only once."""
        self.comment(op)
        if isinstance(reader, t.Fold):
            self.map_and_fold(op, reader)
        else:
            assert isinstance(reader, t.Store)
            self.map_and_store(op, reader)

    def op(self, op: Operation) -> None:
        kind = type(op)
        match op:
            case _ if kind in CONVERSIONS:
                self.conversions.op(op)
            case _ if kind in ASYNCHRONOUS:
                self.asynchronous.op(op)
            case t.Programs():
                self.programs(op)
            case t.Let():
                self.let(op.symbol.data, op.value.expr)
            case t.Bind():
                self.bind(op)
            case t.For():
                self.loop(op)
            case t.If():
                self.branch(op)
            case t.Registers():
                storage = Storage(op.buffer.type.dtype.dtype, op.buffer.type.count.data)
                self.storages[op.buffer] = storage
                self.line(storage.declare(self.name(op.buffer, op.hint.data), zero=_left_open(op.buffer)))
            case t.Shared():
                self.shared(op)
            case t.Load() | t.Store() | t.AtomicReduce():
                self.comment(op)
                self.global_access(op)
            case t.Draw():
                given = self.storages[op.buffer].get(self.names[op.buffer], "0")
                self.line(f"{given} = (int)gridDim.x;")
                with self.braces(f"if ((int)gridDim.x < {self.c_int(op.programs.expr)})"):
                    self.line(f"{given} += atomicAdd({self.names[op.tensor]}, 1);")
            case t.Map():
                self.comment(op)
                self.map(op)
            case t.Fold():
                self.comment(op)
                self.fold(op)
            case t.Pin():
                self.pin(op.buffer)
            case t.Shuffle():
                self.shuffle(op)
            case t.SharedWrite() | t.SharedRead():
                self.shared_access(op)
            case t.ClusterRead():
                self.asynchronous.cluster_read(op)
            case t.SharedCount():
                self.shared_count(op)
            case t.Barrier():
                self.line(self.asynchronous.cta_barrier())
            case t.BarrierCount():
                met = self.storages[op.buffer].get(self.names[op.buffer], "0")
                self.line(f"{met} = __syncthreads_count({met});")
            case t.Print() | t.Trap():
                self.print(op)
            case _:
                raise TypeError(f"no code for {op.name}")

    # -- control --------------------------------------------------------------------------------------------------

    def let(self, symbol: str, value: Expr) -> None:
        bounds = interval(self.simplified(value), self.bounds)
        self.line(f"const {c_type(bounds)} {identifier(symbol)} = {self.c(value)};")
        self.declare(symbol, bounds)

    def bind(self, op: t.Bind) -> None:
        symbol = op.symbol.data
        value = self.storages[op.buffer].get(self.names[op.buffer], "0")
        self.line(f"const int {identifier(symbol)} = (int){value};")
        self.declare(symbol, (0, MAX_EXTENT))

    def programs(self, op: t.Programs) -> None:
        names, extents = [identifier(n.data) for n in op.names], [e.expr for e in op.extents]
        bounds = {n.data: self._below(e) for n, e in zip(op.names, extents, strict=True)}
        if not names:
            self.block(op.body.block)
            return
        shape = op.cluster_shape
        if op.cluster is not None:  # the loop walks blocks of programs, one for each cluster
            extents[-2:] = (simplify(extents[i] // n, self.bounds) for i, n in ((-2, shape[0]), (-1, shape[1])))
        total = expr(1)
        for extent in extents:
            total = total * extent
        with self.braces(self.program_loop(op, self.c_int(total))), self.binding(bounds):
            if op.level is not None:
                self.level(op, op.level, names, extents, self.c_int(total))
            elif op.cluster is not None:
                blocks = [*names[:-2], *(f"{name}_block" for name in names[-2:])]
                self.place(op, blocks, extents)
                rank = self.c(Sym(CTA_RANK) // shape[1]), self.c(Sym(CTA_RANK) % shape[1])
                for name, size, place in zip(names[-2:], shape, rank, strict=True):
                    self.line(f"const int {name} = {name}_block * {size} + {place};")
            else:
                self.place(op, names, extents)
            self.block(op.body.block)
            if op.drawn is not None:
                self.line(f"drawn = {identifier(op.drawn.data)};")
                for counter, period in self.asynchronous.periods.items():
                    self.line(f"{counter} %= {period};")

    def place(self, op: t.Programs, names: Sequence[str], extents: Sequence[Expr]) -> None:
        """The coordinates of a program, the last fastest or the last two in bands."""
        if op.group is None:
            self.split("program", names, extents)
            return
        rest = place = "program"
        if len(names) > 2:
            matrix = self.c_int(extents[-2] * extents[-1])
            rest, place = f"(program / {matrix})", "in_matrix"
            self.line(f"const int in_matrix = program % {matrix};")
        self.band(place, names[-2:], extents[-2:], op.group.data)
        self.split(rest, names[:-2], extents[:-2])

    def level(self, op: t.Programs, which: int, names: Sequence[str], extents: Sequence[Expr], total: str) -> None:
        """The coordinates where one counts down or up: it is walked in bands against all others."""
        assert op.group is not None
        place = "program"
        if op.alternates:
            self.line("const int round = program / (int)gridDim.x;")
            self.line("const int dealt = round * (int)gridDim.x;")
            self.line(f"const int last = min((int)gridDim.x, {total} - dealt) - 1;")
            self.line("const int ordinal = multiply_add(round % 2, last - 2 * (program - dealt), program);")
            place = "ordinal"
        others = [i for i in range(len(names)) if i != which]
        rows = expr(1)
        for i in others:
            rows = rows * extents[i]
        self.band(place, ("row", "level"), (rows, extents[which]), op.group.data)
        self.line(f"const int {names[which]} = {'level' if op.ascending else f'{self.c(extents[which] - 1)} - level'};")
        self.split("row", [names[i] for i in others], [extents[i] for i in others])

    def split(self, whole: str, names: Sequence[str], extents: Sequence[Expr]) -> None:
        """The digits of a number, the last fastest."""
        for i in reversed(range(len(names))):
            if i == 0:
                self.line(f"const int {names[i]} = {whole};")
                return
            extent = self.c_int(extents[i])
            self.line(f"const int {names[i]} = {whole} % {extent};")
            whole = f"({whole} / {extent})"

    def _below(self, extent: Expr) -> Interval:
        """The coordinates of the programs along an axis; a grid has at most as many CTAs as an ``int`` can count."""
        _, high = interval(self.simplified(extent), self.bounds)
        most = (1 << 31) - 1
        return 0, max(0, most if high is None else min(high, most) - 1)

    def program_loop(self, op: t.Programs, total: str) -> str:
        """The head of the loop over a CTA's programs; empty if each CTA has one program."""
        clusters = op.cluster_shape[0] * op.cluster_shape[1]
        first, step = op.interleaving
        start = "(int)blockIdx.x" + (f" / {clusters}" if clusters > 1 else "")
        stride = "(int)gridDim.x" + (f" / {clusters}" if clusters > 1 else "")
        if not op.persistent.data:
            self.line(f"const int program = {start};")
            return ""
        if op.drawn is not None:
            self.line(f"int drawn = {start};")
            self.line("#pragma unroll 1")
            return f"for (int program = drawn; program < {total}; program = drawn)"
        begin = start + (f" + {first} * ({stride})" if first else "")
        by = f"{step} * ({stride})" if step > 1 else stride
        self.line("#pragma unroll 1")
        return f"for (int program = {begin}; program < {total}; program += {by})"

    def band(self, place: str, names: Sequence[str], extents: Sequence[Expr], group: int) -> None:
        """The row and the column at a place of a matrix that is walked in bands of rows, which vary fastest."""
        (row, column), (rows, columns) = names, (self.c_int(e) for e in extents)
        self.line(f"const int first_row = {place} / ({self.c(extents[-1] * group)}) * {group};")
        self.line(f"const int band_rows = min({group}, {rows} - first_row);")
        self.line(f"const int in_band = {place} - first_row * {columns};")
        self.line(f"const int {row} = first_row + in_band % band_rows;")
        self.line(f"const int {column} = in_band / band_rows;")

    def loop(self, op: t.For) -> None:
        counter = op.counter.data
        begin, end, step = (self.c(a.expr) for a in (op.begin, op.end, op.step))
        name = identifier(counter)
        self.comment(op)
        if op.at_most_one_iteration:
            first = op.begin.expr.constant
            with self.braces(f"if ({begin} < {end})"), self.binding({counter: (first, first)}):
                self.line(f"const int {name} = {begin};")
                self.block(op.body.block)
            return
        self.line("#pragma unroll 1")
        low, end_high = (interval(self.simplified(a.expr), self.bounds)[i] for i, a in ((0, op.begin), (1, op.end)))
        step_high = interval(self.simplified(op.step.expr), self.bounds)[1]
        bounds = {counter: (low, None if end_high is None else end_high - 1)}
        last = None if end_high is None or step_high is None else end_high - 1 + step_high
        advance = f"++{name}" if step == "1" else f"{name} += {step}"
        kind = c_type((low, last))
        with self.braces(f"for ({kind} {name} = {begin}; {name} < {end}; {advance})"), self.binding(bounds):
            self.block(op.body.block)

    def branch(self, op: t.If) -> None:
        self.comment(op)
        with self.braces(f"if ({self.c(op.condition.expr)})"), self.binding({}):
            self.block(op.then.block)
        if not op.otherwise.block.is_empty:
            with self.braces("else"), self.binding({}):
                self.block(op.otherwise.block)

    # -- memory ---------------------------------------------------------------------------------------------------
    def shared(self, op: t.Shared) -> None:
        dtype, count = op.buffer.type.dtype.dtype, op.buffer.type.count.data
        storage = Storage(dtype, 1)
        if op.offset is not None:
            self.asynchronous.shared(op, storage.memory, self.name(op.buffer, op.hint.data))
            return
        self.shared_bytes += -(-dtype.bytes * count // 16) * 16
        self.line(f"__shared__ __align__(16) {storage.memory} {self.name(op.buffer, op.hint.data)}[{count}];")


def _left_open(buffer: SSAValue) -> bool:
    """True if a register may be read that was never written: elements that are not live are skipped, shared memory is
    read under a guard, and the padding of a partly filled word is never written.

    Such elements reach no result, but C must not compute with undefined values: NVRTC would infer that the code is
    unreachable, also for neighbouring registers.
    """
    assert isinstance(buffer.type, t.RegistersType)
    storage = Storage(buffer.type.dtype.dtype, buffer.type.count.data)
    if storage.count % storage.per_word:
        return True
    for use in buffer.uses:
        match use.operation:
            case t.Load(live=live) if live.expr != TRUE:
                return True
            case t.SharedRead(guard=guard) | t.ClusterRead(guard=guard) if guard.expr != TRUE:
                return True
            case t.Map() as op if op.live.expr != TRUE and buffer in op.outputs:
                return True
            case _:
                pass
    return False
