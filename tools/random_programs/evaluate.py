"""What a random kernel means: its tree, program by program, on the elements that the domains hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product as every
from typing import Any

import numpy as np

from random_programs import elementwise, sums, values
from random_programs import tree as t
from random_programs.values import Array, Value

MOST_WORK = 60_000
"""Evaluated expressions, at most: beyond it a launch is too large to be worth it."""


class TooMuch(Exception):
    """The launch has too many programs and iterations to be evaluated."""


@dataclass
class Output:
    """A tensor that is written: bounds of its elements, and how often each was stored or added to."""

    dtype: str
    lo: Array
    hi: Array
    free: Array
    count: Array
    signed: bool = True
    mass: Array = field(default_factory=lambda: np.zeros(0))
    quantum: Array = field(default_factory=lambda: np.zeros(0))

    def value(self) -> Value:
        """The whole tensor."""
        free = self.free if self.free.any() else None
        return values.between(self.dtype, self.lo, self.hi, free, self.signed)


def held(array: Array, dtype: str) -> Array:
    """An array's elements as values hold them."""
    if dtype == "bool":
        return array
    return array.astype(np.int64) if dtype in t.INTS else array.astype(np.float32)


def evaluate(kernel: t.Kernel, arrays: Mapping[str, Array]) -> dict[str, Value]:
    """Bounds of every tensor that the kernel writes, from what all hold before the launch.

    Raises AssertionError where a kernel breaks the rules it was drawn by: an element of a plain output stored twice.
    """
    run = _Run(kernel, arrays)
    with np.errstate(all="ignore"):
        run.launch()
        return {name: run.finished(name) for name in run.outputs}


