"""Transport IR as one readable CUDA C++ file without includes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.expr import TRUE, All, Compare, Const, Expr, Interval, Sum, Sym, all_of, expr, interval, simplify
from tilewright.codegen.c_expr import LOCALS, LOOP, c_expr, identifier
from tilewright.codegen.conversion import CONVERSIONS, ConversionEmitter
from tilewright.codegen.hopper import ASYNCHRONOUS, RESERVED, HopperEmitter
from tilewright.codegen.prelude import prelude
from tilewright.codegen.scalars import Scalar, emit_scalar_body, fold_step, shuffle_step
from tilewright.codegen.storage import Storage
from tilewright.tile.dialect import TensorType, TileType
from tilewright.transport import dialect as t
from tilewright.transport.asynchronous import CTA_RANK, TensorMap

_INDENT = "  "
_BATCHED_WORDS = 20
"""Registers of a guarded load up to which all its vectors are in flight before the first is looked at."""

_ADDRESS_BITS = 0x7FFFFFFF
"""So much of an address fits an int."""


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter in order: a tensor's address, an integer symbol, or a float scalar."""

    kind: str  # "tensor" | "tensor_map" | "integer" | "float"
    symbol: str
    bits: int


@dataclass(frozen=True)
class Emitted:
    """CUDA source of one kernel with its parameter list. ``index_bits`` is the width of strides and offsets."""

    source: str
    entry: str
    parameters: tuple[Parameter, ...]
    shared_bytes: int


def emit_kernel(kernel: t.Kernel, *, debug: bool = False) -> Emitted:
    """CUDA C++ of ``kernel``: comments name the tile op and the user's line each block came from.

    With ``debug``, waits are bounded and roles are compared (``codegen.debug``).
    """
    return _Emitter(kernel, debug).run()


