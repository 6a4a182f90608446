"""The simulator computes what the IR says, on arrays of any strides and dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.transport import (
    TID,
    M,
    N,
    P,
    R,
    binary,
    copy,
    fill,
    index,
    kernel,
    mapped,
    programs,
    scalar,
    softmax,
    tensor,
    unary,
)
from tilewright import simulate
from tilewright.base.dtypes import DTYPES, STORED, bf16, f16, f32, i32, i64
from tilewright.base.expr import TRUE, Const, ceildiv, minimum, sym
from tilewright.lang.enums import AtomicFn
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t


def _rng():
    return np.random.default_rng(7)


def test_softmax_agrees_with_numpy_in_any_order_of_programs() -> None:
    x = _rng().standard_normal((61, 1000)).astype(np.float32)
    for seed in range(3):
        for grid_size in (1, 3, 100):
            y = np.full_like(x, np.nan)
            report = simulate.run(softmax(), {"x": x, "y": y}, seed=seed, grid_size=grid_size)
            exp = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
            np.testing.assert_allclose(y, exp / exp.sum(1, keepdims=True), rtol=1e-5)
            assert report.programs == 8
            assert report.ctas == min(grid_size, 8)
            assert report.elements_stored == x.size


def test_seed_fixes_the_run() -> None:
    x = _rng().standard_normal((16, 64)).astype(np.float32)
    first, second = np.zeros_like(x), np.zeros_like(x)
    reports = [simulate.run(softmax(), {"x": x, "y": y}, seed=5) for y in (first, second)]
    assert reports[0] == reports[1]
    assert (first == second).all()


@pytest.mark.parametrize("name", [d.name for d in STORED])
def test_copy_moves_every_dtype_exactly(name: str) -> None:
    from_name = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
    kind = {"f": "float", "i": "int", "u": "uint"}.get(name[0], "")
    dtype = np.dtype("bool" if name == "bool" else from_name.get(name) or kind + name[1:])
    x = (_rng().standard_normal(1000) * 20).astype(np.int64 if kind == "uint" else dtype).astype(dtype)
    y = np.zeros(1000, dtype)
    simulate.run(copy(dtype=DTYPES[name]), {"x": x, "y": y})
    assert (x.view(np.uint8) == y.view(np.uint8)).all()


def test_arrays_of_any_strides() -> None:
    base = _rng().standard_normal((500, 7)).astype(np.float32)
    x, y = base[::-1, 3], np.zeros((500, 2), np.float32)[:, 1]
    simulate.run(copy(), {"x": x, "y": y})
    assert (x == y).all()


def test_sixteen_bit_results_are_rounded_once_per_op() -> None:
    for dtype, numpy_dtype in ((bf16, ml_dtypes.bfloat16), (f16, np.float16)):

        def build(x, y, dtype=dtype):
            a, b = t.Registers("a", dtype, 1), t.Registers("b", dtype, 1)
            place, inside = [TID], TID < M
            return [
                a,
                b,
                t.Load(x, a.buffer, place, inside),
                binary("mul", a.buffer, a.buffer, b.buffer, 1),
                binary("add", b.buffer, a.buffer, b.buffer, 1),
                unary("exp", b.buffer, b.buffer, 1),
                t.Store(y, b.buffer, place, inside),
            ]

        op = kernel({"x": tensor("x", [M], dtype), "y": tensor("y", [M], dtype)}, build)
        x = _rng().standard_normal(32).astype(numpy_dtype)
        y = np.zeros_like(x)
        simulate.run(op, {"x": x, "y": y})
        square = (x.astype(np.float32) ** 2).astype(numpy_dtype)
        total = (square.astype(np.float32) + x.astype(np.float32)).astype(numpy_dtype)
        assert (y == np.exp(total.astype(np.float32)).astype(numpy_dtype)).all()


def _through_fold(fn: str, x: np.ndarray, into: int, dtype=f32, start: float = 0.0) -> np.ndarray:
    """Fold 8 registers of 32 threads into ``into`` targets, register r into r % into."""

    def build(source, target):
        v, out = t.Registers("v", dtype, 8), t.Registers("out", dtype, into)
        return [
            v,
            out,
            t.Load(source, v.buffer, [TID, R], TRUE),
            fill(start, out.buffer),
            t.Fold(fn, [v.buffer], [out.buffer], R % into),
            t.Store(target, out.buffer, [TID, R], TRUE),
        ]

    op = kernel(
        {"x": tensor("x", [Const(32), Const(8)], dtype), "y": tensor("y", [Const(32), Const(into)], dtype)}, build
    )
    y = np.zeros((32, into), x.dtype)
    simulate.run(op, {"x": x, "y": y})
    return y


@pytest.mark.parametrize("into", [1, 2, 4, 8])
def test_fold_adds_in_register_order(into: int) -> None:
    x = (_rng().standard_normal((32, 8)) * 10.0 ** _rng().integers(-6, 6, (32, 8))).astype(np.float32)
    expected = np.zeros((32, into), np.float32)
    for register in range(8):
        expected[:, register % into] += x[:, register]
    assert (_through_fold("sum", x, into) == expected).all()


def test_fold_of_sixteen_bits_rounds_every_step() -> None:
    x = _rng().standard_normal((32, 8)).astype(ml_dtypes.bfloat16)
    expected = np.zeros(32, ml_dtypes.bfloat16)
    for register in range(8):
        expected = (expected.astype(np.float32) + x[:, register].astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert (_through_fold("sum", x, 1, bf16)[:, 0] == expected).all()


def test_max_propagates_nan() -> None:
    x = _rng().standard_normal((32, 8)).astype(np.float32)
    x[3, 5] = np.nan
    y = _through_fold("max", x, 1, start=float("-inf"))[:, 0]
    assert np.isnan(y[3])
    assert (y[:3] == x[:3].max(1)).all()


def _argmax(x: np.ndarray) -> np.ndarray:
    """Index of the greatest of 32 x 8 elements, folded in registers and shuffled over lanes."""

    def build(source, target):
        v, at = t.Registers("v", f32, 8), t.Registers("at", i32, 8)
        top, where = t.Registers("top", f32, 1), t.Registers("where", i32, 1)
        return [
            v,
            at,
            top,
            where,
            t.Load(source, v.buffer, [TID * 8 + R], TRUE),
            index(TID * 8 + R, at.buffer, 8),
            fill(float("-inf"), top.buffer),
            fill(2**31 - 1, where.buffer),
            t.Fold("argmax", [v.buffer, at.buffer], [top.buffer, where.buffer], Const(0)),
            t.Shuffle("argmax", [top.buffer, where.buffer], [16, 8, 4, 2, 1]),
            t.Store(target, where.buffer, [TID], TRUE),
        ]

    op = kernel({"x": tensor("x", [Const(256)]), "y": tensor("y", [Const(32)], i32)}, build)
    y = np.zeros(32, np.int32)
    simulate.run(op, {"x": x, "y": y})
    return y


def test_argmax_takes_the_lowest_index_of_equals_and_the_first_nan() -> None:
    x = _rng().integers(0, 3, 256).astype(np.float32)
    assert (_argmax(x) == int(x.argmax())).all()
    x[[100, 40]] = np.nan
    assert (_argmax(x) == 40).all()


def test_map_reads_see_earlier_writes_of_lower_registers() -> None:
    def build(y):
        v = t.Registers("v", i32, 4)
        body = lambda a, b: ([op := tile.Binary("add", a, b)], [op.result])  # noqa: E731
        running = mapped([v.buffer, v.buffer], [v.buffer], 4, body, [R, (R + 3) % 4 * minimum(R, 1)])
        return [v, fill(1, v.buffer), running, t.Store(y, v.buffer, [R], TID.eq(0))]

    y = np.zeros(4, np.int32)
    simulate.run(kernel({"y": tensor("y", [Const(4)], i32)}, build), {"y": y})
    assert y.tolist() == [2, 3, 4, 5]  # v[0] + v[0], then each adds what its left neighbour now holds


def test_scalars_loops_lets_and_branches() -> None:
    def build(y, scale, steps):
        v = t.Registers("v", f32, 1)

        def add(a):
            op = tile.Binary("add", a, scale)
            return [op], [op.result]

        odd = t.If((sym("q") % 2).eq(1), t.block([fill(0.0, v.buffer)]), t.block([]))
        loop = t.For("c", Const(1), sym("steps") + 1, Const(2), t.block([mapped([v.buffer], [v.buffer], 1, add)]))
        body = [t.Let("q", P * 2 + sym("steps") % 2), v, fill(100.0, v.buffer), odd, loop]
        body.append(t.Store(y, v.buffer, [P], TID.eq(0)))
        return [programs(["p"], [M], body)]

    op = kernel({"y": tensor("y", [M]), "scale": scalar(f32), "steps": scalar(i64)}, build)
    for steps in (0, 1, 4, 5):
        y = np.zeros(3, np.float32)
        simulate.run(op, {"y": y}, {"scale": 0.5, "steps": steps})
        assert y.tolist() == [100 * (1 - steps % 2) + 0.5 * ((steps + 1) // 2)] * 3


def test_reduce_add_sums_over_programs() -> None:
    def build(x, y):
        v = t.Registers("v", f32, 2)
        coords = [P * 64 + TID * 2 + R]
        ops = [
            v,
            t.Load(x, v.buffer, coords, coords[0] < M),
            t.AtomicReduce(AtomicFn.ADD, y, v.buffer, [TID % 8], TRUE),
        ]
        return [programs(["p"], [ceildiv(M, 64)], ops)]

    x = _rng().integers(-9, 9, 1000).astype(np.float32)
    y = np.zeros(8, np.float32)
    simulate.run(kernel({"x": tensor("x", [M]), "y": tensor("y", [Const(8)])}, build), {"x": x, "y": y})
    padded = np.zeros(1024, np.float32)
    padded[:1000] = x
    assert (y == padded.reshape(-1, 8, 2).sum((0, 2))).all()


def test_sums_in_memory_take_subnormals_for_zeros() -> None:
    """As red.global.add.f32 does (seen on an H200); the sum of normal numbers may be subnormal, and is zero too."""

    def build(x, y):
        v = t.Registers("v", f32, 1)
        return [v, t.Load(x, v.buffer, [TID], TRUE), t.AtomicReduce(AtomicFn.ADD, y, v.buffer, [TID], TRUE)]

    x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
    x[:5] = 3e-40, -3e-40, 0.0, 2e-38, 1.5e-38
    y[:5] = 0.0, -0.0, 3e-40, -1.5e-38, 3e-40
    simulate.run(kernel({"x": tensor("x", [M]), "y": tensor("y", [M])}, build), {"x": x, "y": y})
    assert y[:5].tolist() == [0.0, -0.0, 0.0, 0.0, float(np.float32(1.5e-38))]
    assert np.signbit(y[1])
    assert (y[5:] == 1).all()


def test_print_shows_guarded_elements() -> None:
    def build(x):
        v = t.Registers("v", f32, 2)
        return [v, t.Load(x, v.buffer, [TID * 2 + R], TRUE), t.Print("x = {}", [v.buffer], [R], TID.eq(3), 2)]

    x = np.arange(64, dtype=np.float32) / 4
    report = simulate.run(kernel({"x": tensor("x", [Const(64)])}, build), {"x": x})
    assert report.printed == ("x = 1.5", "x = 1.75")


_UNARY = {
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
    "erf": lambda x: np.array([__import__("math").erf(v) for v in x]),
    "log1p": np.log1p,
    "expm1": np.expm1,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
}


@pytest.mark.parametrize("fn", sorted(_UNARY))
def test_functions_of_one_element(fn: str) -> None:
    def build(x, y):
        v = t.Registers("v", f32, 1)
        load, store = t.Load(x, v.buffer, [TID], TRUE), t.Store(y, v.buffer, [TID], TRUE)
        return [v, load, unary(fn, v.buffer, v.buffer, 1), store]

    x = np.linspace(0.1, 4, 32).astype(np.float32)
    y = np.zeros_like(x)
    simulate.run(kernel({"x": tensor("x", [Const(32)]), "y": tensor("y", [Const(32)])}, build), {"x": x, "y": y})
    np.testing.assert_allclose(y, _UNARY[fn](x.astype(np.float64)), rtol=1e-6)


def test_casts_from_float_truncate_and_saturate() -> None:
    def build(x, y):
        v, w = t.Registers("v", f32, 1), t.Registers("w", i32, 1)

        def body(a):
            op = tile.Cast(a, i32)
            return [op], [op.result]

        load, store = t.Load(x, v.buffer, [TID], TID < M), t.Store(y, w.buffer, [TID], TID < M)
        return [v, w, load, mapped([v.buffer], [w.buffer], 1, body), store]

    x = np.array([1.9, -1.9, 3e9, -3e9, np.nan, np.inf], np.float32)
    y = np.zeros(6, np.int32)
    simulate.run(kernel({"x": tensor("x", [M]), "y": tensor("y", [M], i32)}, build), {"x": x, "y": y})
    assert y.tolist() == [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1]


def test_row_and_column_extents_of_one() -> None:
    x = np.ones((1, 4), np.float32)
    y = np.zeros_like(x)
    simulate.run(softmax(), {"x": x, "y": y})
    assert (y == 0.25).all()
    assert N.name == "N"
