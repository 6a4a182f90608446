"""What the compiler would say to a kernel that somebody only simulates."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel, Program
from tilewright.diag import TilewrightError
from tilewright.schedule.pressure import may_spill


def refusal(program: Program, variant: PlannedKernel) -> TilewrightError | None:
    """Why ``variant``, which is planned and proved, would not be compiled for its class of arguments.

    What is left to the assembler is whether its registers suffice. It is asked only where their count leaves a doubt,
    and for this variant alone: None is no promise for the others.
    """
    if not may_spill(variant.transport, program.request.target):
        return None
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
