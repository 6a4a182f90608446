"""Global and shared memory: vectors where a guard holds for all of one, single elements at the edges."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from tilewright.base.expr import TRUE, Compare, Const, Expr, Interval, Sym, all_of, any_of, conjuncts
from tilewright.codegen.c_expr import c_type, identifier, local
from tilewright.codegen.writer import Writer
from tilewright.lang.enums import AtomicFn
from tilewright.tile.dialect import index_symbol
from tilewright.tile.ops import tensor_type
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import registers_of

_BATCHED_WORDS = 32
"""Registers of a guarded load up to which all its vectors are issued before the first result is used (H200, sums of
4000 columns: the edge tile of 32 took 169 us with one load at a time, and 66 us so)."""


def _is_bound(op: t.SharedWrite | t.SharedRead) -> bool:
    """True if the integer is used as a coordinate or a loop bound. It is loaded from memory even by the thread that
    stored it: without a compiler barrier NVRTC would forward the stored value, and the kernel's checks apply to the
    loaded one."""
    return isinstance(op, t.SharedRead) and any(isinstance(use.operation, t.Bind) for use in op.buffer.uses)


class AccessWriter(Writer):
    """Writes loads, stores, atomic additions, and moves between registers and shared memory."""

    def address(self, tensor: SSAValue, coords: Sequence[Expr], symbol: str, *, inside: bool = True) -> str:
        """The address of an element."""
        return f"{self.names[tensor]} + ({self.offset(coords, symbol, inside=inside)})"

    def offset(self, coords: Sequence[Expr], symbol: str, *, inside: bool = True) -> str:
        """The offset of an element from the tensor's first. ``inside`` the domain it is bounded by the size class;
        outside, where nothing is read, it may have any value."""
        wraps = "" if inside or self.kernel.index_bits.data == 64 else "(unsigned)"
        terms, multiplied = list[str](), False
        for i, coord in enumerate(coords):
            stride = self.constants.get(f"{symbol}.stride{i}", Sym(f"{symbol}.stride{i}"))
            if stride == Const(0) or coord == Const(0):
                continue
            if stride == Const(1):
                terms.append(self.c(coord))
            else:
                terms.append(f"{wraps}{self.c(coord)}*{self.c(stride)}")
                multiplied = True
        offset = " + ".join(terms) or "0"
        return f"(int)({offset})" if wraps and multiplied else offset  # else as wide as its coordinate

    def readable(self, op: t.Load) -> str:
        """An address from which a vector can be loaded in any case: the tensor's first element if the tensor is at
        least a vector long, else a few zero bytes that belong to no tensor."""
        name, width = self.names[op.tensor], op.vector.data
        least = [width if axis == op.axis.data else 1 for axis in range(len(op.coords))]
        dims = [d.expr for d in tensor_type(op.tensor).dims]
        enough = all_of(dim >= n for dim, n in zip(dims, least, strict=True))
        if self.holds(enough):
            return name
        base = f"base{width}{identifier(self.symbols[op.tensor]).removeprefix('u')}"
        memory = self.storages[op.buffer].memory
        self.bases[base] = f"const {memory}* {base} = {self.c(enough)} ? {name} : nothing({name});"
        return base

    def global_access(self, op: t.Load | t.Store | t.AtomicReduce) -> None:
        self.access_elements(op, Const(0), self.storages[op.buffer].count)

    def access_elements(self, op: t.Load | t.Store | t.AtomicReduce, first: Expr, count: int) -> None:
        """The access for ``count`` registers from ``first``, in vectors where the guard holds for all of one."""
        if isinstance(op, t.Load) and op.shifted is not None:
            return self._load_shifted(op, op.shifted, first, count)
        width = op.vector.data
        guard = op.guard.expr
        last = guard.substitute({t.REGISTER: Sym(t.REGISTER) + (width - 1)})
        whole = guard if width == 1 else all_of([guard, last])
        indices: dict[str, Interval] = {
            index_symbol(k): registers_of(index).dtype.dtype.integers for k, index in enumerate(op.indices)
        }
        with self.binding({t.REGISTER: (0, self.storages[op.buffer].count - 1), **indices}):
            free = guard in self.assumed or self.holds(whole)
        with self.binding(indices):
            return self._access_elements(op, first, count, whole, free=free)

    def _access_elements(
        self, op: t.Load | t.Store | t.AtomicReduce, first: Expr, count: int, whole: Expr, *, free: bool
    ) -> None:
        width = op.vector.data
        if isinstance(op, t.Load) and width == 1 and self.storages[op.buffer].packed:
            self._load_elements(op, first, count, free=free)
            return
        if isinstance(op, t.Load):
            self._load(op, first, count, TRUE if free else whole)
            return
        with self.unrolled("v", count // width) as step:
            register = first + step * width
            self.index_elements(op, register)
            here = TRUE if free else self.simplified(whole.substitute({t.REGISTER: register}))
            self._place(op, register, inside=here == TRUE)
            with self.braces("" if here == TRUE else f"if ({self.text(here)})"):
                self._write(op)
            if width > 1 and here != TRUE and not self._alike(op.guard.expr, width):
                with self.braces(f"else if ({self._touched(op.guard.expr, register, width)})"):
                    self._elements(op, register)

    def index_elements(self, op: t.Load | t.Store | t.AtomicReduce | a.ThreadCopies, register: Expr) -> None:
        """Declares the elements of the index buffers that belong to one vector."""
        for k, (index, read) in enumerate(zip(op.indices, op.reads, strict=True)):
            storage = self.storages[index]
            place = self.c(read.substitute({t.REGISTER: register}))
            value = storage.get(self.names[index], place)
            kind = c_type(storage.dtype.integers)
            self.line(f"const {kind} {identifier(index_symbol(k))} = {value};")

    def _place(
        self, op: t.Load | t.Store | t.AtomicReduce, register: Expr, safe: str = "", *, inside: bool = True
    ) -> None:
        """Declares the register and the address of one vector; ``safe`` is a condition for going there at all. One that
        is not surely ``inside`` the domain may begin outside, and then is not touched there."""
        coords = [c.expr.substitute({t.REGISTER: register}) for c in op.coords]
        memory = self.storages[op.buffer].memory
        const = "const " if isinstance(op, t.Load) else ""
        address = self.address(op.tensor, coords, self.symbols[op.tensor], inside=inside)
        if safe:
            assert isinstance(op, t.Load)
            offset = self.offset(coords, self.symbols[op.tensor], inside=False)
            address = f"{self.readable(op)} + ({safe} ? {offset} : 0)"
        self.line(f"{'constexpr' if register.constant is not None else 'const'} int r = {self.c(register)};")
        self.line(f"{const}{memory}* at = {address};")

    def _load(self, op: t.Load, first: Expr, count: int, whole: Expr) -> None:
        """Vectors that are not wholly in the domain come from the tensor's first elements, so that no load waits for a
        branch, and are mended when all are in flight; of a long row each at once, lest its addresses take more
        registers than the row. Where the tensor itself starts between boundaries, and at loaded coordinates, they are 0
        first; there most are wholly inside or not at all."""
        guard, width = op.guard.expr, op.vector.data
        uniform = [] if op.indices else [guard]
        live = TRUE if whole == TRUE else op.live.expr
        together = whole == TRUE or count <= _BATCHED_WORDS * self.storages[op.buffer].per_word

        def load(base: Expr, part: int) -> None:
            here = TRUE if guard in self.assumed else whole
            with self.unrolled("v", part // width) as step:
                self.index_elements(op, base + step * width)
                self._load_vector(op, base + step * width, here)
                if not together and here != TRUE and not (op.indices and self._alike(guard, width)):
                    self._mend(op, base + step * width, here)

        def mend(base: Expr, part: int) -> None:
            if guard not in self.assumed:
                with self.unrolled("v", part // width) as step:
                    self.index_elements(op, base + step * width)
                    self._mend(op, base + step * width, whole)

        self.parts(live, uniform, first, count, load, width)
        if together and whole != TRUE and not (op.indices and self._alike(guard, width)):
            self.parts(live, uniform, first, count, mend, width)

    def _alike(self, guard: Expr, width: int) -> bool:
        """True if a guard holds for all elements of a vector or for none."""
        vector, element = local("v"), local("e")
        with self.binding({vector.name: (0, None), element.name: (0, width - 1)}):
            return element.name not in self.simplified(guard.substitute({t.REGISTER: vector * width + element})).symbols

    def _touched(self, guard: Expr, register: Expr, width: int) -> str:
        """A condition that holds if any element of a vector is in the domain: the difference of a comparison's sides
        changes linearly along the vector, so the first or the last element decides."""
        vector, element = local("v"), local("e")
        inside = {t.REGISTER: vector * width + element}
        parts: list[Expr] = []
        with self.binding({vector.name: (0, None), element.name: (0, width - 2)}):
            for test in conjuncts(guard):
                if isinstance(test, Compare) and test.op in ("<", "<="):
                    gap = (test.rhs - test.lhs).substitute(inside)
                    step = self.simplified(gap.substitute({element.name: element + 1}) - gap)
                    parts += [test] if step.constant is not None else []
        ends = (register, register + (width - 1))
        return self.c(all_of(any_of(test.substitute({t.REGISTER: end}) for end in ends) for test in parts))

    def _load_elements(self, op: t.Load, first: Expr, count: int, *, free: bool) -> None:
        """Loads single narrow elements: all loads are issued first and the results packed afterwards, so that no load
        waits for the one before. Elements that are not live are packed with the others, so they need a value too."""
        storage, buffer, guard = self.storages[op.buffer], self.names[op.buffer], op.guard.expr
        live = TRUE if free else op.live.expr
        few = _BATCHED_WORDS // 2
        batch = count if count <= 2 * _BATCHED_WORDS or count % few else few
        with self.unrolled("b", count // batch) as block:
            start = first + block * batch
            self.line(f"{storage.memory} raw[{batch}]" + " = {}" * (live != TRUE) + ";")

            def emit(base: Expr, part: int) -> None:
                with self.unrolled("v", part) as step:
                    self.index_elements(op, base + step)
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

            self.parts(live, [] if op.indices else [guard], start, batch, emit)
            with self.unrolled("v", batch) as step:
                self.line(storage.put_bits(buffer, self.c(start + step), f"raw[{self.c(step)}]"))

    def _load_vector(self, op: t.Load, register: Expr, whole: Expr) -> None:
        here = whole.substitute({t.REGISTER: register})
        storage, buffer, width = self.storages[op.buffer], self.names[op.buffer], op.vector.data
        always = self.holds(here)
        near = not op.indices and (
            width == 1 or self.aligned.get(self.symbols[op.tensor], 1) >= width * storage.dtype.bytes
        )
        with self.braces(""):
            if always or near:
                self._place(op, register, "" if always else self.c(here))
                for line in storage.vector_load(buffer, "r", width, "at"):
                    self.line(line)
                return
            self._place(op, register, inside=False)
            self.line(storage.clear(buffer, "r", width))
            with self.braces(f"if ({self.c(here)})"):
                for line in storage.vector_load(buffer, "r", width, "at"):
                    self.line(line)

    def _mend(self, op: t.Load, register: Expr, whole: Expr) -> None:
        """Loads a vector that is not wholly in the domain element by element, with 0 outside."""
        storage, buffer, width = self.storages[op.buffer], self.names[op.buffer], op.vector.data
        here = whole.substitute({t.REGISTER: register})
        with self.braces(f"if (!{self.c(here)})"):
            self.line(storage.clear(buffer, self.c(register), width))
            if width > 1 and not self._alike(op.guard.expr, width):
                with self.braces(f"if ({self._touched(op.guard.expr, register, width)})"):
                    self._place(op, register, inside=False)
                    self._elements(op, register)

    def _load_shifted(self, op: t.Load, shift: str, first: Expr, count: int) -> None:
        """Loads misaligned vectors, each of which spans two aligned ones: where both are in the domain they are loaded
        and shifted, otherwise element by element."""
        storage, buffer, width, guard = self.storages[op.buffer], self.names[op.buffer], op.vector.data, op.guard.expr
        begin = guard.substitute({shift: Const(width)})
        end = guard.substitute({shift: Const(0), t.REGISTER: Sym(t.REGISTER) + (width - 1)})
        places = [c.expr.substitute({shift: Const(0)}) for c in op.coords]
        inside = guard in self.assumed

        def load(base: Expr, part: int) -> None:
            with self.unrolled("v", part // width) as step:
                register = base + step * width
                here = self.c(all_of([begin, end]).substitute({t.REGISTER: register}))
                self.line(f"const int r = {self.c(register)};")
                with self.braces(f"if ({here})"):
                    coords = [c.substitute({t.REGISTER: register}) for c in places]
                    at, by = self.address(op.tensor, coords, self.symbols[op.tensor]), self.c(Sym(shift))
                    value = f"shifted(reinterpret_cast<const uint4*>({at}), {by}, {storage.dtype.bytes})"
                    for line in storage.vector_read(buffer, "r", width, value):
                        self.line(line)
                with self.braces("else"):
                    self.line(storage.clear(buffer, "r", width))
                    touched = "" if inside else f"if ({self._touched(guard, register, width)})"
                    with self.braces(touched):
                        self._place(op, register, inside=inside)
                        self._elements(op, register)

        self.parts(TRUE if inside else op.live.expr, [], first, count, load, width)

    def _write(self, op: t.Store | t.AtomicReduce) -> None:
        storage, buffer, width = self.storages[op.buffer], self.names[op.buffer], op.vector.data
        if isinstance(op, t.Store):
            for line in storage.vector_store(buffer, "r", width, "at"):
                self.line(line)
            return
        vectors = op.fn.data is AtomicFn.ADD and self.kernel.target.compute_capability >= (9, 0)
        added = storage.vector_add("at", buffer, "r", width) if vectors else ""
        if added:
            self.line(added)
            return
        for e in range(width):
            self.line(f"{storage.atomic(op.fn.data, f'at + {e}', buffer, f'(r + {e})')};")

    def _elements(self, op: t.Load | t.Store | t.AtomicReduce, register: Expr) -> None:
        """Accesses a vector at the edge of the domain element by element; the other elements of a load are already 0.
        Narrow elements are packed once all loads are in flight: a branch between two of them would wait for the first
        (H200, norms of 4099 columns)."""
        storage, buffer, width = self.storages[op.buffer], self.names[op.buffer], op.vector.data
        name = f"{self.symbols[op.tensor]}.stride{op.axis.data}"
        stride = self.constants.get(name, Sym(name))
        packed = isinstance(op, t.Load) and storage.packed
        if packed:
            self.line(f"{storage.memory} raw[{width}] = {{}};")
        with self.unrolled("e", width) as e:
            guard = TRUE if op.guard.expr in self.assumed else op.guard.expr.substitute({t.REGISTER: register + e})
            index, place = self.c(Sym(t.REGISTER) + e), f"at[{self.c(e * stride)}]"
            with self.braces("" if guard == TRUE else f"if ({self.c(guard)})"):
                match op:
                    case t.Load():
                        self.line(f"raw[{self.c(e)}] = {place};" if packed else storage.put_bits(buffer, index, place))
                    case t.Store():
                        self.line(f"{place} = {storage.bits(buffer, index)};")
                    case t.AtomicReduce():
                        self.line(f"{storage.atomic(op.fn.data, f'&{place}', buffer, index)};")
        if packed:
            with self.unrolled("p", width) as part:
                self.line(storage.put_bits(buffer, self.c(Sym(t.REGISTER) + part), f"raw[{self.c(part)}]"))

    def shared_access(self, op: t.SharedWrite | t.SharedRead) -> None:
        storage, buffer, shared = self.storages[op.buffer], self.names[op.buffer], self.names[op.shared]
        width = op.vector.data
        with self.vectors(storage.count, width) as register:
            guard = op.guard.expr.substitute({t.REGISTER: register})
            offset = self.c(op.offset.expr.substitute({t.REGISTER: register}))
            with self.braces("" if self.holds(guard) else f"if ({self.c(guard)})"):
                if _is_bound(op):
                    self.line('asm volatile("" ::: "memory");')
                self.line(f"{storage.memory}* at = {shared} + {offset};")
                if width > 1:
                    move = storage.vector_load if isinstance(op, t.SharedRead) else storage.vector_store
                    for line in move(buffer, "r", width, "at"):
                        self.line(line)
                elif isinstance(op, t.SharedRead):
                    self.line(storage.put_bits(buffer, "r", "at[0]"))
                else:
                    self.line(f"at[0] = {storage.bits(buffer, 'r')};")

    def shared_count(self, op: t.SharedCount) -> None:
        storage, shared = self.storages[op.buffer], self.names[op.shared]
        count = t.shared_of(op.shared).count.data
        with self.unrolled("v", storage.count) as register:
            guard = op.guard.expr.substitute({t.REGISTER: register})
            self.line(f"const int at = {storage.get(self.names[op.buffer], self.c(register))};")
            inside = f"(unsigned)at < {count}u"
            with self.braces(f"if ({inside})" if self.holds(guard) else f"if ({self.c(guard)} && {inside})"):
                self.line(f"atomicAdd({shared} + at, 1);")
