"""What a compiled kernel's image says of its PTX."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.example_cases import EXAMPLES_BY_NAME
from tilewright.artifact.schema import Artifact
from tilewright.base.dtypes import DTYPES
from tilewright.cli.show import Part, lines
from tilewright.codegen import cuda
from tilewright.compiler.validated import LOWERING, PTX


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


def test_a_kernel_that_is_not_compared_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "0")
    artifact = compiled("add")
    (image,) = artifact.kernels
    assert PTX not in image.certificate
    assert image.undecided == ("the PTX was not compared with the Transport IR",)
    assert "  undecided: the PTX was not compared with the Transport IR" in lines(artifact, Part.CERTIFICATE)


def test_what_a_call_left_uncompared_is_compared_ahead_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "0")
    assert not compiled("add").compared
    monkeypatch.delenv("TILEWRIGHT_VALIDATION")
    assert compiled("add").compared
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "0")
    assert compiled("add").compared  # from the store


def test_code_that_is_not_the_ir_s_is_not_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = cuda.emit_kernel

    def other(*args: object, **options: object) -> cuda.Emitted:
        emitted = emit(*args, **options)  # pyright: ignore
        assert "__fadd_rn" in emitted.source
        return replace(emitted, source=emitted.source.replace("__fadd_rn", "__fsub_rn"))

    monkeypatch.setattr("tilewright.compiler.build.emit_kernel", other)
    (image,) = compiled("add").kernels
    assert PTX not in image.certificate
    assert any("another value" in reason for reason in image.undecided)
