"""What the compiler would say to a kernel that somebody only simulates."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel, PlannedProgram
from tilewright.diag import TilewrightError


def refusal(program: PlannedProgram, variant: PlannedKernel) -> TilewrightError | None:
    """Why ``variant``, which is planned and proved, would not be compiled for its class of arguments.

    The assembler is asked whether its registers suffice, for this variant alone: None is no promise for the others.
    """
    try:
        build(replace(program, variants=(_apart(variant),), left_out=()))
    except TilewrightError as error:
        return error
    return None


def _apart(variant: PlannedKernel) -> PlannedKernel:
    """The variant with texts of its own: what is built is written into them."""
    copies = tuple(replace(copy, planned=_apart(copy.planned)) for copy in variant.copies)
    promises = variant.promises
    if promises is not None:
        promises = replace(promises, kernels=tuple(map(_apart, promises.kernels)))
    return replace(variant, transport=variant.transport.clone(), copies=copies, promises=promises)
