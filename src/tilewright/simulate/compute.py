"""Ops on registers: maps, folds, shuffles, each for all threads at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from tilewright.base.dtypes import DType
from tilewright.simulate import elementwise
from tilewright.simulate.registers import RegisterBuffer
from tilewright.simulate.report import refuse
from tilewright.simulate.symbols import Array, RegisterNumbers, Symbols, Value
from tilewright.simulate.values import memory_dtype, rounded, to_memory, to_registers
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import TileType
from tilewright.transport.dialect import (
    Approximate,
    ExponentScale,
    Fma,
    Fold,
    Map,
    Predicate,
    Shuffle,
    TransportOp,
    Yield,
)

_LANES = 32
_SEQUENTIAL = frozenset({"f16", "bf16"})  # each partial result is rounded, so the order is walked step by step


def run_map(
    op: Map,
    inputs: Sequence[RegisterBuffer],
    outputs: Sequence[RegisterBuffer],
    symbols: Symbols,
    scalars: Mapping[SSAValue, Any],
) -> None:
    """Evaluate the body for every live register, all at once where no register reads what an earlier one wrote.

    Results that are not live may or may not be written, so they count as undefined afterwards.
    """
    count = op.count.data
    reads = [_index(op, symbols, read.expr, count, buffer) for read, buffer in zip(op.reads, inputs, strict=True)]
    for output in outputs:
        if output.count < count:
            refuse(op, "SIM012", found=f"register {count - 1} of {output.hint!r}", required=f"below {output.count}")
    alive = _live(op, symbols, op.live.expr, count)
    every = np.arange(count)
    steps = every if alive is None else every[alive]
    written = {id(output) for output in outputs}
    in_order = any(
        id(b) in written and not read.plain and (read.registers < every).any()
        for b, read in zip(inputs, reads, strict=True)
    )
    pieces = [steps[i : i + 1] for i in range(len(steps))] if in_order else [steps]
    for piece in pieces:
        whole = len(piece) == count
        values: dict[SSAValue, Any] = dict(scalars)
        for argument, buffer, read in zip(op.body.block.args, inputs, reads, strict=True):
            index = read.registers if whole else read.registers[piece]
            buffer.touch(op, index)
            buffer.require(op, index=index)
            straight = whole and read.plain and count == buffer.count
            values[argument] = buffer.data if straight else buffer.data[:, index]
        results = _body(op, values, symbols, count, None if whole else piece)
        for output, result in zip(outputs, results, strict=True):
            output.touch(op, piece)
            output.data[:, slice(count) if whole else piece] = result
    for output in outputs:
        output.wrote(registers=None if len(steps) == output.count else steps)
        if alive is not None:
            output.spoil(every[~alive])


def _body(op: Map, values: dict[SSAValue, Any], symbols: Symbols, count: int, piece: Array | None) -> list[Any]:
    for inner in op.body.block.ops:
        if isinstance(inner, Yield):
            # copies: an output may be an input of this very map
            return [np.array(values[v]) for v in inner.values]
        result = inner.results[0]
        assert isinstance(result.type, TileType)
        values[result] = _scalar(inner, result.type.dtype.dtype, values, symbols, count, piece)
    raise AssertionError("a map's body ends with a yield")


def _scalar(
    op: Any, dtype: DType, values: Mapping[SSAValue, Any], symbols: Symbols, count: int, piece: Array | None
) -> Any:
    operands: list[Any] = [values[v] for v in op.operands]
    match op:
        case tile.Constant():
            return rounded(np.asarray(op.value.data), dtype)
        case tile.ScalarExpr() | Predicate():
            value = np.asarray(_wrapped(symbols.of(op.expr.expr, count)))
            if piece is not None and value.ndim == 2 and value.shape[1] == count:
                value = value[:, piece]
            return rounded(value, dtype)
        case tile.Unary():
            return rounded(elementwise.UNARY[op.fn.data](operands[0]), dtype)
        case tile.Binary():
            return rounded(elementwise.binary(op.fn.data, dtype)(*operands), dtype)
        case tile.Fma() | Fma():
            return elementwise.fma(*operands)
        case Approximate():
            return rounded(elementwise.APPROXIMATE[op.fn.data](operands[0]), dtype)
        case ExponentScale():
            return elementwise.exponent_scale(*operands)
        case tile.Compare():
            return elementwise.COMPARE[op.fn.data](*operands)
        case tile.Select():
            cond, a, b = map(np.asarray, operands)
            return np.where(cond, a, b)
        case tile.Bitcast():
            source = tile.tile_type(op.x).element
            return to_registers(to_memory(np.asarray(operands[0]), source).view(memory_dtype(dtype)), dtype)
        case tile.Cast():
            source = op.operands[0].type
            assert isinstance(source, TileType)
            return elementwise.cast(operands[0], source.dtype.dtype, dtype)
        case _:
            raise AssertionError(f"{op.name} in a map's body")


def run_fold(op: Fold, sources: Sequence[RegisterBuffer], targets: Sequence[RegisterBuffer], symbols: Symbols) -> None:
    """Fold the live registers into the targets in the order of their index."""
    live = _live(op, symbols, op.live.expr, sources[0].count)
    alive = np.arange(sources[0].count) if live is None else np.flatnonzero(live)
    if not len(alive):
        return
    into = _index(op, symbols, op.into.expr, sources[0].count, targets[0]).registers[alive]
    for source in sources:
        source.touch(op, alive)
        source.require(op, index=alive)
    for target in targets:
        target.touch(op, into)
        target.require(op, index=np.unique(into))
    order = np.argsort(into, kind="stable")
    used, starts = np.unique(into[order], return_index=True)
    lengths = np.diff([*starts, len(alive)])
    order = alive[order]
    even = bool((lengths == lengths[0]).all())
    dtype = targets[0].dtype
    if op.fn.data != "argmax" and even and dtype.name not in _SEQUENTIAL:
        # reduction over the leading axis adds whole slabs one after the other, in order
        data = sources[0].data[:, order].reshape(-1, len(used), lengths[0]).transpose(2, 0, 1)
        fn = elementwise.binary(op.fn.data, dtype)
        slabs = np.concatenate([targets[0].data[None][:, :, used], data])
        folded = fn.reduce(slabs, axis=0) if isinstance(fn, np.ufunc) else reduce(fn, slabs)
        targets[0].data[:, used] = rounded(folded, dtype)
        return
    for step in range(int(lengths.max())):
        longer = lengths > step
        registers, at = order[starts[longer] + step], used[longer]
        mine, other = [t.data[:, at] for t in targets], [s.data[:, registers] for s in sources]
        for target, value in zip(targets, _combine(op.fn.data, targets, mine, other), strict=True):
            target.data[:, at] = value


def run_shuffle(op: Shuffle, buffers: Sequence[RegisterBuffer]) -> None:
    """Butterfly over lanes, for every register of the buffers."""
    for buffer in buffers:
        buffer.touch(op)
        buffer.require(op)
    lanes = np.arange(_LANES)
    for distance in op.distances:
        mine = [b.data for b in buffers]
        other = [b.data.reshape(-1, _LANES, b.count)[:, lanes ^ distance.data].reshape(b.data.shape) for b in buffers]
        for buffer, value in zip(buffers, _combine(op.fn.data, buffers, mine, other), strict=True):
            buffer.data[...] = value


def _combine(fn: str, buffers: Sequence[RegisterBuffer], mine: list[Array], other: list[Array]) -> list[Array]:
    if fn == "argmax":
        replaced = elementwise.argmax(mine[0], mine[1], other[0], other[1])
        return [np.where(replaced, b, a) for a, b in zip(mine, other, strict=True)]
    dtype = buffers[0].dtype
    return [rounded(elementwise.binary(fn, dtype)(a, b), dtype) for a, b in zip(mine, other, strict=True)]


def _wrapped(value: Value) -> Value:
    """An integer reduced to 64 bits, two's complement."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63) if type(value) is int else value


def _live(op: TransportOp, symbols: Symbols, node: Any, count: int) -> Array | None:
    """The registers that are read later, the same for all threads; None: all."""
    value = np.asarray(symbols.of(node, count), np.bool_)
    assert value.size in (1, count), f"{op.name}: live depends on the thread"
    return None if value.all() else np.broadcast_to(value.ravel(), count)


def _index(op: TransportOp, symbols: Symbols, node: Any, count: int, buffer: RegisterBuffer) -> RegisterNumbers:
    index = symbols.index(node, count)
    if index.low < 0 or index.high >= buffer.count:
        outside = (index.registers < 0) | (index.registers >= buffer.count)
        register = int(outside.argmax())
        refuse(
            op,
            "SIM012",
            found=f"register {int(index.registers[register])} of {buffer.hint!r}, at r = {register}",
            required=f"0 <= register < {buffer.count}",
        )
    return index
