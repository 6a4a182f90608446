"""What becomes of a program one of whose kernels can't be compiled: its class of arguments is left out, and named."""

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
"""What one class of arguments can meet and another not: no proof, too few registers, too little shared memory, no
schedule that fits. Other refusals are of the kernel's text."""


class UnsupportedClasses:
    """Lets classes fail as long as one is left.

    Where the caller pinned what the schedule would choose, a class that fails is his mistake, and raised.
    """

    def __init__(self, request: Request, left_out: tuple[LeftOut, ...] = ()) -> None:
        self.left_out = left_out
        self._pins = request.pins
        self._first: TilewrightError | None = None

    @contextmanager
    def trying(self, predicate: Expr, sizes: Limits) -> Generator[None]:
        """Compiles the kernel of a class inside; the class is left out if it can't be.

        ``sizes`` are those of its axes; dispatch takes for granted those that are the artifact's bounds.
        """
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
        """Raises the first refusal where every class has failed."""
        if not compiled and self._first is not None:
            raise self._first
