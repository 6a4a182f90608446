"""What a program's expressions look at: which scalars and address bits a plan depends on.

The less a plan depends on, the more calls it serves. A scalar that kernels only receive, and an address of which only
the alignment is asked, are not part of a plan's key, or only that far.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilewright.artifact.schema import (
    Artifact,
    Copy,
    EncodeTensorMap,
    Fill,
    FloatScalar,
    IntScalar,
    Launch,
    Parameter,
    Step,
    TensorArgument,
    TensorMapArg,
    TensorPointer,
    WorkspacePointer,
)
from tilewright.artifact.well_formed import FLOAT_SCALARS
from tilewright.base.expr import Expr, Mod, Sum, Sym, children
from tilewright.runtime.scalars import CallScalar, in_call


def call_scalar(artifact: Artifact, parameter: Parameter) -> CallScalar | None:
    """How to pass a scalar that is only handed to kernels; None for one that decides something (or a tensor)."""
    if isinstance(parameter, TensorArgument) or parameter.dtype == "bool":
        return None
    if parameter.dtype in FLOAT_SCALARS:
        return in_call(parameter)
    bits = 64 if parameter.dtype in ("i64", "u32") else 32
    symbol = Sym(parameter.name)
    for e, plain_bits in _expressions(artifact):
        if parameter.name in e.symbols and not (e == symbol and plain_bits == bits):
            return None
    return in_call(parameter)


def address_modulus(artifact: Artifact, tensor: str) -> int:
    """How much of a tensor's address a plan depends on: 0 nothing, n the address modulo n (2^64: all of it). Addresses
    in descriptors do not count, since those are encoded again whenever an address changes."""
    name = f"{tensor}.address"
    modulus = 1
    for e, _ in _expressions(artifact, descriptors=False):
        modulus = math.lcm(modulus, _modulus_in(e, name))
    return 0 if modulus == 1 else min(modulus, 1 << 64)


def _modulus_in(e: Expr, name: str) -> int:
    if name not in e.symbols:
        return 1
    if isinstance(e, Mod):
        divisor = e.denominator.constant
        terms = e.numerator.terms if isinstance(e.numerator, Sum) else ((e.numerator, 1),)
        if divisor and all(t == Sym(name) or name not in t.symbols for t, _ in terms):
            return abs(divisor)
    if isinstance(e, Sym):
        return 1 << 64
    return math.lcm(*(_modulus_in(child, name) for child in children(e)))


def _expressions(artifact: Artifact, *, descriptors: bool = True) -> Iterator[tuple[Expr, int]]:
    """Every expression, with the width of the integer argument that it is, or 0."""
    for e in artifact.facts:
        yield e, 0
    for variant in artifact.variants:
        yield variant.predicate, 0
        for size in variant.workspace:
            yield size, 0
        for step in variant.steps:
            yield from _step_expressions(step, descriptors)


def _step_expressions(step: Step, descriptors: bool) -> Iterator[tuple[Expr, int]]:
    match step:
        case Launch(_, grid, args):
            for extent in grid:
                yield extent, 0
            for arg in args:
                match arg:
                    case IntScalar(value, bits):
                        yield value, bits
                    case TensorPointer(_, offset) | WorkspacePointer(_, offset):
                        yield offset, 0
                    case TensorMapArg() | FloatScalar():
                        pass
        case Copy(source, destination, size):
            for e in (source.offset, destination.offset, size):
                yield e, 0
        case Fill(destination, _, _, count):
            for e in (destination.offset, count):
                yield e, 0
        case EncodeTensorMap(_, recipe):
            if descriptors:
                for e in (recipe.address, *recipe.dims, *recipe.strides_bytes):
                    yield e, 0