class _Emitter:
    """Walks one kernel and writes lines; holds the names of buffers and the bounds of symbols."""

    def __init__(self, kernel: t.Kernel, debug: bool = False):
        self.kernel = kernel
        self.debug = debug
        self.lines: list[str] = []
        self.depth = 1
        self.bounds: dict[str, Interval] = {t.THREAD: (0, kernel.threads.data - 1)}
        self.constants: dict[str, Expr] = {}
        self.storages: dict[SSAValue, Storage] = {}
        self.names: dict[SSAValue, str] = {}
        self.taken: set[str] = set(LOCALS) | RESERVED
        self.symbols: dict[SSAValue, str] = dict(
            zip(kernel.body.block.args, (n.data for n in kernel.arg_names), strict=True)
        )
        self.addresses: dict[str, None] = {}  # tensors of whose address something is asked
        self.used: dict[str, None] = {}  # integer parameters in order of first use
        self.bound: set[str] = {t.THREAD, t.REGISTER}
        self.shared_bytes = 0
        self.asynchronous = HopperEmitter(self)
        self.conversions = ConversionEmitter(self)
        self.late: set[Operation] = set()
        self.assumed: frozenset[Expr] = frozenset()  # conditions that hold where the code being written runs
        for assumption in kernel.assumptions:
            self._assume(assumption.expr)

    def _assume(self, fact: Expr) -> None:
        """A symbol that the specialisation class fixes is printed as its value."""
        if isinstance(fact, Compare) and fact.op == "==":
            for side, other in ((fact.lhs, fact.rhs), (fact.rhs, fact.lhs)):
                if isinstance(side, Sym) and other.constant is not None:
                    self.constants[side.name] = other

    # -- text -----------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        self.lines.append(_INDENT * self.depth + text if text else "")

    @contextmanager
    def braces(self, head: str) -> Generator[None]:
        self.line(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def name(self, value: SSAValue, hint: str) -> str:
        base = identifier(hint) or "x"
        name, n = base, 1
        while name in self.taken:
            name, n = f"{base}_{n}", n + 1
        self.taken.add(name)
        self.names[value] = name
        return name

    def c(self, node: Expr) -> str:
        node = simplify(node.substitute(self.constants), self.bounds)
        for symbol in sorted(node.symbols - self.bound):
            (self.addresses if symbol.endswith(".address") else self.used).setdefault(symbol)
        return c_expr(node, self.bounds)

    def holds(self, guard: Expr) -> bool:
        return simplify(guard.substitute(self.constants), self.bounds) == TRUE

    # -- kernel ---------------------------------------------------------------------------------------------------
    def run(self) -> Emitted:
        body = self.kernel.body.block
        names = [n.data for n in self.kernel.arg_names]
        for arg, name in zip(body.args, names, strict=True):
            self.name(arg, name)
            if isinstance(arg.type, TensorType):
                self.bounds[f"{name}.address"] = (0, None)
                for dim in arg.type.dims:
                    for symbol in dim.expr.symbols:
                        self.bounds[symbol] = (0, None)
        if self.kernel.shared_bytes is not None:
            self.asynchronous.opening()
        self.block(body)
        self.asynchronous.closing()
        parameters = self._parameters(body, names)
        entry = self.kernel.sym_name.data
        threads, ctas = self.kernel.threads.data, self.kernel.min_ctas.data
        text = "\n".join(self.lines)
        wrappers, functions = self.asynchronous.prelude(), prelude(text)
        source = (
            f"// {entry}: {threads} threads a CTA. Emitted by Tilewright from transport IR.\n\n"
            + (wrappers + "\n\n" if wrappers else "")
            + (functions + "\n\n" if functions else "")
            + f'extern "C" __global__ void __launch_bounds__({threads}, {ctas}) {entry}(\n'
            + ",\n".join(f"    {self._declare(p)}" for p in parameters)
            + ") {\n"
            + "  const int tid = threadIdx.x;\n"
            + "".join(f"{line}\n" for line in self._addresses())
            + text
            + "\n}\n"
        )
        return Emitted(source, entry, parameters, self.shared_bytes)

    def _addresses(self) -> list[str]:
        """The low bits of addresses, of which only residues by powers of two are asked."""
        pointers = {f"{symbol}.address": self.names[arg] for arg, symbol in self.symbols.items()}
        return [
            f"  const int {identifier(symbol)} = (int)((unsigned long long){pointers[symbol]} & {_ADDRESS_BITS:#x});"
            for symbol in self.addresses
        ]

    def _parameters(self, body: Block, names: Sequence[str]) -> tuple[Parameter, ...]:
        parameters: list[Parameter] = []
        scalars: set[str] = set()
        for arg, name in zip(body.args, names, strict=True):
            if isinstance(arg.type, TensorType):
                if not arg.uses or any(not isinstance(use.operation, TensorMap) for use in arg.uses):
                    parameters.append(Parameter("tensor", name, 64))
                continue
            assert isinstance(arg.type, TileType)
            dtype = arg.type.dtype.dtype
            scalars.add(name)
            kind = "float" if dtype.is_float else "integer"
            parameters.append(Parameter(kind, name, dtype.bits))
        for op in body.ops:
            if isinstance(op, TensorMap):
                parameters.append(Parameter("tensor_map", self.names[op.map], 1024))
        for symbol in self.used:
            if symbol not in scalars:
                wide = self.kernel.index_bits.data == 64 and ".stride" in symbol
                parameters.append(Parameter("integer", symbol, 64 if wide else 32))
        return tuple(parameters)

    def _declare(self, parameter: Parameter) -> str:
        arg = next((a for a, symbol in self.symbols.items() if symbol == parameter.symbol), None)
        name = self.names[arg] if arg is not None else identifier(parameter.symbol)
        if parameter.kind == "tensor":
            assert arg is not None
            assert isinstance(arg.type, TensorType)
            written = any(isinstance(use.operation, t.Store | t.ReduceAdd) for use in arg.uses)
            read = any(isinstance(use.operation, t.Load) for use in arg.uses)
            element = Storage(arg.type.dtype.dtype, 1).memory
            return f"{'' if written else 'const '}{element}* {'' if written and read else '__restrict__ '}{name}"
        if parameter.kind == "float":
            return f"const float {name}"
        if parameter.kind == "tensor_map":
            return f"const __grid_constant__ TensorMap {parameter.symbol}"
        return f"const {'long long' if parameter.bits == 64 else 'int'} {name}"

    def block(self, block: Block) -> None:
        ops = list(block.ops)
        self.late |= _late_loads(ops)
        while ops:
            op = ops.pop(0)
            if isinstance(op, t.Map) and ops and _feeds_only(op, ops[0]):
                self.fused(op, ops.pop(0))
            elif op not in self.late:
                self.op(op)

    def fused(self, op: t.Map, reader: Operation) -> None:
        """A map whose values only the next op reads: in one loop, so that a long row never exists twice."""
        self.comment(op)
        if isinstance(reader, t.Fold):
            self.map_and_fold(op, reader)
        else:
            assert isinstance(reader, t.Store)
            self.map_and_store(op, reader)

    def comment(self, op: Operation) -> None:
        if isinstance(op, t.TransportOp) and (op.note or op.loc):
            words = [a.data for a in (op.note, op.loc) if a is not None]
            self.line(f"// {'  '.join(words)}")

    def op(self, op: Operation) -> None:
        match op:
            case t.Programs():
                self.programs(op)
            case t.Let():
                self.let(op.symbol.data, op.value.expr)
            case t.For():
                self.loop(op)
            case t.If():
                self.branch(op)
            case t.Registers():
                storage = Storage(op.buffer.type.dtype.dtype, op.buffer.type.count.data)
                self.storages[op.buffer] = storage
                self.line(storage.declare(self.name(op.buffer, op.hint.data)))
            case t.Shared():
                self.shared(op)
            case t.Load() | t.Store() | t.ReduceAdd():
                self.comment(op)
                self.global_access(op)
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
            case t.Barrier():
                self.line(self.asynchronous.cta_barrier())
            case _ if isinstance(op, CONVERSIONS):
                self.conversions.op(op)
            case _ if isinstance(op, ASYNCHRONOUS):
                self.asynchronous.op(op)
            case t.Print():
                self.print(op)
            case _:
                raise TypeError(f"no code for {op.name}")

    # -- control --------------------------------------------------------------------------------------------------
    @contextmanager
    def binding(self, symbols: Mapping[str, Interval]) -> Generator[None]:
        saved = dict(self.bounds), set(self.bound)
        self.bounds |= symbols
        self.bound |= symbols.keys()
        yield
        self.bounds, self.bound = saved

    def let(self, symbol: str, value: Expr) -> None:
        self.line(f"const int {identifier(symbol)} = {self.c(value)};")
        self.bounds[symbol] = interval(simplify(value, self.bounds), self.bounds)
        self.bound.add(symbol)

    def programs(self, op: t.Programs) -> None:
        names, extents = [identifier(n.data) for n in op.names], [e.expr for e in op.extents]
        bounds = {n.data: _below(e) for n, e in zip(op.names, extents, strict=True)}
        if not names:
            self.block(op.body.block)
            return
        shape, whole = op.cluster_shape, dict(zip(names, extents, strict=True))
        in_block = op.cluster is not None
        down = [f"{n}_from_end" if n in {identifier(d) for d in op.downwards} else n for n in names]
        final, names = names, list(down)
        if in_block:  # the loop walks blocks of programs, one for each cluster
            extents[-2:] = (simplify(extents[i] // n, self.bounds) for i, n in ((-2, shape[0]), (-1, shape[1])))
            names[-2:] = (f"{name}_block" for name in names[-2:])
        total = expr(1)
        for extent in extents:
            total = total * extent
        with self.braces(self.program_loop(op, self.c(total))), self.binding(bounds):
            rest = "program" if op.group is None else self.band(names, extents, op.group.data)
            for i in reversed(range(len(names) if op.group is None else len(names) - 2)):
                extent = self.c(extents[i])
                if i == 0:
                    self.line(f"const int {names[i]} = {rest};")
                    break
                self.line(f"const int {names[i]} = {rest} % {extent};")
                rest = f"({rest} / {extent})"
            if in_block:
                rank = self.c(Sym(CTA_RANK) // shape[1]), self.c(Sym(CTA_RANK) % shape[1])
                for name, block, size, place in zip(down[-2:], names[-2:], shape, rank, strict=True):
                    self.line(f"const int {name} = {block} * {size} + {place};")
            for name, other in zip(final, down, strict=True):
                if name != other:
                    self.line(f"const int {name} = {self.c(whole[name] - 1)} - {other};")
            self.block(op.body.block)

    def program_loop(self, op: t.Programs, total: str) -> str:
        """The head of the loop over a CTA's programs; empty where each has one."""
        clusters = op.cluster_shape[0] * op.cluster_shape[1]
        first, step = op.turns
        start = "(int)blockIdx.x" + (f" / {clusters}" if clusters > 1 else "")
        stride = "(int)gridDim.x" + (f" / {clusters}" if clusters > 1 else "")
        if not op.persistent.data:
            self.line(f"const int program = {start};")
            return ""
        begin = start + (f" + {first} * ({stride})" if first else "")
        by = f"{step} * ({stride})" if step > 1 else stride
        return f"for (int program = {begin}; program < {total}; program += {by})"

    def band(self, names: Sequence[str], extents: Sequence[Expr], group: int) -> str:
        """The last two coordinates, walked in bands; returns what is left for the names before them."""
        row, column = names[-2:]
        rows, columns = (self.c(e) for e in extents[-2:])
        rest = place = "program"
        if len(names) > 2:
            rest, place = f"(program / ({rows} * {columns}))", "in_matrix"
            self.line(f"const int in_matrix = program % ({rows} * {columns});")
        self.line(f"const int first_row = {place} / ({group} * {columns}) * {group};")
        self.line(f"const int band_rows = min({group}, {rows} - first_row);")
        self.line(f"const int in_band = {place} - first_row * {columns};")
        self.line(f"const int {row} = first_row + in_band % band_rows;")
        self.line(f"const int {column} = in_band / band_rows;")
        return rest

    def loop(self, op: t.For) -> None:
        counter = op.counter.data
        begin, end, step = (self.c(a.expr) for a in (op.begin, op.end, op.step))
        name = identifier(counter)
        self.comment(op)
        self.line("#pragma unroll 1")
        low = op.begin.expr.constant
        bounds = {counter: (low, None if op.end.expr.constant is None else op.end.expr.constant - 1)}
        advance = f"++{name}" if step == "1" else f"{name} += {step}"
        with self.braces(f"for (int {name} = {begin}; {name} < {end}; {advance})"), self.binding(bounds):
            self.block(op.body.block)

    def branch(self, op: t.If) -> None:
        self.comment(op)
        with self.braces(f"if ({self.c(op.condition.expr)})"), self.binding({}):
            self.block(op.then.block)
        if op.otherwise.block.ops:
            with self.braces("else"), self.binding({}):
                self.block(op.otherwise.block)

    @contextmanager
    def registers(self, count: int, step: int = 1) -> Generator[None]:
        """A fully unrolled loop over ``r``; one register needs no loop."""
        head = f"for (int r = 0; r < {count}; " + ("++r)" if step == 1 else f"r += {step})")
        if count > step:
            self.line("#pragma unroll")
            with self.braces(head), self.binding({t.REGISTER: (0, count - 1)}):
                yield
        else:
            with self.braces(""), self.binding({t.REGISTER: (0, count - 1)}):
                self.line("constexpr int r = 0;")
                yield

    @contextmanager
    def vectors(self, count: int, width: int) -> Generator[Expr]:
        """A fully unrolled loop over vectors of ``width`` registers; yields the first register of vector ``v``."""
        if width == 1:
            with self.registers(count):
                yield Sym(t.REGISTER)
            return
        self.line("#pragma unroll")
        bounds: dict[str, Interval] = {LOOP + "v": (0, count // width - 1), t.REGISTER: (0, count - 1)}
        with self.braces(f"for (int v = 0; v < {count // width}; ++v)"), self.binding(bounds):
            self.line(f"const int r = v * {width};")
            yield Sym(LOOP + "v") * width

    # -- memory ---------------------------------------------------------------------------------------------------
    def shared(self, op: t.Shared) -> None:
        dtype, count = op.buffer.type.dtype.dtype, op.buffer.type.count.data
        storage = Storage(dtype, 1)
        if op.offset is not None:
            self.asynchronous.shared(op, storage.memory, self.name(op.buffer, op.hint.data))
            return
        self.shared_bytes += -(-dtype.bytes * count // 16) * 16
        self.line(f"__shared__ __align__(16) {storage.memory} {self.name(op.buffer, op.hint.data)}[{count}];")

    def address(self, tensor: SSAValue, coords: Sequence[Expr], symbol: str) -> str:
        terms: list[str] = []
        for i, coord in enumerate(coords):
            stride = self.constants.get(f"{symbol}.stride{i}", Sym(f"{symbol}.stride{i}"))
            if stride == Const(0) or coord == Const(0):
                continue
            if stride == Const(1):
                terms.append(self.c(coord))
            else:
                terms.append(f"{self.c(coord)}*{self.c(stride)}")
        offset = " + ".join(terms) or "0"
        return f"{self.names[tensor]} + ({offset})"

    def global_access(self, op: t.Load | t.Store | t.ReduceAdd) -> None:
        self.access_elements(op, Const(0), self.storages[op.buffer].count)

    def access_elements(self, op: t.Load | t.Store | t.ReduceAdd, first: Expr, count: int) -> None:
        """The access for ``count`` registers from ``first``, in vectors where the guard holds for all of one."""
        width = op.vector.data
        guard = op.guard.expr
        last = guard.substitute({t.REGISTER: Sym(t.REGISTER) + (width - 1)})
        whole = guard if width == 1 else all_of([guard, last])
        with self.binding({t.REGISTER: (0, self.storages[op.buffer].count - 1)}):
            free = guard in self.assumed or self.holds(whole)
        if isinstance(op, t.Load) and width == 1 and self.storages[op.buffer].packed:
            self._load_elements(op, first, count, free=free)
            return
        if isinstance(op, t.Load):
            self._load(op, first, count, TRUE if free else whole)
            return
        with self.unrolled("v", count // width) as step:
            register = first + step * width
            self._place(op, register)
            here = whole.substitute({t.REGISTER: register})
            with self.braces("" if free or self.holds(here) else f"if ({self.c(here)})"):
                self._write(op)
            if width > 1 and not free and not self.holds(here):
                with self.braces("else"):
                    self._elements(op, register)

    def _place(self, op: t.Load | t.Store | t.ReduceAdd, register: Expr, safe: str = "") -> None:
        """Declares the register and the address of one vector; ``safe`` is a condition for going there at all."""
        coords = [c.expr.substitute({t.REGISTER: register}) for c in op.coords]
        memory = self.storages[op.buffer].memory
        const = "const " if isinstance(op, t.Load) else ""
        address = self.address(op.tensor, coords, self.symbols[op.tensor])
        if safe:
            address = f"{safe} ? {address} : {self.names[op.tensor]}"
        self.line(f"{'constexpr' if register.constant is not None else 'const'} int r = {self.c(register)};")
        self.line(f"{const}{memory}* at = {address};")

    def _load(self, op: t.Load, first: Expr, count: int, whole: Expr) -> None:
        """Vectors that are not wholly in the domain come from the tensor's first element, so that no load waits for a
        branch, and are mended when all are in flight; of a long row each at once, lest its addresses take more
        registers than the row."""
        guard, width = op.guard.expr, op.vector.data
        live = TRUE if whole == TRUE else op.live.expr
        together = whole == TRUE or count <= _BATCHED_WORDS * self.storages[op.buffer].per_word

        def load(base: Expr, part: int) -> None:
            here = TRUE if guard in self.assumed else whole
            with self.unrolled("v", part // width) as step:
                self._load_vector(op, base + step * width, here)
                if not together and here != TRUE:
                    self._mend(op, base + step * width, here)

        def mend(base: Expr, part: int) -> None:
            if guard not in self.assumed:
                with self.unrolled("v", part // width) as step:
                    self._mend(op, base + step * width, whole)

        self.parts(live, [guard], first, count, load, width)
        if together and whole != TRUE:
            self.parts(live, [guard], first, count, mend, width)

    def _load_elements(self, op: t.Load, first: Expr, count: int, *, free: bool) -> None:
        """Single narrow elements: all loads first, then they are packed, so that none waits for the one before."""
        storage, buffer, guard = self.storages[op.buffer], self.names[op.buffer], op.guard.expr
        few = _BATCHED_WORDS // 2
        batch = count if count <= 2 * _BATCHED_WORDS or count % few else few
        with self.unrolled("b", count // batch) as block:
            start = first + block * batch
            self.line(f"{storage.memory} raw[{batch}];")

            def emit(base: Expr, part: int) -> None:
                with self.unrolled("v", part) as step:
                    here = guard.substitute({t.REGISTER: base + step})
                    place = f"raw[{self.c(base + step - start)}]"
                    if free or guard in self.assumed or self.holds(here):
                        self._place(op, base + step)
                        self.line(f"{place} = at[0];")
                        return
                    self.line(f"{place} = 0;")
                    with self.braces(f"if ({self.c(here)})"):
                        self._place(op, base + step)
                        self.line(f"{place} = at[0];")

            self.parts(TRUE if free else op.live.expr, [guard], start, batch, emit)
            with self.unrolled("v", batch) as step:
                self.line(storage.put_bits(buffer, self.c(start + step), f"raw[{self.c(step)}]"))

    def _load_vector(self, op: t.Load, register: Expr, whole: Expr) -> None:
        here = whole.substitute({t.REGISTER: register})
        with self.braces(""):
            self._place(op, register, "" if self.holds(here) else self.c(here))
            for line in self.storages[op.buffer].vector_load(self.names[op.buffer], "r", op.vector.data, "at"):
                self.line(line)

    def _mend(self, op: t.Load, register: Expr, whole: Expr) -> None:
        """A vector that is not wholly in the domain: element by element, 0 outside."""
        storage, buffer = self.storages[op.buffer], self.names[op.buffer]
        here = whole.substitute({t.REGISTER: register})
        with self.braces(f"if (!{self.c(here)})"):
            if op.vector.data > 1:
                self._place(op, register)
                self._elements(op, register)
            else:
                self.line(storage.clear(buffer, self.c(register), 1))

    def _write(self, op: t.Store | t.ReduceAdd) -> None:
        storage, buffer, width = self.storages[op.buffer], self.names[op.buffer], op.vector.data
        if isinstance(op, t.Store):
            for line in storage.vector_store(buffer, "r", width, "at"):
                self.line(line)
            return
        for e in range(width):
            self.line(f"{storage.atomic_add(f'at + {e}', buffer, f'(r + {e})')};")

    def _elements(self, op: t.Load | t.Store | t.ReduceAdd, register: Expr) -> None:
        """A vector at the edge of the domain, element by element."""
        storage, buffer, width = self.storages[op.buffer], self.names[op.buffer], op.vector.data
        if isinstance(op, t.Load):
            self.line(storage.clear(buffer, "r", width))
        name = f"{self.symbols[op.tensor]}.stride{op.axis.data}"
        stride = self.constants.get(name, Sym(name))
        with self.unrolled("e", width) as e:
            guard = op.guard.expr.substitute({t.REGISTER: register + e})
            index, place = self.c(Sym(t.REGISTER) + e), f"at[{self.c(e * stride)}]"
            with self.braces(f"if ({self.c(guard)})"):
                match op:
                    case t.Load():
                        self.line(storage.put_bits(buffer, index, place))
                    case t.Store():
                        self.line(f"{place} = {storage.bits(buffer, index)};")
                    case t.ReduceAdd():
                        self.line(f"{storage.atomic_add(f'&{place}', buffer, index)};")

    def shared_access(self, op: t.SharedWrite | t.SharedRead) -> None:
        storage, buffer, shared = self.storages[op.buffer], self.names[op.buffer], self.names[op.shared]
        width = op.vector.data
        with self.vectors(storage.count, width) as register:
            guard = op.guard.expr.substitute({t.REGISTER: register})
            offset = self.c(op.offset.expr.substitute({t.REGISTER: register}))
            with self.braces("" if self.holds(guard) else f"if ({self.c(guard)})"):
                self.line(f"{storage.memory}* at = {shared} + {offset};")
                if width > 1:
                    move = storage.vector_load if isinstance(op, t.SharedRead) else storage.vector_store
                    for line in move(buffer, "r", width, "at"):
                        self.line(line)
                elif isinstance(op, t.SharedRead):
                    self.line(storage.put_bits(buffer, "r", "at[0]"))
                else:
                    self.line(f"at[0] = {storage.bits(buffer, 'r')};")

    # -- arithmetic -----------------------------------------------------------------------------------------------
    def map(self, op: t.Map) -> None:
        self.map_elements(op, Const(0), op.count.data)

    def map_elements(self, op: t.Map, first: Expr, count: int) -> None:
        """The map for ``count`` registers from ``first``; pairs of 16-bit floats are converted and packed at once."""
        outputs = [(self.storages[o], self.names[o]) for o in op.outputs]
        pack = max((s.per_word for s, _ in outputs if s.packs_pairs), default=1)
        if count % pack:
            pack = 1

        def emit(base: Expr, part: int) -> None:
            width = pack if part % pack == 0 else 1
            with self.unrolled("i", part // width) as step:
                self._map_pack(op, base + step * width, width, outputs)

        self.parts(op.live.expr, _predicates(op), first, count, emit)

    def _map_pack(self, op: t.Map, start: Expr, pack: int, outputs: Sequence[tuple[Storage, str]]) -> None:
        if pack == 1:
            for (storage, buffer), value in zip(outputs, self._body(op, start), strict=True):
                self.line(storage.put(buffer, self.c(start), value.raw))
            return
        for j, (storage, _) in enumerate(outputs):
            self.line(f"{storage.compute} out{j}[{pack}];")
        with self.unrolled("u", pack) as part:
            for j, value in enumerate(self._body(op, start + part)):
                self.line(f"out{j}[u] = {value.raw};")
        for j, (storage, buffer) in enumerate(outputs):
            for line in storage.put_packed(buffer, self.c(start), f"out{j}", pack):
                self.line(line)

    def parts(
        self,
        live: Expr,
        conditions: Sequence[Expr],
        first: Expr,
        count: int,
        emit: Callable[[Expr, int], None],
        width: int = 1,
    ) -> None:
        """Writes ``emit(first register, length)`` for parts of ``count`` registers, skipping those that are not live.

        A part that lies in the domain for all threads, as a uniform test finds, is written without ``conditions``.
        Parts are whole vectors of ``width`` registers; nothing is skipped where liveness could change inside one.
        """
        if self.holds(live) or not self._uniform(live, first, width):
            emit(first, count)
            return
        part = 1 << (count.bit_length() - 1)
        while part > width and not (count % part == 0 and self._uniform(live, first, part)):
            part //= 2
        with self.unrolled("g", count // part) as step:
            base = first + step * part
            alive = self.c(live.substitute({t.REGISTER: base}))
            inside = self._inside(conditions, base, part)
            if inside is not None:
                with self.braces(f"if ({self.c(inside)})"):
                    outer, self.assumed = self.assumed, self.assumed | frozenset(conditions)
                    emit(base, part)
                    self.assumed = outer
            with self.braces(f"{'else ' if inside is not None else ''}if ({alive})"):
                emit(base, part)

    def _inside(self, conditions: Sequence[Expr], base: Expr, part: int) -> Expr | None:
        """A uniform predicate under which all conditions hold for every thread and the registers from ``base``."""
        bounds: dict[str, Interval] = {**self.bounds, LOOP + "i": (0, part - 1)}
        found: list[Expr] = []
        for condition in conditions:
            for atom in condition.args if isinstance(condition, All) else (condition,):
                if not isinstance(atom, Compare) or atom.op not in ("<", "<="):
                    return None
                gap = (atom.rhs - atom.lhs).substitute({**self.constants, t.REGISTER: base + Sym(LOOP + "i")})
                least = _least(simplify(gap, bounds), {t.THREAD, LOOP + "i"}, bounds)
                if least is None:
                    return None
                found.append(least > 0 if atom.op == "<" else least >= 0)
        return all_of(found) if found else None

    def _uniform(self, live: Expr, first: Expr, part: int) -> bool:
        """``live`` does not change over ``part`` registers from any multiple of ``part`` after ``first``."""
        if part == 1:
            return True
        bounds: dict[str, Interval] = {**self.bounds, LOOP + "g": (0, None), LOOP + "i": (0, part - 1)}
        inner = simplify(live.substitute({t.REGISTER: first + Sym(LOOP + "g") * part + Sym(LOOP + "i")}), bounds)
        return LOOP + "i" not in inner.symbols

    @contextmanager
    def unrolled(self, name: str, count: int) -> Generator[Expr]:
        """A fully unrolled loop of ``count`` steps; none for one step."""
        if count == 1:
            with self.braces(""):
                yield Const(0)
            return
        self.line("#pragma unroll")
        bounds: dict[str, Interval] = {LOOP + name: (0, count - 1)}
        with self.braces(f"for (int {name} = 0; {name} < {count}; ++{name})"), self.binding(bounds):
            yield Sym(LOOP + name)

    def _body(self, op: t.Map, register: Expr) -> list[Scalar]:
        """The map's body at one register; returns the results."""

        def integer(node: Expr) -> str:
            return "true" if node in self.assumed else self.c(node.substitute({t.REGISTER: register}))

        inputs: dict[SSAValue, tuple[Storage, str, str]] = {}
        for arg, buffer, read in zip(op.body.block.args, op.inputs, op.reads, strict=True):
            inputs[arg] = (self.storages[buffer], self.names[buffer], integer(read.expr))
        own = [a for a, read in zip(op.body.block.args, op.reads, strict=True) if read.expr == Sym(t.REGISTER)]
        scalars: dict[SSAValue, str] = {v: self.names[v] for v in self.symbols if not isinstance(v.type, TensorType)}
        fast = self.kernel.numerics.data == "fast"
        return emit_scalar_body(op.body.block, inputs, scalars, integer, self.line, own=own, fast=fast)

    def fold(self, op: t.Fold) -> None:
        sources = [(self.storages[s], self.names[s]) for s in op.sources]

        def emit(base: Expr, part: int) -> None:
            with self.unrolled("i", part) as step:
                index = self.c(base + step)
                self._fold_step(op, [storage.get(name, index) for storage, name in sources], base + step)

        self.parts(op.live.expr, [], Const(0), sources[0][0].count, emit)

    def _fold_step(self, op: t.Fold, values: Sequence[str], register: Expr) -> None:
        targets = [(self.storages[s], self.names[s]) for s in op.targets]
        for line in fold_step(op.fn.data, values, targets, self.c(op.into.expr.substitute({t.REGISTER: register}))):
            self.line(line)

    def map_and_fold(self, op: t.Map, fold: t.Fold) -> None:
        """A map whose values only a fold reads: in one loop, so that a long row never exists unpacked."""

        def emit(base: Expr, part: int) -> None:
            with self.unrolled("i", part) as step:
                results = dict(zip(op.outputs, self._body(op, base + step), strict=True))
                for output, value in results.items():
                    if output not in fold.sources:
                        self.line(self.storages[output].put(self.names[output], self.c(base + step), value.raw))
                self._fold_step(fold, [results[s].value for s in fold.sources], base + step)

        self.parts(op.live.expr, _predicates(op), Const(0), op.count.data, emit)

    def map_and_store(self, op: t.Map, store: t.Store) -> None:
        """Computes a vector at a time and stores it; loads that only this map reads are made on the way."""
        storage = self.storages[store.buffer]
        users = (u.operation for v in dict.fromkeys(op.inputs) for u in v.uses)
        loads = [u for u in users if isinstance(u, t.Load) and u in self.late]
        width = max(store.vector.data, storage.per_word, *(load.vector.data for load in loads), 1)
        if op.count.data % width:
            width = op.count.data
        for load in loads:
            self.comment(load)

        def emit(base: Expr, part: int) -> None:
            step = width if part % width == 0 else part
            with self.unrolled("b", part // step) as block:
                for access in loads:
                    self.access_elements(access, base + block * step, step)
                self.map_elements(op, base + block * step, step)
                self.access_elements(store, base + block * step, step)

        conditions = dict.fromkeys([*_predicates(op), *(a.guard.expr for a in (*loads, store))])
        whole = self.holds(op.live.expr) or not self._uniform(op.live.expr, Const(0), width)
        self.parts(TRUE if whole else op.live.expr, list(conditions), Const(0), op.count.data, emit)

    def pin(self, value: SSAValue) -> None:
        storage, buffer = self.storages[value], self.names[value]
        words = -(-storage.count // storage.per_word)
        kind = "r" if storage.packed or storage.dtype.is_int else "f"
        with self.registers(words):
            self.line(f'asm volatile("" : "+{kind}"({buffer}[r]));')

    def shuffle(self, op: t.Shuffle) -> None:
        buffers = [(self.storages[b], self.names[b]) for b in op.buffers]
        with self.registers(buffers[0][0].count):
            for distance in op.distances:
                for line in shuffle_step(op.fn.data, buffers, distance.data):
                    self.line(line)

    def print(self, op: t.Print) -> None:
        values = [self.storages[b] for b in op.buffers]
        with self.registers(op.count.data), self.braces(f"if ({self.c(op.guard.expr)})"):
            args = [
                self.storages[b].printable(self.storages[b].get(self.names[b], self.c(i.expr)))
                for b, i in zip(op.buffers, op.indices, strict=True)
            ]
            formats = iter([s.print_format for s in values])
            text = op.format.data.replace("%", "%%")
            while "{}" in text:
                text = text.replace("{}", next(formats), 1)
            escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            self.line(f'printf("{escaped}\\n"{"".join(", " + a for a in args)});')


def _predicates(op: t.Map) -> list[Expr]:
    """The predicates that a map's body tests."""
    return list(dict.fromkeys(o.expr.expr for o in op.body.block.ops if isinstance(o, t.Predicate)))


def _least(node: Expr, varying: set[str], bounds: Mapping[str, Interval]) -> Expr | None:
    """A lower bound of ``node`` over the varying symbols, in the others; None if a term mixes both."""
    terms = node.terms if isinstance(node, Sum) else ((node, 1),)
    total: Expr = Const(node.offset if isinstance(node, Sum) else 0)
    for term, c in terms:
        if not term.symbols & varying:
            total = total + term * c
            continue
        if not term.symbols <= varying:
            return None
        low, high = interval(term, bounds)
        end = low if c > 0 else high
        if end is None:
            return None
        total = total + end * c
    return total


def _late_loads(ops: Sequence[Operation]) -> set[Operation]:
    """Loads after a reduction whose elements only one map reads, each where it computes: weights of a normalised row.

    They wait for the map's loop, which needs one vector of them at a time, not the whole row.
    """
    found: set[Operation] = set()
    reduced = False
    for op, following in zip(ops, [*ops[1:], None], strict=True):
        reduced |= isinstance(op, t.Fold | t.Shuffle)
        if not reduced or not isinstance(op, t.Map) or following is None or not isinstance(following, t.Store):
            continue
        if not _feeds_only(op, following):
            continue
        for value, read in zip(op.inputs, op.reads, strict=True):
            users = {use.operation for use in value.uses}
            load = next((u for u in users if isinstance(u, t.Load) and u in ops[: ops.index(op)]), None)
            if load is None or users != {load, op} or list(op.inputs).count(value) != 1:
                continue
            if read.expr == Sym(t.REGISTER) and _after_reduction(load, ops):
                found.add(load)
    return found


def _after_reduction(load: Operation, ops: Sequence[Operation]) -> bool:
    return any(isinstance(o, t.Fold | t.Shuffle) for o in ops[: ops.index(load)])


def _feeds_only(op: t.Map, reader: Operation) -> bool:
    """``reader`` is a fold or a store of outputs of ``op`` that nothing else reads."""
    match reader:
        case t.Fold():
            sources = list(reader.sources)
        case t.Store():
            sources = [reader.buffer]
        case _:
            return False
    if isinstance(reader, t.Fold) and reader.live != op.live:
        return False
    return all(s in op.outputs and {use.operation for use in s.uses} == {op, reader} for s in sources)


def _below(extent: Expr) -> Interval:
    value = extent.constant
    return 0, None if value is None else value - 1


__all__ = ["Emitted", "Parameter", "emit_kernel"]
