"""``check_tensor_map``: the legality check under the argument names of ``cuTensorMapEncodeTiled``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import SupportsIndex, SupportsInt

from tilewright.base.dtypes import DType, dtype_named
from tilewright.base.verdict import Illegal, Unknown, Violation
from tilewright.diag import Diagnostic, Severity, TilewrightError, fail
from tilewright.hw.target import TARGETS, InstructionSet, Target
from tilewright.hw.tensormap import Direction
from tilewright.legal.rule_help import help_for
from tilewright.legal.tensormap import TensorMapRequest, judge
from tilewright.legal.tma import DATA_TYPES

Number = SupportsIndex | SupportsInt

SUB_BYTE = re.compile(r"^u?int4|^[ui]4|fp4|e2m1|float4")
"""Names of types of four bits, which tensor maps of sm_90 do not have."""


def check_tensor_map(
    tensorDataType: Number,
    tensorRank: Number,
    globalAddress: Number,
    globalDim: Sequence[Number],
    globalStrides: Sequence[Number],
    boxDim: Sequence[Number],
    elementStrides: Sequence[Number],
    interleave: Number,
    swizzle: Number,
    l2Promotion: Number,
    oobFill: Number,
    *,
    tensorMap: Number = 0,
    startCoordinates: Sequence[Number] | None = None,
    sharedAddress: Number = 0,
    direction: Direction | None = None,
    arch: str = "sm_90a",
) -> tuple[Diagnostic, ...]:
    """Raise ``TilewrightError`` with a reason for each rule the request breaks; return warnings otherwise.

    Arguments are named as ``cuTensorMapEncodeTiled`` names them (strides in bytes, dimension 0 innermost);
    ``tensorMap`` is the address the map is written to, ``arch`` the device it is for. ``startCoordinates``,
    ``sharedAddress`` and ``direction`` describe a copy through the map, which is judged with it; without a direction
    the map is judged for loads, and what only stores must not do is a warning. Warnings also concern copies that the
    driver encodes but whose outcome is undocumented.
    """
    target = target_named(arch)
    rank = _number("tensorRank", tensorRank, 32)
    _require_entries("globalDim", globalDim, rank, rank)
    _require_entries("globalStrides", globalStrides, rank - 1, rank)
    _require_entries("boxDim", boxDim, rank, rank)
    _require_entries("elementStrides", elementStrides, rank, rank)
    if startCoordinates is not None:
        _require_entries("startCoordinates", startCoordinates, rank, rank)
    request = TensorMapRequest(
        _number("tensorDataType", tensorDataType, 32),
        rank,
        _number("globalAddress", globalAddress, 64),
        tuple(_number("globalDim", v, 64) for v in globalDim[: max(rank, 0)]),
        tuple(_number("globalStrides", v, 64) for v in globalStrides[: max(rank - 1, 0)]),
        tuple(_number("boxDim", v, 32) for v in boxDim[: max(rank, 0)]),
        tuple(_number("elementStrides", v, 32) for v in elementStrides[: max(rank, 0)]),
        _number("interleave", interleave, 32),
        _number("swizzle", swizzle, 32),
        _number("l2Promotion", l2Promotion, 32),
        _number("oobFill", oobFill, 32),
        _number("tensorMap", tensorMap, 64),
        direction or Direction.LOAD,
        _number("sharedAddress", sharedAddress, 32),
        tuple(int(v) for v in startCoordinates or ()),
    )
    return _judged(request, target, both_directions=direction is None)


def _require_entries(name: str, values: Sequence[Number], wanted: int, rank: int) -> None:
    """Refuse (TMA070) an argument with fewer entries than a map of ``rank`` has."""
    if len(values) < wanted:
        fail(
            "TMA070",
            found=f"{name} has {len(values)} entries",
            required=f"{wanted} for rank {rank}",
            help="one coordinate a dimension, innermost first, or None"
            if name == "startCoordinates"
            else f"pass {wanted} entries, or rank {len(values) + rank - wanted}",
        )


def _judged(request: TensorMapRequest, target: Target, both_directions: bool) -> tuple[Diagnostic, ...]:
    """Raise for broken rules and return warnings; with ``both_directions`` also for stores through a map of loads."""
    judgement = judge(request, target)
    verdict = judgement.verdict
    if isinstance(verdict, Illegal):
        raise TilewrightError(tuple(diagnostic(v, request, target) for v in verdict.core))
    advice = judgement.advice
    if both_directions:
        stored = judge(replace(request, direction=Direction.STORE), target).verdict
        advice += stored.core if isinstance(stored, Illegal) else ()
    warnings = [diagnostic(v, request, target, Severity.WARNING) for v in advice]
    if isinstance(verdict, Unknown):
        warnings.append(
            Diagnostic(
                verdict.obligation.split(":")[0],
                found=verdict.reason,
                required="a documented or executed outcome",
                help=verdict.settle,
                severity=Severity.WARNING,
            )
        )
    return tuple(warnings)


def target_named(arch: str) -> Target:
    """The target called ``arch``; refuses unknown ones and those without tensor maps (TMA072)."""
    target = TARGETS.get(arch) or TARGETS.get(f"{arch}a")
    if target is None or InstructionSet.TMA not in target.instructions:
        known = ", ".join(name for name, t in TARGETS.items() if InstructionSet.TMA in t.instructions)
        fail("TMA072", found=arch, required=f"one of {known}", help="copy by cp.async or plain loads there")
    return target


def element_type(name: str) -> DType:
    """The dtype called ``name`` here, in NumPy or PyTorch; refuses others (TMA071), with what to write instead."""
    kind = dtype_named(name)
    if kind is None:
        near = difflib.get_close_matches(name.lower(), DATA_TYPES, n=1, cutoff=0.4)
        help = f"did you mean {near[0]}?" if near else "an integer type of the same width moves the same bytes"
        if SUB_BYTE.search(name.lower()):
            help = "describe the bytes: i8, with the extents counted in pairs of elements"
        fail("TMA071", found=name, required=f"one of {', '.join(DATA_TYPES)}", help=help)
    return kind


def _number(name: str, value: Number, bits: int) -> int:
    number = int(value)
    if not 0 <= number < 1 << bits:
        ends = "count from the tensor's first element" if number < 0 else f"at most {(1 << bits) - 1}"
        fail("TMA074", found=f"{name} = {number}", required=f"an unsigned {bits}-bit number", help=ends)
    return number


def diagnostic(
    violation: Violation, request: TensorMapRequest, target: Target, severity: Severity = Severity.ERROR
) -> Diagnostic:
    """A broken rule as a diagnostic, with a help made of the request's own numbers."""
    return Diagnostic(
        violation.rule,
        found=violation.found,
        required=f"{violation.required}   ({target})",
        source=violation.source,
        help=help_for(violation.rule, request),
        severity=severity,
    )
