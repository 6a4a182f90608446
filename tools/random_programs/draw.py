"""Draws kernels: dimensions, ranges and tensors as they are asked for, expressions of a wanted dtype over wanted axes.

``Drawing`` has the state and the grammar of expressions; ``families`` says what bodies look like.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from random_programs import tree as t

NUMBERS = (0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 0.1, -2.5, 1e-3, 100.0)
INTEGERS = (0, 1, 2, 3, 5, 7, -1, -3, 10)
FLOAT_FUNCTIONS = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "abs", "neg") * 2 + (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "log10", "log1p", "expm1",
    "cbrt", "floor", "ceil", "round", "trunc", *t.POWERS,
)  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
MOST_TILE = 8192
"""Elements of a tile, at most; mostly fewer: unrolled, they keep NVRTC busy."""
AUTO_TILE = 32
"""What an extent that the schedule chooses counts for in a tile."""


class Drawing:
    """One kernel while it is drawn."""

    def __init__(self, rng: Random):
        self.rng = rng
        self.extents: dict[str, int] = {}
        self.ranges: dict[str, t.Range] = {}
        self.tensors: dict[str, t.Tensor] = {}
        self.scalars: dict[str, int | float] = {}
        self.names: list[tuple[str, str, t.Axes]] = []
        self.scope: list[str] = []
        """Ranges in force: those of the grid, whole axes, and streams around."""
        self.data = "normal"
        """What new inputs hold."""
        self.static: set[str] = set()
        self.most_tile = rng.choices((256, 512, 1024, 2048, MOST_TILE), (3, 3, 2, 1, 0.5))[0]
        self.banned: frozenset[str] = frozenset()
        """Ranges that nothing may be reduced along: extents that the schedule chooses."""

    # -- choices ------------------------------------------------------------------------------------------------------
    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def among(self, **weights: float) -> str:
        """A keyword, by weight."""
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def float_dtype(self) -> str:
        return self.among(f32=5, f16=2, bf16=2)

    def int_dtype(self) -> str:
        return self.among(i32=4, i64=2, i8=1.5, i16=0.8, u8=1, u16=0.8, u32=1.2)

    def any_dtype(self) -> str:
        kind = self.among(float=6, int=3, bool=0.7, eight=0.5)
        if kind == "eight":
            return self.rng.choice(t.STORED_FLOATS)
        return {"float": self.float_dtype, "int": self.int_dtype}.get(kind, lambda: "bool")()

    # -- dimensions, ranges, tensors ----------------------------------------------------------------------------------
    def dim(self, kind: str = "") -> str:
        """A new dimension with an extent of a kind."""
        name = "MNKPQRSTUVW"[len(self.extents)]
        kind = kind or self.among(small=4, ragged=5, one=0.7, zero=0.35, wide=1, even=1.5)
        low, high = {"small": (2, 9), "ragged": (10, 70), "one": (1, 1), "zero": (0, 0), "wide": (100, 300)}.get(
            kind, (1, 8)
        )
        extent = self.rng.randint(low, high) * (16 if kind == "even" else 1)
        self.extents[name] = extent
        if extent and self.chance(0.1):
            self.static.add(name)
        return name

    def range(self, kind: str, dim: str, block: int | None = 0, auto: bool | None = None) -> str:
        """A new range over a dimension; a block of 0 is drawn."""
        prefix = {"grid": "m", "axis": "a", "stream": "s"}[kind]
        name = f"{prefix}{len(self.ranges)}"
        extent = self.extents[dim]
        if kind == "axis":
            upto = extent if dim in self.static else max(1, self.rng.choice((extent, extent + 1, 64, 100, extent)))
            self.ranges[name] = t.Range(name, dim, kind, max(upto, extent, 1))
            return name
        if auto is None:
            auto = block == 0 and self.chance(0.5)
        if block == 0:
            block = 256 if auto else self.rng.choice((1, 2, 4, 8, 8, 16, 16, 32, 5, 12))
        self.ranges[name] = t.Range(name, dim, kind, block, auto)
        return name

    def elements(self, axes: Sequence[str | None]) -> int:
        """Elements of a tile."""
        found = 1
        for a in axes:
            if a is not None:
                r = self.ranges[a]
                found *= AUTO_TILE if r.auto else r.block or 1
        return found

    def tensor(self, dtype: str, dims: tuple[str | int, ...], use: str, data: str = "") -> str:
        """A new tensor that lies somehow."""
        name = f"{'y' if use in ('out', 'add') else 'x'}{len(self.tensors)}"
        ways = {"plain": 6, "offset": 1, "sliced": 1, "permuted": 1, "reversed": 0.7, "spread": 0.7, "pitched": 0.7}
        if use == "in":
            ways["expanded"] = 0.5
        how = self.among(**ways)
        self.tensors[name] = t.Tensor(name, dtype, dims, use, how, data or self.drawn_data(dtype))
        return name

    def drawn_data(self, dtype: str) -> str:
        if self.data != "normal":
            return self.data
        return self.among(normal=4, units=3, dyadic=2, edges=1.2)

    def scalar(self, kind: str) -> str:
        """A scalar argument, i32 or f32; not more than two of a kind."""
        own = [n for n, v in self.scalars.items() if isinstance(v, int) == (kind == "i32")]
        if len(own) >= 2 or (own and self.chance(0.5)):
            return self.rng.choice(own)
        name = f"{'n' if kind == 'i32' else 'f'}{len(self.scalars)}"
        if kind == "i32":
            self.scalars[name] = self.rng.choice((0, 1, 3, 7, 100, 2**31 - 1, -5))
        else:
            self.scalars[name] = self.rng.choice((0.5, -2.0, 0.1, 3.0, 1.0))
        return name

    # -- leaves -------------------------------------------------------------------------------------------------------
    def load(self, dtype: str, axes: tuple[str, ...], transposed: bool = True) -> t.Expression:
        """An input tensor over exactly these axes."""
        order = list(range(len(axes)))
        if transposed and len(axes) > 1 and self.chance(0.2):
            self.rng.shuffle(order)
        coords: list[str | t.Exact] = [axes[i] for i in order]
        dims: list[str | int] = [self.dim_of(axes[i]) for i in order]
        for name in self.scope:
            if self.ranges[name].block is None and self.chance(0.6):
                at = self.rng.randint(0, len(coords))
                coords.insert(at, t.Place(name, "index"))
                dims.insert(at, self.ranges[name].dim)
        if len(dims) < 4 and self.chance(0.06):
            at, extent = self.rng.randint(0, len(coords)), self.rng.randint(1, 3)
            coords.insert(at, t.Number(self.rng.randrange(extent)))
            dims.insert(at, extent)
        same = [x for x in self.tensors.values() if (x.dtype, x.dims, x.use) == (dtype, tuple(dims), "in")]
        name = self.rng.choice(same).name if same and self.chance(0.6) else self.tensor(dtype, tuple(dims), "in")
        found: t.Expression = t.Load(name, tuple(coords), dtype, tuple(axes[i] for i in order))
        if order != sorted(order):
            found = t.transpose(found, tuple(order.index(i) for i in range(len(axes))))
        return found

    def dim_of(self, name: str) -> str:
        """The dimension of a range, or now and then a longer one."""
        dim = self.ranges[name].dim
        if dim not in self.static and len(self.extents) < 9 and self.chance(0.03):
            longer = self.dim("small")
            self.static.discard(longer)
            self.extents[longer] += self.extents[dim]
            return longer
        return dim

    def leaf(self, dtype: str, axes: tuple[str, ...]) -> t.Expression:
        """A value over exactly these axes without operations but a cast."""
        known = [t.Name(n, d, a) for n, d, a in self.names if a == axes]
        if known and self.chance(0.5):
            return t.cast(self.rng.choice(known), dtype)
        if len(axes) == 1 and dtype in ("i32", "i64", "f32") and self.chance(0.25):
            return t.cast(t.Index(axes), dtype)
        if not axes and self.chance(0.4):
            return t.cast(t.Given(self.scalar("f32")), dtype)
        if self.chance(0.75) or len(self.tensors) > 5:
            source = dtype
        else:
            source = self.any_dtype()
        return t.cast(self.load(source, axes), dtype)

    def weak(self, dtype: str) -> t.Expression:
        """A number that meets a tile of ``dtype`` without changing that dtype."""
        if t.is_float(dtype):
            if self.chance(0.1):
                return t.Whole(self.exact())
            return (
                t.Constant(self.rng.choice(NUMBERS), "float")
                if self.chance(0.8)
                else t.Constant(self.rng.choice(INTEGERS), "int")
            )
        if dtype in ("i32", "i64") and self.chance(0.2):
            return t.Whole(self.exact())
        bits = t.BITS[dtype] - (dtype[0] == "i")
        ends = (2**bits - 1, -(2**bits), 2 ** (bits // 2)) if dtype != "i64" else (2**62, -(2**63), 2**33)
        return t.Constant(self.rng.choice([n for n in INTEGERS + ends if n >= 0 or dtype[0] == "i"]), "int")

    def exact(self, depth: int = 2) -> t.Exact:
        """An exact integer as a value: it wraps."""
        kind = self.among(number=1, extent=2, argument=1.5, place=1, sum=2 * (depth > 0), quotient=0.7 * (depth > 0))
        known = [x for x in self.tensors.values() if x.dims]
        places = [n for n in self.scope if not self.ranges[n].auto]
        if kind == "extent" and known:
            x = self.rng.choice(known)
            return t.Extent(x.name, self.rng.randrange(len(x.dims)))
        if kind == "argument":
            return t.Argument(self.scalar("i32"))
        if kind == "place" and places:
            name = self.rng.choice(places)
            return t.Place(name, "index" if self.ranges[name].block is None else self.rng.choice(("start", "stop")))
        if kind == "sum":
            return t.Integer(
                self.rng.choice(("add", "sub", "mul", "min", "max")), self.exact(depth - 1), self.exact(depth - 1)
            )
        if kind == "quotient":
            return t.Integer(
                self.rng.choice(("floordiv", "mod")), self.exact(depth - 1), t.Number(self.rng.choice((1, 2, 3, 7, 64)))
            )
        return t.Number(self.rng.choice(INTEGERS))

    # -- expressions --------------------------------------------------------------------------------------------------
    def full(self, dtype: str, axes: tuple[str, ...], depth: int) -> t.Expression:
        """An expression of a dtype over exactly these axes."""
        if depth <= 0 or self.chance(0.12):
            return self.leaf(dtype, axes)
        if dtype == "bool":
            return self.bool_(axes, depth)
        if dtype in t.STORED_FLOATS:
            return t.cast(self.full(self.float_dtype(), axes, depth - 1), dtype)
        over = self.reducible(axes)
        match self.among(
            binary=6, unary=2.2, where=1.5, cast=1.3, reduce=1.6 if over else 0, turn=0.4 if len(axes) > 1 else 0
        ):
            case "binary":
                return self.binary(dtype, axes, depth)
            case "unary" if t.is_float(dtype):
                return t.unary(self.rng.choice(FLOAT_FUNCTIONS), self.full(dtype, axes, depth - 1))
            case "unary":
                return t.unary(self.rng.choice(t.KEEPS), self.full(dtype, axes, depth - 1))
            case "where":
                a, b = self.full(dtype, axes, depth - 1), self.part(dtype, axes, depth - 1)
                if self.chance(0.5):
                    a, b = b, a
                return t.where(self.part("bool", axes, depth - 1), a, b)
            case "cast":
                return t.cast(self.full(self.any_dtype(), axes, depth - 1), dtype)
            case "reduce":
                return self.reduce(dtype, axes, depth, over)
            case _:
                perm = list(range(len(axes)))
                self.rng.shuffle(perm)
                inner = tuple(axes[perm.index(i)] for i in range(len(axes)))
                return t.transpose(self.full(dtype, inner, depth - 1), tuple(perm))

    def binary(self, dtype: str, axes: tuple[str, ...], depth: int) -> t.Expression:
        """An operation on two values, one of them over all axes."""
        if t.is_float(dtype):
            fn = self.among(
                add=4,
                sub=3,
                mul=4,
                div=1.5,
                min=1,
                max=1,
                floordiv=0.3,
                mod=0.3,
                pow=0.3,
                atan2=0.2,
                hypot=0.2,
                fmod=0.2,
            )
        else:
            fn = self.among(
                add=3, sub=2, mul=2, floordiv=1.5, mod=1.5, min=1, max=1, xor=1, shl=0.8, shr=0.8, **{"and": 1, "or": 1}
            )
        a = self.full(dtype, axes, depth - 1)
        b = self.weak(dtype) if self.chance(0.25) else self.part(dtype, axes, depth - 1)
        if self.chance(0.15) and dtype in ("f32", "i64") and not t.weak(b):  # a narrower dtype, promoted
            narrow = {"f32": ("f16", "bf16", "i32", "u16"), "i64": ("i32", "i8", "u32", "i16")}[dtype]
            b = t.cast(b, self.rng.choice(narrow))
        if self.chance(0.4):
            a, b = b, a
        return t.binary(fn, a, b)

    def part(self, dtype: str, axes: tuple[str, ...], depth: int) -> t.Expression:
        """An expression that broadcasts to the axes."""
        if not axes or self.chance(0.6):
            return self.full(dtype, axes, depth)
        kept = [i for i in range(len(axes)) if self.chance(0.5)]
        inner = self.full(dtype, tuple(axes[i] for i in kept), depth)
        first = kept[0] if kept and self.chance(0.5) else 0 if kept else len(axes)
        return t.expand(inner, tuple(i - first for i in range(first, len(axes)) if i not in kept))

    def bool_(self, axes: tuple[str, ...], depth: int) -> t.Expression:
        match self.among(compare=5, logic=2, no=0.7, load=0.7, cast=0.7):
            case "compare":
                dtype = self.rng.choice(("f32", "i32", "i32", self.float_dtype(), self.int_dtype()))
                a = self.full(dtype, axes, depth - 1)
                b = self.weak(dtype) if self.chance(0.3) else self.part(dtype, axes, depth - 1)
                return t.compare(self.rng.choice(COMPARISONS), a, b)
            case "logic":
                a, b = self.full("bool", axes, depth - 1), self.part("bool", axes, depth - 1)
                return t.binary(self.rng.choice(("and", "or", "xor")), a, b)
            case "no":
                return t.unary("not", self.full("bool", axes, depth - 1))
            case "load":
                return self.leaf("bool", axes)
            case _:
                return t.cast(self.full(self.any_dtype(), axes, depth - 1), "bool")

    def reducible(self, axes: tuple[str, ...]) -> list[str]:
        """Ranges along which a value over the axes can be reduced to them."""
        return [
            name
            for name in self.scope
            if name not in axes
            and name not in self.banned
            and self.ranges[name].block is not None
            and not self.ranges[name].auto
            and len(axes) < 4
            and self.elements((*axes, name)) <= self.most_tile
        ]

    def reduce(self, dtype: str, axes: tuple[str, ...], depth: int, over: list[str]) -> t.Expression:
        """A reduction along one of ``over``, in the dtype."""
        return self.reduced(dtype, axes, depth, self.rng.choice(over))

    def reduced(self, dtype: str, axes: tuple[str, ...], depth: int, name: str, fn: str = "") -> t.Expression:
        """A reduction along a range."""
        fn = fn or self.among(sum=4, max=2, min=2, mean=1, argmax=0.7)
        at = self.rng.randint(0, len(axes))
        inner = (*axes[:at], name, *axes[at:])
        if fn == "argmax":
            source = self.rng.choice(("f32", "i32", "f16"))
        elif fn == "mean":
            source = dtype if t.is_float(dtype) else "f32"
        elif fn == "sum" and dtype in t.INTS and self.chance(0.3):
            source = "bool"
        else:
            source = dtype
        return t.cast(t.reduce(fn, self.full(source, inner, depth - 1), at), dtype)

    # -- scopes -------------------------------------------------------------------------------------------------------
    @contextmanager
    def inside(self, name: str) -> Any:
        """A range in force, and names that end with it."""
        names = len(self.names)
        self.scope.append(name)
        yield
        self.scope.remove(name)
        del self.names[names:]

    def kernel(self, name: str, family: str, grid: Sequence[str], body: Sequence[t.Statement], **more: Any) -> t.Kernel:
        """The finished kernel; what nothing uses is left out."""
        used: set[str] = set()
        _used_tensors(body, used)
        tensors = {n: x for n, x in self.tensors.items() if n in used or x.use != "in"}
        dims = {d for x in tensors.values() for d in x.dims}
        for r in self.ranges.values():  # an extent is read from a tensor
            if r.dim not in dims and (r.kind != "axis" or _names_range(body, r.name)):
                extra = t.Tensor(f"z{len(tensors)}", "i8", (r.dim,), "in")
                tensors[extra.name] = extra
                dims.add(r.dim)
        ranges = {n: r for n, r in self.ranges.items() if r.dim in dims}
        if (_expensive(body) > 1 or _nodes(body) > 30) and self.chance(0.9):
            ranges = {n: replace(r, block=16, auto=False) if r.auto else r for n, r in ranges.items()}
        extents = {d: n for d, n in self.extents.items() if d in dims}
        return t.Kernel(
            name, more.pop("numerics", "strict"), tuple(grid), ranges, tensors, extents, self.scalars, tuple(body),
            family, static=frozenset(self.static & extents.keys()), **more,
        )  # fmt: skip


CHEAP = ("abs", "neg", "floor", "ceil", "round", "trunc", "pow2", "pow3")
EXPENSIVE = {"floordiv", "mod", "div", "mean", "pow", "atan2", "hypot", "fmod", *FLOAT_FUNCTIONS}.difference(CHEAP)


def _expensive(body: Sequence[t.Statement]) -> int:
    """Functions of many instructions: unrolled over large tiles they keep NVRTC busy for minutes."""
    found: list[object] = []
    _walk(body, lambda x: found.append(x) if getattr(x, "fn", "") in EXPENSIVE else None)
    return len(found)


def _nodes(body: Sequence[t.Statement]) -> int:
    """Size of the tree."""
    found: list[object] = []
    _walk(body, found.append)
    return len(found)


def _used_tensors(body: Sequence[t.Statement], used: set[str]) -> None:
    """Tensors that statements name."""
    _walk(body, lambda x: used.add(x.tensor) if isinstance(x, t.Load | t.Store | t.Add | t.Extent) else None)


def _names_range(body: Sequence[t.Statement], name: str) -> bool:
    found: list[object] = []

    def look(x: object) -> None:
        if isinstance(x, t.Place) and x.range == name:
            found.append(x)
        if isinstance(x, t.Load | t.Store | t.Add) and name in x.coords:
            found.append(x)
        if isinstance(x, t.Index) and name in x.axes:
            found.append(x)
        if isinstance(x, t.Fragment) and name in x.ranges:
            found.append(x)

    _walk(body, look)
    return bool(found)


def _walk(x: Any, visit: Any) -> None:
    """Every node below a value."""
    if isinstance(x, tuple | list):
        for part in x:
            _walk(part, visit)
    elif hasattr(x, "__dataclass_fields__"):
        visit(x)
        for name in x.__dataclass_fields__:
            _walk(getattr(x, name), visit)
