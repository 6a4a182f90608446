"""Random arguments of a kernel's class: extents at and near tile edges, strides, and small data whose sums are exact in
any order."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.expr import Compare, Const, Expr, ExprError, Sym, symbol_plus
from tilewright.compiler.reliance import BROKEN, TAKEN
from tilewright.simulate.values import memory_dtype
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import TensorType, TileType
from tilewright.tile.ops import tensor_type
from tilewright.transport import dialect as t

Array: TypeAlias = "NDArray[Any]"
Symbols: TypeAlias = dict[str, int]

_EDGES = (0, 1, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40, 63, 64, 65, 100, 127, 129, 160, 200, 257, 300)
_PITCHES = (1, 8, 16, 64, 128)
"""Multiples to which row lengths are rounded up: the first that the class admits."""
_TRIES = 60
_MOST_ELEMENTS = 1 << 18
"""The most elements of a tensor, padding between rows included."""
_LARGE = 48
"""Every third time, extents are drawn from here on, to reach the interior of tiles."""
_ALIGN_BYTES = 256
_KEPT = 0.75
"""How often drawn integers keep the kernel's promises."""


@dataclass(frozen=True)
class SampledTensor:
    """A tensor in a block of bytes aligned to 256."""

    block: NDArray[np.uint8]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def view(self) -> Array:
        """The elements; strides are in elements."""
        steps = tuple(s * self.dtype.itemsize for s in self.strides)
        return np.ndarray(self.shape, self.dtype, self.block.data, 0, steps)

    def copied(self) -> SampledTensor:
        """A copy in a block of its own."""
        block = _block(self.block.size)
        block[:] = self.block
        return SampledTensor(block, self.dtype, self.shape, self.strides)


@dataclass(frozen=True)
class SampledArguments:
    """The arguments of one launch."""

    tensors: Mapping[str, SampledTensor]
    scalars: Mapping[str, int | float]
    extents: Mapping[str, int]

    def __str__(self) -> str:
        named = {**self.extents, **self.scalars}
        return ", ".join(f"{name} = {value}" for name, value in named.items()) or "no extents"


def sample_arguments(kernel: t.Kernel, seed: int, also: Sequence[Expr] = ()) -> SampledArguments | None:
    """Arguments that satisfy all assumptions of the kernel, and ``also``; None where none are found."""
    facts = [*_facts(kernel), *also]
    rng = random.Random(seed)
    least = _LARGE if seed % 3 == 0 else 0
    for _ in range(_TRIES):
        scalars = _scalars(kernel, rng)
        extents = _extents(kernel, facts, {n: v for n, v in scalars.items() if isinstance(v, int)}, least, rng)
        if extents is None:
            return None
        for pitch in _PITCHES:
            tensors = _tensors(kernel, facts, extents, pitch, np.random.default_rng(seed))
            if tensors is not None:
                sizes = {n: v for n, v in extents.items() if n not in scalars}
                return SampledArguments(tensors, scalars, sizes)
    return None


def _kinds(kernel: t.Kernel) -> Iterator[tuple[str, TensorType | TileType]]:
    for name, argument in zip(kernel.arg_names, kernel.body.block.args, strict=True):
        assert isinstance(argument.type, TensorType | TileType)
        yield name.data, argument.type


def _facts(kernel: t.Kernel) -> list[Expr]:
    return [fact.expr for fact in kernel.assumptions]


def _scalars(kernel: t.Kernel, rng: random.Random) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for name, kind in _kinds(kernel):
        if isinstance(kind, TileType):
            dtype = kind.dtype.dtype
            least = -3 if dtype.signed else 0
            found[name] = rng.choice((-1.5, 0.25, 0.5, 2.0)) if dtype.is_float else rng.randint(least, 9)
    return found


