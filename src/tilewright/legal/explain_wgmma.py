"""Explanations of wgmma operands: is a tile in shared memory a legal operand, with which descriptor fields, and if not,
which layouts of the same tile are."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.dtypes import DType
from tilewright.base.verdict import Illegal, Legal, Repair, Repairs, Violation
from tilewright.diag import Diagnostic, fail, render
from tilewright.diag.catalogue import CATALOGUE
from tilewright.hw.rules.wgmma import (
    CORE_ROW_BYTES,
    CORE_ROWS,
    INSTRUCTION_K_BITS,
    INSTRUCTION_M,
    MAX_N,
    OPERAND_TYPES,
)
from tilewright.hw.target import SM90A, Target
from tilewright.hw.tensormap import PATTERNS, Swizzle
from tilewright.legal.check import element_type
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.wgmma import Major, OperandRole, WgmmaOperand, WgmmaOperandPlan, legalise


@dataclass(frozen=True)
class WgmmaExplanation:
    """The result of ``explain_wgmma``: the operand, the verdict and its diagnostics; repairs are nearest first."""

    operand: WgmmaOperand
    verdict: Legal[WgmmaOperandPlan] | Repairs[WgmmaOperandPlan] | Illegal
    diagnostics: tuple[Diagnostic, ...]

    @property
    def legal(self) -> bool:
        """Whether the instruction can read the tile in its present layout."""
        return isinstance(self.verdict, Legal)

    @property
    def repairs(self) -> tuple[Repair[WgmmaOperandPlan], ...]:
        """Layouts of the same tile that the instruction reads, cheapest to rewrite first; none if legal."""
        return self.verdict.repairs if isinstance(self.verdict, Repairs) else ()

    @property
    def text(self) -> str:
        """The explanation as lines for a terminal."""
        o = self.operand
        said = "legal" if self.legal else "illegal as asked, layouts below" if self.repairs else "illegal"
        lines = [
            f"wgmma operand {o.role.value} of m64n{o.n}: {said}",
            f"  tile           {o.tile_mn} x k{o.tile_k} {o.dtype}, {o.major.name}-major",
            f"  rows           {o.shared.row_bytes} bytes, swizzle {o.shared.swizzle.name}",
        ]
        if isinstance(self.verdict, Legal):
            lines += [f"  {name:14} {value}" for name, value in _fields(self.verdict.fields).items()]
        for d in self.diagnostics:
            lines += ["", render(d)]
        if self.repairs:
            lines += ["", "layouts of the same tile, predicted time to rewrite it in shared memory:"]
            lines += [f"  {repair.cost * 1e6:9.2f} us  {repair.action}" for repair in self.repairs]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """The explanation as JSON values: verdict, descriptor fields, reasons, repairs."""
        return {
            "verdict": type(self.verdict).__name__,
            "fields": _fields(self.verdict.fields) if isinstance(self.verdict, Legal) else None,
            "core": [
                {"rule": d.code, "found": d.found, "required": d.required, "source": d.source, "help": d.help}
                for d in self.diagnostics
            ],
            "repairs": [{"action": r.action, "seconds": r.cost, "fields": _fields(r.fields)} for r in self.repairs],
        }


def explain_wgmma(
    mn: int,
    k: int,
    dtype: str,
    *,
    role: OperandRole = OperandRole.B,
    major: Major = Major.K,
    swizzle: Swizzle = Swizzle.B128,
    row_bytes: int = 0,
    n: int = 0,
    accumulator: str = "",
    base: int = 0,
    target: Target = SM90A,
) -> WgmmaExplanation:
    """Judge a tile of ``mn`` rows (of A, or columns of B) by ``k`` elements as an operand of m64 ``n``.

    ``n`` is the tile's own for B, up to 256, where 0 is given, and 128 for A. The tile lies in panels whose rows are
    ``row_bytes`` wide (the swizzle's span, or 16 bytes without, if 0), at byte ``base`` of shared memory.
    ``accumulator`` is the D type, the widest if empty. Raises TMA071 for an unknown type and
    TMA070 for extents that make no tile.
    """
    kind = element_type(dtype)
    if kind.name not in OPERAND_TYPES:
        fail(
            "TMA071",
            title="no element type of a wgmma operand",
            found=kind.name,
            required=f"one of {', '.join(OPERAND_TYPES)}",
            help="convert the operand, or let tw.dot choose: it takes what wgmma lacks by ordinary arithmetic",
        )
    inner = k if major is Major.K else mn
    width = (row_bytes or PATTERNS[swizzle].span_bytes or CORE_ROW_BYTES) // kind.bytes
    if min(mn, k) < 1 or width < 1 or inner % width:
        fail(
            "TMA070",
            title="extents that make no operand",
            found=f"{mn} x k{k}, rows of {width * kind.bytes} bytes",
            required="a contiguous extent of whole rows",
            help=f"an extent that is a multiple of {max(width, 1)} elements, or narrower rows",
        )
    outer = mn if major is Major.K else k
    tile = SmemTile((inner, outer), width, kind.bytes, swizzle)
    n = n or (128 if role is OperandRole.A else _widest_n(kind, mn))
    operand = WgmmaOperand(role, kind, tile, major, n, accumulator or _widest(kind), base)
    verdict = legalise(operand, target)
    core = () if isinstance(verdict, Legal) else verdict.core
    return WgmmaExplanation(operand, verdict, tuple(_diagnostic(v, operand, target) for v in core))


def _widest(kind: DType) -> str:
    return OPERAND_TYPES.get(kind.name, ("f32",))[-1]


def _widest_n(kind: DType, columns: int) -> int:
    """The N of the widest instruction that reads no more than a tile of B has."""
    step = 16 if kind.is_int and columns >= 48 else CORE_ROWS
    return min(max(columns // step * step, CORE_ROWS), MAX_N)


def _fields(plan: WgmmaOperandPlan) -> dict[str, object]:
    return {
        "descriptor": f"{plan.template:#018x}, start address added",
        "leading_bytes": plan.leading_bytes,
        "stride_bytes": plan.stride_bytes,
        "transpose": plan.transpose,
        "k_offsets": list(plan.k_offsets),
        "align_bytes": plan.align_bytes,
    }


def _diagnostic(violation: Violation, operand: WgmmaOperand, target: Target) -> Diagnostic:
    return Diagnostic(
        violation.rule,
        found=violation.found,
        required=f"{violation.required}   ({target})",
        source=violation.source,
        help=_help(violation.rule, operand),
    )


def _help(rule: str, operand: WgmmaOperand) -> str:
    """The suggested change, with the operand's own numbers where they help."""
    depth = INSTRUCTION_K_BITS // operand.dtype.bits
    match rule:
        case "WGM016":
            return f"{-(-operand.tile_k // depth) * depth} elements deep"
        case "WGM017":
            return f"{-(-operand.tile_mn // CORE_ROWS) * CORE_ROWS} rows"
        case "WGM019" if operand.role is OperandRole.B:
            return f"an instruction of n = {_widest_n(operand.dtype, operand.tile_mn)}, or {operand.n} columns"
        case "WGM019":
            return f"{INSTRUCTION_M} rows"
        case _:
            return f"for example: {CATALOGUE[rule].good}"
