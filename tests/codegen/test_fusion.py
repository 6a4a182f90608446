"""A load waits for the loop that uses it only where nothing on the way may change what it reads."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from xdsl.ir import Operation, SSAValue

import tilewright as tw
from support.transport import M, R, binary, kernel, mapped, tensor
from tilewright.base.dtypes import f32
from tilewright.base.expr import TRUE, Const, sym
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.fusion import feeds_only, late_loads
from tilewright.lang.enums import AtomicFn
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

COUNT = 4
Between = Callable[[SSAValue, SSAValue, SSAValue], Sequence[Operation]]


def found(between: Between, *, target: str = "z") -> bool:
    """Whether the load of y is late in: fold; load y; ``between(x, y, buffer)``; map; store to ``target``."""
    late: list[bool] = []

    def build(x: SSAValue, y: SSAValue, z: SSAValue) -> list[Operation]:
        source, total, weights, out, other = (t.Registers(n, f32, COUNT) for n in "stwoq")
        load = t.Load(y, weights.buffer, [R + sym("k")], R < M)
        store = t.Store({"x": x, "y": y, "z": z}[target], out.buffer, [R], R < M)
        ops = [
            *(source, total, weights, out, other),
            t.Load(x, source.buffer, [R], R < M),
            t.Load(x, other.buffer, [R], R < M),
            t.Fold("sum", [source.buffer], [total.buffer], Const(0)),
            load,
            *between(x, y, other.buffer),
            binary("mul", weights.buffer, total.buffer, out.buffer, COUNT, [R, Const(0)]),
            store,
        ]
        late.append(load in late_loads(ops))
        return ops

    kernel({name: tensor(name, [M]) for name in "xyz"}, build)
    return late[0]


def nothing(x: SSAValue, y: SSAValue, buffer: SSAValue) -> list[Operation]:
    return []


def store_to(place: str, *, add: bool = False) -> Between:
    def make(x: SSAValue, y: SSAValue, buffer: SSAValue) -> list[Operation]:
        tensor = {"x": x, "y": y}[place]
        if add:
            return [t.AtomicReduce(AtomicFn.ADD, tensor, buffer, [R], R < M)]
        return [t.Store(tensor, buffer, [R], R < M)]

    return make


def looped(inner: Between) -> Between:
    def make(x: SSAValue, y: SSAValue, buffer: SSAValue) -> list[Operation]:
        return [t.For("k1", Const(0), M, Const(1), t.block(inner(x, y, buffer)))]

    return make


def branched(inner: Between) -> Between:
    def make(x: SSAValue, y: SSAValue, buffer: SSAValue) -> list[Operation]:
        return [t.If(M <= 7, t.block([]), t.block(inner(x, y, buffer)))]

    return make


def advanced(symbol: str) -> Between:
    return lambda x, y, buffer: [a.Advance(symbol)]


@pytest.mark.parametrize(
    "between", [store_to("y"), store_to("y", add=True), looped(store_to("y")), branched(looped(store_to("y")))]
)
def test_a_load_stays_before_what_writes_its_tensor(between: Between) -> None:
    assert not found(between)


@pytest.mark.parametrize("between", [nothing, store_to("x"), looped(store_to("x")), branched(store_to("x"))])
def test_a_load_passes_writes_to_other_tensors(between: Between) -> None:
    assert found(between)


def test_a_load_stays_before_the_store_of_its_own_map() -> None:
    assert not found(nothing, target="y")


def test_a_load_stays_where_its_place_is_what_it_was() -> None:
    assert not found(advanced("k"))
    assert found(advanced("other"))


def test_a_load_passes_loads_of_its_tensor() -> None:
    assert found(lambda x, y, buffer: [t.Load(y, buffer, [R], R < M)])


def test_a_map_that_reads_what_a_fold_changes_is_not_fused_with_it() -> None:
    fused: list[bool] = []

    def build(x: SSAValue) -> list[Operation]:
        source, total = (t.Registers(n, f32, COUNT) for n in "st")
        ops: list[Operation] = [source, total]
        for read in (source, total):
            own = t.Registers("own", f32, COUNT)
            op = mapped([read.buffer], [own.buffer], COUNT, lambda v: ([], [v]), [Const(0)])
            fold = t.Fold("sum", [own.buffer], [total.buffer], Const(0), TRUE)
            fused.append(feeds_only(op, fold))
            ops += [own, op, fold]
        return ops

    kernel({"x": tensor("x", [M])}, build)
    assert fused == [True, False]


@tw.kernel
def late_load(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"], *, bm=tw.auto):
    """``old`` is what y held before the store (x = 1, y = 1000: an H200 gave z = 130, not 1128)."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=128)
    row = x[m, n]
    s = row.sum(1)
    old = y[m, n]
    y[m, n] = row * 2
    z[m, n] = old + s[:, None]


def test_loads_of_a_tensor_stand_before_its_stores() -> None:
    compiled = late_load.compiled
    (variant,) = compiled._plan(compiled._ahead("sm_90a", None, None, None, None, {})).variants
    lines = emit_kernel(variant.transport).source.splitlines()
    for body in "\n".join(lines).split("\n    else {"):
        loads = [m.start() for m in re.finditer(r"const float\* at = [^;]*\b(u|base4)_y \+", body)]
        stores = [m.start() for m in re.finditer(r"(?<!const) float\* at = u_y \+", body)]
        assert loads
        assert stores
        assert max(loads) < min(stores)
