"""Element-wise code, folds and shuffles: loops unrolled over registers, fused if nothing else reads a value."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.base.dtypes import e4m3, e5m2, f16
from tilewright.base.expr import TRUE, Const, Expr, Sym
from tilewright.codegen.accesses import AccessWriter
from tilewright.codegen.scalars import CScalar, emit_scalar_body, fold_step, shuffle_step
from tilewright.codegen.storage import Storage
from tilewright.tile import dialect as tile
from tilewright.tile.dialect import TensorType
from tilewright.tile.ops import ops_in
from tilewright.transport import dialect as t


class ElementWriter(AccessWriter):
    """Emits maps, folds, shuffles and prints."""

    late: set[Operation]
    """Loads that are made where their elements are used (``codegen.fusion``)."""

    def map(self, op: t.Map) -> None:
        self.map_elements(op, Const(0), op.count.data)

    def map_elements(self, op: t.Map, first: Expr, count: int) -> None:
        """The map for ``count`` registers from ``first``; pairs of 16-bit floats are converted and packed at once."""
        outputs = [(self.storages[o], self.names[o]) for o in op.outputs]
        pack = max((s.per_word for s, _ in outputs if s.packs_pairs), default=1)
        if count % pack or _in_order(op):
            pack = 1

        widened = self._widened(op) if pack == 2 else None

        def emit(base: Expr, part: int) -> None:
            width = pack if part % pack == 0 else 1
            with self.unrolled("i", part // width) as step:
                if widened is not None and width == pack:
                    start = base + step * width
                    word, half = self.c(start // widened.per_word), self.c(start % widened.per_word // 2)
                    pair = f"{widened.dtype.name}_pair({self.names[op.inputs[0]]}[{word}], {half})"
                    self.line(f"{outputs[0][1]}[{self.c(start // 2)}] = {pair};")
                else:
                    self._map_pack(op, base + step * width, width, outputs)

        self.parts(op.live.expr, _predicates(op), first, count, emit)

    def _widened(self, op: t.Map) -> Storage | None:
        """Where the 8-bit floats lie whose values as f16 are all that a map gives, each in its register's place."""
        ops = list(op.body.block.ops)
        whole = len(op.inputs) == len(op.outputs) == 1 and [r.expr for r in op.reads] == [Sym(t.REGISTER)]
        if not whole or len(ops) != 2 or not isinstance(ops[0], tile.Cast) or ops[0].dtype != f16:
            return None
        source = self.storages[op.inputs[0]]
        return source if source.dtype in (e4m3, e5m2) and source.packed and not source.count % 4 else None

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

    def _body(self, op: t.Map, register: Expr) -> list[CScalar]:
        """Emits the map's body for one register; returns the results."""

        def integer(node: Expr) -> str:
            return "true" if node in self.assumed else self.c(node.substitute({t.REGISTER: register}))

        inputs: dict[SSAValue, tuple[Storage, str, str]] = {}
        for arg, buffer, read in zip(op.body.block.args, op.inputs, op.reads, strict=True):
            inputs[arg] = (self.storages[buffer], self.names[buffer], integer(read.expr))
        scalars: dict[SSAValue, str] = {v: self.names[v] for v in self.symbols if not isinstance(v.type, TensorType)}
        return emit_scalar_body(op.body.block, inputs, scalars, integer, self.line)

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
        """Emits a map whose values only a fold reads in the fold's loop, so that a long row is never held unpacked."""

        def emit(base: Expr, part: int) -> None:
            with self.unrolled("i", part) as step:
                results = dict(zip(op.outputs, self._body(op, base + step), strict=True))
                for output, value in results.items():
                    if output not in fold.sources:
                        self.line(self.storages[output].put(self.names[output], self.c(base + step), value.raw))
                self._fold_step(fold, [results[s].value for s in fold.sources], base + step)

        self.parts(op.live.expr, _predicates(op), Const(0), op.count.data, emit)

    def map_and_store(self, op: t.Map, store: t.Store) -> None:
        """Computes and stores one vector at a time; loads that only this map reads are issued in the same loop."""
        storage = self.storages[store.buffer]
        users = (u.operation for v in dict.fromkeys(op.inputs) for u in v.uses)
        loads = [u for u in users if isinstance(u, t.Load) and u in self.late and u.buffer in op.inputs]
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

        guards = (access.guard.expr for access in (*loads, store) if not access.indices)  # of indices nothing is known
        conditions = dict.fromkeys([*_predicates(op), *guards])
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

    def print(self, op: t.Print | t.Trap) -> None:
        """A trap prints where its first buffer is true, with the user's line, and ends the launch."""
        traps, guard = isinstance(op, t.Trap), self.c(op.guard.expr)
        storages = [self.storages[b] for b in op.buffers]
        places = zip(storages, op.buffers, op.indices, strict=True)
        values = [storage.get(self.names[b], self.c(i.expr)) for storage, b, i in places]
        if traps:
            guard = f"({guard}) && {values[0]}"
            storages, values = storages[1:], values[1:]
        with self.registers(op.count.data), self.braces(f"if ({guard})"):
            args = [storage.printable(value) for storage, value in zip(storages, values, strict=True)]
            formats = iter([storage.print_format for storage in storages])
            text = op.format.data.replace("%", "%%")
            while "{}" in text:
                text = text.replace("{}", next(formats), 1)
            if traps:
                place = self.kernel.sym_name.data if op.loc is None else op.loc.data
                text = f"tilewright: {text} ({place.replace('%', '%%')})"
            escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            self.line(f'printf("{escaped}\\n"{"".join(", " + a for a in args)});')
            if traps:
                self.line('asm volatile("trap;");')


def _in_order(op: t.Map) -> bool:
    """True if some register of the map reads a register that another iteration of the map has written."""
    return any(b in op.outputs and read.expr != Sym(t.REGISTER) for b, read in zip(op.inputs, op.reads, strict=True))


def _predicates(op: t.Map) -> list[Expr]:
    """The predicates that a map's body tests."""
    return list(dict.fromkeys(o.expr.expr for o in ops_in(op.body.block) if isinstance(o, t.Predicate)))
