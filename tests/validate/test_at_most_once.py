"""Loops of which a name says that they make at most one iteration: branches, in the PTX, too. In causal attention they
are the first step of a stream, without comparisons where all keys are seen, and with them elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import pytest
from xdsl.ir import Operation, SSAValue

from examples import attention
from support import transport
from tilewright.artifact.schema import KernelImage, Launch
from tilewright.base.dtypes import f32
from tilewright.base.expr import Const, Expr, Sym, minimum
from tilewright.codegen.assemble import compile_text
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler.launch_recipe import recipe
from tilewright.lang.schedule import Schedule
from tilewright.transport import dialect as t
from tilewright.transport.text import transport_kernel
from tilewright.validate.match import Difference
from tilewright.validate.transport_to_ptx import compare

pytestmark = pytest.mark.sample(6)

LEAST = Sym("least")


def filled(*ends: Expr) -> t.Kernel:
    """``y[0]`` and so on below ``least`` become 1, which is a name for each of ``ends`` and stands at last for the last
    one."""

    def build(y: SSAValue) -> list[Operation]:
        one = t.Registers("one", f32, 1)
        store = t.Store(y, one.buffer, [Sym("i")], transport.TID.eq(0)).at("user.py:1", "store y")
        names = [t.Let("least", end) for end in ends]
        loop = t.For("i", Const(0), LEAST, Const(1), t.block([store]))
        body = [one, transport.fill(1.0, one.buffer), *names, loop]
        return [transport.programs(["p"], [transport.M], body)]

    return transport.kernel({"y": transport.tensor("y", [transport.M])}, build)


def at_most(n: int, of: Expr = transport.M - 1) -> Expr:
    return minimum(of, Const(n))


@pytest.mark.parametrize(
    ("written", "meant", "same"),
    [
        (at_most(1), [at_most(1)], True),
        (at_most(2), [at_most(2)], True),
        (at_most(3), [at_most(1), at_most(3)], True),
        (at_most(1), [at_most(3), at_most(1)], True),
        (at_most(1), [at_most(1), at_most(4, LEAST)], True),
        (at_most(2), [at_most(1)], False),
        (at_most(1), [at_most(2)], False),
        (at_most(3), [at_most(3), at_most(1)], False),
        (at_most(1), [at_most(1), at_most(3)], False),
        (at_most(3), [at_most(3), at_most(1, LEAST)], False),
        (Const(1), [at_most(1)], False),
        (Const(0), [at_most(1)], False),
    ],
)
def test_a_loop_that_ends_at_a_name(written: Expr, meant: Sequence[Expr], same: bool) -> None:
    assert (of_text(filled(*meant), *compiled(written)) == ()) is same


def compiled(end: Expr) -> tuple[str, Launch]:
    kernel = filled(end)
    ptx, *_ = compile_text(emit_kernel(kernel).source, "sm_90a", "k")
    launch = recipe([kernel]).steps[-1]
    assert isinstance(launch, Launch)
    return ptx, launch


def of_text(kernel: t.Kernel, ptx: str, launch: Launch) -> tuple[Difference, ...]:
    return compare(kernel, ptx, launch.args, launch.grid[0], 1)


@pytest.mark.parametrize(("end", "meant", "same"), [(1, 1, True), (1, 2, False), (2, 1, False)])
def test_a_loop_of_one_iteration_that_the_ptx_has_is_a_loop(end: int, meant: int, same: bool) -> None:
    """PTX of a loop of at most three iterations, with another number in its place."""
    ptx, launch = compiled(at_most(3))
    changed, places = re.subn(r"(min\.s32 \s*%r\d+, %r\d+), 3;", rf"\1, {end};", ptx)
    assert places == 1
    assert (of_text(filled(at_most(meant)), changed, launch) == ()) is same


TILES = {"128 x 64": (128, 64, 2), "192 x 96": (192, 96, 3)}
"""Rows, keys, consumers: a program's rows meet the diagonal in two steps."""


