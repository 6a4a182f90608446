"""Kernels without roles: every barrier that threads need is asked for by the protocol, and no other."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from xdsl.ir import Operation, Region

import tilewright as tw
from support import products as p
from support import transport as made
from support.barrier_oracle import races
from support.example_cases import EXAMPLES_BY_NAME
from support.generality import CASES
from tilewright.base.dtypes import bf16, dtype_named, f32
from tilewright.base.expr import TRUE, Const, Expr, all_of, sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.compiler.plain import require_memory
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.obligations import missing, prove_protocols
from tilewright.compiler.requests import Request, default_facts
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM80, SM90A, Target
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol import has_roles, protocols_of

pytestmark = pytest.mark.sample(6)

TID, R = made.TID, made.R
PLAIN = [name for name, example in EXAMPLES_BY_NAME.items() if example.module not in ("matmul", "attention")]


@tw.kernel
def summed(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], s: tw.Tensor["N"]):
    """Sums that the warps of a role leave for each other."""
    m, n = tw.grid((a.shape[0], b.shape[1]), (64, 48))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[k, n])
    tw.reduce_add(s, n, acc.sum(0))


def request(name: str) -> Request:
    if name in EXAMPLES_BY_NAME:
        example = EXAMPLES_BY_NAME[name]
        function, dtypes, keywords = example.kernel, example.tensor_dtypes(bf16), example.keywords
    else:
        case = CASES[name]
        arrays, _ = case.arrays(case.shapes[0])
        function, keywords = case.kernel, {}
        dtypes = {
            tensor: dtype_named(_NAMES.get(array.dtype.name, array.dtype.name)) for tensor, array in arrays.items()
        }
    return Request(function, Signature.of(dtypes, keywords=keywords), default_facts(function), SM90A, Schedule())


_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int32": "i32", "int64": "i64", "int8": "i8"}


def barriers(kernel: t.Kernel) -> list[Operation]:
    return [op for op in kernel.walk() if isinstance(op, t.Barrier | t.WarpBarrier)]


def without(kernel: t.Kernel, number: int) -> t.Kernel:
    copy = kernel.clone()
    barriers(copy)[number].detach()
    return copy


# -- compiled kernels --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [*PLAIN, *CASES])
def test_each_barrier_is_asked_for_or_needed_by_nobody(name: str) -> None:
    for planned in plan(request(name)).variants:
        lowered = planned.transport
        assert isinstance(prove_protocols(lowered), Proved)
        assert not races(lowered)
        for number in range(len(barriers(lowered))):
            mutant = without(lowered, number)
            answer = prove_protocols(mutant)
            assert isinstance(answer, Refuted if races(mutant) else Proved), f"barrier {number}"


@pytest.mark.parametrize(
    ("name", "needed", "all_"),
    [
        ("rms_norm", 2, 2),  # a reduction across warps
        ("transpose", 2, 2),  # tiles that are turned over
        ("column_max", 6, 9),  # reductions in a loop, which write again in its next iteration
        # Reductions of one iteration have buffers of their own: between what one of them reads and what it writes in
        # the next iteration lie the barriers of the others, so the one before its write is needed by nobody.
        ("cross_entropy", 5, 9),
    ],
)
def test_most_barriers_are_asked_for(name: str, needed: int, all_: int) -> None:
    lowered = plan(request(name)).variants[-1].transport
    refused = [isinstance(prove_protocols(without(lowered, n)), Refuted) for n in range(len(barriers(lowered)))]
    assert (sum(refused), len(refused)) == (needed, all_)


def test_barriers_inside_a_role_are_asked_for() -> None:
    """Products by ordinary arithmetic: one role, whose threads stage tiles for each other."""
    found = p.lower(p.nt, Candidate(1, ordinary=True), "f32", bm=32, bn=32, bk=16)
    assert isinstance(found, p.Lowered)
    lowered = found.scheduled.kernel
    assert has_roles(lowered)
    assert isinstance(prove_protocols(lowered), Proved)
    inner = [n for n, op in enumerate(barriers(lowered)) if not isinstance(op.parent_op(), t.Kernel)]
    for number in inner:
        assert isinstance(prove_protocols(without(lowered, number)), Refuted)
    assert len(inner) == 4


def test_two_threads_of_a_role_that_write_one_element_are_not_proved() -> None:
    found = p.lower(summed, Candidate(1), dtypes={"s": "f32"})
    assert isinstance(found, p.Lowered)
    lowered = found.scheduled.kernel
    assert isinstance(prove_protocols(lowered), Proved)
    write = next(op for op in lowered.walk() if isinstance(op, t.SharedWrite))
    write.attributes["offset"] = ExprAttr.of(write.offset.expr // 2)
    answer = prove_protocols(lowered)
    assert isinstance(answer, Unknown)
    assert "two threads" in answer.reason


def test_a_certificate_holds_the_protocol() -> None:
    planned = plan(request("rms_norm")).variants[-1]
    rest = tuple(o for o in planned.certificate if not o.name.startswith("protocol "))
    assert len(rest) < len(planned.certificate)
    assert set(missing(rest, planned.transport)) == {o.name for o in planned.certificate} - {o.name for o in rest}
    with pytest.raises(TilewrightError, match="CRT006"):
        require_memory(planned.tile, without(planned.transport, 0))


# -- text written by hand ----------------------------------------------------------------------------------------------
def kernel(
    build: Callable[..., Sequence[Operation]], threads: int = 64, *, persistent: bool = False, size: int = 64
) -> t.Kernel:
    """One shared buffer of ``size`` elements and one register; ``build`` makes the body from both."""

    def whole(y: object) -> list[Operation]:
        shared, own = t.Shared("cells", f32, size), t.Registers("v", f32, 1)
        body = [own, made.fill(0.0, own.buffer), *build(shared.buffer, own.buffer)]
        return [shared, made.programs(["p"], [made.M], body, persistent=persistent)]

    return made.kernel({"y": made.tensor("y", [made.M])}, whole, threads=threads)


def write(shared, own, offset: Expr = TID, guard: Expr = TRUE) -> Operation:
    return t.SharedWrite(shared, own, offset, guard)


def read(shared, own, offset: Expr = 63 - TID, guard: Expr = TRUE) -> Operation:
    return t.SharedRead(shared, own, offset, guard)


def judged(build: Callable[..., Sequence[Operation]], **given: object) -> object:
    lowered = kernel(build, **given)  # pyright: ignore[reportArgumentType]
    answer = prove_protocols(lowered)
    if not isinstance(answer, Unknown):
        assert isinstance(answer, Refuted) == races(lowered)
    return answer


CASES_BY_HAND: dict[str, tuple[bool, Callable[..., Sequence[Operation]]]] = {
    "met": (True, lambda s, v: [write(s, v), t.Barrier(), read(s, v)]),
    "not met": (False, lambda s, v: [write(s, v), read(s, v)]),
    "own element": (True, lambda s, v: [write(s, v), read(s, v, TID)]),
    "a neighbour's element": (False, lambda s, v: [write(s, v), read(s, v, TID ^ 1)]),
    "read, then written": (False, lambda s, v: [read(s, v), write(s, v)]),
    "other halves": (
        True,
        lambda s, v: [write(s, v, TID, TID < 32), write(s, v, TID, TID >= 32)],
    ),
    "one element too far": (
        False,
        lambda s, v: [write(s, v, TID, TID < 33), write(s, v, 64 - TID, all_of([TID >= 32, TID > 32]))],
    ),
    "two threads at once": (False, lambda s, v: [write(s, v, TID // 2)]),
    "one of the two": (True, lambda s, v: [write(s, v, TID // 2, (TID % 2).eq(0))]),
    "looped": (False, lambda s, v: [loop(write(s, v), t.Barrier(), read(s, v))]),
    "looped, met twice": (True, lambda s, v: [loop(write(s, v), t.Barrier(), read(s, v), t.Barrier())]),
    "looped, own element": (True, lambda s, v: [loop(write(s, v), read(s, v, TID))]),
    "met on one way": (False, lambda s, v: [write(s, v), branch([t.Barrier()], []), read(s, v)]),
    "met on both ways": (True, lambda s, v: [write(s, v), branch([t.Barrier()], [t.Barrier()]), read(s, v)]),
    "met in a loop that may not run": (False, lambda s, v: [write(s, v), loop(t.Barrier()), read(s, v)]),
    "two elements in turns": (
        True,
        lambda s, v: [loop(write(s, v, Const(0), TID.eq(0)), t.Barrier(), read(s, v, Const(0)), t.Barrier())],
    ),
    "two elements, one barrier each": (
        True,
        lambda s, v: [
            loop(*(x for i in (0, 1) for x in (write(s, v, Const(i), TID.eq(0)), t.Barrier(), read(s, v, Const(i)))))
        ],
    ),
    "within a warp": (True, lambda s, v: [write(s, v), t.WarpBarrier(), read(s, v, TID ^ 31)]),
    "within a warp, not met": (False, lambda s, v: [t.WarpBarrier(), write(s, v), read(s, v, TID ^ 31)]),
    "across warps by a warp barrier": (False, lambda s, v: [write(s, v), t.WarpBarrier(), read(s, v)]),
    "across warps beside warps": (
        True,
        lambda s, v: [
            write(s, v),
            t.WarpBarrier(),
            read(s, v, TID ^ 1),
            t.Barrier(),
            read(s, v),
            write(s, v, 63 - TID),
        ],
    ),
    "a warp met by its CTA": (True, lambda s, v: [t.WarpBarrier(), write(s, v), t.Barrier(), read(s, v, TID ^ 1)]),
}


def loop(*body: Operation) -> t.For:
    return t.For("i", Const(0), sym("N"), Const(1), t.block(body))


def shuffled(own) -> Region:
    return t.block([t.Shuffle("max", [own], [1])])


def branch(then: Sequence[Operation], otherwise: Sequence[Operation]) -> t.If:
    return t.If(sym("N") > 3, t.block(then), t.block(otherwise))


@pytest.mark.parametrize("name", CASES_BY_HAND)
def test_threads_meet_where_they_must(name: str) -> None:
    right, build = CASES_BY_HAND[name]
    assert isinstance(judged(build), Proved if right else Refuted)


def test_the_next_program_of_a_cta_writes_again() -> None:
    def once(s, v) -> list[Operation]:
        return [write(s, v), t.Barrier(), read(s, v)]

    assert isinstance(judged(once), Proved)
    assert isinstance(judged(once, persistent=True), Refuted)
    assert isinstance(judged(lambda s, v: [*once(s, v), t.Barrier()], persistent=True), Proved)


@pytest.mark.parametrize(("second", "expected"), [(256, Proved), (240, Refuted)])
def test_buffers_that_share_bytes_clash(second: int, expected: type) -> None:
    def body(y: object) -> list[Operation]:
        one, two, own = t.Shared("one", f32, 64, 0), t.Shared("two", f32, 64, second), t.Registers("v", f32, 1)
        work = [own, made.fill(0.0, own.buffer), write(one.buffer, own.buffer), write(two.buffer, own.buffer)]
        return [one, two, made.programs(["p"], [made.M], work)]

    assert isinstance(prove_protocols(made.kernel({"y": made.tensor("y", [made.M])}, body, threads=64)), expected)


@pytest.mark.parametrize(
    ("found", "build"),
    [
        ("go different ways", lambda s, v: [t.If(TID < 32, t.block([t.Barrier()]), t.block())]),
        ("go different ways", lambda s, v: [t.Let("half", TID // 32), t.If(sym("half") > 0, t.block(), t.block())]),
        (
            "go different ways",
            lambda s, v: [t.For("i", Const(0), TID, Const(1), t.block([t.Shuffle("max", [v], [1])]))],
        ),
        ("one elected thread", lambda s, v: [a.Elected(t.block([t.Barrier()]))]),
        ("one elected thread", lambda s, v: [a.Elected(shuffled(v))]),
        ("do not place", lambda s, v: [write(s, v, TID + sym("N"))]),
        ("do not place", lambda s, v: [write(s, v, TID + 1)]),
        ("no protocol says", lambda s, v: [a.BulkCommit()]),
    ],
)
def test_what_no_protocol_says_is_open(found: str, build: Callable[..., Sequence[Operation]]) -> None:
    answer = prove_protocols(kernel(build))
    assert isinstance(answer, Unknown)
    assert found in answer.reason


@pytest.mark.parametrize("target", [SM80, SM90A])
def test_limits_are_those_of_the_kernels_target(target: Target) -> None:
    planned = plan(replace(request("rms_norm"), target=target)).variants[-1]
    assert {p.target for p in protocols_of(planned.transport)} == {target.name}


def test_kernels_whose_threads_do_nothing_together_have_none() -> None:
    assert protocols_of(made.copy()) == ()


@pytest.mark.parametrize(("guard", "expected"), [(sym("M") > 3, Proved), (TID < 3, Unknown)])
def test_shuffles_alone_have_one(guard: Expr, expected: type) -> None:
    def build(y: object) -> list[Operation]:
        own = t.Registers("v", f32, 1)
        whole = t.If(guard, shuffled(own.buffer), t.block())
        return [made.programs(["p"], [made.M], [own, made.fill(0.0, own.buffer), whole])]

    assert isinstance(prove_protocols(made.kernel({"y": made.tensor("y", [made.M])}, build)), expected)


def test_a_guard_that_asks_for_more_than_the_thread_may_hold() -> None:
    assert isinstance(prove_protocols(kernel(lambda s, v: [write(s, v, TID, sym("M") > 1), read(s, v)])), Refuted)


def test_tables_are_those_of_each_thread() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        scale, shift, half = (int(x) for x in rng.integers(0, 3, 3))
        offset, guard = TID * scale + R + shift, (TID // 32).eq(half) if half else TRUE
        both = [write, lambda s, v, *at: t.SharedRead(s, v, *at)]
        first, second = both[int(rng.integers(2))], both[int(rng.integers(2))]
        judged(lambda s, v, f=first, g=second, at=(offset, guard): [f(s, v, *at), g(s, v, TID, TRUE)], size=256)
