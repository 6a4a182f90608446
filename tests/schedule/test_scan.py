"""Lowered scans: any distribution of the axis over registers, lanes and warps; the barriers that they need."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.example_cases import load
from support.indexed import SHORT, facts_of
from support.lowered import lowered
from support.ptx_driver import run_artifact
from support.scans import BF16, recurrence
from support.slow import rest_slow
from tilewright.base.verdict import Proved
from tilewright.compiler.program import traced
from tilewright.compiler.proofs.obligations import prove_protocols
from tilewright.compiler.requests import Request, assumptions_of, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.signature import Signature
from tilewright.schedule import placement as planning
from tilewright.schedule.distribute import Digits, Distribution, InRegisters, InThreads, spread
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.lower import Lowering
from tilewright.schedule.relayout import classified
from tilewright.schedule.shared_memory import place_shared
from tilewright.simulate import run
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)

WARP = 5
"""Thread bits of a lane."""


@tw.kernel
def both(
    x: tw.Tensor["M", "N"],
    a: tw.Tensor["M", "N"],
    y: tw.Tensor["M", "N"],
    h: tw.Tensor["M", "N"],
    last: tw.Tensor["M"],
    *,
    reverse=False,
    exclusive=False,
):
    """A sum, of which an identity is known, and a recurrence, of which none is, with the last states."""
    m = tw.grid(x.shape[0], 4)
    n = tw.axis(x.shape[1], upto=64)
    decay, state = tw.full((m,), 1.0, tw.f32), tw.full((m,), 0.5, tw.f32)
    y[m, n] = tw.cumsum(x[m, n], 1, reverse=reverse, exclusive=exclusive)
    _, h[m, n] = tw.scan(recurrence, (a[m, n], x[m, n]), 1, carry=(decay, state), reverse=reverse, exclusive=exclusive)
    last[m] = state


def expected(x: np.ndarray, a: np.ndarray, *, reverse: bool, exclusive: bool) -> tuple[np.ndarray, ...]:
    rows, length = x.shape
    total, state = np.zeros(rows), np.full(rows, 0.5)
    y, h = np.zeros((rows, length)), np.zeros((rows, length))
    for n in range(length)[:: -1 if reverse else 1]:
        before = total, state
        total, state = total + x[:, n], a[:, n] * state + x[:, n]
        y[:, n], h[:, n] = before if exclusive else (total, state)
    return y, h, state


def dealt(rng: random.Random, sizes: dict[int, int], threads: int) -> Distribution:
    """Digits in any order: registers below, between and above bits of the thread index, which come in any order."""
    free = list(range(threads.bit_length() - 1))
    rng.shuffle(free)
    digits: list[tuple[int, Digits]] = []
    for c, size in sizes.items():
        modes: list[InRegisters | InThreads] = []
        reach = 1
        while reach < size:
            if free and rng.random() < 0.7:
                modes.append(InThreads(free.pop()))
                reach *= 2
            else:
                count = rng.choice((2, 4))
                modes.append(InRegisters(count))
                reach *= count
        if rng.random() < 0.5:  # beyond the tile
            modes.append(InRegisters(rng.choice((1, 2, 3)), atom=False))
        digits.append((c, Digits(size, tuple(modes))))
    rng.shuffle(digits)
    return Distribution(threads, tuple(digits))


def scheduled(keywords: dict[str, Any], facts: CallFacts) -> t.Kernel:
    """The kernel lowered and not proved."""
    signature = Signature.of(dict.fromkeys(("x", "a", "y", "h", "last"), tw.f32), keywords=keywords)
    request = Request(both, signature, facts, SM90A, tw.Schedule())
    kernel = traced(request)
    apart, classes = classified(kernel)
    placement = planning.place(apart, classes, facts, tw.Schedule(), assumptions_of(kernel, facts), SM90A, threads=128)
    lowered = Lowering(apart, placement, facts).run()
    place_shared(lowered, both.where)
    return lowered


@pytest.mark.parametrize("seed", rest_slow(range(24), 6))
def test_any_distribution(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    used: list[Distribution] = []

    def anyhow(sizes: Any, vectors: Any, together: Any, order: Any, threads: int, **rest: Any) -> Distribution:
        used.append(dealt(rng, dict(sizes), threads))
        return used[-1]

    monkeypatch.setattr(planning, "spread", anyhow)
    reverse, exclusive = rng.random() < 0.5, rng.random() < 0.5
    length = rng.choice((1, 15, 50, 63, 64))
    draw = np.random.default_rng(seed)
    x, a = draw.standard_normal((7, length)).astype(np.float32), draw.uniform(0.5, 1, (7, length)).astype(np.float32)
    y, h, last = np.full_like(x, 7), np.full_like(x, 7), np.full(7, 7, np.float32)
    arrays = {"x": x, "a": a, "y": y, "h": h, "last": last}
    run(scheduled({"reverse": reverse, "exclusive": exclusive}, facts_of(arrays)), arrays)
    assert used
    for found, want in zip((y, h, last), expected(x, a, reverse=reverse, exclusive=exclusive), strict=True):
        np.testing.assert_allclose(found, want, 1e-4, 1e-4)


@pytest.mark.parametrize("order", ["fastest", "slowest"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("length", [1, 63, 64])
def test_a_thread_that_has_rows_alone(
    length: int, exclusive: bool, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins with the state before them, if there is one: nothing is exchanged."""

    def alone(sizes: Any, vectors: Any, together: Any, order_: Any, threads: int, **rest: Any) -> Distribution:
        rows, few = Digits(64, (InRegisters(64),)), Digits(4, (InThreads(0), InRegisters(2)))
        digits = [(c, rows if size == 64 else few) for c, size in sizes.items()]
        return Distribution(threads, tuple(sorted(digits, key=lambda d: (d[1] is rows) is (order == "slowest"))))

    monkeypatch.setattr(planning, "spread", alone)
    draw = np.random.default_rng(length)
    x, a = draw.standard_normal((7, length)).astype(np.float32), draw.uniform(0.5, 1, (7, length)).astype(np.float32)
    y, h, last = np.full_like(x, 7), np.full_like(x, 7), np.full(7, 7, np.float32)
    arrays = {"x": x, "a": a, "y": y, "h": h, "last": last}
    kernel = scheduled({"exclusive": exclusive}, facts_of(arrays))
    assert not [op for op in kernel.walk() if isinstance(op, t.Exchange | t.SharedWrite)]
    run(kernel, arrays)
    for found, want in zip((y, h, last), expected(x, a, reverse=False, exclusive=exclusive), strict=True):
        np.testing.assert_allclose(found, want, 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float16)], ids=str)