def _extents(
    kernel: t.Kernel, known_facts: Sequence[Expr], known: Symbols, least: int, rng: random.Random
) -> Symbols | None:
    """Values for all extents that satisfy the facts about extents alone, at least ``least`` where possible."""
    names = {s for _, kind in _kinds(kernel) if isinstance(kind, TensorType) for d in kind.dims for s in d.expr.symbols}
    facts = [fact for fact in known_facts if fact.symbols and fact.symbols <= names | known.keys()]
    given = _given(kernel)
    names -= given.keys()
    pools: dict[str, list[int]] = {}
    for name in sorted(names - known.keys()):
        own = [fact for fact in facts if fact.symbols <= {name}]
        near = {
            max(0, c + d) for fact in facts if name in fact.symbols for c in _constants(fact) for d in (-1, 0, 1, 17)
        }
        pools[name] = [n for n in (*_EDGES, *near) if all(_holds(fact, {name: n}) for fact in own)]
        if not pools[name]:
            return None
        pools[name] = [n for n in pools[name] if n >= least] or pools[name]
    for _ in range(_TRIES):
        found = {**known, **{name: rng.choice(pool) for name, pool in pools.items()}}
        found |= {name: int(extent.evaluate(found)) for name, extent in given.items()}
        if all(_holds(fact, found) for fact in facts):
            return found
    return None


def _given(kernel: t.Kernel) -> dict[str, Expr]:
    """Extents of workspaces, which a launch computes from the others."""
    kinds = dict(_kinds(kernel))
    found: dict[str, Expr] = {}
    for placed in kernel.workspaces or ():
        kind = kinds[placed.tensor.data]
        assert isinstance(kind, TensorType)
        pairs = zip((d.expr for d in kind.dims), (e.expr for e in placed.extents), strict=True)
        found |= {dim.name: extent for dim, extent in pairs if isinstance(dim, Sym) and dim != extent}
    return found


def _constants(fact: Expr) -> list[int]:
    """The constants that a fact compares with."""
    if not isinstance(fact, Compare):
        return []
    return [
        int(side.value) for side in (fact.lhs, fact.rhs) if isinstance(side, Const) and abs(int(side.value)) < 1 << 12
    ]


def _holds(fact: Expr, symbols: Mapping[str, int]) -> bool:
    try:
        return bool(fact.evaluate(symbols))
    except ExprError:
        return True  # about a symbol that is not given here


def _tensors(
    kernel: t.Kernel, facts: Sequence[Expr], extents: Symbols, pitch: int, rng: np.random.Generator
) -> dict[str, SampledTensor] | None:
    """All tensors, with row lengths rounded up to ``pitch`` elements; None where the class has other strides."""
    symbols = dict(extents)
    placed = {w.tensor.data: tuple(s.expr for s in w.strides) for w in kernel.workspaces or ()}
    found: dict[str, SampledTensor] = {}
    for name, kind in _kinds(kernel):
        if not isinstance(kind, TensorType):
            continue
        shape = tuple(int(d.expr.evaluate(extents)) for d in kind.dims)
        if any(n < 0 for n in shape):
            return None
        strides = (
            tuple(int(s.evaluate(extents)) for s in placed[name])
            if name in placed
            else _strides(facts, name, shape, pitch)
        )
        dtype = memory_dtype(kind.dtype.dtype)
        last = sum(max(n - 1, 0) * s for n, s in zip(shape, strides, strict=True))
        if not 0 <= last < _MOST_ELEMENTS:
            return None
        block = _block((last + 1) * dtype.itemsize)
        found[name] = SampledTensor(block, dtype, shape, strides)
        symbols[f"{name}.address"] = int(block.__array_interface__["data"][0])
        symbols |= {f"{name}.stride{i}": s for i, s in enumerate(strides)}
    if not all(_holds(fact, symbols) for fact in facts):
        return None
    _fill(kernel, found, extents, rng)
    return found


