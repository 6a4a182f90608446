"""Random kernels with gathers, choices, absent elements, scans, sorts, histograms and loaded bounds.

The body is written as it is drawn, and NumPy evaluates it on the way (``presence``): an opinion of its own, of which
every element is exact. Programs are over ``m``; ``n`` is an axis in one tile, a stream, or a stream between bounds that
each program loads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from random_programs import tree as t
from random_programs import values
from random_programs.evaluate import held
from random_programs.judge import Drawn
from random_programs.places import placed
from random_programs.presence import (
    INTEGERS,
    MOVED,
    NUMPY,
    Array,
    Value,
    compared,
    computed,
    converted,
    ends,
    ordered,
    reduced,
    scanned,
    wider,
)

OPERATIONS = ("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "max", "min")
TESTS = ("==", "!=", "<", "<=", ">", ">=")
BOTH = ("m", "n")
DIMS = {"m": "M", "n": "N"}


class Indexed:
    """One kernel while it is drawn; ``source``, ``arrays`` and ``expected`` are what became of it."""

    def __init__(self, seed: int):
        self.rng, self.numbers = Random(seed), np.random.default_rng(seed)
        rng = self.rng
        self.mode = rng.choice(("axis", "axis", "axis", "stream", "bounds"))
        self.single = self.mode == "bounds" or rng.random() < 0.25
        self.extents = {
            "M": rng.choice((0, 1, 2, 5, 7, 16, 17, rng.randint(1, 20), rng.randint(1, 20))),
            "N": rng.choice((0, 1, 2, 31, 32, 33, rng.randint(1, 40), rng.randint(1, 40))),
        }
        self.upto = rng.choice([size for size in (1, 2, 4, 8, 16, 32, 33, 64) if size >= self.extents["N"]])
        self.domain = np.ones((self.extents["M"], self.extents["N"]), bool)
        self.tensors: dict[str, t.Tensor] = {}
        self.arrays: dict[str, Array] = {}
        self.expected: dict[str, Array] = {}
        self.lines: list[str] = []
        self.indent = "    "
        self.kept: list[Value] = []
        self.count = self.absences = 0
        self._draw()
        self.source = self._source(f"k{seed}")

    # -- names, tensors -----------------------------------------------------------------------------------------------
    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def data(self, dtype: str, shape: Sequence[int]) -> Array:
        if dtype == "bool":
            return self.numbers.random(shape) < 0.5
        if dtype in MOVED:
            some = np.array([0, -0.0, 1, -1, 2, 3, -7, np.inf, -np.inf, np.nan, 0.5], np.float32)
            return self.numbers.choice(some, shape).astype(NUMPY[dtype])
        low, high = map(int, ends(dtype))
        kind = self.rng.choice(("small", "small", "places", "edges"))
        if kind == "edges":
            some = np.array([low, low + 1, -1, 0, 1, 2, 3, high - 1, high]).astype(INTEGERS[dtype])
            return self.numbers.choice(some, shape)
        most = max(self.extents.values()) + 3 if kind == "places" else 6
        return self.numbers.integers(-2 if kind == "places" else -5, most, shape).astype(INTEGERS[dtype])

    def tensor(self, dtype: str, dims: Sequence[str | int], array: Array, use: str = "in") -> str:
        name = self.name("y" if use != "in" else "x")
        self.tensors[name] = t.Tensor(name, dtype, tuple(dims), use)
        self.arrays[name] = np.asarray(array)
        return name

    def output(self, dtype: str, dims: Sequence[str | int], result: Array, use: str = "out") -> str:
        name = self.tensor(dtype, dims, self.data(dtype, np.shape(result)), use)
        self.expected[name] = np.asarray(result)
        return name

    def extra(self, sizes: Sequence[int]) -> tuple[str, int]:
        """A dimension of its own."""
        name, size = self.name("W"), self.rng.choice(sizes)
        self.extents[name] = size
        return name, size

    def fresh(self) -> int:
        self.absences += 1
        return self.absences

    # -- axes ---------------------------------------------------------------------------------------------------------
    def of_tile(self, axes: Sequence[str]) -> tuple[str, ...]:
        """Those that are axes of tiles."""
        return tuple(a for a in axes if not (a == "m" and self.single))

    def along(self, x: Value) -> int:
        """The position of n among the axes of the tile."""
        return self.of_tile(x.axes).index("n")

    def shape(self, axes: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.extents[DIMS[a]] for a in axes)

    def spread(self, x: Value, axes: tuple[str, ...]) -> Value:
        """The value over more axes."""
        if x.axes == axes:
            return x
        text = x.text
        if len(x.axes) == 1 and len(self.of_tile(axes)) == 2:
            text = f"({text})[:, None]" if x.axes == ("m",) else f"({text})[None, :]"
        place = tuple(slice(None) if a in x.axes else None for a in axes)
        array, here = (None if a is None else np.broadcast_to(a[place], self.shape(axes)) for a in (x.array, x.here))
        return Value(text, axes, x.dtype, array, here, x.absence)

    def together(self, *values: Value) -> list[Value]:
        """Over common axes, absent at the same places: all others are filled."""
        axes = tuple(a for a in BOTH if any(a in v.axes for v in values))
        absent = sorted({v.absence for v in values if v.absence is not None and v.axes == axes})
        kept = self.rng.choice(absent) if absent else None
        return [self.spread(v if v.absence == kept else self.filled(v), axes) for v in values]

    # -- expressions --------------------------------------------------------------------------------------------------
    def number(self, dtype: str) -> float | int | bool:
        if dtype == "bool":
            return self.rng.random() < 0.5
        return self.rng.choice((0.0, 1.0, -2.0, 0.5) if dtype in MOVED else self.whole(dtype))

    def whole(self, dtype: str) -> tuple[int, ...]:
        """Numbers that a dtype of integers has."""
        return (0, 1, 2, 3, 5, 100, 127, 255) if dtype[0] == "u" else (0, 1, -1, 2, 3, 5, -7, 100, 127)

    def filled(self, x: Value) -> Value:
        if x.absence is None:
            return x
        number = self.number(x.dtype)
        array = np.where(x.present, x.array, np.array(number, NUMPY[x.dtype])).astype(NUMPY[x.dtype])
        return Value(f"({x.text}).fill({number})", x.axes, x.dtype, array)

    def load(self, axes: tuple[str, ...], dtype: str) -> Value:
        order = axes[::-1] if self.rng.random() < 0.3 else axes
        array = self.data(dtype, self.shape(order))
        name = self.tensor(dtype, [DIMS[a] for a in order], array)
        text = f"{name}[{', '.join(order) or '()'}]"
        if order != axes and len(self.of_tile(axes)) == 2:
            text += ".T"
        return Value(text, axes, dtype, array.T if order != axes else array)

    def leaf(self, axes: tuple[str, ...], kind: str) -> Value:
        part = axes if self.rng.random() < 0.6 else tuple(a for a in axes if self.rng.random() < 0.6)
        if kind == "int" and self.of_tile(part) and self.rng.random() < 0.2:
            axis = self.rng.choice(self.of_tile(part))
            return Value(f"{axis}.index", (axis,), "i32", np.arange(self.extents[DIMS[axis]], dtype=np.int32))
        kinds = {"int": tuple(INTEGERS), "bool": ("bool",), "any": tuple(NUMPY)}[kind]
        known = [v for v in self.kept if set(v.axes) <= set(axes) and v.dtype in kinds]
        return self.rng.choice(known) if known and self.rng.random() < 0.5 else self.load(part, self.rng.choice(kinds))

    def drawn(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        """An expression of an integer, of a bool, or of any dtype."""
        if depth <= 0 or self.rng.random() < 0.12:
            return self.leaf(axes, kind)
        ways = {
            "bool": (("test", 5), ("present", 2), ("logic", 3)),
            "int": (
                ("operation", 4),
                ("cast", 1),
                ("gather", 3),
                ("choice", 2),
                ("reduction", 2),
                ("scan", 2),
                ("sort", 1),
            ),
            "any": (("gather", 3), ("choice", 2), ("sort", 1), ("reduction", 1), ("other", 4)),
        }[kind]
        way = self.rng.choices([w for w, _ in ways], [c for _, c in ways])[0]
        if way in ("reduction", "scan", "sort") and (self.mode != "axis" or "n" not in axes):
            way = "operation" if kind == "int" else "gather"
        return getattr(self, way)(axes, kind, depth - 1)

    def other(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        return self.drawn(axes, self.rng.choice(("int", "bool")), depth + 1)

    def operation(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        op, a = self.rng.choice(OPERATIONS), self.drawn(axes, "int", depth)
        if self.rng.random() < 0.3:
            number = self.number(a.dtype)
            b = Value(str(number), (), a.dtype, np.array(number, NUMPY[a.dtype]))
        else:
            b = self.drawn(axes, "int", depth)
        return self.binary(op, a, b)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        plain = re.fullmatch(r"-?\d+", b.text) is not None
        if plain:
            x, y = a, Value(b.text, a.axes, b.dtype, np.broadcast_to(b.array, a.array.shape))
        else:
            x, y = self.together(a, b)
        dtype = wider(x.dtype, y.dtype)
        text = f"tw.{op}imum({x.text}, {y.text})" if op in ("max", "min") else f"({x.text} {op} {y.text})"
        array = compared(op, x.array, y.array) if op in TESTS else computed(op, x.array, y.array, dtype)
        known = x if x.absence is not None else y
        return Value(text, x.axes, "bool" if op in TESTS else dtype, array, known.here, known.absence)

    def cast(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        return converted(self.drawn(axes, self.rng.choice(("int", "bool")), depth), self.rng.choice(tuple(INTEGERS)))

    def logic(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        a = self.drawn(axes, "bool", depth)
        if self.rng.random() < 0.2:
            return Value(f"(~({a.text}))", a.axes, "bool", ~a.array, a.here, a.absence)
        return self.binary(self.rng.choice("&|^"), a, self.drawn(axes, "bool", depth))

    def test(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        a, op = self.drawn(axes, "any", depth), self.rng.choice(TESTS)
        if a.dtype == "bool":
            return a
        if a.dtype in INTEGERS and self.rng.random() < 0.5:
            return self.binary(op, a, self.drawn(axes, "int", depth))
        number = self.number(a.dtype)
        array = compared(op, a.array, np.array(number, NUMPY[a.dtype]))
        return Value(f"({a.text} {op} {number})", a.axes, "bool", array, a.here, a.absence)

    def present(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        x = self.drawn(axes, "any", depth)
        return Value(f"tw.present({x.text})", x.axes, "bool", x.present)

    def choice(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        """``tw.where``: present as the side that it takes."""
        a = self.drawn(axes, kind, depth)
        if a.dtype in MOVED:
            b = self.load(axes, a.dtype)
        else:
            b = self.drawn(axes, "bool" if a.dtype == "bool" else "int", depth)
            b = b if a.dtype == "bool" else converted(b, a.dtype)
        test = self.filled(self.drawn(axes, "bool", depth))
        over = tuple(x for x in BOTH if x in (*a.axes, *b.axes, *test.axes))
        test, a, b = (self.spread(v, over) for v in (test, a, b))
        array = np.where(test.array, a.array, b.array).astype(NUMPY[a.dtype])
        text = f"tw.where({test.text}, {a.text}, {b.text})"
        if a.absence is None and b.absence is None:
            return Value(text, over, a.dtype, array)
        return Value(text, over, a.dtype, array, np.where(test.array, a.present, b.present), self.fresh())

    def gather(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        dtype = self.rng.choice(tuple(INTEGERS if kind == "int" else NUMPY))
        indices = [self.drawn(axes, "int", depth - n) for n in range(self.rng.choice((1, 1, 2)))]
        indices = self.together(*indices)
        dims = [self.extra((1, 2, 9, self.extents["N"] + 1)) for _ in indices]
        table = self.data(dtype, [size for _, size in dims])
        name = self.tensor(dtype, [dim for dim, _ in dims], table)
        here = np.ones(indices[0].array.shape, bool)
        for index, (_, size) in zip(indices, dims, strict=True):
            here &= index.present & (index.array >= 0) & (index.array < size)
        array = np.zeros(here.shape, NUMPY[dtype])
        array[here] = table[tuple(index.array[here].astype(np.int64) for index in indices)]
        text = f"{name}[{', '.join(index.text for index in indices)}]"
        return Value(text, indices[0].axes, dtype, array, here, self.fresh())

    # -- along n ------------------------------------------------------------------------------------------------------
    def with_n(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        for _ in range(20):
            found = self.drawn(axes, kind, depth)
            if "n" in found.axes:
                return found
        return self.load(axes, "i32")

    def live(self, x: Value) -> Array:
        """Where elements are, and belong to the domain."""
        return x.present & self.domain if x.axes == BOTH else x.present

    def reduction(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        x = self.with_n(axes, kind, depth)
        live, at = self.live(x), x.axes.index("n")
        fns = ["max", "min"] if x.dtype in MOVED else ["sum", "max", "min"]
        if x.dtype in INTEGERS and live.size and live.any(at).all():
            fns.append("argmax")
        fn = self.rng.choice(fns)
        dtype, array = reduced(fn, x, live, at)
        return Value(f"({x.text}).{fn}({self.along(x)})", tuple(a for a in x.axes if a != "n"), dtype, array)

    def scan(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        x, fn = self.with_n(axes, "int", depth), self.rng.choice(("cumsum", "cummax", "cummin"))
        exclusive, reverse = self.rng.random() < 0.4, self.rng.random() < 0.4
        dtype, array = scanned(fn, x, self.live(x), x.axes.index("n"), exclusive=exclusive, reverse=reverse)
        options = ", exclusive=True" * exclusive + ", reverse=True" * reverse
        return Value(f"tw.{fn}({x.text}, {self.along(x)}{options})", x.axes, dtype, array)

    def sortable(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        x = self.with_n(axes, kind, depth)
        return converted(x, "i32") if x.dtype == "i64" else x

    def sort(self, axes: tuple[str, ...], kind: str, depth: int) -> Value:
        x = self.sortable(axes, kind, depth)
        at, descending = x.axes.index("n"), self.rng.random() < 0.4
        places, here = ordered(x, self.live(x), at, descending=descending)
        by_place = self.rng.random() < 0.5 or (kind == "int" and x.dtype not in INTEGERS)
        array = places if by_place else np.take_along_axis(x.array, places, at)
        text = f"tw.{'argsort' if by_place else 'sort'}({x.text}, {self.along(x)}{', descending=True' * descending})"
        dtype = "i32" if by_place else x.dtype
        if x.absence is None:
            return Value(text, x.axes, dtype, array)
        return Value(text, x.axes, dtype, array, here, self.fresh())

    # -- results ------------------------------------------------------------------------------------------------------
    def keep(self, x: Value) -> None:
        name = self.name("t")
        self.line(f"{name} = {x.text}")
        self.kept.append(Value(name, x.axes, x.dtype, x.array, x.here, x.absence))

    def store(self, x: Value, axes: tuple[str, ...]) -> None:
        over = tuple(a for a in BOTH if a in x.axes or a in axes)
        x = self.spread(x if x.axes == over else self.filled(x), over)
        dtype = x.dtype if x.dtype in MOVED or self.rng.random() < 0.7 else self.rng.choice(tuple(INTEGERS))
        result = np.where(x.present, x.array, np.array(0, NUMPY[x.dtype])).astype(NUMPY[dtype])
        text, order = x.text, over
        if self.rng.random() < 0.3:
            order = over[::-1]
            text = f"({text}).T" if len(self.of_tile(over)) == 2 else text
        name = self.output(dtype, [DIMS[a] for a in order], result.T if order != over else result)
        if over == BOTH:
            inside = self.domain.T if order != over else self.domain
            self.expected[name] = np.where(inside, self.expected[name], self.arrays[name]).astype(NUMPY[dtype])
        self.line(f"{name}[{', '.join(order)}] = {text}")

    def add(self, x: Value, axes: tuple[str, ...]) -> None:
        """Atomic sums at computed coordinates, of values of all these axes."""
        index = self.with_n(axes, "int", 2)
        if index.axes != axes:
            self.store(x, axes)
            return
        index, x = self.together(index, converted(x, self.rng.choice(("i32", "i32", "u32", "i64"))))
        dim, size = self.extra((1, 3, self.extents["N"] + 1))
        here = index.present & x.present & (index.array >= 0) & (index.array < size) & self.domain
        name = self.output(x.dtype, [dim], np.zeros(size, NUMPY[x.dtype]), "add")
        result = self.arrays[name].copy()
        np.add.at(result, index.array[here].astype(np.int64), x.array[here])
        self.expected[name] = result
        self.line(f"tw.reduce_add({name}, {index.text}, {x.text})")

    def count_bins(self, x: Value) -> None:
        bins = self.rng.choice((1, 3, 8))
        counts = [int(((x.array == b) & self.live(x)).sum()) for b in range(bins)]
        name = self.output("i32", [bins], np.zeros(bins, np.int32), "add")
        self.expected[name] = (self.arrays[name] + np.array(counts)).astype(np.int32)
        self.line(f"tw.reduce_add({name}, tw.axis({bins}), tw.histogram({x.text}, {bins}))")

    def select(self, x: Value) -> None:
        """``tw.topk`` of a row, stored whole."""
        count, largest = self.rng.choice((1, 2, 5)), self.rng.random() < 0.7
        x = self.spread(self.filled(x), BOTH)
        places, _ = ordered(x, self.live(x), 1, descending=largest)
        found = min(count, self.extents["N"])
        values = np.zeros((self.extents["M"], count), NUMPY[x.dtype])
        where = np.full(values.shape, -1, np.int32)
        where[:, :found] = places[:, :found]
        values[:, :found] = np.take_along_axis(x.array, places[:, :found], 1)
        name = self.name("t")
        self.line(
            f"{name}, {name}p = tw.topk({x.text}, {count}, {self.along(x)}{'' if largest else ', largest=False'})"
        )
        self.line(f"{self.output(x.dtype, ['M', count], values)}[m, :] = {name}")
        self.line(f"{self.output('i32', ['M', count], where)}[m, :] = {name}p.fill(-1)")

    def result(self, axes: tuple[str, ...]) -> None:
        x, way = self.drawn(BOTH, self.rng.choice(("any", "int", "int")), 3), self.rng.random()
        if way < 0.25 and x.dtype not in MOVED:
            self.add(x, BOTH)
        elif way < 0.35 and self.mode == "axis" and x.dtype in INTEGERS and x.axes == BOTH:
            self.count_bins(x)
        elif way < 0.5 and self.mode == "axis" and x.dtype not in ("i64", "bool") and "n" in x.axes:
            self.select(x)
        else:
            self.store(x, axes)

    # -- bodies -------------------------------------------------------------------------------------------------------
    def _draw(self) -> None:
        self.head = self.tensor("i8", ["M", "N"], self.data("i8", self.shape(BOTH)))
        self.line(f"m = tw.grid({self.head}.shape[0], {None if self.single else self.rng.choice((1, 2, 4, 8))})")
        if self.mode == "axis":
            self.line(f"n = tw.axis({self.head}.shape[1], upto={self.upto})")
            for _ in range(self.rng.randint(0, 2)):
                self.keep(self.drawn(BOTH, "any", 2))
            for _ in range(self.rng.randint(1, 3)):
                self.result(("m",))
            return
        bounds = self._bounds() if self.mode == "bounds" else ""
        states = [self._state() for _ in range(self.rng.randint(0, 2))]
        self.line(f"for n in tw.stream({self.head}.shape[1], {self.rng.choice((1, 4, 8, 16, 32))}{bounds}):")
        self.indent = "        "
        for name, fn, dtype in states:
            self._carry(name, fn, dtype)
        for _ in range(self.rng.randint(0 if states else 1, 2)):
            self.result(BOTH)
        self.indent = "    "
        for name, _, dtype in states:
            self.line(f"{self.output(dtype, ['M'], self.last[name])}[m] = {name}")

    def _bounds(self) -> str:
        """Bounds that each program loads, hostile ones too."""
        count, some = self.extents["N"], [-3, 0, 1, 2, 5, 9, 2**31 - 1, -(2**31)]
        last = self.numbers.choice(np.array([*some, count - 1, count, count + 1]), self.extents["M"]).astype(np.int32)
        first = np.zeros_like(last)
        text = f", until={self.tensor('i32', ['M'], last)}[m]"
        if self.rng.random() < 0.5:
            first = self.numbers.choice(np.array([*some[:7], count - 1, count]), self.extents["M"]).astype(np.int32)
            text += f", start={self.tensor('i32', ['M'], first)}[m]"
        place = np.arange(count)
        self.domain = (place >= np.clip(first, 0, count)[:, None]) & (place < np.clip(last, 0, count)[:, None])
        return text

    def _state(self) -> tuple[str, str, str]:
        """A fragment, and what becomes of it in the stream."""
        self.last: dict[str, Any] = getattr(self, "last", {})
        name, fn = self.name("a"), self.rng.choice(("sum", "max", "min", "cumsum", "cummax"))
        dtype = "i64" if fn in ("sum", "cumsum") else self.rng.choice(tuple(INTEGERS))
        first = 0 if fn in ("sum", "cumsum") else ends(dtype)[fn == "min"]
        self.line(f"{name} = tw.full({'()' if self.single else '(m,)'}, {first}, tw.{dtype})")
        return name, fn, dtype

    def _carry(self, name: str, fn: str, dtype: str) -> None:
        x = converted(self.with_n(BOTH, "int", 3), dtype)
        x = x if x.axes == BOTH else self.binary("+", x, self.load(BOTH, dtype))
        live, at = self.live(x), self.along(x)
        whole = {"cumsum": "sum", "cummax": "max"}.get(fn, fn)
        self.last[name] = reduced(whole, x, live, 1)[1].astype(NUMPY[dtype])
        if fn == "sum":
            self.line(f"{name} += ({x.text}).sum({at})")
        elif fn in ("max", "min"):
            self.line(f"{name}.set(tw.{fn}imum({name}, ({x.text}).{fn}({at})))")
        else:
            exclusive = self.rng.random() < 0.4
            running = self.name("t")
            self.line(f"{running} = tw.{fn}({x.text}, {at}, carry={name}{', exclusive=True' * exclusive})")
            _, array = scanned(fn, x, live, 1, exclusive=exclusive, reverse=False)
            self.store(Value(running, BOTH, dtype, array), BOTH)

    def _source(self, name: str) -> str:
        body = "\n".join(self.lines)
        used = [n for n in self.tensors if re.search(rf"\b{n}\b", body)]
        self.tensors = {n: self.tensors[n] for n in used}
        self.arrays = {n: self.arrays[n] for n in used}
        dims = {n: ", ".join(map(repr, x.dims)) or "()" for n, x in self.tensors.items()}
        parameters = ", ".join(f"{n}: tw.Tensor[{d}]" for n, d in dims.items())
        sizes = ", ".join(f"{n} = {e}" for n, e in self.extents.items())
        head = f'"""indexed, {sizes}"""\n\n# ruff: noqa\nimport tilewright as tw\n'
        return f"{head}\n\n@tw.kernel\ndef {name}({parameters}):\n{body}\n"

    def results(self) -> dict[str, values.Value]:
        """As values are held: floats in f32, integers in i64."""
        dtypes = {name: self.tensors[name].dtype for name in self.expected}
        return {name: values.exactly(d, held(self.expected[name], d)) for name, d in dtypes.items()}


def indexed(seed: int) -> Drawn:
    """The kernel of a seed, with a launch."""
    found = Indexed(seed)
    kernel = t.Kernel(f"k{seed}", "accurate", (), {}, found.tensors, found.extents, {}, (), "indexed")
    return Drawn(kernel, found.source, lambda: placed(found.arrays, seed), lambda _: found.results())