class _Run:
    def __init__(self, kernel: t.Kernel, arrays: Mapping[str, Array]):
        self.kernel = kernel
        self.fast = kernel.numerics == "fast"
        self.tensors = {n: values.exactly(x.dtype, held(arrays[n], x.dtype)) for n, x in kernel.tensors.items()}
        self.outputs = {n: self._output(n) for n, x in kernel.tensors.items() if x.use != "in"}
        self.ranges: dict[str, tuple[int, int]] = {}
        self.names: dict[str, Value] = {}
        self.streams: list[str] = []
        self.work = 0

    def _output(self, name: str) -> Output:
        before = self.tensors[name]
        out = Output(
            before.dtype,
            before.lo.copy(),
            before.lo.copy(),
            np.zeros(before.shape, bool),
            np.zeros(before.shape, np.int64),
        )
        if t.is_float(before.dtype):
            size = np.abs(before.lo).astype(np.float64)
            out.mass, out.quantum = np.where(np.isfinite(size), size, 0), sums.unit(before.lo)
            out.lo, out.hi = (x.astype(np.float64) for x in (out.lo, out.hi))
        return out

    def finished(self, name: str) -> Value:
        """The bounds of an output."""
        out = self.outputs[name]
        if self.kernel.tensors[name].use != "add":
            assert (out.count <= 1).all(), f"an element of {name} is stored twice"
        if not t.is_float(out.dtype):
            return out.value()
        if self.kernel.tensors[name].use == "add":
            return self._added(out)
        out.lo, out.hi = out.lo.astype(np.float32), out.hi.astype(np.float32)
        return out.value()

    def _added(self, out: Output) -> Value:
        """Floats added in any order, each sum rounded to the tensor's dtype."""
        digits = {"f32": 24, "f16": 11, "bf16": 8}[out.dtype]
        most = 65000.0 if out.dtype == "f16" else values.LARGEST_F32
        free = out.free | ~(out.mass <= most)
        exact = (out.count == 0) | ((out.mass <= 2.0**digits * out.quantum) & (out.lo == out.hi))
        slack = np.full(out.count.shape, 2.0**-23 if out.dtype == "f16" else values.TINY)
        if out.dtype == "f32":  # sums in global memory take subnormal operands and results for zeros (PTX ISA, atom)
            subnormal = (out.count > 0) & (out.quantum < values.TINY)
            exact, slack = exact & ~subnormal, np.where(subnormal, (2 * out.count + 1) * values.TINY, slack)
        error = np.where(exact, 0.0, (out.count + 1) * 2.0**-digits * 1.01 * out.mass + slack)
        lo, hi = (values.rounded(x.astype(np.float32), out.dtype) for x in (out.lo - error, out.hi + error))
        lo, hi = (
            np.where(exact, lo, np.nextafter(lo, np.float32(-np.inf))),
            np.where(exact, hi, np.nextafter(hi, np.float32(np.inf))),
        )
        return values.between(out.dtype, lo, hi, free if free.any() else None, False)

    # -- programs and statements --------------------------------------------------------------------------------------
    def launch(self) -> None:
        kernel = self.kernel
        grid = [kernel.ranges[name] for name in kernel.grid]
        counts = [-(-kernel.extents[r.dim] // (r.block or 1)) for r in grid]
        for program in every(*map(range, counts)):
            for r, place in zip(grid, program, strict=True):
                self._enter(r, place * (r.block or 1), kernel.extents[r.dim])
            for r in kernel.ranges.values():
                if r.kind == "axis":
                    self.ranges[r.name] = (0, kernel.extents[r.dim])
            self.names = {}
            self.block(kernel.body)

    def _enter(self, r: t.Range, begin: int, stop: int) -> None:
        self.ranges[r.name] = (begin, min(begin + (r.block or 1), stop))

    def block(self, body: tuple[t.Statement, ...]) -> None:
        for s in body:
            match s:
                case t.Let(name, value):
                    self.names[name] = self.of(value)
                case t.Store(tensor, coords, value):
                    self._store(tensor, coords, self._stored(value, tensor))
                case t.Add(tensor, coords, value):
                    self._add(tensor, coords, self._stored(value, tensor))
                case t.Fragment(name, ranges, value, dtype):
                    shape = tuple(self._count(r) for r in ranges)
                    self.names[name] = self._spread(elementwise.converted(number(value), dtype), shape)
                case t.Write():
                    self._write(s)
                case t.Stream():
                    self._stream(s)

    def _stream(self, s: t.Stream) -> None:
        r = self.kernel.ranges[s.range]
        stop = self.exact(s.extent)
        if s.until is not None:
            stop = min(stop, self.exact(s.until))
        self.streams.append(r.name)
        for begin in range(0 if s.start is None else self.exact(s.start), stop, r.block or 1):
            self._enter(r, begin, stop)
            self.block(s.body)
        self.streams.pop()

    def _write(self, s: t.Write) -> None:
        state = self.names[s.name]
        value = self.of(s.value)
        if s.fn in ("add", "sub") and state.dtype == "f32" and self.streams:
            if t.weak(s.value) or value.dtype != "f32":
                value = elementwise.converted(value, "f32")
            value = self._spread(value, state.shape)
            if s.fn == "sub":
                minus = elementwise.float_unary("neg", value, False)
                value = Value(
                    "f32", minus.lo, minus.hi, minus.free, minus.signed, value.mass, value.quantum, value.digits
                )
            self.names[s.name] = sums.accumulated(state, value, self._terms())
            return
        if s.fn != "set":
            value = self._binary(
                s.fn, state, value, t.promoted(state.dtype, value.dtype if not t.weak(s.value) else s.value.dtype)
            )
        self.names[s.name] = self._spread(elementwise.converted(value, state.dtype), state.shape)

    def _stored(self, value: t.Expression, tensor: str) -> Value:
        return elementwise.converted(self.of(value), self.kernel.tensors[tensor].dtype)

    def _store(self, tensor: str, coords: tuple[str | t.Exact, ...], value: Value) -> None:
        out, place = self.outputs[tensor], self._place(coords)
        shape = out.lo[place].shape
        value = self._spread(value, shape)
        out.lo[place], out.hi[place] = value.lo, value.hi
        out.free[place] = False if value.free is None else value.free
        out.signed = out.signed and value.signed
        out.count[place] += 1

    def _add(self, tensor: str, coords: tuple[str | t.Exact, ...], value: Value) -> None:
        out, place = self.outputs[tensor], self._place(coords)
        value = self._spread(value, out.lo[place].shape)
        out.count[place] += 1
        if not t.is_float(out.dtype):
            out.lo[place] = values.wrapped(out.lo[place] + value.lo, out.dtype)
            out.hi[place] = values.wrapped(out.hi[place] + value.hi, out.dtype)
            unsure = value.lo != value.hi
            out.lo[place] = np.where(unsure, values.least(out.dtype), out.lo[place])
            out.hi[place] = np.where(unsure, values.greatest(out.dtype), out.hi[place])
            return
        size = np.maximum(np.abs(value.lo), np.abs(value.hi)).astype(np.float64)
        out.mass[place] += size
        out.quantum[place] = np.minimum(out.quantum[place], sums.unit(value.lo))
        out.lo[place] += value.lo.astype(np.float64)
        out.hi[place] += value.hi.astype(np.float64)
        if value.free is not None:
            out.free[place] |= value.free

    def _place(self, coords: tuple[str | t.Exact, ...]) -> Any:
        """An index: scalar coordinates drop their axis."""
        return tuple(slice(*self.ranges[c]) if isinstance(c, str) else self.exact(c) for c in coords)

    def _count(self, name: str) -> int:
        first, last = self.ranges[name]
        return last - first

    def _spread(self, value: Value, shape: tuple[int, ...]) -> Value:
        if value.shape == shape:
            return value
        found = value.moved(lambda x: np.broadcast_to(x, shape))
        if value.mass is None or value.quantum is None:
            return found
        return Value(
            found.dtype, found.lo, found.hi, found.free, found.signed,
            np.broadcast_to(value.mass, shape), np.broadcast_to(value.quantum, shape), value.digits,
        )  # fmt: skip

    # -- expressions --------------------------------------------------------------------------------------------------
    def exact(self, e: t.Exact) -> int:
        """An integer of any size."""
        match e:
            case t.Number(value):
                return value
            case t.Extent(tensor, position):
                return self.kernel.shape(tensor)[position]
            case t.Argument(name):
                return int(self.kernel.scalars[name])
            case t.Place(name, what):
                return self.ranges[name][what == "stop"]
            case t.Integer(fn, a, b):
                x, y = self.exact(a), self.exact(b)
                return {
                    "add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "floordiv": lambda: x // y,
                    "mod": lambda: x % y, "min": lambda: min(x, y), "max": lambda: max(x, y),
                }[fn]()  # fmt: skip

    def of(self, e: t.Expression) -> Value:
        self.work += 1
        if self.work > MOST_WORK:
            raise TooMuch
        match e:
            case t.Load(tensor, coords):
                place = self._place(coords)
                return self.tensors[tensor].moved(lambda x: np.asarray(x[place]))
            case t.Constant(value):
                return number(value)
            case t.Whole(value):
                return values.exactly("i64", np.asarray((self.exact(value) + 2**63) % 2**64 - 2**63))
            case t.Given(name):
                return values.exactly("f32", np.asarray(self.kernel.scalars[name], np.float32))
            case t.Index(axes):
                return values.exactly("i32", np.arange(*self.ranges[str(axes[0])], dtype=np.int64))
            case t.Name(name):
                return self.names[name]
            case t.Unary(fn, x):
                return self._unary(fn, self.of(x), e.dtype)
            case t.Binary(fn, a, b):
                x, y = (self._single(part, e.dtype) for part in (a, b))
                return self._binary(fn, x, y, e.dtype)
            case t.Compare(fn, a, b):
                dtype = t.promoted(a.dtype, b.dtype)
                x, y = self._weakly(a, b, dtype)
                return elementwise.compared(fn, x, y)
            case t.Where(condition, a, b):
                x, y = self._weakly(a, b, e.dtype)
                return elementwise.converted(elementwise.chosen(self.of(condition), x, y), e.dtype)
            case t.Cast(x, dtype):
                return elementwise.converted(self.of(x), dtype)
            case t.Reduce():
                return self._reduce(e)
            case t.Expand(x, positions):
                return self._moved(self.of(x), lambda v: np.expand_dims(v, positions))
            case t.Transpose(x, perm):
                return self._moved(self.of(x), lambda v: np.transpose(v, perm))
            case t.Dot(a, b):
                return sums.product(self.of(a), self.of(b), self._terms(a.axes[1]))

    def _moved(self, x: Value, fn: Any) -> Value:
        return x.moved(fn)

    def _weakly(self, a: t.Expression, b: t.Expression, dtype: str) -> tuple[Value, Value]:
        """Two operands in the dtype that both take; a number that it does not have stays an f32."""
        found: list[Value] = []
        for e in (a, b):
            value = self.of(e)
            wide = t.weak(e) and t.is_float(dtype)
            found.append(elementwise.converted(value, "f32" if wide else dtype))
        if found[0].dtype != found[1].dtype:
            found = [elementwise.converted(x, "f32") for x in found]
        return found[0], found[1]

    def _single(self, e: t.Expression, dtype: str) -> Value:
        """An operand; a number that meets floats is rounded to f32 once."""
        value = self.of(e)
        return elementwise.converted(value, "f32") if t.weak(e) and t.is_float(dtype) else value

    def _unary(self, fn: str, x: Value, dtype: str) -> Value:
        if not t.is_float(dtype):
            return elementwise.integer_unary(fn, x)
        return elementwise.float_unary(fn, elementwise.converted(x, dtype), self.fast)

    def _binary(self, fn: str, a: Value, b: Value, dtype: str) -> Value:
        if not t.is_float(dtype):
            return elementwise.integer_binary(
                fn, elementwise.converted(a, dtype), elementwise.converted(b, dtype), dtype
            )
        x, y = (v if t.is_float(v.dtype) else elementwise.converted(v, dtype) for v in (a, b))
        return elementwise.float_binary(fn, x, y, dtype, self.fast)

    def _reduce(self, e: t.Reduce) -> Value:
        x = self.of(e.x)
        name = e.x.axes[e.axis]
        terms = self._terms(name)
        count = x.shape[e.axis]
        if e.fn == "mean":
            summed = elementwise.converted(sums.reduced("sum", x, e.axis, terms), "f32")
            found = elementwise.float_binary("div", summed, number(count), "f32", self.fast)
        else:
            found = sums.reduced(e.fn, x, e.axis, terms)
        if e.dtype != found.dtype:
            found = elementwise.converted(found, e.dtype)
        if not e.keepdims:
            return found
        at = e.axis
        moved = found.moved(lambda v: np.expand_dims(v, at))
        if found.mass is None or found.quantum is None:
            return moved
        mass, quantum = np.expand_dims(found.mass, at), np.expand_dims(found.quantum, at)
        return Value(moved.dtype, moved.lo, moved.hi, moved.free, moved.signed, mass, quantum)

    def _terms(self, *more: str | None) -> int:
        """Elements along all streams around, along axes that are whole in a program, and along ``more``."""
        names = {
            *self.streams,
            *(n for n in more if n),
            *(r.name for r in self.kernel.ranges.values() if r.kind == "axis"),
        }
        found = 1
        for name in names:
            found *= max(1, self.kernel.extents[self.kernel.ranges[name].dim])
        return found


def number(value: int | float) -> Value:
    """A number of Python's: an integer exact, a float in f32."""
    if isinstance(value, int):
        return values.exactly("i64", np.asarray(value, np.int64))
    return values.exactly("f32", np.asarray(value, np.float64).astype(np.float32))