def _fill(
    kernel: t.Kernel, tensors: Mapping[str, SampledTensor], extents: Mapping[str, int], rng: np.random.Generator
) -> None:
    """Fills the tensors with random data."""
    limits = {name: int(limit.evaluate(extents)) for name, limit in _limits(kernel)}
    promised = (limits or any(name == BROKEN for name, _ in _kinds(kernel))) and rng.random() < _KEPT
    for name, kind in _kinds(kernel):
        if not isinstance(kind, TensorType):
            continue
        drawn = tensors[name]
        if name == TAKEN:
            continue  # 0 when a launch begins
        kept = promised and drawn.dtype.kind == "i"
        if kept and name in limits:
            drawn.view[...] = _offsets(len(drawn.view), limits[name], rng)
            continue
        drawn.view[...] = _kept_promise(name, kind, drawn.shape, rng) if kept else _data(drawn.shape, drawn.dtype, rng)


def _limits(kernel: t.Kernel) -> Iterator[tuple[str, Expr]]:
    """The offsets that the kernel's CTAs check themselves, with the limit of the last one."""
    for loop in (op for op in kernel.body.block.ops if isinstance(op, t.For)):
        loads = [op for op in loop.body.block.ops if isinstance(op, t.Load)]
        limits = [op for op in loop.walk() if isinstance(op, tile.ScalarExpr)]
        if loads and len(limits) == 1:
            yield tensor_type(loads[0].tensor).tensor_name.data, limits[0].expr.expr


def _offsets(count: int, limit: int, rng: np.random.Generator) -> Array:
    """Ascending offsets from 0 to at most a limit."""
    found = np.sort(rng.integers(0, limit + 1, count))
    found[:1] = 0
    return found


def _strides(facts: Sequence[Expr], name: str, shape: tuple[int, ...], pitch: int) -> tuple[int, ...]:
    """Strides with the class's unit axis innermost (else the last axis), the others around it in order."""
    fixed: dict[int, int] = {}
    for fact in facts:
        match fact:
            case Compare("==", Sym(symbol), Const(value)) | Compare("==", Const(value), Sym(symbol)):
                tensor, _, axis = symbol.rpartition(".stride")
                if tensor == name:
                    fixed[int(axis)] = int(value)
            case _:
                pass
    inner = next((axis for axis, step in fixed.items() if step == 1), len(shape) - 1)
    strides, step = [0] * len(shape), 1
    for axis in (inner, *(a for a in reversed(range(len(shape))) if a != inner)) if shape else ():
        strides[axis] = step = fixed.get(axis, step)
        step *= max(shape[axis], 1)
        step = -(-step // pitch) * pitch if axis == inner else step
    return tuple(strides)


def _block(size: int) -> NDArray[np.uint8]:
    whole = np.zeros(size + _ALIGN_BYTES, np.uint8)
    first = -int(whole.__array_interface__["data"][0]) % _ALIGN_BYTES
    return whole[first : first + size]


def _kept_promise(name: str, kind: TensorType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Integers that keep a promise: distinct ones, or ascending ones for offsets; no promise is broken."""
    if name == BROKEN:
        return np.zeros(shape, np.int64)
    known = symbol_plus(kind.dims.data[0].expr)
    if len(shape) == 1 and known is not None and known[1]:
        return np.cumsum(rng.integers(0, 9, shape))
    return (rng.permutation(math.prod(shape)) - 3).reshape(shape)


def _data(shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    """Multiples of a power of two, which add and multiply exactly. Integers are mostly small in some tensors and
    arbitrary in others, the dtype's limits included."""
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        small = rng.integers(-9 if dtype.kind == "i" else 0, 10, shape)
        whole = rng.integers(ends.min, ends.max, shape, endpoint=True)
        whole = np.where(rng.random(shape) < 0.2, rng.choice([ends.min, ends.max], shape), whole)
        return np.where(rng.random(shape) < rng.choice([0.8, 0.2]), small, whole).astype(dtype)
    most, unit = (256, 64) if dtype.name in ("float16", "float32") else (64, 8)
    return (rng.integers(-most, most, shape, endpoint=True) / unit).astype(dtype)
