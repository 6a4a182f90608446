"""What the store is keyed by, and that a hit compiles nothing."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.jit import Kernel, rooms
from tilewright.jit.fingerprint import fingerprint


def shifted(step: float, helper: Callable[[Any], Any] | None = None) -> tw.Kernel:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=128):
        m = tw.grid(x, b)
        y[m] = helper(x[m]) if helper is not None else x[m] + step

    return kernel


def twice(v: Any) -> Any:
    return v * 2


def thrice(v: Any) -> Any:
    return v * 3


class Table:
    """No plain value."""

    scale = 2.0


TABLE = Table()


@tw.kernel
def with_table(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=128):
    m = tw.grid(x, b)
    y[m] = x[m] * TABLE.scale


def test_fingerprints_follow_what_a_trace_can_see() -> None:
    prints = [fingerprint(k.fn) for k in (shifted(1.0), shifted(2.0), shifted(1.0, twice), shifted(1.0, thrice))]
    assert None not in prints
    assert len(set(prints)) == 4
    assert fingerprint(shifted(1.0).fn) == prints[0]


def test_a_kernel_that_reads_an_object_has_no_fingerprint() -> None:
    assert fingerprint(with_table.fn) is None


@pytest.fixture
def compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernels compiled, with an empty store."""
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    built: list[str] = []
    build = rooms.build.build

    def recorded(program):
        built.append(program.request.function.name)
        return build(program)

    monkeypatch.setattr(rooms.build, "build", recorded)
    return built


def test_a_hit_compiles_and_traces_nothing(compiles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = Kernel(shifted(1.0)).compile()
    assert compiles == ["kernel"]

    def never(*args: object) -> None:
        raise AssertionError("traced on a hit")

    monkeypatch.setattr(rooms.program, "plan", never)
    assert Kernel(shifted(1.0)).compile() == first
    assert compiles == ["kernel"]


def test_what_makes_another_artifact(compiles: list[str]) -> None:
    kernel = Kernel(shifted(1.0))
    kernel.compile()
    kernel.compile()
    assert len(compiles) == 1
    kernel.compile(dtypes={"x": "bf16"})
    kernel.compile(target="sm_80")
    kernel.compile(static={"M": 1024})
    kernel.compile(schedule=tw.Schedule(warps=2))
    kernel.compile(b=256)
    Kernel(shifted(2.0)).compile()
    assert len(compiles) == 7


def test_dimensions_and_scalar_types_are_part_of_the_key(compiles: list[str]) -> None:
    def made(width: Any, number: Any) -> tw.Kernel:
        @tw.kernel
        def kernel(x: tw.Tensor["M", width], y: tw.Tensor["M"], *, s: number, b=16):
            m = tw.grid(y, b)
            y[m] = x[m, 0] * s

        return kernel

    sources = [Kernel(made(w, s)).compile().kernels[0].source for w, s in ((128, tw.f32), (256, tw.f32), (128, tw.i32))]
    assert len(compiles) == 3
    assert len(set(sources)) > 1


def test_an_object_that_changes_is_seen(compiles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = Kernel(with_table).compile()
    monkeypatch.setattr(TABLE, "scale", 3.0, raising=False)
    after = Kernel(with_table).compile()
    assert len(compiles) == 2
    assert before.kernels[0].source != after.kernels[0].source


def test_explain_says_plan_and_proof() -> None:
    text = Kernel(shifted(1.0)).explain()
    assert "threads a CTA" in text
    assert "proved" in text
