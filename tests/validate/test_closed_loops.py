"""Loops that are functions of the library's (``fmod``): which loops are one function, and that mistakes in their PTX,
and in the IR that calls them, are refused."""

from __future__ import annotations

import re
from functools import cache

import pytest

from support.generality import CASES
from tilewright.artifact.schema import KernelImage, Launch
from tilewright.ptx.reader import read
from tilewright.transport.text import transport_kernel
from tilewright.validate.closed_loops import ClosedLoop, closed_loop
from tilewright.validate.match import Difference
from tilewright.validate.registers import EntryRegisters
from tilewright.validate.transport_to_ptx import compare

HEAD = ".version 9.1\n.target sm_90a\n.address_size 64\n"
LOOP = """
 ld.param.u32 %r1, [n];
 mov.u32 %r2, 7;
$L1:
 sub.s32 %r2, %r2, %r1;
 min.u32 %r3, %r2, 5;
 setp.gt.s32 %p1, %r3, 0;
 @%p1 bra $L1;
 ld.param.u64 %rd1, [x];
 st.global.u32 [%rd1], %r2;
 ret;
"""


def function(body: str) -> ClosedLoop | None:
    declared = ".reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<3>;\n"
    text = f"{HEAD}.visible .entry k(.param .u32 n, .param .u64 x)\n{{\n{declared}{body}\n}}\n"
    registers = EntryRegisters(read(text).entry("k"))
    (loop,) = registers.flow.loops
    return closed_loop(registers, loop)


def test_loops_of_one_text_are_one_function() -> None:
    found = function(LOOP)
    assert found is not None
    assert (found.operands, found.results) == (("%r2", "%r1"), ("%r2", "%r3"))
    renamed = function(LOOP.replace("%r1", "%r8").replace("%r2", "%r4").replace("$L1", "$L7").replace("%p1", "%p3"))
    assert renamed is not None
    assert (renamed.text, renamed.operands) == (found.text, ("%r4", "%r8"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sub.s32 %r2, %r2, %r1", "sub.s32 %r2, %r1, %r2"),
        ("sub.s32 %r2, %r2, %r1", "add.s32 %r2, %r2, %r1"),
        ("min.u32", "min.s32"),
        ("%r2, 5", "%r2, 6"),
        ("min.u32 %r3, %r2, 5", "min.u32 %r3, %r1, 5"),
        ("setp.gt.s32 %p1, %r3", "setp.gt.s32 %p1, %r2"),
        ("@%p1 bra", "@!%p1 bra"),
        ("setp.gt", "mov.u32 %r1, %r3;\n setp.gt"),
        ("min.u32 %r3, %r2, 5", "mov.b32 %f1, %r2;\n mov.b32 %r3, %f1"),
    ],
)
def test_loops_of_other_texts_are_others(old: str, new: str) -> None:
    found, other = function(LOOP), function(LOOP.replace(old, new, 1))
    assert found is not None
    assert other is not None
    assert other.text != found.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min.u32 %r3, %r2, 5", "mov.u32 %r3, %tid.x"),
        ("min.u32 %r3, %r2, 5", "ld.param.u32 %r3, [n]"),
        ("min.u32 %r3, %r2, 5", "@%p1 min.u32 %r3, %r2, 5"),
        ("min.u32 %r3, %r2, 5", "selp.u32 %r3, %r2, 5, %p2"),
        ("st.global.u32 [%rd1], %r2", "@%p1 st.global.u32 [%rd1], %r2"),
    ],
)
def test_loops_that_read_more_than_registers_are_none(old: str, new: str) -> None:
    assert function(LOOP.replace(old, new, 1)) is None


@cache
def compiled() -> tuple[KernelImage, Launch]:
    artifact = CASES["functions_of_two"].kernel.compile(dtypes=dict.fromkeys("aby", "f32"))
    (variant,) = artifact.variants
    (launch,) = variant.steps
    assert isinstance(launch, Launch)
    return artifact.kernel(launch.kernel), launch


def differences(ptx: str | None = None, ir: str | None = None) -> tuple[Difference, ...]:
    image, launch = compiled()
    return compare(transport_kernel(ir or image.transport_ir), ptx or image.ptx, launch.args, launch.grid[0], 1)


def test_the_ptx_does_what_the_ir_says() -> None:
    assert differences() == ()


MISTAKES = {
    "it begins elsewhere": (r", 1065353216;(?=\n\tmov\.b32 \t%f\d+, %r\d+;\n\tadd\.s32)", ", 1065353217;"),
    "it takes other steps": (r"min\.u32( +\t%r\d+, %r\d+), 192937984;", r"min.u32\1, 192937985;"),
    "it goes on longer": (r"and\.pred( +\t%p\d+, %p\d+, %p\d+;\n\t@%p\d+ bra)", r"or.pred\1"),
    "it rounds otherwise": (r"fma\.rz\.f32", "fma.rn.f32"),
    "it runs where nothing is left": (r"setp\.eq\.s32( \t%p\d+, %r\d+), 0;(?=\n\t@%p)", r"setp.eq.s32\1, 8388608;"),
    "its result is another": (r"(mul\.rn\.f32 \t%f\d+, %f\d+), 0f34000000;", r"\1, 0f34800000;"),
    "it is handed something else": (r"rcp\.approx\.ftz\.f32", "sqrt.approx.ftz.f32"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_the_ptx_are_refused(mistake: str) -> None:
    old, new = MISTAKES[mistake]
    changed, count = re.subn(old, new, compiled()[0].ptx, count=1)
    assert count
    assert differences(changed)


@pytest.mark.parametrize(("old", "new"), [("fmod", "mod"), ("mod", "fmod"), ("mod", "floordiv"), ("floordiv", "mod")])
def test_mistakes_in_the_ir_are_refused(old: str, new: str) -> None:
    ir = compiled()[0].transport_ir
    assert f"<{old}>" in ir
    assert differences(ir=ir.replace(f"<{old}>", f"<{new}>"))


def test_other_operands_in_the_ir_are_refused() -> None:
    changed, count = re.subn(r"(tile\.binary <fmod>) (%\d+), (%\d+)", r"\1 \3, \2", compiled()[0].transport_ir)
    assert count
    assert differences(ir=changed)


def test_branches_that_all_threads_are_said_to_take() -> None:
    """``bra.uni`` where threads part: the ISA leaves undefined what it does."""
    ptx = compiled()[0].ptx
    back = [m for m in re.finditer(r"@%p\d+ bra( \t\$L__BB\d+_\d+);", ptx) if f"{m[1].strip()}:" in ptx[: m.start()]]
    assert back
    for edge in back[:2]:
        assert differences(ptx[: edge.start(1)] + ".uni" + ptx[edge.start(1) :])
