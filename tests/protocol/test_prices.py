"""One list prices the ops of a protocol: engines by bytes, synchronisation by the rows of hw."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest

from tilewright.base.expr import sym
from tilewright.hw.spaces import Space
from tilewright.hw.sync_prices import SYNC_PRICES
from tilewright.protocol import ops
from tilewright.protocol.model import Buffer, Protocol, Step
from tilewright.protocol.prices import PRODUCTS, prices_of, sync_price

K = 16
BUFFERS = (Buffer("a", Space.SHARED, 1 << 12), Buffer("b", Space.SHARED, 1 << 14), Buffer("r", Space.REGISTER, 1 << 12))
PRICES = prices_of(Protocol("prices", (), BUFFERS, (), ()))


def product(n: int, a: str) -> float:
    """Cycles of an m64 n k16 product in bf16."""
    left, right = ops.Region(a, sym("zero"), 64 * K * 2), ops.Region("b", sym("zero"), n * K * 2)
    price = PRICES(Step(ops.Wgmma(ops.Region("r", sym("zero"), n), (left, right))))
    assert price.engine == PRODUCTS
    return price.service


@pytest.mark.parametrize(("n", "measured"), [(8, 0.21), (16, 0.38), (32, 0.63), (64, 0.95), (256, 0.96)])
def test_skinny_products_are_bound_by_their_operands(n: int, measured: float) -> None:
    """Shares of the tensor cores' rate measured on an H800, arXiv 2402.13499."""
    assert n / 2 / product(n, "a") == pytest.approx(measured, rel=0.08)


def test_an_operand_in_registers_is_not_read_from_shared_memory() -> None:
    assert product(32, "r") == 16
    assert product(32, "a") > 16


def without_defaults(kind: type[ops.Op]) -> list[str]:
    """The operands that an op must be given."""
    return [f.name for f in fields(kind) if f.default is MISSING]  # type: ignore[arg-type]


def test_every_row_prices_an_op_and_every_order_has_a_row() -> None:
    slot, region = ops.Slot("full"), ops.Region("a", sym("zero"), 16)
    made = {
        ops.Wait: ops.Wait(slot, sym("zero")),
        ops.Arrive: ops.Arrive(slot),
        ops.ArriveExpectTx: ops.ArriveExpectTx(slot, 16),
        ops.ExpectTx: ops.ExpectTx(slot, 16),
        ops.BarSync: ops.BarSync(sym("zero"), 128),
        ops.BarArrive: ops.BarArrive(sym("zero"), 128),
        ops.MbarrierInit: ops.MbarrierInit("full"),
        ops.CpAsyncArrive: ops.CpAsyncArrive(slot),
        ops.TensormapRelease: ops.TensormapRelease(region),
        ops.TensormapAcquire: ops.TensormapAcquire(region),
        ops.Tcgen05Commit: ops.Tcgen05Commit(slot),
        ops.SpinWait: ops.SpinWait(ops.Word("done"), sym("zero")),
    }
    issued = (ops.BarArrive, ops.MbarrierInit, ops.CpAsyncArrive, ops.BulkCommit, ops.CpAsyncCommit, ops.WgmmaCommit)
    free = (*issued, ops.ClusterArrive, ops.Tcgen05Commit)  # they wait for nothing
    orders = [*made.values(), *(kind() for kind in ops.ALL if kind not in made and not without_defaults(kind))]
    prices = {type(op): sync_price(op) for op in orders if ops.only_orders(op)}
    assert {kind for kind, cycles in prices.items() if cycles is None} == set(free)
    assert {row.cycles for row in SYNC_PRICES} == {cycles for cycles in prices.values() if cycles is not None}
