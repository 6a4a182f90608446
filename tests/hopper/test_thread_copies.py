"""Operands that threads copy where no tensor map is legal: right, proved, and refuted when weakened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, Builtin, IntAttr
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.expr import TRUE, sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.program import traced
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.compiler.requests import assumptions_of
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.schedule.facts import CallFacts, TensorFacts
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.candidates import Scheduled, schedule
from tilewright.tile.attributes import ExprAttr
from tilewright.tile.dialect import Tile
from tilewright.transport import asynchronous as a
from tilewright.transport.descriptor_attrs import LAYOUT_ATTRIBUTES
from tilewright.transport.dialect import Transport
from tilewright.transport.protocol import protocol_of
from tilewright.verify import check
from tilewright.verify.canonical_runs.search import interpreter, search
from tilewright.verify.rules import Policy

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(11)
Array = np.ndarray[Any, np.dtype[Any]]
FED = Candidate(1, stages=3)
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn}


def rows_of(rows: int, columns: int, dtype: str, align: int) -> Array:
    """Random values at multiples of ``align`` bytes and of no more; what lies between rows is poison."""
    kind = np.dtype(TYPES[dtype])
    unit = align // kind.itemsize
    pitch = -(-columns // unit) * unit
    pitch += 0 if pitch * kind.itemsize % 16 else unit
    flat = np.full((rows + 1) * pitch + 16, np.nan, kind)
    first = -(flat.__array_interface__["data"][0] // kind.itemsize) % (16 // kind.itemsize) + unit
    whole = flat[first : first + rows * pitch].reshape(rows, pitch)
    view = whole[:, :columns]
    view[...] = RNG.normal(size=(rows, columns)).astype(kind)
    return view


def lowered(
    kernel: tw.Kernel, align: int, dtype: str = "bf16", candidate: Candidate = FED, **keywords: Any
) -> p.Lowered:
    found = p.lower(kernel, candidate, dtype, align, {"c": "f32"}, **keywords)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def close(found: Array, expected: Array, tolerance: float = 6e-3) -> None:
    error = np.linalg.norm(found.astype(np.float64) - expected) / max(1e-30, float(np.linalg.norm(expected)))
    assert error < tolerance, error


def run(kernel: tw.Kernel, found: p.Lowered, m: int, n: int, k: int, dtype: str, align: int) -> None:
    ta, tb = kernel.name in ("tn", "tt"), kernel.name in ("nt", "tt")
    left = rows_of(*((k, m) if ta else (m, k)), dtype, align)
    right = rows_of(*((n, k) if tb else (k, n)), dtype, align)
    out = np.full((m, n), np.nan, np.float32)
    simulate.run(found.scheduled.kernel, {"a": left, "b": right, "c": out}, seed=m)
    x, y = left.astype(np.float64), right.astype(np.float64)
    close(out, (x.T if ta else x) @ (y.T if tb else y))


def copies_of(found: p.Lowered) -> list[a.ThreadCopies]:
    return [op for op in found.scheduled.kernel.walk() if isinstance(op, a.ThreadCopies)]


CASES = [
    (p.nt, "bf16", 8, (70, 72, 139)),
    (p.nn, "bf16", 4, (65, 70, 66)),
    (p.tn, "f16", 8, (70, 68, 130)),
    (p.tt, "bf16", 4, (1, 8, 3)),
    (p.nt, "e4m3", 4, (66, 63, 131)),
    (p.nt, "bf16", 2, (70, 71, 139)),
    (p.nn, "f16", 2, (65, 71, 67)),
    (p.tt, "bf16", 2, (66, 1, 70)),
    (p.nt, "e4m3", 1, (67, 65, 133)),
]


@pytest.mark.parametrize(("kernel", "dtype", "align", "sizes"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_products_of_rows_that_no_map_reaches(
    kernel: tw.Kernel, dtype: str, align: int, sizes: tuple[int, int, int]
) -> None:
    found = lowered(kernel, align, dtype)
    copies = copies_of(found)
    assert {(type(op), op.copy_bytes) for op in copies} == {(a.CpAsync if align >= 4 else a.LoadStore, align)}
    assert not any(isinstance(op, a.TensorMap) for op in found.scheduled.kernel.walk())
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)
    assert isinstance(check(protocol_of(found.scheduled.kernel)), Proved)
    run(kernel, found, *sizes, dtype, align)


ANY = TensorFacts(None, 2)
STRIDES = {
    "flipped rows": (replace(TensorFacts(1, 16), forward=False), TensorFacts(1, 16), 16),
    "no unit stride": (ANY, ANY, 2),
    "columns first, and no unit stride": (TensorFacts(0, 2), ANY, 2),
}


@pytest.mark.parametrize("what", STRIDES)
def test_tensors_of_any_strides(what: str) -> None:
    left, right, moved = STRIDES[what]
    found = fed_from(CallFacts((("a", left), ("b", right), ("c", TensorFacts(1, 4)))))
    assert moved in {op.copy_bytes for op in found.kernel.walk() if isinstance(op, a.ThreadCopies)}
    assert isinstance(check(protocol_of(found.kernel)), Proved)
    m, n, k = 67, 65, 136
    x, y = (np.zeros((2 * rows, 2 * k), TYPES["bf16"]) for rows in (m, n))
    views = {
        "flipped rows": (np.ascontiguousarray(x[:m, :k])[::-1], y[:n, :k]),
        "no unit stride": (x[::2, ::2], y[::2, 1::2]),
        "columns first, and no unit stride": (np.asfortranarray(x[:m, :k]), y[1::2, ::2]),
    }
    for view in views[what]:
        view[...] = RNG.normal(size=view.shape)
    out = np.full((m, n), np.nan, np.float32)
    simulate.run(found.kernel, {"a": views[what][0], "b": views[what][1], "c": out})
    close(out, views[what][0].astype(np.float64) @ views[what][1].astype(np.float64).T)


def test_offsets_of_64_bits() -> None:
    own = tuple((name, TensorFacts(1, 8)) for name in "abc")
    kernel = fed_from(CallFacts(own, index_bits=64)).kernel
    emitted = emit_kernel(kernel)
    assert defects(assemble(emitted.source, "sm_90a", emitted.entry)) == ()


def fed_from(facts: CallFacts) -> Scheduled:
    asked = p.request(p.nt, "bf16", 16, {"c": "f32"})
    kernel = traced(asked)
    found = schedule(kernel, facts, SM90A, FED, assumptions_of(kernel, facts))
    assert isinstance(found, Scheduled)
    return found


def test_two_warpgroups_share_a_tile_of_odd_columns() -> None:
    found = lowered(p.nt, 8, candidate=Candidate(2, stages=3), bm=128, bn=80)
    assert isinstance(check(protocol_of(found.scheduled.kernel)), Proved)
    run(p.nt, found, 200, 88, 100, "bf16", 8)


def test_warpgroups_take_turns_at_what_threads_copy() -> None:
    found = lowered(p.nt, 4, candidate=Candidate(1, ping_pong=2, stages=2))
    assert isinstance(check(protocol_of(found.scheduled.kernel)), Proved)
    run(p.nt, found, 150, 72, 100, "bf16", 4)


def test_one_operand_by_tensor_copies_the_other_by_threads() -> None:
    asked = p.request(p.nt, "bf16", 16, {"c": "f32"})
    facts = replace(
        asked.facts, tensors=tuple((n, replace(f, align_bytes=8) if n == "b" else f) for n, f in asked.facts.tensors)
    )
    found = traced(asked)
    answer = schedule(found, facts, SM90A, FED, assumptions_of(found, facts))
    assert isinstance(answer, Scheduled)
    kinds = {type(op) for op in answer.kernel.walk() if isinstance(op, a.CpAsync | a.TmaLoad)}
    assert kinds == {a.CpAsync, a.TmaLoad}
    assert isinstance(check(protocol_of(answer.kernel)), Proved)
    m, n, k = 70, 72, 139
    left, right, out = np.zeros((m, 144), TYPES["bf16"])[:, :k], rows_of(n, k, "bf16", 8), np.zeros((m, n), np.float32)
    left[...] = RNG.normal(size=left.shape).astype(left.dtype)
    simulate.run(answer.kernel, {"a": left, "b": right, "c": out})
    close(out, left.astype(np.float64) @ right.astype(np.float64).T)


@pytest.mark.parametrize(("align", "software_pipelined"), [(8, False), (8, True), (2, True)])
def test_attention_over_rows_that_no_map_reaches(align: int, software_pipelined: bool) -> None:
    found = p.lower(
        p.attention, Candidate(1, stages=2, software_pipelined=software_pipelined), "bf16", align, {"o": "f32"}
    )
    assert not isinstance(found, Refused), found.reason
    kernel = found.scheduled.kernel
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert isinstance(check(protocol_of(kernel)), Proved)
    q, k, v = (rows_of(length, 64, "bf16", align) for length in (70, 130, 130))
    out = np.full((70, 64), np.nan, np.float32)
    simulate.run(kernel, {"q": q, "k": k, "v": v, "o": out}, {"scale": 0.125})
    x = q.astype(np.float64) @ k.astype(np.float64).T * 0.125
    weights = np.exp(x - x.max(1, keepdims=True))
    close(out, weights / weights.sum(1, keepdims=True) @ v.astype(np.float64), 1e-2)


# -- what is left out is noticed --------------------------------------------------------------------------------------
def weakened(align: int, kind: type[Operation], where: Callable[[Operation], bool]) -> p.Lowered:
    """The kernel without the first op of a kind."""
    found = lowered(p.nt, align)
    op = next(op for op in found.scheduled.kernel.walk() if isinstance(op, kind) and where(op))
    op.detach()
    return found


def in_role(label: str) -> Callable[[Operation], bool]:
    def inside(op: Operation) -> bool:
        parent = op.parent_op()
        while parent is not None and not isinstance(parent, a.Role):
            parent = parent.parent_op()
        return parent is not None and parent.label.data == label

    return inside


DROPPED = {
    "the fence after cp.async": (8, a.FenceProxyAsync, "consumer", "SIM017"),
    "the arrival of cp.async": (8, a.CpAsyncMbarrierArrive, "producer", "SIM014"),
    "the wait for cp.async": (8, a.MbarrierWait, "consumer", "SIM004"),
    "the wait of cp.async for a free stage": (8, a.MbarrierWait, "producer", "SIM005"),
    "the fence after stores": (2, a.FenceProxyAsync, "producer", "SIM017"),
    "the arrival of stores": (2, a.MbarrierArrive, "producer", "SIM014"),
    "the wait for stores": (2, a.MbarrierWait, "consumer", "SIM004"),
    "the wait of stores for a free stage": (2, a.MbarrierWait, "producer", "SIM005"),
}


@pytest.mark.parametrize("what", DROPPED)
def test_dropping_what_orders_the_copies_is_refuted_and_does_harm(what: str) -> None:
    align, kind, role, code = DROPPED[what]
    found = weakened(align, kind, in_role(role))
    assert search(interpreter(protocol_of(found.scheduled.kernel), Policy.STRICT)).failure is not None
    with pytest.raises(TilewrightError) as error:
        run(p.nt, found, 70, 72, 300, "bf16", align)
    assert error.value.diagnostics[0].code == code


def test_an_arrival_too_many_is_refuted() -> None:
    found = lowered(p.nt, 8)
    full = next(op for op in found.scheduled.kernel.walk() if isinstance(op, a.Mbarriers) and "full" in op.hint.data)
    kind = a.MbarriersType(full.bars.type.slots, IntAttr(127))
    Rewriter.replace_value_with_new_type(full.bars, kind)
    assert isinstance(check(protocol_of(found.scheduled.kernel)), Refuted)


SHIFTED = {
    "a byte": lambda op: {"offset": ExprAttr.of(op.offset.expr + 16)},
    "a column": lambda op: {"coords": ArrayAttr([op.coords.data[0], ExprAttr.of(op.coords.data[1].expr + 4)])},
    "a row": lambda op: {"coords": ArrayAttr([ExprAttr.of(op.coords.data[0].expr + 1), op.coords.data[1]])},
    "zeros too early": lambda op: {"stop": ExprAttr.of(op.stop.expr - 1)},
    "rows beyond the tensor": lambda op: {"guard": ExprAttr.of(TRUE)},
    "half of the copies": lambda op: {"count": IntAttr(op.count.data // 2)},
    "threads that do not copy": lambda op: {"active": ExprAttr.of(sym("$tid") < 64)},
}


@pytest.mark.parametrize("what", SHIFTED)
def test_copies_to_another_place_are_refuted(what: str) -> None:
    found = lowered(p.nt, 8)
    op = copies_of(found)[0]
    op.attributes.update(SHIFTED[what](op))
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)


def test_reading_beyond_the_tensor_is_refuted_and_refused() -> None:
    found = lowered(p.nt, 8)
    op = copies_of(found)[0]
    op.attributes["guard"] = ExprAttr.of(TRUE)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Refuted)
    with pytest.raises(TilewrightError, match="SIM002"):
        run(p.nt, found, 70, 72, 100, "bf16", 8)


def test_the_text_is_read_back() -> None:
    kernel = lowered(p.nt, 8).scheduled.kernel
    context = Context()
    for dialect in (Builtin, LAYOUT_ATTRIBUTES, Tile, Transport):
        context.load_dialect(dialect)
    assert str(Parser(context, str(kernel)).parse_op()) == str(kernel)


@pytest.mark.parametrize("change", [{"vector": IntAttr(3)}, {"count": IntAttr(0)}, {"axis": IntAttr(2)}])
def test_copies_that_the_instruction_does_not_make(change: dict[str, IntAttr]) -> None:
    op = copies_of(lowered(p.nt, 8))[0]
    op.attributes.update(change)
    with pytest.raises(VerifyException):
        op.verify_()


def test_the_assembled_code_has_every_copy_once() -> None:
    kernel = lowered(p.nt, 8).scheduled.kernel
    emitted = emit_kernel(kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert defects(assembled) == ()
    assert mismatches(kernel, assembled.ptx) == ()
    for instruction in ("cp.async.ca", "cp.async.mbarrier"):
        lines = assembled.ptx.splitlines()
        lines.remove(next(line for line in lines if instruction in line))
        assert mismatches(kernel, "\n".join(lines))
