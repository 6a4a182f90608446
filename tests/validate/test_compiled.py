"""What a compiled kernel's image says of its PTX."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import tilewright as tw
from support.example_cases import EXAMPLES_BY_NAME
from tilewright.artifact.schema import Artifact
from tilewright.base.dtypes import DTYPES
from tilewright.cli.show import BundlePart, lines
from tilewright.codegen import cuda
from tilewright.compiler.validated import LOWERING, PTX
from tilewright.diag import TilewrightError

pytestmark = pytest.mark.sample(1)


def compiled(example: str) -> Artifact:
    """An example in bf16, compiled ahead of time."""
    case = EXAMPLES_BY_NAME[example]
    return case.kernel.compile(dtypes={name: d.name for name, d in case.tensor_dtypes(DTYPES["bf16"]).items()})


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_VALIDATION")


def test_a_kernel_compiled_ahead_of_time_is_validated() -> None:
    (image,) = compiled("add").kernels
    assert {LOWERING, PTX} <= set(image.certificate)
    assert not image.undecided


def test_a_kernel_that_is_not_compared_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "0")
    artifact = compiled("add")
    (image,) = artifact.kernels
    assert PTX not in image.certificate
    assert image.undecided == ("the PTX was not compared with the Transport IR",)
    assert "  undecided: the PTX was not compared with the Transport IR" in lines(artifact, BundlePart.CERTIFICATE)


def test_what_a_call_left_uncompared_is_compared_ahead_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "0")
    assert not compiled("add").compared
    monkeypatch.delenv("TILEWRIGHT_VALIDATION")
    assert compiled("add").compared
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "0")
    assert compiled("add").compared  # from the store


HALF_SUM = """
__device__ __forceinline__ float half_sum(float a, float b) { return __fmul_rn(__fadd_rn(a * 0.5f, b * 0.5f), 2.0f); }
"""


def emitting(monkeypatch: pytest.MonkeyPatch, old: str, new: str, before: str = "") -> None:
    """Emitted code has something else in place of a word, and something before all."""
    emit = cuda.emit_kernel

    def other(*args: object, **options: object) -> cuda.Emitted:
        emitted = emit(*args, **options)  # pyright: ignore
        assert old in emitted.source
        return replace(emitted, source=before + emitted.source.replace(old, new))

    monkeypatch.setattr("tilewright.compiler.build.emit_kernel", other)


def test_code_that_is_not_the_ir_s_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    emitting(monkeypatch, "__fadd_rn", "__fsub_rn")
    with pytest.raises(TilewrightError, match="CGN005") as caught:
        compiled("add")
    assert re.search(r"\[\d+\] is -?[\d.]+ in the PTX and -?[\d.]+ in the Transport IR, of M = \d+", str(caught.value))


def test_code_that_is_undecided_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of the operands' halves, doubled: equal, and not by an identity of the comparison."""
    emitting(monkeypatch, "__fadd_rn(", "half_sum(", HALF_SUM)
    artifact = compiled("add")
    (image,) = artifact.kernels
    assert PTX not in image.certificate
    (found,) = (o for o in image.certificate if o.name == "ptx")
    assert found.standing == "tested"
    assert found.detail.startswith("Transport IR and PTX agree on ")
    assert any("another value" in reason for reason in image.undecided)
    shown = list(lines(artifact, BundlePart.CERTIFICATE))
    assert any(line.startswith("  ptx: tested by execution") for line in shown)
    assert "assumed of ptxas: the machine code does what the PTX says" in shown


@tw.kernel
def batch_sum(x: tw.Tensor["K", "M", "N"], y: tw.Tensor["M", "N"]):
    k, m, n = tw.grid(x, (None, 8, 64))
    tw.reduce_add(y, (m, n), x[k, m, n])


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_additions_by_vectors_are_validated(dtype: str) -> None:
    (image,) = batch_sum.compile(dtypes={"x": dtype, "y": dtype}).kernels
    assert re.search(r"red\.global\.add\.(noftz\.)?v4\.", image.ptx)
    assert {LOWERING, PTX} <= set(image.certificate)
    assert not image.undecided
