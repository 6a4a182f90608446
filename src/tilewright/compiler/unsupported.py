"""Classes of arguments whose kernels can't be compiled: they are left out of the program, and reported."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from tilewright.artifact.schema import LeftOut
from tilewright.base.expr import TRUE, Expr, all_of
from tilewright.base.readable import summary
from tilewright.compiler.requests import Limits, Request
from tilewright.diag import TilewrightError

_OF_ONE_CLASS = frozenset({"ACC005", "CGN002", "CGN003", "SCH001"})
"""Codes that can refuse one class of arguments and not another: no proof, too few registers, too little shared memory,
no schedule. Other refusals concern the whole kernel."""


class UnsupportedClasses:
    """Collects classes that fail, as long as one remains. Where the caller pinned decisions of the schedule, a failing
    class is an error."""

    def __init__(self, request: Request, left_out: tuple[LeftOut, ...] = ()) -> None:
        self.left_out = left_out
        self._pins = request.pins
        self._first: TilewrightError | None = None

    @contextmanager
    def trying(self, predicate: Expr, sizes: Limits) -> Generator[None]:
        """Compiles the kernel of a class inside; if that fails, the class is left out. ``sizes`` are those of its
        axes."""
        try:
            yield
        except TilewrightError as error:
            if error.code not in _OF_ONE_CLASS:
                raise
            refusal, arguments = error.diagnostics[0], all_of([predicate, *(extent <= size for extent, size in sizes)])
            if self._pins:
                note = f"pinned is {self._pins}" + f", which fails where {summary(arguments)}" * (arguments != TRUE)
                raise TilewrightError((replace(refusal, notes=(*refusal.notes, note)),)) from error
            self._first = self._first or error
            reason = f"{refusal.found}; required: {refusal.required} ({refusal.code})"
            self.left_out = (*self.left_out, LeftOut(arguments, reason, refusal.advice))

    def require_one(self, compiled: tuple[object, ...]) -> None:
        """Raises the first refusal if every class has failed."""
        if not compiled and self._first is not None:
            raise self._first
