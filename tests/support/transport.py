"""Transport IR written by hand, for the tests of what reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import DType, f32, i32
from tilewright.base.expr import TRUE, Const, Expr, all_of, ceildiv, sym
from tilewright.hw.target import SM90A
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import TensorType, TileType
from tilewright.transport import dialect as t

M, N, P, TID, R = sym("M"), sym("N"), sym("p"), sym("$tid"), sym("$r")


def scalar(dtype: DType) -> TileType:
    return TileType.of(dtype, [])


def kernel(
    args: dict[str, TileType | TensorType],
    build: Callable[..., Sequence[Operation]],
    *,
    threads: int = 32,
    assumptions: Sequence[Expr] = (),
) -> t.Kernel:
    """A kernel of ``args`` whose ops ``build`` makes from the argument values."""
    op = t.Kernel(
        "k",
        list(args),
        list(args.values()),
        target=SM90A,
        threads=threads,
        min_ctas=1,
        index_bits=64,
        numerics="strict",
        assumptions=assumptions,
    )
    op.body.block.add_ops(build(*op.body.block.args))
    return op


def programs(
    names: Sequence[str], extents: Sequence[Expr], ops: Sequence[Operation], *, persistent: bool = False
) -> t.Programs:
    return t.Programs(names, extents, persistent, t.block(ops))


def mapped(
    inputs: Sequence[SSAValue],
    outputs: Sequence[SSAValue],
    count: int,
    body: Callable[..., tuple[Sequence[Operation], Sequence[SSAValue]]],
    reads: Sequence[Expr] | None = None,
) -> t.Map:
    """A map whose ``body`` turns block arguments into (ops, results)."""
    types = [scalar(t.registers_of(v).dtype.dtype) for v in inputs]
    block = Block(arg_types=types)
    ops, results = body(*block.args)
    block.add_ops([*ops, t.Yield(results)])
    return t.Map(inputs, reads or [R] * len(inputs), outputs, count, Region(block))


def unary(fn: str, source: SSAValue, target: SSAValue, count: int) -> t.Map:
    def body(x: SSAValue):
        op = tile.Unary(fn, x)
        return [op], [op.result]

    return mapped([source], [target], count, body)


def binary(
    fn: str, a: SSAValue, b: SSAValue, target: SSAValue, count: int, reads: Sequence[Expr] | None = None
) -> t.Map:
    def body(x: SSAValue, y: SSAValue):
        op = tile.Binary(fn, x, y)
        return [op], [op.result]

    return mapped([a, b], [target], count, body, reads)


def fill(value: float | int | bool, target: SSAValue) -> t.Map:
    kind = t.registers_of(target)

    def body():
        op = tile.Constant(value, kind.dtype.dtype)
        return [op], [op.result]

    return mapped([], [target], kind.count.data, body)


def index(node: Expr, target: SSAValue, count: int) -> t.Map:
    def body():
        op = tile.ScalarExpr(node, i32)
        return [op], [op.result]

    return mapped([], [target], count, body)


def tensor(name: str, dims: Sequence[Expr], dtype: DType = f32) -> TensorType:
    return TensorType.of(dtype, dims, name)


def copy(
    *, guard: Expr | None = None, threads: int = 32, regs: int = 4, vector: int = 1, dtype: DType = f32
) -> t.Kernel:
    """y = x over a flat axis."""
    place = P * (threads * regs) + TID * regs + R
    inside = (place < M) if guard is None else guard

    def build(x: SSAValue, y: SSAValue) -> list[Operation]:
        buffer = t.Registers("v", dtype, regs)
        ops = [
            buffer,
            t.Load(x, buffer.buffer, [place], inside, vector=vector).at("user.py:3", "load x"),
            t.Store(y, buffer.buffer, [place], inside, vector=vector).at("user.py:4", "store y"),
        ]
        return [programs(["p"], [ceildiv(M, threads * regs)], ops)]

    return kernel({"x": tensor("x", [M], dtype), "y": tensor("y", [M], dtype)}, build, threads=threads)


def softmax(*, barrier: bool = True, dtype: DType = f32, persistent: bool = True) -> t.Kernel:
    """Rows of up to 1024 columns, 8 rows a program, one warp a row, 32 registers a thread; sums in shared memory."""
    row, col = P * 8 + TID // 32, R // 4 * 128 + TID % 32 * 4 + R % 4
    inside = all_of([row < M, col < N])

    def build(x: SSAValue, y: SSAValue) -> list[Operation]:
        shared = t.Shared("sums", f32, 8)
        v, w, top, total, seen = (
            t.Registers("v", dtype, 32),
            t.Registers("w", f32, 32),
            t.Registers("top", f32, 1),
            t.Registers("total", f32, 1),
            t.Registers("seen", f32, 1),
        )

        def masked(a: SSAValue):
            cast, low, take = tile.Cast(a, f32), tile.Constant(float("-inf"), f32), t.Predicate(inside)
            pick = tile.Select(take.result, cast.result, low.result)
            return [cast, low, take, pick], [pick.result]

        def shifted(a: SSAValue, b: SSAValue):
            diff = tile.Binary("sub", a, b)
            exp = tile.Unary("exp", diff.result)
            return [diff, exp], [exp.result]

        def divided(a: SSAValue, b: SSAValue):
            ratio = tile.Binary("div", a, b)
            cast = tile.Cast(ratio.result, dtype)
            return [ratio, cast], [cast.result]

        zero = Const(0)
        lanes = [16, 8, 4, 2, 1]
        body = [
            v,
            w,
            top,
            total,
            seen,
            t.Load(x, v.buffer, [row, col], inside, vector=4, axis=1),
            mapped([v.buffer], [w.buffer], 32, masked),
            fill(float("-inf"), top.buffer),
            fill(0.0, total.buffer),
            t.Fold("max", [w.buffer], [top.buffer], zero),
            t.Shuffle("max", [top.buffer], lanes),
            mapped([w.buffer, top.buffer], [w.buffer], 32, shifted, [R, zero]),
            t.Fold("sum", [w.buffer], [total.buffer], zero),
            t.Shuffle("sum", [total.buffer], lanes),
            t.SharedWrite(shared.buffer, total.buffer, TID // 32, (TID % 32).eq(0)),
            *([t.Barrier()] if barrier else []),
            t.SharedRead(shared.buffer, seen.buffer, TID // 32, TRUE),
            *([t.Barrier()] if barrier else []),
            mapped([w.buffer, seen.buffer], [v.buffer], 32, divided, [R, zero]),
            t.Store(y, v.buffer, [row, col], inside, vector=4, axis=1),
        ]
        return [shared, programs(["p"], [ceildiv(M, 8)], body, persistent=persistent)]

    args = {"x": tensor("x", [M, N], dtype), "y": tensor("y", [M, N], dtype)}
    return kernel(args, build, threads=256, assumptions=[N <= 1024, (N % 4).eq(0)])
