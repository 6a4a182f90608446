"""A simulated kernel that the compiler would refuse: told before, once a class, and asked only where it is in doubt."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler import buildable
from tilewright.jit.kernel import Kernel
from tilewright.schedule.pressure import may_spill, peak_registers

pytestmark = pytest.mark.usefixtures("assembler_warnings")


@pytest.fixture(autouse=True)
def empty_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))


RNG = np.random.default_rng(0)


@tw.kernel
def product(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[k, n])
    c[m, n] = acc


def told(of: Any = product, **tiles: int) -> list[str]:
    """The warnings of a product of f32, which must be right all the same."""
    a, b = RNG.standard_normal((16, 32)).astype(np.float32), RNG.standard_normal((32, 16)).astype(np.float32)
    c = np.full((16, 16), np.nan, np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        of(a, b, c, **tiles)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)
    return [str(w.message) for w in caught if w.category is RuntimeWarning]


@pytest.mark.slow
def test_what_spills_is_reported_once_and_computed() -> None:
    (warning,) = told(bn=256)
    assert warning.startswith("warning[JIT006]")
    assert "SCH001: " in warning
    assert "bytes spilled" in warning
    assert "help: use smaller tiles" in warning
    assert not told(bn=256)


def test_the_compiler_is_not_asked_without_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: Any) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(buildable, "build", build)
    assert not told(bm=32, bn=32, bk=32)
    with pytest.raises(AssertionError, match="asked"):
        told(bn=192)


def test_what_is_doubtful_and_compiles_is_not_reported() -> None:
    assert not told(bm=128, bn=64, bk=64)


def test_words_that_live_at_once() -> None:
    """A loop's buffer lives through it; of an element-wise step the larger side counts."""
    compiled = product.compiled
    wide, narrow = (
        compiled._plan(compiled._ahead("sm_90a", None, None, None, None, {"bm": 64, "bn": bn, "bk": 32})).variants[-1]
        for bn in (256, 64)
    )
    target = wide.request.target
    assert peak_registers(wide.transport) > peak_registers(narrow.transport) > 32
    assert may_spill(wide.transport, target)
    product_of_halves = compiled._plan(
        compiled._ahead("sm_90a", {"a": "bf16", "b": "bf16"}, None, None, None, {"bm": 64, "bn": 256, "bk": 64})
    ).variants[-1]
    assert "transport.wgmma" in str(product_of_halves.transport)
    assert not may_spill(product_of_halves.transport, target)


@pytest.mark.slow
def test_the_assembler_is_asked_once_for_all_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (warning,) = told(Kernel(product.compiled.function), bn=256)
    asked: list[Any] = []
    monkeypatch.setattr(buildable, "build", asked.append)
    assert told(Kernel(product.compiled.function), bn=256) == [warning]
    assert not asked
    (note,) = tmp_path.rglob("*.txt")
    note.write_text(note.read_text().replace("JIT006", "JIT999"))
    assert not told(
        Kernel(product.compiled.function), bn=256
    )  # what was noted does not read back whole: asked again, and it builds now
    assert asked


@pytest.mark.slow
def test_a_store_that_refuses_costs_time_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "file" / "store"))
    assert len(told(Kernel(product.compiled.function), bn=256)) == 1
