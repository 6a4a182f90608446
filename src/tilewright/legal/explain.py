"""Explanations of one tensor map, in terms of the tensor and its box, and of single rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.base.expr import TRUE, sym
from tilewright.base.verdict import Illegal, Legal, Repair, Repairs, Violation
from tilewright.diag import Diagnostic, fail, render
from tilewright.diag.catalogue import CATALOGUE
from tilewright.hw.rules import bulk, limits, tcgen05, tensormap_encode, wgmma
from tilewright.hw.rules.row import HardwareRule
from tilewright.hw.target import Target
from tilewright.hw.tensormap import ELEMENT_BITS, PATTERNS, SHARED_ALIGN_BYTES, DataType, Direction, Swizzle
from tilewright.legal.check import diagnostic, element_type, target_named
from tilewright.legal.domain import DomainVerdict, ShapeDomain, SymbolicMap, judge_domain
from tilewright.legal.prices import Workload
from tilewright.legal.repair_types import Remedy
from tilewright.legal.repairs import repairs_of
from tilewright.legal.tensormap import TensorMapRequest
from tilewright.legal.tma import DATA_TYPES, TileAccess

TOPICS: dict[str, tuple[HardwareRule, ...]] = {
    "tensormap": tensormap_encode.RULES,
    "bulk": bulk.RULES,
    "wgmma": wgmma.RULES,
    "tcgen05": tcgen05.RULES,
    "limits": limits.RULES,
}
"""Every rule, by topic."""


def rules(arch: str | None = None, topic: str | None = None) -> tuple[HardwareRule, ...]:
    """The rules of ``topic`` (all topics if None) in force on ``arch`` (all if None), in table order."""
    chosen = TOPICS.values() if topic is None else (TOPICS.get(topic, ()),)
    every = tuple(rule for table in chosen for rule in table)
    if arch is None:
        return every
    major, minor = target_named(arch).compute_capability
    return tuple(rule for rule in every if rule.scope.holds(major * 10 + minor))


def explain_rule(id: str) -> str | None:
    """The full description of one rule or code: what, why, consequence, bad and good example, source; None if there is
    none."""
    entry = CATALOGUE.get(id)
    if entry is None:
        return None
    rule = next((r for r in rules() if r.id == id), None)
    lines = [f"{id}: {entry.title}", "", entry.why]
    if rule is not None:
        lines += ["", f"  legal if:  {rule.predicate}", f"  broken:    {rule.consequence.value}"]
        lines += [f"  holds for: {rule.scope}", f"  evidence:  {rule.evidence.value}"]
    if entry.bad:
        lines += [f"  bad:       {entry.bad}", f"  good:      {entry.good}"]
    return "\n".join([*lines, f"  source:    {rule.source if rule is not None else entry.source}"])


@dataclass(frozen=True)
class TmaExplanation:
    """The result of ``explain_tma``: the request as it would be encoded, the verdict, repairs and their diagnostics."""

    request: TensorMapRequest
    target: Target
    verdict: Legal[TensorMapRequest] | Repairs[Remedy] | Illegal
    diagnostics: tuple[Diagnostic, ...]
    repairs: tuple[Repair[Remedy], ...] = ()
    """Cheapest first; none if legal."""
    reuse: int = Workload().reuse
    """How often each tile is moved in the call that repairs are priced for."""

    @property
    def legal(self) -> bool:
        """Whether the map may be encoded and used as requested."""
        return isinstance(self.verdict, Legal)

    @property
    def text(self) -> str:
        """The explanation as lines for a terminal."""
        r = self.request
        lines = [
            f"tensor map on {self.target}: {self._verdict}",
            f"  data type      {DataType(r.tensor_data_type).name}",
            f"  global_dim     {list(r.global_dim)}",
            f"  global_strides {list(r.global_strides)} bytes",
            f"  box_dim        {list(r.box_dim)}",
            f"  swizzle        {Swizzle(r.swizzle).name}",
        ]
        if self.legal:
            lines += [f"  a copy         {self._copy}"]
        for d in self.diagnostics:
            lines += ["", render(d)]
        if self.repairs:
            lines += ["", f"repairs, predicted extra time of a call that moves each tile {self.reuse} times:"]
            lines += [f"  {repair.cost * 1e6:9.2f} us  {repair.action}" for repair in self.repairs]
        return "\n".join(lines)

    @property
    def _verdict(self) -> str:
        match self.verdict:
            case Legal():
                return "legal"
            case Repairs():
                return "illegal as asked, repairs below"
            case Illegal():
                return "illegal"

    @property
    def _copy(self) -> str:
        """What a copy through the map must keep to, and how it ends."""
        r = self.request
        bits, mode = ELEMENT_BITS[r.tensor_data_type], PATTERNS[Swizzle(r.swizzle)]
        size = prod(r.box_dim) * bits // 8
        end = f"completes {size} bytes on its mbarrier" if r.direction is Direction.LOAD else "ends in a bulk group"
        align = max(SHARED_ALIGN_BYTES, mode.repeat_bytes)
        return f"begins at a multiple of {128 // bits} elements, at {align} bytes of shared memory, and {end}"

    def as_dict(self) -> dict[str, object]:
        """The explanation as JSON values: verdict, encoded fields, reasons, repairs."""
        r = self.request
        return {
            "target": self.target.name,
            "verdict": type(self.verdict).__name__,
            "fields": {
                "tensor_data_type": int(r.tensor_data_type),
                "tensor_rank": r.tensor_rank,
                "global_dim": list(r.global_dim),
                "global_strides": list(r.global_strides),
                "box_dim": list(r.box_dim),
                "element_strides": list(r.element_strides),
                "interleave": int(r.interleave),
                "swizzle": int(r.swizzle),
            },
            "direction": Direction(r.direction).name.lower(),
            "box_bytes": prod(r.box_dim) * ELEMENT_BITS[r.tensor_data_type] // 8,
            "core": [
                {"rule": d.code, "found": d.found, "required": d.required, "source": d.source, "help": d.help}
                for d in self.diagnostics
            ],
            "repairs": [{"action": repair.action, "seconds": repair.cost} for repair in self.repairs],
        }


def explain_tma(
    shape: Sequence[int],
    dtype: str,
    box: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    address_align: int = 16,
    arch: str = "sm_90a",
    swizzle: str | None = None,
    mode: str = "tiled",
    store: bool = False,
    reuse: int = Workload().reuse,
) -> TmaExplanation:
    """Judge the tensor map of a ``box`` of a tensor, with repairs.

    ``shape``, ``strides`` (elements, dense if None) and ``box`` are in the tensor's order, last axis innermost.
    ``address_align`` is what is known of the address, in bytes. ``swizzle`` is ``none``, ``32B``, ``64B`` or ``128B``;
    None takes the widest that the inner box row fills. ``store`` asks for stores through the map. Repairs are
    priced for a call that moves each tile ``reuse`` times. Raises TMA070 to TMA074 for arguments that make no request.
    """
    target = target_named(arch)
    kind = element_type(dtype)
    if mode != "tiled":
        fail("TMA073", found=mode, required="tiled", help="a tiled map over the same tensor, windows by coordinates")
    steps = tuple(strides) if strides is not None else _dense(shape)
    if not (len(shape) == len(box) == len(steps)) or not shape:
        fail(
            "TMA070",
            found=f"shape of {len(shape)}, strides of {len(steps)}, box of {len(box)} axes",
            required="as many entries in each, at least one",
            help="a box extent of 1 for axes of which a copy takes one index",
        )
    for name, values, least in (("shape", shape, 0), ("box", box, 1)):
        if any(not least <= v < 1 << 63 for v in values):
            shown = f"{name} = {list(values)}"
            fail("TMA074", found=shown, required=f"64-bit numbers from {least} on", help="extents in elements")
    if reuse < 1:
        fail("TMA074", found=f"reuse = {reuse}", required="a positive number of times", help="1 for tiles moved once")
    if address_align < 1:
        asked = f"address_align = {address_align}"
        fail("TMA074", found=asked, required="a positive number of bytes", help="1 if nothing is known of the address")
    chosen = _swizzle(swizzle, box[-1] * kind.bytes)
    map = SymbolicMap(
        DATA_TYPES[kind.name],
        sym("address"),
        tuple(reversed(shape)),
        tuple(s * kind.bytes for s in reversed(steps[:-1])),
        tuple(reversed(box)),
        swizzle=chosen,
        direction=Direction.STORE if store else Direction.LOAD,
    )
    domain = ShapeDomain.of((sym("address") % address_align).eq(0) if address_align > 1 else TRUE)
    found = judge_domain(map, domain, target)
    request = _request(map, address_align)
    core = _core(found, steps)
    access = TileAccess(kind, tuple(shape), steps, sym("address"), tuple(box), map.direction, swizzles=(chosen,))
    repairs = repairs_of(access, domain.facts, target, Workload(reuse=reuse)) if core else ()
    verdict = Repairs(core, repairs) if repairs else Illegal(core) if core else Legal(request)
    shown = tuple(diagnostic(v, request, target) for v in core)
    return TmaExplanation(request, target, verdict, shown, repairs, reuse)


def _core(found: DomainVerdict, steps: tuple[int, ...]) -> tuple[Violation, ...]:
    if steps[-1] == 1:
        return found.reasons
    dense = Violation(
        "TMA060",
        f"stride of the last axis: {steps[-1]} elements",
        "stride 1 along the innermost axis",
        "CUDA Driver API, cuTensorMapEncodeTiled, globalStrides: dimension 0 is dense",
    )
    return (dense, *found.reasons)


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides))


def _swizzle(name: str | None, row_bytes: int) -> Swizzle:
    if name is None:
        wide = (s for s in (Swizzle.B128, Swizzle.B64, Swizzle.B32) if PATTERNS[s].span_bytes == row_bytes)
        return next(wide, Swizzle.NONE)
    known = {"none": Swizzle.NONE, "32b": Swizzle.B32, "64b": Swizzle.B64, "128b": Swizzle.B128}
    chosen = known.get(name.lower())
    if chosen is None:
        fail("TMA006", found=name, required=f"one of {', '.join(known)}", help="leave it out for the widest that fits")
    return chosen


def _request(map: SymbolicMap, address: int) -> TensorMapRequest:
    """The map as numbers, at the least address of its alignment."""
    rank = len(map.dims)
    return TensorMapRequest(
        map.data_type,
        rank,
        address,
        tuple(int(str(d)) for d in map.dims),
        tuple(int(str(s)) for s in map.strides),
        tuple(int(str(b)) for b in map.box),
        (1,) * rank,
        swizzle=map.swizzle,
        direction=map.direction,
    )
