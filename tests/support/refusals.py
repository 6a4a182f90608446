"""Checks of the language's refusals: the code, the user's line, and that found, required and help say something."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tilewright.base.dtypes import DType, f32
from tilewright.diag import Diagnostic, TilewrightError
from tilewright.lang.params import KernelFunction
from tilewright.lang.signature import Signature
from tilewright.tile.tracer import trace

MARK = "# <-"


def traced(kernel: KernelFunction, dtype: DType = f32, dtypes: dict[str, DType] | None = None, **options: Any) -> Any:
    """The kernel's module, every tensor of ``dtype`` unless ``dtypes`` says else."""
    named = {t.name: (dtypes or {}).get(t.name, dtype) for t in kernel.tensors}
    return trace(kernel, Signature.of(named, **options))


def refused(
    kernel: KernelFunction, code: str, dtype: DType = f32, *, marked: bool = True, **options: Any
) -> Diagnostic:
    """The diagnostic of a kernel that is refused with ``code``, at its line marked ``# <-`` if ``marked``."""
    with pytest.raises(TilewrightError) as caught:
        traced(kernel, dtype, **options)
    return checked(caught.value, code, marked_line(kernel) if marked else None)


def checked(error: TilewrightError, code: str, line: int | None) -> Diagnostic:
    diagnostic = error.diagnostics[0]
    assert diagnostic.code == code, str(error)
    assert diagnostic.found, str(error)
    assert diagnostic.required, str(error)
    assert diagnostic.help, str(error)
    assert diagnostic.where is not None
    if line is not None:
        assert diagnostic.where.line == line, str(error)
    return diagnostic


def marked_line(kernel: KernelFunction) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    (line,) = [first + i for i, text in enumerate(lines) if MARK in text]
    return line
