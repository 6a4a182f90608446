"""Transport IR against Tile IR: kernels as they are lowered, wrong texts, bugs planted in the lowering of values."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import tilewright as tw
from examples import attention
from support import products
from support.example_cases import EXAMPLES_BY_NAME
from support.generality import CASES
from support.lowered import example, lowered
from support.slow import rest_slow
from tilewright.jit.arrays import describe
from tilewright.lang.schedule import Schedule
from tilewright.ops import kernels
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.transport.text import tile_kernel, transport_kernel
from tilewright.validate.tile_to_transport.arithmetic import of_reals
from tilewright.validate.tile_to_transport.compare import Unlike, compare

pytestmark = pytest.mark.sample(1)

ROOT = Path(__file__).parents[2]


EVERY = [(name, dtype) for name in EXAMPLES_BY_NAME for dtype in ("bf16", "f32")]
QUICK = [*((name, "bf16") for name in EXAMPLES_BY_NAME), ("add", "f32"), ("argmax", "f32"), ("transpose", "f32")]


@pytest.mark.parametrize(("name", "dtype"), rest_slow(EVERY, QUICK, several=True))
def test_every_example_stores_what_it_says(name: str, dtype: str) -> None:
    for variant, (source, transport) in example(name, dtype).items():
        if "$kpart" in str(source) and "tile.reduce" not in str(source):
            continue  # a loop of plain sums, one a step, is undecided: its PTX is compared, and executed
        assert compare(source, transport) == (), variant


@pytest.mark.parametrize("name", CASES)
def test_kernels_unlike_the_examples(name: str) -> None:
    case = CASES[name]
    arrays = case.arrays(case.shapes[-1])[0]
    found = lowered(case.kernel, {n: describe(n, a).dtype.name for n, a in arrays.items()})
    for variant, (source, transport) in found.items():
        assert compare(source, transport) == (), variant


WRONG = {
    "another coordinate": ("add", "add", "$p0*4096 + $r % 8", "$p0*4096 + 1 + $r % 8", 0),
    "another function": ("add", "add", "tile.binary <add>", "tile.binary <sub>", 0),
    "a store of another row": ("softmax", "softmax_0", "$p0*16 + ($r // 8)*8", "$p0*16 + (1 - $r // 8)*8", 2),
    "a sum for a maximum": ("softmax", "softmax_0", 'fn = "max"', 'fn = "sum"', 0),
    "a butterfly cut short": ("softmax", "softmax_0", "#builtin.int<4>, #builtin.int<8>]", "#builtin.int<4>]", 0),
    "a distance twice": (
        "softmax",
        "softmax_0",
        "#builtin.int<4>, #builtin.int<8>]",
        "#builtin.int<4>, #builtin.int<4>]",
        0,
    ),
    "a fold into one row": ("softmax", "softmax_0", "($r // 8) % 2 + ($r % 4)*2", "($r % 4)*2", 0),
    "a dropped term": ("softmax", "softmax_0", '"$r">, #tile.expr<"$r + 2">', '"$r">, #tile.expr<"$r">', 0),
    "another identity": ("softmax", "softmax_0", 'tile.constant <"-inf">', 'tile.constant <"inf">', 0),
    "another constant": ("softmax", "softmax_0", "1.4426950408889634", "1.4426950408889632", 0),
    "an element behind the row": ("softmax", "softmax_0", '($tid % 16)*8 < N">} :', '($tid % 16)*8 <= N">} :', 0),
    "no element behind the row": ("softmax", "softmax_0", '($tid % 16)*8 < N">} :', '($tid % 16)*8 + 1 < N">} :', 0),
    "the other body": ("softmax", "softmax_0", "128 <= N and $p0*16 + 16 <= M", "127 <= N and $p0*16 + 16 <= M", 0),
    "the difference exchanged": (
        "softmax",
        "softmax_0",
        "tile.binary <sub> %13, %12",
        "tile.binary <sub> %12, %13",
        0,
    ),
    "the factors exchanged": (
        "attention",
        "attention_1",
        '"transport.fma"(%42, %46, %48)',
        '"transport.fma"(%42, %48, %46)',
        0,
    ),
    "the scale exchanged": (
        "attention",
        "attention_1",
        '"transport.exponent_scale"(%45, %43)',
        '"transport.exponent_scale"(%43, %45)',
        0,
    ),
    "the reciprocal of another": (
        "softmax",
        "softmax_0",
        '"transport.approximate"(%28)',
        '"transport.approximate"(%27)',
        0,
    ),
    "a step too few": (
        "row_sum",
        "row_sum_1",
        'end = #tile.expr<"(N + 4095) // 4096">',
        'end = #tile.expr<"$k0_full">',
        0,
    ),
    "a step twice": ("row_sum", "row_sum_1", 'begin = #tile.expr<"$k0_full">', 'begin = #tile.expr<"$k0_full - 1">', 0),
    "a run that never ends": ("row_sum", "row_sum_1", "(%5, %7, %5)", "(%5, %5, %5)", 0),
    "the right operand's row": ("matmul", "matmul", "$cluster_ctarank*128 + $p1*256", "$p1*256", 0),
    "the other half": (
        "matmul",
        "matmul",
        '"$cluster_ctarank*16384 + ($i',
        '"16384 - $cluster_ctarank*16384 + ($i',
        0,
    ),
    "a step late": (
        "matmul",
        "matmul",
        '"$k0*64">, #tile.expr<"$p0*128"',
        '"$k0*64 - 64">, #tile.expr<"$p0*128"',
        0,
    ),
    "the next fill": ("matmul", "matmul", '"($i_a_b % 4)*49152 + 16416"', '"(($i_a_b + 1) % 4)*49152 + 16416"', 0),
    "k twice": ("matmul", "matmul", '"($i_a_b % 4)*49152 + 16416"', '"($i_a_b % 4)*49152 + 16384"', 0),
    "rows exchanged": ("matmul", "matmul", "+ $warpgroup*8192", "+ 8192 - $warpgroup*8192", 0),
    "other columns stored": ("matmul", "matmul", '"$p1*256 + 64"', '"$p1*256 + 128"', 0),
    "a matrix transposed": ("matmul", "matmul", "trans = #builtin.int<0>", "trans = #builtin.int<1>", 0),
    "an accumulator that is forgotten": (
        "matmul",
        "matmul",
        "scale_d = #builtin.int<1>",
        "scale_d = #builtin.int<0>",
        0,
    ),
    "programs of half of the rows": ("matmul", "matmul", "(M + 127) // 128", "(M + 255) // 256", 0),
    "late tile of this step": ("attention", "attention_1", '"$k0*128 - 128"', '"$k0*128"', 0),
    "tiles that come out of order": (
        "attention",
        "attention_1",
        '"0">, #tile.expr<"$k0*128">',
        '"0">, #tile.expr<"$k0*128 - 128">',
        1,
    ),
    "the first tile again": ("attention", "attention_1", '"0">, #tile.expr<"$k0*128">', '"0">, #tile.expr<"0">', 2),
    "the last tile": ("attention", "attention_1", "((T + 127) // 128)*128 - 128", "((T + 127) // 128)*128 - 256", 0),
    "what is behind the end multiplied": (
        "attention",
        "attention_1",
        "%76, %77 : !tile.tile<bool",
        "%76, %76 : !tile.tile<bool",
        0,
    ),
    "a whole first step of any extent": ("attention", "attention_0", '#tile.expr<"128 <= T">, ', "", 0),
    "a whole first step one element short": ("attention", "attention_0", '"128 <= T"', '"127 <= T"', 0),
}
"""Wrong texts: the kernel, what stands there, what takes its place, and which of several places."""
PINNED = {"matmul": Schedule(extents={"bm": 128, "bn": 256}, cluster=(2, 1), stages=4)}


def replaced(text: str, old: str, new: str, place: int) -> str:
    """The text with one of several places changed."""
    parts = text.split(old)
    assert len(parts) > place + 1, f"{old!r} stands {len(parts) - 1} times"
    return old.join(parts[: place + 1]) + new + old.join(parts[place + 1 :])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_text_is_refused(name: str) -> None:
    kernel, variant, old, new, place = WRONG[name]
    source, transport = example(kernel, "bf16", PINNED.get(kernel))[variant]
    changed = transport_kernel(replaced(str(transport), old, new, place))
    found = compare(source, changed)
    assert found
    assert all(isinstance(unlike, Unlike) for unlike in found)


@cache
def causal(name: str) -> tuple[tile.Kernel, t.Kernel]:
    """Attention by no later keys, or the gradients of keys and values."""
    inputs, sums = dict.fromkeys(("do", "q", "k", "v"), "bf16"), {"lse": "f32", "delta": "f32"}
    kernel, dtypes = {
        "attention": (attention.attention, dict.fromkeys("qkvo", "bf16")),
        "attention_key_gradients": (
            kernels.attention_key_gradients(64),
            {**inputs, **sums, "dk": "bf16", "dv": "bf16"},
        ),
    }[name]
    found = lowered(kernel, dtypes, keywords={"causal": True})
    return next(
        each for variant, each in reversed(found.items()) if variant.startswith(name) and "no_steps" not in variant
    )


@pytest.mark.parametrize("name", ["attention", "attention_key_gradients"])
def test_streams_that_begin_or_end_with_the_rows_of_a_program(name: str) -> None:
    assert compare(*causal(name)) == ()


CAUSAL = {
    "a step more without comparisons": ("max($p2, 0), min(S", "max($p2 + 1, 0), min(S", 0),
    "the first step without comparisons": ("min($k0_full, 1)", "1", 1),
    "a first step twice": ('"max($k0_first, 0)"', '"0"', 0),
    "a step twice": ('"max($k0_full, 1)"', '"max($k0_full - 1, 1)"', 0),
    "the other side of the diagonal": ("tile.compare <ge>", "tile.compare <lt>", 0),
    "the diagonal itself": ("tile.compare <ge>", "tile.compare <gt>", 2),
}
"""Wrong texts of causal attention: what stands there, what takes its place, and which of several places."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CAUSAL)
def test_a_wrong_text_of_causal_attention_is_refused(name: str) -> None:
    source, transport = causal("attention")
    changed = transport_kernel(replaced(str(transport), *CAUSAL[name]))
    assert compare(source, changed)


