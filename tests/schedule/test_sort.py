"""Lowered sorts: any distribution of the axis over registers, lanes and warps; the barriers that they need."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from schedule.test_scan import barriers, dealt
from support.indexed import SHORT, facts_of
from support.lowered import lowered
from support.scans import Arrays
from support.slow import rest_slow
from support.sorts import CASES, in_a_stream
from tilewright.base.dtypes import DTYPES
from tilewright.base.verdict import Proved
from tilewright.compiler.program import traced
from tilewright.compiler.proofs.obligations import prove_protocols
from tilewright.compiler.requests import Request, assumptions_of
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.schedule import placement as planning
from tilewright.schedule.distribute import Digits, Distribution, spread
from tilewright.schedule.lower import Lowering
from tilewright.schedule.relayout import classified
from tilewright.schedule.shared_memory import place_shared
from tilewright.simulate import run
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.compare import compare

pytestmark = pytest.mark.sample(1)


def scheduled(kernel: Any, keywords: dict[str, Any], arrays: Arrays) -> tuple[Any, t.Kernel]:
    """Both IRs of the kernel, not proved."""
    signature = Signature.of({n: DTYPES[SHORT[a.dtype.name]] for n, a in arrays.items()}, keywords=keywords)
    request = Request(kernel, signature, facts_of(arrays), SM90A, Schedule())
    source = traced(request)
    apart, classes = classified(source)
    assumptions = assumptions_of(source, request.facts)
    placement = planning.place(apart, classes, request.facts, Schedule(), assumptions, SM90A, threads=128)
    made = Lowering(apart, placement, request.facts).run()
    place_shared(made, kernel.where)
    return source, made


@pytest.mark.parametrize("seed", rest_slow(range(16), 4))
@pytest.mark.parametrize("name", ["float16 descending", "greatest of int32"])
def test_any_distribution(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    used: list[Distribution] = []

    def anyhow(sizes: Any, vectors: Any, together: Any, order: Any, threads: int, *, held: Any, **rest: Any) -> Any:
        mixed = dealt(rng, {c: n for c, n in sizes.items() if c not in held}, threads)
        kept = [(c, Digits.plain(sizes[c], 1, (), sizes[c])) for c in held]
        used.append(Distribution(threads, (*mixed.digits, *kept)))
        return used[-1]

    monkeypatch.setattr(planning, "spread", anyhow)
    case = CASES[name]
    arrays = case.draw(np.random.default_rng(seed))
    expected = case.expected(arrays)
    source, made = scheduled(case.kernel, dict(case.keywords), arrays)
    assert compare(source, made) == ()
    run(made, arrays)
    assert used
    for output, want in expected.items():
        np.testing.assert_array_equal(arrays[output].astype(np.float64), want.astype(np.float64))


def test_every_barrier_is_needed() -> None:
    """Elements are written after all have read those of the step before, and read after they are written."""

    def made() -> t.Kernel:
        return list(
            lowered(in_a_stream, {"x": "f32", "best": "f32"}, Schedule(warps=4), {"bm": 1, "bn": 512}).values()
        )[-1][1]

    kernel = made()
    assert isinstance(prove_protocols(kernel), Proved)
    count = len(barriers(kernel))
    assert count > 0
    for number in range(count):
        kernel = made()
        barriers(kernel)[number].detach()
        assert not isinstance(prove_protocols(kernel), Proved)


def test_threads_hold_all_of_what_is_selected() -> None:
    found = spread({0: 64, 1: 8}, {0: 4, 1: 4}, [frozenset((0,)), frozenset((1,))], [0, 1], 128, held={1}).by_class
    assert (found[1].vector, found[1].thread_bits, found[1].repeats) == (4, (), 2)
