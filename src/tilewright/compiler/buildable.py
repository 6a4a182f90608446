"""Asks whether a kernel that is only simulated would compile."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel, PlannedProgram
from tilewright.diag import TilewrightError


def refusal(program: PlannedProgram, variant: PlannedKernel) -> TilewrightError | None:
    """The error with which compiling ``variant``, which is planned and proved, would end; None if it compiles.

    Only this variant is assembled: None says nothing about the others.
    """
    try:
        build(replace(program, variants=(_apart(variant),), left_out=()))
    except TilewrightError as error:
        return error
    return None


def _apart(variant: PlannedKernel) -> PlannedKernel:
    """A deep copy of the variant's IR, because ``build`` writes into it."""
    copies = tuple(replace(copy, planned=_apart(copy.planned)) for copy in variant.copies)
    promises = variant.promises
    if promises is not None:
        promises = replace(promises, kernels=tuple(map(_apart, promises.kernels)))
    return replace(variant, transport=variant.transport.clone(), copies=copies, promises=promises)
