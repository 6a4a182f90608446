"""What the store is keyed by, and that a hit compiles nothing."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from support.example_cases import EXAMPLES_BY_NAME
from tilewright.jit import Kernel, lazy
from tilewright.jit.fingerprint import fingerprint

pytestmark = pytest.mark.sample(1)


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


S = 2.0
COUNTS = {"a": 1}


def hidden() -> dict[str, Any]:
    return {"S": S}


def by_import(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    from configured import S  # noqa: PLC0415 # pyright: ignore

    y[m] = x[(m := tw.grid(y, 64))] * S


def by_globals(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(y, 64)
    y[m] = x[m] * globals()["S"]


def by_eval(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(y, 64)
    y[m] = x[m] * eval("S")


def by_helper(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(y, 64)
    y[m] = x[m] * globals_of()["S"]


def globals_of() -> dict[str, Any]:
    return hidden.__globals__


def by_module(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(y, 64)
    y[m] = x[m] * tw.lang.builtins.sys.modules["configured"].S  # pyright: ignore


def by_format(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(y, 64)
    y[m] = x[m] * float("{.__globals__[S]}".format(hidden))  # noqa: UP032


def by_default(x: tw.Tensor["M"], y: tw.Tensor["M"], *, get: Callable[[], Any] = lambda: sys.modules["configured"].S):
    m = tw.grid(y, 64)
    y[m] = x[m] * get()


def by_class(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(y, 64)

    class Here:
        value = S

    y[m] = x[m] * Here.value


WAYS = [by_import, by_globals, by_eval, by_helper, by_module, by_format, by_default, by_class]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_a_body_reads_by_the_back_door_is_seen(
    way: Callable[..., None], compiles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store serves no code for the value that the body read when it was compiled, only for what it reads now."""
    sources: list[str] = []
    for value in (2.0, 3.0, 2.0):
        monkeypatch.setattr(sys.modules[__name__], "S", value)
        monkeypatch.setitem(sys.modules, "configured", SimpleNamespace(S=value))
        kernel = Kernel(tw.kernel(way))
        sources.append(kernel.compile().kernels[0].source)
        kernel.explain()
    assert sources[0] == sources[2] != sources[1]
    assert len(compiles) == 2


def test_a_kernel_compiled_again_reads_again(compiles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that a kernel remembers are those of the values it reads now, or code would be stored under their key."""

    @tw.kernel
    def scaled(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 64)
        y[m] = x[m] * S

    kernel = Kernel(scaled)
    kernel.explain()
    monkeypatch.setattr(sys.modules[__name__], "S", 3.0)
    assert kernel.compile() == Kernel(scaled).compile()
    assert "3.f" in kernel.compile().kernels[0].source
    assert len(compiles) == 1


def test_functions_given_by_keyword_are_distinguished(compiles: list[str]) -> None:
    @tw.kernel
    def applied(x: tw.Tensor["M"], y: tw.Tensor["M"], *, f: Callable[[Any], Any]):
        m = tw.grid(y, 64)
        y[m] = f(x[m])

    class Times:
        """Without a fingerprint, and with one text for all."""

        def __init__(self, by: float):
            self.by = by

        def __call__(self, v: Any) -> Any:
            return v * self.by

        def __repr__(self) -> str:
            return "Times"

    made = [Kernel(applied).compile(f=f).kernels[0].source for f in (twice, thrice, Times(4.0), Times(5.0), twice)]
    assert len(set(made)) == len(compiles) == 4
    assert made[0] == made[4]


def test_values_are_distinguished_by_name_and_nesting() -> None:
    def reading(a: Any, b: Any) -> Any:
        def kernel() -> None:
            print(a, b)

        return fingerprint(kernel)

    pairs: list[tuple[Any, Any]] = [((1,), (2, 3)), ((1, 2), (3,)), ([1], [2, 3]), (1, 1.0), (True, 1), (twice, thrice)]
    told = [reading(a, b) for a, b in pairs] + [reading(b, a) for a, b in pairs]
    assert None not in told
    assert len(set(told)) == 2 * len(pairs)
    assert reading(10**5000, 0) is None
    circular: list[Any] = []
    circular.append(circular)
    assert reading(circular, 0) is None


def test_what_is_traced_while_assembling_is_not_stored(compiles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller tiles, after registers did not suffice, run the body once more: it may read what the key does not say."""
    build = lazy.build.build

    def with_another_trace(program: Any, **options: Any) -> Any:
        program.traces({"b": 64})
        return build(program, **options)

    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=tw.auto):
        m = tw.grid(x, b)
        y[m] = x[m] * TABLE.scale

    Kernel(kernel).compile()
    Kernel(kernel).compile()
    assert len(compiles) == 1
    monkeypatch.setattr(TABLE, "scale", 5.0, raising=False)
    monkeypatch.setattr(lazy.build, "build", with_another_trace)
    Kernel(kernel).compile()
    Kernel(kernel).compile()
    assert len(compiles) == 3


@pytest.mark.parametrize("name", EXAMPLES_BY_NAME)
def test_every_example_has_a_fingerprint(name: str) -> None:
    """A hit then takes no tracing."""
    assert fingerprint(EXAMPLES_BY_NAME[name].kernel.fn) is not None


@pytest.fixture
def compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernels compiled, with an empty store."""
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    built: list[str] = []
    build = lazy.build.build

    def recorded(program, **options):
        built.append(program.request.function.name)
        return build(program, **options)

    monkeypatch.setattr(lazy.build, "build", recorded)
    return built


def test_a_hit_compiles_and_traces_nothing(compiles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = Kernel(shifted(1.0)).compile()
    assert compiles == ["kernel"]

    def never(*args: object) -> None:
        raise AssertionError("traced on a hit")

    monkeypatch.setattr(lazy.program, "plan", never)
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


def test_explain_prints_plan_and_proof() -> None:
    text = Kernel(shifted(1.0)).explain()
    assert "threads a CTA" in text
    proved = [line.partition("(")[0] for line in text.splitlines() if line.strip().startswith("proved ")]
    assert len(proved) == len(set(proved)) >= 4  # obligations of one kind and method stand in one line


def test_a_store_that_refuses_is_reported_and_the_kernel_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="ART008"):
        assert Kernel(EXAMPLES_BY_NAME["add"].kernel).compile().kernels