@cache
def causal(tile: str) -> tuple[KernelImage, Launch]:
    rows, keys, consumers = TILES[tile]
    schedule = Schedule(consumers=consumers, extents={"bq": rows, "bk": keys})
    kernel = attention.forward(64, "strict")
    artifact = kernel.compile(dtypes=dict.fromkeys("qkvo", "bf16"), causal=True, schedule=schedule)
    launch = artifact.variants[0].steps[-1]
    assert isinstance(launch, Launch)
    return artifact.kernel(launch.kernel), launch


def differences(tile: str, ptx: str | None = None, ir: str | None = None) -> tuple[Difference, ...]:
    image, launch = causal(tile)
    return compare(transport_kernel(ir or image.transport_ir), ptx or image.ptx, launch.args, launch.grid[0], 1)


@pytest.mark.parametrize("tile", TILES)
def test_the_ptx_of_causal_attention_does_what_the_ir_says(tile: str) -> None:
    assert differences(tile) == ()


MOST_PLACES = 5
"""Of a mistake that may be made in more only the first is tried: in others some compute the same."""

MISTAKES = {
    "a first step of no whole keys": (r"(setp\.lt\.s32 \s*%p\d+, %r\d+), 1;", r"\1, 0;"),
    "no first step of one": (r"(setp\.lt\.s32 \s*%p\d+, %r\d+), 1;", r"\1, 2;"),
    "a first step twice": (r"(setp\.gt\.s32 \s*%p\d+, %r\d+), 0;", r"\1, 1;"),
    "no first step": (r"(setp\.gt\.s32 \s*%p\d+, %r\d+), 0;", r"\1, -1;"),
    "the first step again": (r"(setp\.lt\.s32 \s*%p\d+, %r\d+), 0;", r"\1, 1;"),
    "no second step": (r"(setp\.lt\.s32 \s*%p\d+, %r\d+), 2;", r"\1, 3;"),
    "a second step of one": (r"(setp\.lt\.s32 \s*%p\d+, %r\d+), 2;", r"\1, 1;"),
    "steps on the diagonal from the first on": (r"(max\.s32 \s*%r\d+, %r\d+), 1;", r"\1, 0;"),
    "steps on the diagonal from the third on": (r"(max\.s32 \s*%r\d+, %r\d+), 1;", r"\1, 2;"),
    "a step on the diagonal of none": (r"(max\.s32 \s*(%r\d+), [^;]*;\s+setp)\.ge(\.s32 \s*%p\d+, \2)", r"\1.gt\3"),
    "the keys of another step": (r"(mul\.lo\.s32 \s*%r\d+, %r\d+), 96;", r"\1, 192;"),
    "the diagonal itself": (
        r"setp\.lt(\.s32 \s*(%p\d+), [^;]*;\s+selp\.f32 \s*%f\d+, 0fFF800000, %f\d+, \2;)",
        r"setp.le\1",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_the_steps_of_causal_attention_are_refused(mistake: str) -> None:
    """Each alone, of the producer and of the consumers."""
    ptx = causal("192 x 96")[0].ptx
    old, new = MISTAKES[mistake]
    found = list(re.finditer(old, ptx))
    assert found
    for match in found if len(found) < MOST_PLACES else found[:1]:
        assert differences("192 x 96", ptx[: match.start()] + match.expand(new) + ptx[match.end() :])


TEXTS = {
    "two first steps": ('"min($k0_full, 1)"', '"min($k0_full, 2)"'),
    "a first step without comparisons": ('"min($k0_full, 1)"', '"1"'),
    "a first step with comparisons": ('"min($k0_full, 1)"', '"0"'),
    "the first step twice": ('begin = #tile.expr<"max($k0_first, 0)">', 'begin = #tile.expr<"0">'),
    "a step without comparisons more": ("max($p2, 0)", "max($p2 + 1, 0)"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_the_ptx_of_causal_attention_is_not_that_of_another_text(text: str) -> None:
    """In either role."""
    ir = causal("192 x 96")[0].transport_ir
    old, new = TEXTS[text]
    for place in [m.start() for m in re.finditer(re.escape(old), ir)]:
        assert differences("192 x 96", ir=ir[:place] + ir[place:].replace(old, new, 1))