def test_a_producer_that_copies_the_first_step_in_one_of_two_equal_loops_is_right() -> None:
    """The copies of a step are the same with comparisons and without."""
    source, transport = causal("attention")
    assert compare(source, transport_kernel(replaced(str(transport), "min($k0_full, 1)", "1", 0))) == ()


@tw.kernel
def inverses(x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=128):
    m = tw.grid(x.shape[0], bm)
    v = x[m]
    y[m] = 1.0 / v - 1.0 / (v + 2.0)


def test_a_persons_own_reciprocals_are_compared_with_their_rounding() -> None:
    ((source, transport),) = lowered(inverses, {"x": "f32", "y": "f32"}).values()
    assert transport.numerics.data == "accurate"
    assert not of_reals(transport)
    assert compare(source, transport) == ()
    text = str(transport)
    assert compare(source, transport_kernel(text.replace("tile.binary <div>", "tile.binary <mul>", 1)))


@tw.kernel
def widened(x: tw.Tensor["M"], y: tw.Tensor["M"], *, early, of, bm=128):
    m = tw.grid(x.shape[0], bm)
    y[m] = of(x[m].to(tw.i64)) if early else of(x[m]).to(tw.i64)


@pytest.mark.parametrize(("dtype", "of"), [("i32", lambda v: v * v), ("u32", lambda v: v + v), ("i8", lambda v: -v)])
def test_integers_that_wrap_are_not_those_that_were_widened_before(dtype: str, of: Callable[..., object]) -> None:
    dtypes = {"x": dtype, "y": "i64"}
    (early,), (late,) = (lowered(widened, dtypes, keywords={"early": e, "of": of}).values() for e in (True, False))
    assert compare(*early) == compare(*late) == ()
    assert compare(early[0], late[1])
    assert compare(late[0], early[1])


