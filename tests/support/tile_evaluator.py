"""A NumPy evaluator of ``tile`` IR, written from the dialect's documentation only: an independent opinion on traces.

Elements outside a domain do not exist here: an array holds the domain of its axes and nothing else, so any rule that
would touch an element without a value fails by its shape.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import Sym
from tilewright.tile import dialect as tile

NUMPY = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "bool": np.dtype(np.bool_),
}

_erf = np.vectorize(math.erf, otypes=[np.float64])

_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: _erf(x).astype(x.dtype) if x.size else x,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "log10": np.log10,
    "cbrt": np.cbrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "not": np.invert,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "pow": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "hypot": np.hypot,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def evaluate(
    module: ModuleOp, arrays: Mapping[str, np.ndarray], scalars: Mapping[str, float | int] | None = None
) -> dict[str, np.ndarray]:
    """Run the module's kernel on copies of ``arrays``; returns how often each element was stored, by tensor.

    ``arrays`` are changed in place, as a launch would.
    """
    kernel = module.body.block.first_op
    assert isinstance(kernel, tile.Kernel)
    names = [n.data for n in kernel.arg_names]
    env: dict[str, int] = {n: v for n, v in (scalars or {}).items() if isinstance(v, int)}
    values: dict[SSAValue, Any] = {}
    for name, arg in zip(names, kernel.body.block.args, strict=True):
        if isinstance(arg.type, tile.TensorType):
            array = arrays[name]
            assert array.dtype == NUMPY[arg.type.element.name], (name, array.dtype)
            for dim, extent in zip(arg.type.dims, array.shape, strict=True):
                if dim.expr.constant is None:
                    symbol, _, more = dim.expr.text.partition(" + ")
                    assert env.setdefault(symbol, extent - int(more or 0)) == extent - int(more or 0)
                else:
                    assert dim.expr.constant == extent
            values[arg] = array
        else:
            values[arg] = np.asarray((scalars or {})[name], NUMPY[tile.tile_type(arg).element.name])
    assert all(b.data[0].evaluate(env) <= b.data[1] for b in kernel.bounds)
    assert all(r.expr.evaluate(env) for r in kernel.requires)
    run = _Run(values, {n: np.zeros(a.shape, np.int64) for n, a in arrays.items()})
    counts = [range(g.expr.evaluate(env)) for g in kernel.grid]
    with np.errstate(all="ignore"):
        for program in itertools.product(*counts):
            run.block(kernel.body.block, {**env, **{f"$p{i}": p for i, p in enumerate(program)}})
    return run.stores


class _Run:
    def __init__(self, values: dict[SSAValue, Any], stores: dict[str, np.ndarray]):
        self.values, self.stores = values, stores
        self.bound = set[str]()
        """Integers that were loaded."""

    def block(self, block: Block, env: dict[str, int]) -> None:
        for op in block.ops:
            self.op(op, env)

    def get(self, value: SSAValue) -> Any:
        return self.values[value]

    def op(self, op: Operation, env: dict[str, int]) -> None:
        match op:
            case tile.Load():
                place, tensor = self.where(op, env, absent=True), self.get(op.tensor)
                inside = all(isinstance(at, slice) or at < n for at, n in zip(place, tensor.shape, strict=True))
                shape = tuple(at.stop - at.start for at in place if isinstance(at, slice))
                result = tensor[place].copy() if inside else np.zeros(shape, tensor.dtype)
            case tile.Store() | tile.AtomicReduce():
                place, value, name = (
                    self.where(op, env),
                    self.get(op.value),
                    tile.tensor_type(op.tensor).tensor_name.data,
                )
                if isinstance(op, tile.Store):
                    self.get(op.tensor)[place] = value
                    self.stores[name][place] += 1
                else:
                    target = self.get(op.tensor)
                    if not target.ndim:
                        target, place = target.reshape(1), (0,)
                    target[place] = combined(op.fn.data, target[place], value)
                return
            case tile.Gather():
                coords, inside = self.places(op, op.result, env)
                source = self.get(op.tensor)
                result = np.where(inside, source[tuple(np.where(inside, c, 0) for c in coords)], 0).astype(source.dtype)
            case tile.Scatter() | tile.ScatterReduce():
                coords, inside = self.places(op, op.value, env)
                name = tile.tensor_type(op.tensor).tensor_name.data
                target, at = self.get(op.tensor), tuple(c[inside] for c in coords)
                if isinstance(op, tile.Scatter):
                    target[at] = self.get(op.value)[inside]
                    np.add.at(self.stores[name], at, 1)
                else:
                    moved = self.get(op.value)[inside]
                    for k in range(len(moved)):
                        here = tuple(a[k] for a in at)
                        target[here] = combined(op.fn.data, target[here], moved[k])
                return
            case tile.Bind():
                env[op.symbol.data] = int(self.get(op.value))
                self.bound.add(op.symbol.data)
                assert op.most is None or 0 <= env[op.symbol.data] <= op.most.expr.evaluate(env)
                return
            case tile.Index():
                first, last = domain(op.axis, env)
                result = np.arange(first, last, dtype=np.int32)
            case tile.ScalarExpr():
                value = (op.expr.expr.evaluate(env) + 2**63) % 2**64 - 2**63  # integers wrap at 64 bits
                result = np.asarray(value, np.int64).astype(dtype_of(op))
            case tile.Constant():
                result = np.asarray(op.value.data, dtype_of(op))
                assert not np.isfinite(op.value.data) or op.dtype.name == "f32" or float(result) == float(op.value.data)
            case tile.Expand():
                result = np.expand_dims(self.get(op.x), tuple(p.data for p in op.positions))
            case tile.Broadcast():
                result = np.broadcast_to(self.get(op.x), shape_of(tile.tile_type(op.result), env))
            case tile.Transpose():
                result = np.transpose(self.get(op.x), [p.data for p in op.perm])
            case tile.Unary():
                result = rounded(_UNARY[str(op.fn.data)], dtype_of(op), self.get(op.x))
            case tile.Binary():
                a, b = self.get(op.a), self.get(op.b)
                result = rounded(_BINARY[str(op.fn.data)], dtype_of(op), a, b)
            case tile.Fma():
                result = fused(self.get(op.a), self.get(op.b), self.get(op.c))
            case tile.Compare():
                a, b = self.get(op.a), self.get(op.b)
                result = _COMPARE[str(op.fn.data)](a, b)
            case tile.Select():
                result = np.where(self.get(op.cond), self.get(op.a), self.get(op.b))
            case tile.Cast():
                result = cast(self.get(op.x), NUMPY[tile.tile_type(op.x).element.name], dtype_of(op))
            case tile.Bitcast():
                result = self.get(op.x).view(dtype_of(op))
            case tile.Histogram():
                x = self.get(op.x)
                result = np.bincount(x[(x >= 0) & (x < op.bins)], minlength=op.bins).astype(np.int32)
            case tile.Sort():
                result = np.sort(self.get(op.x), op.axis.data)
                if op.count is not None:
                    count, axis = op.count.data, op.axis.data
                    missing = [(0, max(0, count - n) if d == axis else 0) for d, n in enumerate(result.shape)]
                    result = np.pad(result, missing, constant_values=np.iinfo(result.dtype).max)
                    result = np.take(result, range(count), axis)
            case tile.Reduce():
                result = reduced(str(op.fn.data), self.get(op.x), op.axis.data, dtype_of(op))
            case tile.Scan():
                self.scan(op)
                return
            case tile.Dot():
                wide = np.int32 if dtype_of(op) == np.int32 else np.float32
                result = self.get(op.a).astype(wide) @ self.get(op.b).astype(wide)
            case tile.FragmentInit():
                self.values[op.result] = [np.array(self.get(op.init))]
                return
            case tile.FragmentRead():
                result = self.get(op.frag)[0].copy()
            case tile.FragmentWrite():
                self.get(op.frag)[0] = np.array(self.get(op.value))
                return
            case tile.StreamLoop():
                for count in range(op.trip.expr.evaluate(env)):
                    inner = {**env, op.counter.data: count}
                    first, last = domain(op.axis, inner)
                    assert first < last, "a stream's iteration has an empty domain"
                    self.block(op.body.block, inner)
                return
            case tile.Yield() | tile.Print():
                return
            case _:
                raise NotImplementedError(op.name)
        (target,) = op.results
        result = np.asarray(result)
        type_ = tile.tile_type(target)
        assert result.shape == shape_of(type_, env), (op.name, result.shape, type_)
        assert result.dtype == NUMPY[type_.element.name], (op.name, result.dtype, type_)
        self.values[target] = result

    def scan(self, op: tile.Scan) -> None:
        """One element after the other."""
        count, axis = op.count, op.axis.data
        elements = [np.moveaxis(self.get(v), axis, 0) for v in op.elements]
        state = [self.get(v) for v in op.before] or None
        found = [np.empty_like(e) for e in elements]
        length = len(elements[0])
        for at in range(length)[:: -1 if op.reverse else 1]:
            before, here = state, [e[at] for e in elements]
            state = here if before is None else self.combined(op, [*before, *here])
            for result, value in zip(found, before if op.exclusive else state, strict=True):
                result[at] = value
        for i, (running, last) in enumerate(zip(op.results[:count], op.results[count:], strict=True)):
            self.values[running] = np.moveaxis(found[i], 0, axis)
            self.values[last] = np.array((state or [e[:0].sum(0) for e in elements])[i])

    def combined(self, op: tile.Scan, states: list[Any]) -> list[Any]:
        block = op.body.block
        self.values.update(zip(block.args, states, strict=True))
        *ops, last = block.ops
        for inner in ops:
            args = [self.get(v) for v in inner.operands]
            match inner:
                case tile.Unary():
                    result = rounded(_UNARY[str(inner.fn.data)], dtype_of(inner), *args)
                case tile.Binary():
                    result = rounded(_BINARY[str(inner.fn.data)], dtype_of(inner), *args)
                case tile.Fma():
                    result = fused(*args)
                case tile.Compare():
                    result = _COMPARE[str(inner.fn.data)](*args)
                case tile.Select():
                    result = np.where(*args)
                case tile.Cast():
                    result = cast(args[0], NUMPY[tile.tile_type(inner.x).element.name], dtype_of(inner))
                case tile.Constant():
                    result = np.asarray(inner.value.data, dtype_of(inner))
                case _:
                    raise NotImplementedError(inner.name)
            self.values[inner.results[0]] = np.asarray(result)
        return [self.get(v) for v in last.operands]

    def places(
        self, op: tile.Gather | tile.Scatter | tile.ScatterReduce, moved: SSAValue, env: dict[str, int]
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """The coordinates of each element, and whether they lie inside."""
        axes = tile.tile_type(moved).axes
        ends = [domain(a, env) if isinstance(a, tile.RangeAttr) else (0, 1) for a in axes]
        known: dict[str, Any] = dict(env)
        for d, (first, last) in enumerate(ends):
            shape = [-1 if e == d else 1 for e in range(len(ends))]
            known[f"$axis{d}"] = np.arange(first, last).reshape(shape)
        for k, index in enumerate(op.indices):
            known[tile.index_symbol(k)] = self.get(index).astype(np.int64)
        whole = tuple(last - first for first, last in ends)
        coords = [np.broadcast_to(np.asarray(c.expr.evaluate(known)), whole) for c in op.coords]
        extents = self.get(op.tensor).shape
        tests = [(c >= 0) & (c < n) for c, n in zip(coords, extents, strict=True)]
        return coords, np.logical_and.reduce(tests)

    def where(
        self, op: tile.Load | tile.Store | tile.AtomicReduce, env: dict[str, int], *, absent: bool = False
    ) -> tuple[Any, ...]:
        """The elements that an access is about; with ``absent`` a loaded integer may be the extent, where none is."""
        index = list[Any]()
        for coord, extent in zip(op.coords, self.get(op.tensor).shape, strict=True):
            if isinstance(coord, tile.RangeAttr):
                first, last = domain(coord, env)
                assert 0 <= first <= last <= extent, f"{coord} leaves an extent of {extent}"
                index.append(slice(first, last))
            else:
                at = coord.expr.evaluate(env)
                loaded = isinstance(coord.expr, Sym) and coord.expr.name in self.bound
                most = extent if absent and loaded else extent - 1
                assert 0 <= at <= most, f"{coord.expr} = {at} leaves an extent of {extent}"
                index.append(at)
        return tuple(index)


def combined(fn: str, old: Any, new: Any) -> Any:
    """What a reduction into memory leaves of an element."""
    match fn:
        case "add":
            return old + new
        case "and":
            return old & new
        case "or":
            return old | new
        case _:
            better = np.maximum if fn == "max" else np.minimum
            found = better(old, new)
            if np.asarray(old).dtype != np.float32:
                return found
            signs = np.signbit(old) & np.signbit(new) if fn == "max" else np.signbit(old) | np.signbit(new)
            return np.where((found == 0) & (old == new), np.copysign(found, np.where(signs, -1, 1)), found).astype("f4")


def domain(axis: tile.RangeAttr, env: Mapping[str, int]) -> tuple[int, int]:
    first = axis.data.origin.evaluate(env)
    return first, max(first, min(first + axis.data.size, axis.data.stop.evaluate(env)))


def shape_of(type_: tile.TileType, env: Mapping[str, int]) -> tuple[int, ...]:
    ends = [domain(a, env) if isinstance(a, tile.RangeAttr) else (0, 1) for a in type_.axes]
    return tuple(last - first for first, last in ends)


def dtype_of(op: Operation) -> np.dtype[Any]:
    element: DType = tile.tile_type(op.results[0]).element
    return NUMPY[element.name]


def cast(x: np.ndarray, source: np.dtype[Any], target: np.dtype[Any]) -> np.ndarray:
    """As docs/language.md says of conversions."""
    if target == np.bool_:
        return x != 0
    if target.kind not in "iu":
        single = x.astype(np.float32)  # integers go to every float through it
        largest = {NUMPY["e4m3"]: 448, NUMPY["e5m2"]: 57344}.get(target)
        return (single if largest is None else np.clip(single, -largest, largest)).astype(target)
    if source.kind in "iub":
        return x.astype(target)
    info = np.iinfo(target)
    wide = np.nan_to_num(x.astype(np.longdouble), nan=info.min if info.bits == 64 else 0, posinf=np.inf, neginf=-np.inf)
    return np.clip(np.trunc(wide), info.min, info.max).astype(target)


def rounded(fn: Callable[..., Any], dtype: np.dtype[Any], *args: Any) -> Any:
    """16-bit floats are computed in f32 and rounded; everything else in its own dtype."""
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        return fn(*(a.astype(np.float32) for a in args)).astype(dtype)
    return fn(*args).astype(dtype)


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Any:
    """The product is exact in f64; its sum is rounded to the 64 digits of a long double, and then to f32."""
    return ((a.astype(np.float64) * b).astype(np.longdouble) + c).astype(np.float32)


def reduced(fn: str, x: np.ndarray, axis: int, dtype: np.dtype[Any]) -> Any:
    assert x.shape[axis] > 0, "a reduction over an empty domain"
    match fn:
        case "sum":
            assert dtype.itemsize >= 4
            return np.sum(x, axis, dtype=dtype)
        case "prod":
            assert dtype.itemsize >= 4
            return np.prod(x, axis, dtype=dtype)
        case "max":
            return np.maximum.reduce(x, axis)
        case "min":
            return np.minimum.reduce(x, axis)
        case "argmax":
            return np.argmax(x, axis).astype(np.int32)
        case _:
            raise NotImplementedError(fn)