def test_states_of_16_bits_wait_for_the_ones_before(dtype: np.dtype[Any]) -> None:
    """Two of them share a word: the second needs the first."""

    @tw.kernel
    def greatest(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.axis(x.shape[0], upto=16), tw.grid(x.shape[1], 64)
        (y[m, n],) = tw.scan(lambda before, here: (tw.maximum(before[0], here[0]),), (x[m, n],), 0)

    x = np.random.default_rng(0).standard_normal((16, 70)).astype(dtype)
    arrays = {"x": x, "y": np.zeros_like(x)}
    artifact = greatest.compile(dtypes=dict.fromkeys("xy", SHORT[dtype.name]), facts=facts_of(arrays))
    driver = run_artifact(artifact, arrays, schedules=1)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert np.array_equal(arrays["y"], np.maximum.accumulate(x, 0))


def test_the_distributions_differ() -> None:
    """Some have warps below lanes, some registers between bits of the thread index."""
    modes = [digits.modes for seed in range(24) for _, digits in dealt(random.Random(seed), {0: 4, 1: 64}, 128).digits]
    bits = [[m.bit for m in each if isinstance(m, InThreads)] for each in modes]
    assert any(b != sorted(b) and max(b) >= WARP for b in bits if b)
    inner = [each[1:-1] for each in modes]
    assert any(isinstance(m, InRegisters) for each in inner for m in each)


def barriers(kernel: t.Kernel) -> list[t.Barrier]:
    return [op for op in kernel.walk() if isinstance(op, t.Barrier)]


@tw.kernel
def one_row(a: tw.Tensor["N"], b: tw.Tensor["N"], h: tw.Tensor["N"]):
    decay, state = tw.full((), 1.0, tw.f32), tw.zeros((), tw.f32)
    for n in tw.stream(a.shape[0], 512):
        _, h[n] = tw.scan(recurrence, (a[n], b[n]), carry=(decay, state))


def test_every_barrier_is_needed() -> None:
    """Totals of warps are written after all have read those of the step before, and read after they are written."""

    def made() -> t.Kernel:
        return list(lowered(one_row, dict.fromkeys("abh", "f32"), tw.Schedule(warps=4)).values())[-1][1]

    kernel = made()
    assert isinstance(prove_protocols(kernel), Proved)
    count = len(barriers(kernel))
    assert count == 4  # of the whole steps, and of the partial one
    for number in range(count):
        kernel = made()
        barriers(kernel)[number].detach()
        assert not isinstance(prove_protocols(kernel), Proved)


def test_what_is_summed_lies_in_vectors_and_lanes() -> None:
    """A thread has 4 of the 16 states, and of 32 channels all steps; of 8 channels the steps are shared by warps."""
    kernel = load("scan").selective_scan
    digits = {}
    for channels, steps in ((32, 32), (8, 64)):
        signature = Signature.of(
            {n: tw.f32 if n == "a" else tw.bf16 for n in ("x", "dt", "a", "b", "c", "y")},
            keywords={"bd": channels, "bt": steps},
        )
        request = Request(kernel, signature, default_facts(kernel), SM90A, tw.Schedule())
        apart, classes = classified(traced(request))
        facts = request.facts
        pins, assumptions = tw.Schedule(warps=4), assumptions_of(apart, facts)
        placement = planning.place(apart, classes, facts, pins, assumptions, SM90A)
        digits[channels] = {d.size: d for _, d in placement.home.digits}
    assert [(d.vector, d.thread_bits) for d in (digits[32][16], digits[8][16])] == [(4, (0, 1))] * 2
    states, channels, steps = digits[8][16], digits[8][8], digits[8][64]
    assert (channels.thread_bits, steps.thread_bits, steps.vector, states.repeats) == ((2, 3, 4), (5, 6), 16, 1)


def test_threads_scan_alone_what_memory_is_not_contiguous_along() -> None:
    sizes, vectors = {0: 32, 1: 64}, {0: 1, 1: 1}
    together, order = [frozenset((0, 1))], [1, 0]
    found = spread(sizes, vectors, together, order, 128, serial={0}).by_class
    assert (found[0].vector, len(found[0].thread_bits), found[0].repeats) == (16, 1, 1)
    assert (found[1].vector, len(found[1].thread_bits), found[1].repeats) == (1, 6, 1)
    plain = spread(sizes, vectors, together, order, 128).by_class
    assert (plain[0].vector, len(plain[0].thread_bits), plain[0].repeats) == (1, 2, 8)
    odd = spread({0: 48, 1: 64}, vectors, together, order, 128, serial={0}).by_class
    assert (odd[0].vector, len(odd[0].thread_bits), odd[0].repeats) == (1, 1, 24)
