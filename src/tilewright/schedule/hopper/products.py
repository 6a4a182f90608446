"""The wgmma instructions of one product, and the layout of operands staged by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.ir import SSAValue

from tilewright.base.expr import Const, Expr, Sym
from tilewright.hw.rules.wgmma import INSTRUCTION_K_BITS
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.wgmma import Major, WgmmaOperandPlan
from tilewright.schedule.distribute import Digits
from tilewright.schedule.hopper.operands import ROWS, DotPlan, RegisterOperand
from tilewright.schedule.map_builder import ClassId
from tilewright.tile.dialect import DTypeAttr
from tilewright.transport import asynchronous as a
from tilewright.transport.descriptor_attrs import OperandNumbers


def issue(
    plan: DotPlan,
    accumulator: SSAValue,
    left: tuple[SSAValue, Expr],
    right: tuple[SSAValue, Expr],
    digits: Mapping[ClassId, Digits],
    axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]],
    *,
    scale_first: bool,
) -> Iterator[a.Wgmma]:
    """Instructions in order: along K outside, row blocks, then column parts. Unless ``scale_first`` the first ones
    along K ignore what the accumulator held."""
    m, n = axes_of[plan.dot.result]
    assert m is not None
    assert n is not None
    rows, columns = digits[m], digits[n].covered
    warpgroups = rows.covered // rows.repeats // ROWS
    b_plan = _shared_plan(plan.b)
    assert b_plan is not None
    a_plan = _shared_plan(plan.a)
    a_numbers, b_numbers = None if a_plan is None else operand_numbers(a_plan), operand_numbers(b_plan)
    step = INSTRUCTION_K_BITS // plan.dtype.bits
    for k, b_k in enumerate(b_plan.k_offsets):
        for block in range(rows.repeats):
            for part in range(columns // plan.n):
                offset: Expr = Const(0)
                region: Expr = Const(0)
                register = size = 0
                if a_plan is not None:
                    row_step = a_plan.mn_offset(ROWS)
                    region, size = left[1], a_plan.shared.size_bytes
                    offset = left[1] + Sym(a.WARPGROUP) * row_step + block * warpgroups * row_step + a_plan.k_offsets[k]
                else:
                    # per block of rows the register operand has half of K's elements in each thread
                    register = block * len(b_plan.k_offsets) * step // 2 + k * step // 2
                yield a.Wgmma(
                    accumulator,
                    left[0],
                    right[0],
                    dtype=DTypeAttr.of(plan.dtype),
                    n=plan.n,
                    first=(block * columns + part * plan.n) // 2,
                    a_register=register,
                    a_offset=offset,
                    b_offset=right[1] + b_plan.mn_offset(part * plan.n) + b_k,
                    a_operand=a_numbers,
                    b_operand=b_numbers,
                    a_region=region,
                    a_bytes=size,
                    b_region=right[1],
                    b_bytes=b_plan.shared.size_bytes,
                    scale_d=scale_first or k > 0,
                )


def operand_numbers(plan: WgmmaOperandPlan) -> OperandNumbers:
    """The plan's tile and descriptor as the dialect writes them."""
    inner, outer = plan.shared.extents
    mn, k = (outer, inner) if plan.major is Major.K else (inner, outer)
    return OperandNumbers(plan.transpose, mn, k, plan.swizzle, plan.leading_bytes, plan.stride_bytes)


def _shared_plan(operand: object) -> WgmmaOperandPlan | None:
    return None if isinstance(operand, RegisterOperand) else getattr(operand, "plan")  # noqa: B009


def staging_offset(shared: SmemTile, inner: Expr, row: Expr) -> Expr:
    """Element offset of (row, inner) in a tile that is staged by hand, ``inner`` along the panel's rows."""
    tile = shared.shared_tile
    assert tile is not None, "staged tiles are whole panels of whole swizzle periods"
    return tile.offset_expr(row, inner, unit_bytes=shared.element_bytes)