def test_the_users_line_is_named() -> None:
    source, transport = example("add", "bf16")["add"]
    changed = transport_kernel(str(transport).replace("tile.binary <add>", "tile.binary <mul>"))
    (unlike,) = compare(source, changed)
    assert unlike.where.endswith("add.py:13")
    assert "another value is stored to z" in str(unlike)


def test_texts_are_read_back_as_they_were() -> None:
    for source, transport in example("attention", "bf16").values():
        assert compare(tile_kernel(str(source)), transport_kernel(str(transport))) == ()


@tw.kernel
def scaled(x: tw.Tensor["M", "K"], w: tw.Tensor["N", "K"], s: tw.Tensor["N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        acc += tw.dot(x[m, k], w[n, k].T)
    y[m, n] = acc * s[n][None, :]


def test_columns_that_are_loaded_before_a_branch_asks_for_whole_vectors() -> None:
    found = lowered(scaled, {"x": "bf16", "w": "bf16", "s": "f32", "y": "bf16"}, Schedule(consumers=1, stages=4))
    for variant, (source, transport) in found.items():
        assert compare(source, transport) == (), variant
        wrong = str(transport).replace("($r // 2)*8 + ($tid % 4)*2 < N", "($r // 2)*8 + ($tid % 4)*2 + 1 < N")
        assert wrong != str(transport)
        assert compare(source, transport_kernel(wrong))


PLANTED = {
    "indices without origin": "ints",
    "select inverted": "row_max",
    "the window of the first": "tall",
    "live for the last thread": "row_sum",
    "identity of max": "softmax",
    "identity of sum": "row_sum",
    "a lane less": "row_max",
    "a pair of warps less": "softmax",
    "half of the parts": "row_sum",
    "chains of doubles": "row_sum",
    "rows unmasked": "row_max",
    "row 0 for all": "softmax",
    "squares in fmas": "fast",
    "rotated operand unmasked": "attention_wide",
    "late tile of this step": "attention_wide",
    "a first step with one element": "attention_wide",
}
"""Bugs of the campaign that no proof of the compiler sees, each with a kernel that shows it."""

PLANT = """
import sys
sys.path[:0] = sys.argv[3:]
from planted.mutants import MUTANTS
from planted.plant import plant
plant(next(m for m in MUTANTS if m.name == sys.argv[1]))
from planted.probes import PROBES
from tilewright.compiler import program
from tilewright.validate.tile_to_transport.compare import compare
probe = PROBES[sys.argv[2]]
for planned in program.plan(probe.request, probe.dims).variants:
    print(*compare(planned.tile, planned.transport), sep="\\n")
"""


@pytest.mark.parametrize(
    ("bug", "probe"),
    rest_slow(
        PLANTED.items(),
        [(bug, PLANTED[bug]) for bug in ("indices without origin", "half of the parts", "rows unmasked")],
        several=True,
    ),
)
def test_a_bug_in_the_lowering_is_refused(bug: str, probe: str) -> None:
    folders = [str(ROOT / folder) for folder in ("src", "tools", "tests")]
    run = subprocess.run(
        [sys.executable, "-c", PLANT, bug, probe, *folders], capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert "is stored" in run.stdout or "undecided" in run.stdout, run.stdout


@tw.kernel
def ahead(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, group: int = 4, upto: int = 128):
    """Each row by its sum; the next one is loaded before."""
    p = tw.grid((x.shape[0] + group - 1) // group, None)
    n = tw.axis(x.shape[1], upto=upto)
    row = tw.zeros(n, tw.f32)
    row.set(x[p * group, n].to(tw.f32))
    for m in tw.stream(x.shape[0], 1, start=p * group, until=(p + 1) * group):
        v = row + 0.0
        row.set(x[tw.minimum(m.start + 1, x.shape[0] - 1), n].to(tw.f32))
        y[m.start, n] = v * v.sum(0)


AHEAD_WRONG = {
    "another first row": ('#tile.expr<"$p0*4">', '#tile.expr<"$p0*4 + 1">', 1),
    "an element of the first row is missing": (
        'guard = #tile.expr<"$r + $tid*4 <',
        'guard = #tile.expr<"$r + $tid*4 + 1 <',
        0,
    ),
    "an element of the next row is missing": (
        'guard = #tile.expr<"$r + $tid*4 <',
        'guard = #tile.expr<"$r + $tid*4 + 1 <',
        1,
    ),
    "the same row again": ("$k0 + $p0*4 + 1", "$k0 + $p0*4", 1),
    "what is behind the row added": ("tile.select %39, %37, %38", "tile.select %39, %37, %37", 0),
}
"""What stands there, what takes its place, and which of several places."""


def test_a_row_that_is_loaded_before_a_loop() -> None:
    for source, transport in lowered(ahead, {"x": "f32", "y": "f32"}).values():
        assert compare(source, transport) == ()


@pytest.mark.parametrize("name", AHEAD_WRONG)
def test_a_wrong_row_before_a_loop_is_refused(name: str) -> None:
    ((source, transport),) = lowered(ahead, {"x": "f32", "y": "f32"}).values()
    assert compare(source, transport_kernel(replaced(str(transport), *AHEAD_WRONG[name])))


@tw.kernel
def whole(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    c: tw.Tensor["M", "N"],
    *,
    bm: int = 64,
    bn: int = 64,
    bk: int = 64,
):
    m, n = tw.grid(c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc.to(tw.i32)


def test_a_number_of_threads_is_not_what_a_role_computed() -> None:
    """Of all barriers those that count change a register."""
    found = products.lower(whole, Candidate(1, stages=2), "bf16", 16, {"c": "i32"})
    assert isinstance(found, products.Lowered), found
    kernel = found.scheduled.kernel
    assert compare(found.tile, kernel) == ()
    (store,) = (op for op in kernel.walk() if isinstance(op, t.Store))
    store.parent.insert_op_before(t.BarrierCount(store.buffer), store)
    assert compare(found.tile, kernel)
