"""Rewrites whose bounds hold for values of some origins are refused elsewhere, whoever made them."""

# pyright: reportUnknownMemberType=false, reportPrivateUsage=false
# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.ir import Block

import tilewright as tw
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Const
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.proofs.numerics import _is_loaded, other_numerics
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn
from tilewright.schedule.transforms import numerics
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.transport.ops.tensor_core import Mma


@tw.kernel
def soft(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, computed: bool = False):
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=512)
    row = x[m, n].to(tw.f32)
    row = row * 2.0 if computed else row
    y[m, n] = tw.exp(row - row.max(1)[:, None])


@tw.kernel
def faded(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x, 256)
    a = x[m] * 3.0
    y[m] = tw.exp(a - tw.maximum(a, x[m] * x[m]))


@tw.kernel
def quotients(x: tw.Tensor["M", "N"], s: tw.Tensor["M"], y: tw.Tensor["M", "N"], *, computed: bool = False):
    m, n = tw.grid(x, (4, 64))
    row = x[m, n] * 2.0 if computed else x[m, n]
    y[m, n] = row / s[m][:, None]


@tw.kernel
def ratios(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x, 256)
    y[m] = (x[m] * 2.0) / (x[m] + 1.0)


@tw.kernel
def clipped(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """What is diminished was computed, or loaded."""
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=512)
    row = tw.maximum(x[m, n], x[m, n] * 0.5)
    y[m, n] = tw.exp(row - row.max(1)[:, None])


def planned(kernel: Any, x: str, y: str, **keywords: Any) -> PlannedKernel:
    dtypes = {name: x for name in ("x", "s") if name in (t.name for t in kernel.tensors)} | {"y": y}
    return tw.kernel(kernel.fn).plan(dtypes=dtypes, **keywords).variants[-1]


def refused(found: PlannedKernel) -> bool:
    return bool(other_numerics(found.tile, found.transport))


@pytest.mark.parametrize(
    ("kernel", "x", "y", "keywords"),
    [
        (soft, "f32", "f32", {}),
        (soft, "bf16", "f32", {}),
        (soft, "f32", "f32", {"computed": True}),
        (faded, "f32", "f32", {}),
        (quotients, "f32", "bf16", {}),
        (quotients, "f32", "bf16", {"computed": True}),
        (ratios, "f32", "bf16", {}),
        (clipped, "f32", "f32", {}),
    ],
)
def test_what_the_compiler_makes_is_allowed(kernel: Any, x: str, y: str, keywords: dict[str, Any]) -> None:
    assert not refused(planned(kernel, x, y, **keywords))


def _by_reciprocal(self: Any, op: Any) -> Any:
    if not isinstance(op, tile.Binary) or op.fn.data is not BinaryFn.DIV or isinstance(op.a.owner, tile.Constant):
        return None
    return self._mul(op.a, self._put(tile.Binary(BinaryFn.DIV, self._constant(1.0), op.b)))


_BODY, _ORIGINS = numerics._Body, numerics._Origins
MISTAKES: dict[str, tuple[Any, str, Any, Any, str, str]] = {
    "loaded differences by one fma": (_ORIGINS, "rounded", lambda *_: True, soft, "f32", "f32"),
    "narrow ones, too": (_ORIGINS, "rounded", lambda *_: True, soft, "bf16", "f32"),
    "loaded f32 by base 2": (_ORIGINS, "narrow", lambda *_: True, soft, "f32", "f32"),
    "great products": (numerics, "_FAR", 2.0**40, faded, "f32", "f32"),
    "a bound that nothing reaches": (numerics, "_FAR", float("nan"), faded, "f32", "f32"),
    "loaded dividends": (_BODY, "_quotient", _by_reciprocal, quotients, "f32", "bf16"),
    "divisors of their own": (_BODY, "_quotient", _by_reciprocal, ratios, "f32", "bf16"),
    "a loaded one of two": (_ORIGINS, "rounded", lambda *_: True, clipped, "f32", "f32"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_beyond_its_bound_it_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, attribute, instead, kernel, x, y = MISTAKES[name]
    monkeypatch.setattr(where, attribute, instead)
    assert refused(planned(kernel, x, y))


def test_loaded_values_that_are_moved_stay_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The minuends of a loaded row go to the map's own results first, which the map writes, too."""
    rounded = _ORIGINS.rounded
    monkeypatch.setattr(_ORIGINS, "rounded", lambda *_: True)
    found = planned(soft, "f32", "f32")
    fused = [op for op in found.transport.walk() if isinstance(op, t.Fma)]
    assert fused
    assert refused(found)
    for fma in fused:
        block = fma.a.owner
        assert isinstance(block, Block)
        around = block.parent_op()
        assert isinstance(around, t.Map)
        place = block.args.index(fma.a)
        row, result = around.inputs[place], around.outputs[0]
        picks = [((k,), Const(0)) for k in range(t.registers_of(row).count.data)]
        around.parent_block().insert_op_before(t.RegisterSelect(row, result, 1, picks), around)
        around.operands[place] = result
        assert not rounded(_ORIGINS(), fma.a)
    found.transport.verify()
    assert refused(found)


@pytest.mark.parametrize("by", ["a move", "products"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_registers_that_something_else_writes_are_not_as_loaded(dtype: str, by: str) -> None:
    """A row is loaded, and then moved over by the results, or products are added to it."""
    maps = [op for op in planned(soft, dtype, "f32").transport.walk() if isinstance(op, t.Map)]
    reads = [(x, held) for op in maps for x, held in zip(op.body.block.args, op.inputs, strict=True)]
    x, row = next((x, held) for x, held in reads if _is_loaded(x))
    assert _ORIGINS().loaded(x)
    assert _ORIGINS().narrow(x) == (dtype == "bf16")
    kind = t.registers_of(row)
    around = x.owner
    assert isinstance(around, Block)
    reader = around.parent_op()
    assert isinstance(reader, t.Map)
    if by == "a move":
        other = t.Registers("other", kind.dtype.dtype, kind.count.data)
        writes = t.RegisterSelect(other.buffer, row, 1, [((k,), Const(0)) for k in range(kind.count.data)])
    else:
        other = t.Registers("other", DTYPES["bf16"], 8)
        writes = Mma(row, other.buffer, other.buffer, first=0, a_register=0, b_register=0)
    block = reader.parent_block()
    assert block is not None
    block.insert_ops_before([other, writes], reader)
    assert not _is_loaded(x)
    assert not _ORIGINS().loaded(x)
    assert not _ORIGINS().narrow(x)


def test_what_may_have_been_loaded_is_subtracted_first() -> None:
    """Neighbours near 2^20 differ by 1/8: by one fma their weights may be off by a sixteenth."""
    ops = list(planned(clipped, "f32", "f32").transport.walk())
    assert any(isinstance(op, tile.Unary) and op.fn.data is UnaryFn.EXP for op in ops)
    x = (2.0**20 + np.arange(40, dtype=np.float32) / 8).reshape(1, 40)
    y = clipped(x)
    exact = np.exp(x.astype(np.float64) - x.max().astype(np.float64))
    np.testing.assert_allclose(y, exact, rtol=1e-6)
