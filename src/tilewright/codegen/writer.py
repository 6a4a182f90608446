"""The base of all emitters: lines and braces, names, integer expressions as C, loops unrolled over registers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import (
    OWN,
    TRUE,
    All,
    Compare,
    Const,
    Expr,
    Interval,
    Mod,
    Sum,
    Sym,
    all_of,
    conjuncts,
    interval,
    simplify,
)
from tilewright.codegen.c_expr import INT, LONG, c_expr, c_int, local
from tilewright.codegen.storage import Storage
from tilewright.tile.dialect import TensorType, TileType
from tilewright.transport import dialect as t

_INDENT = "  "


class Writer:
    """The text of one kernel; holds the names of buffers and the bounds of symbols."""

    def __init__(self, kernel: t.Kernel):
        self.kernel = kernel
        self.lines: list[str] = []
        self.depth = 1
        self.bounds: dict[str, Interval] = {t.THREAD: (0, kernel.threads.data - 1)}
        self.constants: dict[str, Expr] = {}
        self.storages: dict[SSAValue, Storage] = {}
        self.names: dict[SSAValue, str] = {}
        self.taken: set[str] = set()
        self.symbols: dict[SSAValue, str] = dict(
            zip(kernel.body.block.args, (n.data for n in kernel.arg_names), strict=True)
        )
        self.addresses: dict[str, None] = {}  # tensors of whose address something is asked
        self.bases: dict[str, str] = {}  # declarations of places that can be read in any case, by name
        self.used: dict[str, None] = {}  # integer parameters in order of first use
        self.bound: set[str] = {t.THREAD, t.REGISTER}
        self._simple: dict[Expr, Expr] = {}  # what was simplified under the present bounds
        self._texts: dict[Expr, str] = {}  # what was written under them
        self.aligned: dict[str, int] = {}  # bytes that divide a tensor's address
        self.assumed: frozenset[Expr] = frozenset()  # conditions that hold where the code being written runs
        for arg, name in self.symbols.items():
            self._bound(arg.type, name)
        for assumption in kernel.assumptions:
            self._assume(assumption.expr)

    def _bound(self, kind: Attribute, name: str) -> None:
        """The bounds of an argument's symbols over all launches. Of an address, only the low bits count."""
        if not isinstance(kind, TensorType):
            dtype = kind.dtype.dtype if isinstance(kind, TileType) else None
            self.bounds[name] = dtype.integers if dtype is not None and dtype.is_int else INT
            return
        self.bounds[f"{name}.address"] = (0, INT[1])
        wide = self.kernel.index_bits.data == 64
        for axis, dim in enumerate(kind.dims):
            self.bounds[f"{name}.stride{axis}"] = LONG if wide else INT
            self.bounds |= dict.fromkeys(dim.expr.symbols, (0, MAX_EXTENT))

    def _assume(self, fact: Expr) -> None:
        """A symbol that the specialisation class fixes is printed as its value; alignments and bounds are kept."""
        if isinstance(fact, Compare) and fact.op in ("<", "<="):
            strict = fact.op == "<"
            for side, other, sign in ((fact.lhs, fact.rhs, 1), (fact.rhs, fact.lhs, -1)):
                if isinstance(side, Sym) and other.constant is not None and side.name in self.bounds:
                    low, high = self.bounds[side.name]
                    end = other.constant - sign * strict
                    self.bounds[side.name] = (low, _lesser(high, end)) if sign > 0 else (_greater(low, end), high)
        if isinstance(fact, Compare) and fact.op == "==":
            for side, other in ((fact.lhs, fact.rhs), (fact.rhs, fact.lhs)):
                if isinstance(side, Sym) and other.constant is not None:
                    self.constants[side.name] = other
                if isinstance(side, Mod) and isinstance(side.numerator, Sym) and other == Const(0):
                    self.aligned[side.numerator.name.removesuffix(".address")] = side.denominator.constant or 1

    def line(self, text: str) -> None:
        self.lines.append(_INDENT * self.depth + text if text else "")

    @contextmanager
    def braces(self, head: str) -> Generator[None]:
        self.line(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def comment(self, op: Operation) -> None:
        words = [a.data for a in (op.note, op.loc) if a is not None] if isinstance(op, t.TransportOp) else []
        if words:
            printable = (
                c if c.isprintable() else " " for c in "  ".join(words)
            )  # a file's name may have any character
            self.line(f"// {''.join(printable)}")

    def name(self, value: SSAValue, hint: str) -> str:
        """A name of its own for a buffer, after what the program calls it."""
        base = f"v_{hint.replace(OWN, '_')}"  # of a tensor in a workspace
        name, n = base, 1
        while name in self.taken:
            name, n = f"{base}_{n}", n + 1
        self.taken.add(name)
        self.names[value] = name
        return name

    def c(self, node: Expr) -> str:
        return self.text(self.simplified(node))

    def c_int(self, node: Expr) -> str:
        """``node`` as an ``int``: of a value that does not fit the low bits."""
        simple = self.simplified(node)
        self.text(simple)
        return c_int(simple, self.bounds)

    def simplified(self, node: Expr) -> Expr:
        """``node`` as it is written: constants in place, and what the bounds decide."""
        found = self._simple.get(node)
        if found is None:
            found = self._simple[node] = simplify(node.substitute(self.constants), self.bounds)
        return found

    def text(self, node: Expr) -> str:
        """A simplified node as C; the parameters that it needs are noted."""
        found = self._texts.get(node)
        if found is None:
            for symbol in sorted(node.symbols - self.bound):
                (self.addresses if symbol.endswith(".address") else self.used).setdefault(symbol)
            found = self._texts[node] = c_expr(node, self.bounds)
        return found

    def holds(self, guard: Expr) -> bool:
        return self.simplified(guard) == TRUE

    @contextmanager
    def binding(self, symbols: Mapping[str, Interval]) -> Generator[None]:
        saved = self.bounds, self.bound, self._simple, self._texts
        self.bounds, self.bound = {**self.bounds, **symbols}, self.bound | symbols.keys()
        if symbols:
            self._simple, self._texts = {}, {}
        yield
        self.bounds, self.bound, self._simple, self._texts = saved

    def declare(self, symbol: str, bounds: Interval) -> None:
        """A name that the lines have from here on, to the end of what is bound around it."""
        self.bounds[symbol] = bounds
        self.bound.add(symbol)
        self._simple, self._texts = {}, {}

    @contextmanager
    def unrolled(self, name: str, count: int) -> Generator[Expr]:
        """A fully unrolled loop of ``count`` steps; none for one step."""
        if count == 1:
            with self.braces(""):
                yield Const(0)
            return
        self.line("#pragma unroll")
        bounds: dict[str, Interval] = {local(name).name: (0, count - 1)}
        with self.braces(f"for (int {name} = 0; {name} < {count}; ++{name})"), self.binding(bounds):
            yield local(name)

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
        bounds: dict[str, Interval] = {local("v").name: (0, count // width - 1), t.REGISTER: (0, count - 1)}
        with self.braces(f"for (int v = 0; v < {count // width}; ++v)"), self.binding(bounds):
            self.line(f"const int r = v * {width};")
            yield local("v") * width

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

        A live part that lies in the domain for all threads, as a uniform test finds, is written without ``conditions``.
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
            here = live.substitute({t.REGISTER: base})
            alive, inside = self.c(here), self._inside(conditions, base, part)
            if inside is not None:
                open_ = [
                    atom for atom in conjuncts(here) if not any(_implies(known, atom) for known in conjuncts(inside))
                ]
                with self.braces(f"if ({self.c(all_of([inside, *open_]))})"):
                    outer, self.assumed = self.assumed, self.assumed | frozenset(conditions)
                    emit(base, part)
                    self.assumed = outer
            with self.braces(f"{'else ' if inside is not None else ''}if ({alive})"):
                emit(base, part)

    def _inside(self, conditions: Sequence[Expr], base: Expr, part: int) -> Expr | None:
        """A uniform predicate under which all conditions hold for every thread and the registers from ``base``."""
        step = local("i")
        bounds: dict[str, Interval] = {**self.bounds, step.name: (0, part - 1)}
        found: list[Expr] = []
        for condition in conditions:
            for atom in condition.args if isinstance(condition, All) else (condition,):
                if not isinstance(atom, Compare) or atom.op not in ("<", "<="):
                    return None
                gap = (atom.rhs - atom.lhs).substitute({**self.constants, t.REGISTER: base + step})
                least = _least(simplify(gap, bounds), {t.THREAD, step.name}, bounds)
                if least is None:
                    return None
                found.append(least > 0 if atom.op == "<" else least >= 0)
        return all_of(found) if found else None

    def _uniform(self, live: Expr, first: Expr, part: int) -> bool:
        """``live`` does not change over ``part`` registers from any multiple of ``part`` after ``first``."""
        if part == 1:
            return True
        block, step = local("g"), local("i")
        bounds: dict[str, Interval] = {**self.bounds, block.name: (0, None), step.name: (0, part - 1)}
        inner = simplify(live.substitute({t.REGISTER: first + block * part + step}), bounds)
        return step.name not in inner.symbols


def _implies(known: Expr, atom: Expr) -> bool:
    """True if the comparison ``atom`` follows from ``known``: its right side exceeds its left by at least as much."""
    if not isinstance(known, Compare) or not isinstance(atom, Compare) or (known.op, atom.op) != ("<", "<"):
        return False
    slack = ((atom.rhs - atom.lhs) - (known.rhs - known.lhs)).constant
    return slack is not None and slack >= 0


def _lesser(a: int | None, b: int) -> int:
    return b if a is None else min(a, b)


def _greater(a: int | None, b: int) -> int:
    return b if a is None else max(a, b)


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
