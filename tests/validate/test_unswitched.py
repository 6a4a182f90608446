"""Loops that LLVM unswitches: two in the PTX, one in the IR. The PTX does what the IR says, and mistakes in it are
refused, also in the loop that is for what no iteration of the inner one does."""

from __future__ import annotations

import re
from functools import cache

import pytest

from support.generality import CASES
from tilewright.artifact.schema import KernelImage, Launch
from tilewright.base.expr import Const, Sym
from tilewright.transport import dialect as t
from tilewright.transport.text import transport_kernel
from tilewright.validate.match import Difference
from tilewright.validate.transport_to_ptx import compare
from tilewright.validate.unswitched import in_branches

pytestmark = pytest.mark.sample(4)


@cache
def compiled(name: str) -> tuple[KernelImage, Launch]:
    dtypes = {"nested_streams": dict.fromkeys("xyz", "f32"), "nested_state": dict.fromkeys("xy", "f32")}[name]
    artifact = CASES[name].kernel.compile(dtypes=dtypes)
    launch = artifact.variants[-1].steps[-1]
    assert isinstance(launch, Launch)
    return artifact.kernel(launch.kernel), launch


def differences(name: str, ptx: str | None = None, ir: str | None = None) -> tuple[Difference, ...]:
    image, launch = compiled(name)
    return compare(transport_kernel(ir or image.transport_ir), ptx or image.ptx, launch.args, launch.grid[0], 1)


@pytest.mark.parametrize("name", ["nested_state", "nested_streams"])
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    assert differences(name) == ()


def loops_without_loads(ptx: str) -> list[tuple[int, int]]:
    """Of the loops that hold no other and load nothing the first line and the one behind the last."""
    lines = ptx.split("\n")
    labels = {line[:-1]: number for number, line in enumerate(lines) if re.fullmatch(r"\$L\w+:", line)}
    back = [(labels[m[1]], end + 1) for end, line in enumerate(lines) if (m := re.search(r"bra \s*(\$L\w+);", line))]
    loops = [(first, end) for first, end in back if first < end]
    inner = [loop for loop in loops if not any(loop[0] <= a and b <= loop[1] and (a, b) != loop for a, b in loops)]
    return [loop for loop in inner if "ld.global" not in "\n".join(lines[slice(*loop)])]


MISTAKES = {
    "nested_streams": {
        "one iteration more": (r"setp\.lt\.s32(?=[^;]*;\s+@%p\d+ bra)", "setp.le.s32"),
        "the wrong iteration in sixteen": (r"(setp\.ne\.s32 \s*%p\d+, %r\d+), 15;", r"\1, 14;"),
        "the first iterations left out": (r"(shl\.b32 \s*%r\d+, %r\d+), 2;", r"\1, 3;"),
        "another element is stored": (r"(st\.global\.f32 \s*\[%rd\d+)\]", r"\1+4]"),
        "nothing is stored": (r"st\.global\.f32[^;]*;", ""),
        "another product": (r"mul\.rn\.f32", "add.rn.f32"),
        "a sum of other values": (r"(add\.rn\.f32 \s*(%f\d+), \2), %f\d+;", r"\1, \2;"),
    },
    "nested_state": {
        "one iteration more": (r"setp\.lt\.s32(?=[^;]*;\s+@%p\d+ bra)", "setp.le.s32"),
        "another product": (r"mul\.rn\.f32", "add.rn.f32"),
        "another factor": (r"0f3F000000", "0f3F800000"),
        "the greatest is the least": (r"max\.NaN(?=\.f32 \s*(%f\d+), \1,)", "min.NaN"),
        "the greatest is forgotten": (r"(max\.NaN\.f32 \s*(%f\d+)), \2,", r"\1, 0f00000000,"),
    },
}


@pytest.mark.parametrize(("name", "mistake"), [(name, each) for name, all_ in MISTAKES.items() for each in all_])
def test_mistakes_in_a_loop_without_the_inner_one_are_refused(name: str, mistake: str) -> None:
    """In each of the two such loops that both kernels have, alone."""
    ptx = compiled(name)[0].ptx
    loops, lines = loops_without_loads(ptx), ptx.split("\n")
    old, new = MISTAKES[name][mistake]
    assert len(loops) == 2
    for first, end in loops:
        before, body, behind = ("\n".join(part) for part in (lines[:first], lines[first:end], lines[end:]))
        changed, made = re.subn(old, new, body, count=1)
        assert made
        assert differences(name, "\n".join((before, changed, behind))), changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(setp\.gt\.s32 \s*%p\d+, %r\d+), 0;(?=\s+@%p\d+ bra[^;]*;\s+bra\.uni)", r"\1, 1;"),
        (r"(setp\.gt\.s32 \s*%p\d+, %r\d+), 0;(?=\s+@%p\d+ bra[^;]*;\s+bra\.uni)", r"\1, -1;"),
        (r"(setp\.gt\.s32 \s*%p\d+, %r\d+, 0;\s+)@(%p\d+ bra[^;]*;\s+bra\.uni)", r"\1@!\2"),
        (r"(setp\.gt\.s32 \s*%p\d+, %r\d+, 0;\s+@%p\d+ bra \s*)(\$\w+);(\s+bra\.uni \s*)(\$\w+);", r"\1\2;\3\2;"),
        (r"(setp\.gt\.s32 \s*%p\d+, %r\d+, 0;\s+@%p\d+ bra \s*)(\$\w+);(\s+bra\.uni \s*)(\$\w+);", r"\1\4;\3\4;"),
    ],
)
def test_the_branch_between_both_loops_is_compared(old: str, new: str) -> None:
    ptx = compiled("nested_streams")[0].ptx
    places = list(re.finditer(old, ptx))
    assert places
    for m in places:
        assert differences("nested_streams", ptx[: m.start()] + m.expand(new) + ptx[m.end() :]), m[0]


def test_a_condition_that_the_text_names_is_not_asked_for() -> None:
    """In the loop it may be another one."""
    ir = compiled("nested_streams")[0].transport_ir
    named = '"transport.let"() {symbol = "B", value = #tile.expr<"B">} : () -> ()\n'
    changed = re.sub(r'(\n *)("transport.for"\(\) \(\{\n)', rf"\1\2\1{named}", ir)
    assert changed != ir
    assert differences("nested_streams", ir=changed)


def test_a_loop_in_branches_is_the_loop_twice_without_what_makes_no_iteration() -> None:
    kernel = transport_kernel(compiled("nested_streams")[0].transport_ir)
    outer = [op for op in kernel.walk() if isinstance(op, t.For) and any(isinstance(o, t.For) for o in op.body.walk())]
    loop = outer[-1]
    guard = Const(0) < (Sym("B") + 7) // 8
    branch = in_branches(loop, guard)
    counts = [sum(isinstance(op, t.For) for op in region.walk()) for region in (branch.then, branch.otherwise)]
    assert branch.condition.expr == guard
    assert counts == [2, 1]
    unlike = in_branches(loop, Const(1) < (Sym("B") + 7) // 8)
    assert sum(isinstance(op, t.For) for op in unlike.otherwise.walk()) == 2
