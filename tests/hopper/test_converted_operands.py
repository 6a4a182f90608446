"""Right operands of 8 bits that threads convert to 16 on their way from a stage to the product, and what would be wrong
with that is refused."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.expr import Sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.products import prove
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.lang.enums import BinaryFn
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import exprs

pytestmark = pytest.mark.sample(2)

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
TYPES = {"w": "e4m3", "length": "i32", "table": "i32"}


@tw.kernel
def rows_of_k(
    length: tw.Tensor[1],
    x: tw.Tensor["M", "K"],
    w: tw.Tensor["K", 128],
    y: tw.Tensor["M", 128],
    *,
    bm: int = 64,
    bk: int = 64,
):
    """y = x w over the first rows of w, which lie along its columns."""
    m = tw.grid(y.shape[0], bm)
    acc = tw.zeros((m, 128), tw.f32)
    for k in tw.stream(x.shape[1], bk, until=length[0]):
        acc += tw.dot(tw.exp(x[m, k]).to(x.dtype), w[k, :].to(x.dtype))
    y[m, :] = acc


@tw.kernel
def columns_of_k(x: tw.Tensor["M", "K"], w: tw.Tensor["N", "K"], y: tw.Tensor["M", "N"], *, bm: int = 64, bk: int = 64):
    """y = x w^T, whose k lies along the memory of w."""
    m, n = tw.grid(y, (bm, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], bk):
        acc += tw.dot(x[m, k], w[n, k].to(x.dtype).T)
    y[m, n] = acc


@tw.kernel
def named_rows(
    length: tw.Tensor[1],
    table: tw.Tensor["K"],
    x: tw.Tensor["M", "K"],
    w: tw.Tensor["R", 128],
    y: tw.Tensor["M", 128],
    *,
    bm: int = 64,
    bk: int = 64,
):
    """The same of rows that a table names, anew in each step."""
    m = tw.grid(y.shape[0], bm)
    acc = tw.zeros((m, 128), tw.f32)
    for k in tw.stream(x.shape[1], bk, until=length[0]):
        acc += tw.dot(tw.exp(x[m, k]).to(x.dtype), w[table[k], :].to(x.dtype))
    y[m, :] = acc


def lowered(kernel: tw.Kernel = rows_of_k, warpgroups: int = 1, **keywords: int) -> p.Lowered:
    types = {t.name: TYPES[t.name] for t in kernel.tensors if t.name in TYPES}
    found = p.lower(kernel, Candidate(warpgroups), dtypes=types, **keywords)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def tile_reads(found: p.Lowered) -> list[t.SharedRead]:
    """Reads of what copies brought."""
    every = [op for op in found.scheduled.kernel.walk() if isinstance(op, t.SharedRead)]
    brought = a.TmaLoad | a.CpAsync
    return [op for op in every if any(isinstance(use.operation, brought) for use in op.shared.uses)]


def conversions(found: p.Lowered) -> list[t.Map]:
    return [op for op in found.scheduled.kernel.walk() if isinstance(op, t.Map) and _reads(op, tile_reads(found))]


def _reads(op: t.Map, reads: list[t.SharedRead]) -> bool:
    return any(read.buffer in op.inputs for read in reads)


def writes(found: p.Lowered) -> list[t.SharedWrite]:
    outputs = [out for op in conversions(found) for out in op.outputs]
    return [op for op in found.scheduled.kernel.walk() if isinstance(op, t.SharedWrite) and op.buffer in outputs]


@pytest.mark.parametrize("kernel", [rows_of_k, columns_of_k, named_rows])
@pytest.mark.parametrize("warpgroups", [1, 2])
def test_the_tile_is_brought_in_8_bits_and_the_kernel_is_proved(kernel: tw.Kernel, warpgroups: int) -> None:
    found = lowered(kernel, warpgroups, bm=64 * warpgroups)
    assert tile_reads(found)
    assert len(tile_reads(found)) == len(conversions(found)) == len(writes(found))
    assert {op.vector.data for op in (*tile_reads(found), *writes(found))} == {8}
    certificate = prove(found.tile, found.scheduled.kernel, check_descriptors(found.scheduled.kernel))
    assert not isinstance(certificate, str), certificate


@pytest.mark.parametrize("length", [0, 1, 63, 64, 100, 192, 1000])
def test_rows_beyond_the_domain_take_no_part(length: int) -> None:
    rng = np.random.default_rng(length)
    x, w = rng.normal(size=(70, 192)).astype(BF16), rng.normal(size=(192, 128)).astype(E4M3)
    exact = np.exp(x.astype(np.float64))[:, :length] @ w.astype(np.float64)[:length]
    w[length:] = np.nan
    y = np.full((70, 128), 7, BF16)
    given = {"length": np.int32([length]), "x": x, "w": w, "y": y}
    simulate.run(lowered().scheduled.kernel, given, {}, seed=length)
    assert np.abs(y.astype(np.float64) - exact).max() <= 0.02 * (1 + np.abs(exact).max())


@pytest.mark.parametrize("length", [0, 1, 63, 64, 100, 192, 1000])
def test_rows_that_a_table_names(length: int) -> None:
    """Rows beyond the domain and entries outside take no part: nothing reads what lies there."""
    rng = np.random.default_rng(length)
    x, w = rng.normal(size=(70, 192)).astype(BF16), rng.normal(size=(40, 128)).astype(E4M3)
    table = rng.integers(-3, 45, 192, dtype=np.int32)
    inside = (table >= 0) & (table < 40) & (np.arange(192) < length)
    rows = np.where(inside[:, None], w.astype(np.float64)[np.clip(table, 0, 39)], 0)
    exact = np.exp(x.astype(np.float64)) @ rows
    w[np.setdiff1d(np.arange(40), table[inside])] = np.nan
    table[length:] = 2**31 - 1
    y = np.full((70, 128), 7, BF16)
    given = {"length": np.int32([length]), "table": table, "x": x, "w": w, "y": y}
    simulate.run(lowered(named_rows).scheduled.kernel, given, {}, seed=length)
    assert np.abs(y.astype(np.float64) - exact).max() <= 0.02 * (1 + np.abs(exact).max())


@pytest.mark.parametrize("k", [16, 64, 144])
def test_k_along_the_memory_of_the_operand(k: int) -> None:
    rng = np.random.default_rng(k)
    x, w = rng.normal(size=(70, k)).astype(BF16), rng.normal(size=(96, k)).astype(E4M3)
    y = np.full((70, 96), 7, BF16)
    simulate.run(lowered(columns_of_k).scheduled.kernel, {"x": x, "w": w, "y": y}, {}, seed=k)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    assert np.abs(y.astype(np.float64) - exact).max() <= 0.02 * (1 + np.abs(exact).max())


def moved(op: t.SharedRead | t.SharedWrite, by: int) -> None:
    op.attributes["offset"] = ExprAttr.of(op.offset.expr + by)


def predicate(found: p.Lowered) -> t.Predicate:
    """The comparison by which a conversion clears rows."""
    return next(op for each in conversions(found) for op in each.body.block.ops if isinstance(op, t.Predicate))


def swapped(found: p.Lowered) -> None:
    """Zeros where the rows are, and what lies beyond them as it is."""
    select = next(op for each in conversions(found) for op in each.body.block.ops if isinstance(op, tile.Select))
    select.operands[1], select.operands[2] = select.operands[2], select.operands[1]


def turned_in_vectors(found: p.Lowered) -> None:
    """The third and the fourth of a vector's elements are exchanged, in the stage as in the operand."""
    register = Sym(t.REGISTER)
    other = {t.REGISTER: register + register % 4 // 2 * (1 - register % 2 * 2)}
    for op in (tile_reads(found)[0], writes(found)[0]):
        assert op.vector.data > 1
        op.attributes["offset"] = ExprAttr.of(op.offset.expr.substitute(other))


def doubled(found: p.Lowered) -> None:
    """A conversion of twice what the stage holds."""
    body = conversions(found)[0].body.block
    cast = next(op for op in body.ops if isinstance(op, tile.Cast))
    twice = tile.Binary(BinaryFn.ADD, cast.x, cast.x)
    body.insert_op_before(twice, cast)
    cast.operands[0] = twice.result


def guarded(op: t.SharedRead | t.SharedWrite) -> None:
    op.attributes["guard"] = ExprAttr.of(Sym(t.THREAD) > 0)


WRONG: dict[str, Callable[[p.Lowered], object]] = {
    "the next element of the stage": lambda f: moved(tile_reads(f)[0], 1),
    "the next row of the stage": lambda f: moved(tile_reads(f)[-1], 128),
    "the next element of the operand": lambda f: moved(writes(f)[0], 1),
    "rows in another order": lambda f: tile_reads(f)[0].attributes.update(
        offset=ExprAttr.of(tile_reads(f)[0].offset.expr + Sym(t.THREAD) % 2 * 128)
    ),
    "a neighbour's register": lambda f: conversions(f)[0].attributes.update(
        reads=exprs([(Sym(t.REGISTER) + 1) % t.registers_of(conversions(f)[0].inputs[0]).count.data])
    ),
    "one row too many": lambda f: predicate(f).attributes.update(
        expr=ExprAttr.of(predicate(f).expr.expr.lhs <= predicate(f).expr.expr.rhs)
    ),
    "no row": swapped,
    "one row too few": lambda f: predicate(f).attributes.update(
        expr=ExprAttr.of(predicate(f).expr.expr.lhs + 1 < predicate(f).expr.expr.rhs)
    ),
    "a thread's elements not read": lambda f: guarded(tile_reads(f)[0]),
    "a thread's elements not written": lambda f: guarded(writes(f)[0]),
    "elements of a vector in another order": turned_in_vectors,
    "twice the element": doubled,
}


def copied(found: p.Lowered) -> a.CpAsync:
    """The copies of a tile whose rows a table names."""
    return next(op for op in found.scheduled.kernel.walk() if isinstance(op, a.CpAsync))


WRONG_ROWS: dict[str, Callable[[p.Lowered], object]] = {
    name: change for name, change in WRONG.items() if name not in ("one row too many", "one row too few", "no row")
} | {
    "the row of the next copy": lambda f: copied(f).attributes.update(
        index_registers=exprs([(Sym(t.REGISTER) + 1) % copied(f).count.data])
    ),
    "the row below in the stage": lambda f: copied(f).attributes.update(
        offset=ExprAttr.of(copied(f).offset.expr + 128)
    ),
    "rows beyond the domain": lambda f: copied(f).attributes.update(guard=ExprAttr.of(Sym("$index0") >= 0)),
}


@pytest.mark.parametrize(
    ("kernel", "name"), [*((rows_of_k, name) for name in WRONG), *((named_rows, name) for name in WRONG_ROWS)]
)
def test_what_is_wrong_is_refused(kernel: tw.Kernel, name: str) -> None:
    found = lowered(kernel)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)
    (WRONG if kernel is rows_of_k else WRONG_ROWS)[name](found)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)


def test_a_tile_of_another_load_is_refused() -> None:
    found = lowered()
    copy = next(op for op in found.scheduled.kernel.walk() if isinstance(op, a.TmaLoad))
    copy.attributes["coords"] = exprs([c.expr + 64 for c in copy.coords])
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)
