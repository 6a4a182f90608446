"""Each error the simulator can report, triggered by a kernel that is one step from being right."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from support.transport import TID, M, N, P, R, binary, copy, fill, kernel, programs, scalar, softmax, tensor
from tilewright import simulate
from tilewright.base.dtypes import f32, i32
from tilewright.base.expr import TRUE, Const, Expr, ceildiv, sym
from tilewright.diag import TilewrightError
from tilewright.lang.enums import AtomicFn
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import dialect as t


def _fails(code: str, op: object, tensors: dict, scalars: dict | None = None, **options: object) -> str:
    with pytest.raises(TilewrightError) as caught:
        simulate.run(op, tensors, scalars, **options)
    assert caught.value.code == code
    return str(caught.value)


def _pair(count: int, dtype: type = np.float32) -> dict[str, np.ndarray]:
    return {"x": np.arange(count).astype(dtype), "y": np.zeros(count, dtype)}


def test_work_above_the_budget_is_refused_before_anything_is_written() -> None:
    tensors = _pair(1000)
    text = _fails("SIM001", copy(), tensors, budget=1000)
    assert "budget=" in text
    assert "test_checks.py" in text  # the call's line, which has the tensors
    assert not tensors["y"].any()
    simulate.run(copy(), tensors, budget=10_000)


def test_access_outside_a_tensor_names_thread_register_and_coordinate() -> None:
    place = P * 128 + TID * 4 + R
    text = _fails("SIM002", copy(guard=place <= M), _pair(250))
    assert "user.py:3" in text
    assert "x[250] by thread 30, register 2" in text  # 128 + 30*4 + 2
    simulate.run(copy(guard=place < M), _pair(250))


def test_negative_coordinates_are_outside() -> None:
    def build(x):
        v = t.Registers("v", f32, 1)
        return [v, t.Load(x, v.buffer, [TID - 1], TID < M)]

    assert "x[-1] by thread 0" in _fails(
        "SIM002", kernel({"x": tensor("x", [M])}, build), {"x": np.zeros(40, np.float32)}
    )


def test_registers_are_written_before_they_are_read() -> None:
    def build(y):
        a, b = t.Registers("a", f32, 2), t.Registers("b", f32, 2)
        add = binary("add", a.buffer, a.buffer, b.buffer, 2)
        return [a, b, *start(a.buffer), add, t.Store(y, b.buffer, [TID * 2 + R], TRUE)]

    start = lambda v: []  # noqa: E731
    op = {"y": tensor("y", [Const(64)])}
    assert "buffer 'a' in thread 0" in _fails("SIM003", kernel(op, build), {"y": np.zeros(64, np.float32)})
    start = lambda v: [fill(1.0, v)]  # noqa: E731
    simulate.run(kernel(op, build), {"y": np.zeros(64, np.float32)})


def _exchange(*, barrier: bool, written: int = 32, size: int = 32) -> t.Kernel:
    """Threads pass a value to their mirror image through shared memory."""

    def build(x, y):
        v, shared = t.Registers("v", f32, 1), t.Shared("pass", f32, size)
        return [
            shared,
            v,
            t.Load(x, v.buffer, [TID], TRUE),
            t.SharedWrite(shared.buffer, v.buffer, TID, written > TID),
            *([t.Barrier()] if barrier else []),
            t.SharedRead(shared.buffer, v.buffer, 31 - TID, TRUE),
            t.Store(y, v.buffer, [TID], TRUE),
        ]

    return kernel({"x": tensor("x", [Const(32)]), "y": tensor("y", [Const(32)])}, build)


def test_shared_memory_needs_a_barrier() -> None:
    _fails("SIM005", _exchange(barrier=False), _pair(32))
    tensors = _pair(32)
    simulate.run(_exchange(barrier=True), tensors)
    assert (tensors["y"] == tensors["x"][::-1]).all()


def test_shared_memory_needs_a_barrier_between_programs_of_one_cta() -> None:
    x = np.ones((64, 8), np.float32)
    both = {"x": x, "y": np.zeros_like(x)}
    simulate.run(softmax(), both)
    reused = softmax()
    last = [op for op in reused.walk() if isinstance(op, t.Barrier)][-1]
    last.detach()
    # warp w reads sum w and writes it again in the next program: lane 0 is ordered with itself, the others are not
    _fails("SIM005", reused, both, grid_size=1)
    simulate.run(reused, both, grid_size=8)


def test_shared_memory_is_written_before_it_is_read() -> None:
    _fails("SIM004", _exchange(barrier=True, written=31), _pair(32))


def test_shared_offsets_lie_inside_their_buffer() -> None:
    _fails("SIM011", _exchange(barrier=True, size=31), _pair(32))


def test_two_threads_of_one_write_race() -> None:
    def build(y):
        v, shared = t.Registers("v", f32, 1), t.Shared("s", f32, 16)
        return [shared, v, fill(1.0, v.buffer), t.SharedWrite(shared.buffer, v.buffer, TID // 2, TRUE)]

    _fails("SIM005", kernel({"y": tensor("y", [M])}, build), {"y": np.zeros(1, np.float32)})


@pytest.mark.parametrize(
    ("found", "change"),
    [
        ("no tensor 'y'", lambda x, y: {"x": x}),
        ("dtype float64", lambda x, y: {"x": x.astype(np.float64), "y": y}),
        ("rank 2", lambda x, y: {"x": x, "y": y[None]}),
        ("M = 9", lambda x, y: {"x": x, "y": np.zeros(9, np.float32)}),
    ],
)
def test_tensors_that_do_not_fit(found: str, change) -> None:
    assert found in _fails("SIM006", copy(), change(*_pair(8).values()))


def test_extents_that_are_numbers() -> None:
    _fails("SIM006", _exchange(barrier=True), _pair(33))


def test_scalars_that_do_not_fit() -> None:
    op = kernel({"y": tensor("y", [M]), "n": scalar(i32)}, lambda y, n: [])
    y = {"y": np.zeros(4, np.float32)}
    simulate.run(op, y, {"n": 3})
    for scalars in ({}, {"n": 2.5}, {"n": "3"}, {"n": 2**31}, {"n": 3, "m": 4}):
        _fails("SIM007", op, y, scalars)


def test_facts_of_the_specialisation_class_are_checked() -> None:
    x = np.zeros((4, 1002), np.float32)
    assert "N = 1002" in _fails("SIM008", softmax(), {"x": x, "y": x.copy()})


def test_vectors_are_contiguous_and_aligned() -> None:
    tensors = _pair(256)
    simulate.run(copy(vector=4), tensors)
    assert (tensors["x"] == tensors["y"]).all()
    shifted = {"x": np.zeros(257, np.float32)[1:], "y": np.zeros(256, np.float32)}
    assert "x[0] at address" in _fails("SIM009", copy(vector=4), shifted)
    strided = {"x": np.zeros(512, np.float32)[::2], "y": np.zeros(256, np.float32)}
    _fails("SIM009", copy(vector=4), strided)


def test_vectors_at_an_edge_move_element_by_element() -> None:
    tensors = _pair(255)
    simulate.run(copy(vector=4), tensors)
    assert (tensors["x"] == tensors["y"]).all()


def test_shared_vectors_are_contiguous_and_aligned() -> None:
    def build(y, step):
        v, shared = t.Registers("v", f32, 2), t.Shared("s", f32, 256)
        offset = TID * 4 + R * step
        return [shared, v, fill(1.0, v.buffer), t.SharedWrite(shared.buffer, v.buffer, offset, TRUE, vector=2)]

    y = {"y": np.zeros(1, np.float32)}
    simulate.run(kernel({"y": tensor("y", [M])}, lambda y: build(y, 1)), y)
    _fails("SIM009", kernel({"y": tensor("y", [M])}, lambda y: build(y, 2)), y)


def _rows(stride: int) -> t.Kernel:
    """Program p stores 32 elements from p*stride."""

    def build(y):
        v = t.Registers("v", f32, 1)
        place = P * stride + TID
        return [
            programs(["p"], [ceildiv(M, stride)], [v, fill(1.0, v.buffer), t.Store(y, v.buffer, [place], place < M)])
        ]

    return kernel({"y": tensor("y", [M])}, build)


def test_programs_store_disjoint_elements() -> None:
    simulate.run(_rows(32), {"y": np.zeros(100, np.float32)})
    _fails("SIM010", _rows(31), {"y": np.zeros(100, np.float32)})


def test_only_the_program_reads_what_it_stores() -> None:
    def shifted(by: int) -> t.Kernel:
        def build(x):
            v = t.Registers("v", f32, 1)
            load = t.Load(x, v.buffer, [TID + by], TID + by < M)
            return [v, load, t.Store(x, v.buffer, [TID], TID < M)]

        return kernel({"x": tensor("x", [M])}, build)

    simulate.run(shifted(0), {"x": np.zeros(30, np.float32)})
    _fails("SIM010", shifted(1), {"x": np.zeros(30, np.float32)})


def test_reduce_add_and_store_do_not_mix() -> None:
    def build(y):
        v = t.Registers("v", f32, 1)
        add = t.AtomicReduce(AtomicFn.ADD, y, v.buffer, [TID], TRUE)
        return [v, fill(1.0, v.buffer), add, t.Store(y, v.buffer, [TID], TRUE)]

    _fails("SIM010", kernel({"y": tensor("y", [Const(32)])}, build), {"y": np.zeros(32, np.float32)})


def test_register_indices_lie_inside_their_buffer() -> None:
    def build(y, at):
        v, w = t.Registers("v", f32, 2), t.Registers("w", f32, 2)
        return [v, w, fill(1.0, v.buffer), binary("add", v.buffer, v.buffer, w.buffer, 2, [R, at])]

    y = {"y": np.zeros(1, np.float32)}
    simulate.run(kernel({"y": tensor("y", [M])}, lambda y: build(y, 1 - R)), y)
    _fails("SIM012", kernel({"y": tensor("y", [M])}, lambda y: build(y, R + 1)), y)
    _fails("SIM012", kernel({"y": tensor("y", [M])}, lambda y: build(y, R - 1)), y)


def test_a_module_of_one_kernel() -> None:
    _fails("SIM013", ModuleOp([]), {})
    simulate.run(ModuleOp([copy()]), _pair(8))
    assert sym("M") == M
    assert N != M


def test_results_without_uses_are_undefined() -> None:
    """A map and a fold that skip registers beyond N; whoever reads those anyway is caught."""

    def row(guard: Expr) -> t.Kernel:
        def build(x, y):
            v, w, total = t.Registers("v", f32, 8), t.Registers("w", f32, 8), t.Registers("total", f32, 1)
            double = binary("add", v.buffer, v.buffer, w.buffer, 8)
            double.attributes["live"] = ExprAttr.of(R < N)
            return [
                v,
                w,
                total,
                t.Load(x, v.buffer, [R], R < N),
                double,
                fill(0.0, total.buffer),
                t.Fold("sum", [w.buffer], [total.buffer], Const(0), guard),
                t.Store(y, total.buffer, [TID], TID < 1),
            ]

        return kernel({"x": tensor("x", [N]), "y": tensor("y", [Const(1)])}, build)

    tensors = {"x": np.arange(5, dtype=np.float32), "y": np.zeros(1, np.float32)}
    simulate.run(row(R < N), tensors)
    assert tensors["y"][0] == 20
    assert "register 5 of buffer 'w'" in _fails("SIM003", row(R < N + 1), tensors)
