"""Kernels are assembled several at once: in order, each with its own log, next schedules and refusals."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import os
import threading
from functools import partial

import pytest

import tilewright as tw
from tilewright.artifact.bundle import to_bytes
from tilewright.codegen.assemble import Assembled, assemble
from tilewright.compiler import assembling
from tilewright.compiler.assembling import Attempts, assemble_all
from tilewright.compiler.build import build
from tilewright.compiler.program import plan
from tilewright.compiler.timing import watch
from tilewright.diag import TilewrightError, fail

GOOD = 'extern "C" __global__ void {0}(float* x) {{ x[threadIdx.x] = {1}; }}'


@tw.kernel
def centred(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=512)
    y[m, n] = x[m, n] - x[m, n].mean(1)[:, None]


def once(source: str, name: str) -> Attempts[Assembled]:
    return (yield partial(assemble, source, "sm_90a", name))


def test_every_kernel_gets_its_own_result_and_log() -> None:
    sources = {f"k{i}": GOOD.format(f"k{i}", i) for i in range(4)}
    sources["k1"] = "nonsense_of_k1"
    sources["k3"] = "nonsense_of_k3"
    found = assemble_all([once(source, name) for name, source in sources.items()])
    for name, result in zip(sources, found, strict=True):
        if name in ("k1", "k3"):
            assert isinstance(result, TilewrightError)
            other = "k3" if name == "k1" else "k1"
            assert f"nonsense_of_{name}" in str(result)
            assert f"nonsense_of_{other}" not in str(result)
        else:
            assert isinstance(result, Assembled)
            assert f".entry {name}(" in result.ptx
            assert f"'{name}'" in result.log
            assert result.cubin == assemble(sources[name], "sm_90a", name).cubin


def test_they_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    meeting = threading.Barrier(3, timeout=30)

    def meets(number: int) -> Assembled:
        meeting.wait()  # breaks unless three are inside at once
        return Assembled(str(number), b"", 0, 0, 0, "")

    def kernel(number: int) -> Attempts[int]:
        assembled = yield partial(meets, number)
        return int(assembled.ptx)

    assert assemble_all([kernel(i) for i in range(6)]) == list(range(6))


@pytest.mark.parametrize("workers", [1, 2, 8, None])
def test_a_kernel_that_tries_again_keeps_its_place(workers: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembling.os, "cpu_count", lambda: workers)
    caller = threading.get_ident()
    threads: set[int] = set()

    def assembled(text: str) -> Assembled:
        threads.add(threading.get_ident())
        return Assembled(text, b"", 0, 0, 0, "")

    def kernel(number: int) -> Attempts[str]:
        for attempt in range(number):
            assert threading.get_ident() == caller  # planning again is the caller's
            text = f"{number}, attempt {attempt}"
            assert (yield partial(assembled, text)).ptx == text
        if number == 3:
            fail("CGN002", found="spilled", required="registers")
        return f"kernel {number}"

    found = assemble_all([kernel(i) for i in range(5)])
    assert [r for r in found if not isinstance(r, TilewrightError)] == [f"kernel {i}" for i in (0, 1, 2, 4)]
    assert isinstance(found[3], TilewrightError)
    assert found[3].code == "CGN002"
    assert caller not in threads
    assert len(threads) <= (workers or 1)


def test_an_artifact_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = centred.compiled
    request = compiled._ahead("sm_90a", None, None, None, None, {})

    def bundle(workers: int) -> bytes:
        monkeypatch.setattr(os, "cpu_count", lambda: workers)
        return to_bytes(build(plan(request)))

    assert bundle(1) == bundle(4)


def test_a_defect_of_ours_ends_it_all() -> None:
    def kernel() -> Attempts[int]:
        yield partial(assemble, GOOD.format("k", 1), "sm_90a", "k")
        raise AssertionError("a defect")

    with pytest.raises(AssertionError, match="a defect"):
        assemble_all([kernel(), kernel()])


def test_nothing_to_assemble() -> None:
    assert assemble_all([]) == []


def test_waiting_is_charged_to_the_assembler() -> None:
    with watch() as stopwatch:
        assemble_all([once(GOOD.format("k", 1), "k")])
    assert stopwatch.seconds["assemble"] > 0.001
