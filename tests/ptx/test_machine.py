"""The machine: small kernels with their mistakes, the examples against NumPy and the simulator, dropped barriers."""

# ruff: noqa: E501 - PTX, a statement a word

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from support.compiled_examples import serving
from support.example_cases import EXAMPLES_BY_NAME
from support.ptx_driver import MachineDriver, executable, run_artifact
from support.slow import rest_slow
from tilewright.artifact.schema import Artifact
from tilewright.base.dtypes import DTYPES, DType
from tilewright.diag import TilewrightError
from tilewright.ptx.machine import DeviceMemory, MachineLaunch, MachineReport, run
from tilewright.ptx.machine.run import ExecutableEntry
from tilewright.ptx.reader import read

pytestmark = pytest.mark.sample(2)

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
DATA = Path(__file__).parents[1] / "data" / "ptx"
REGISTERS = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<9>;"
TID = "mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; ld.param.u64 %rd0, [k_0]; add.u64 %rd2, %rd0, %rd1;"


def execute(
    body: str,
    threads: int = 64,
    shared: str = ".shared .align 8 .b32 s[128];",
    schedules: int = 1,
    words: int | None = None,
    grid: int = 1,
    cluster: int = 1,
    declared: str = "",
) -> tuple[MachineReport, np.ndarray]:
    """Run a kernel that gets the address of as many words as there are threads."""
    module = read(f"{HEAD}{declared}.entry k(.param .u64 k_0) {{ {REGISTERS} {shared}\n{body}\n}}")
    out = np.zeros(threads * grid if words is None else words, np.uint32)
    memory = DeviceMemory()
    address = memory.add("out", out)
    launch = MachineLaunch((grid, 1, 1), (threads, 1, 1), (cluster, 1, 1))
    return run(module, launch, [address], memory, schedules=schedules), out


def codes(report: MachineReport) -> set[str]:
    return {f.code for f in report.faults}


def test_a_kernel_writes_what_it_computes() -> None:
    report, out = execute(f"{TID} mad.lo.u32 %r1, %r0, %r0, 7; st.global.b32 [%rd2], %r1; ret;")
    assert not report.faults
    assert (out == np.arange(64) ** 2 + 7).all()


def test_bytes_of_a_load_that_are_not_used_may_be_anything() -> None:
    load = "ld.shared.v2.b32 {%r3, %r4}, [s]; add.u32 %r3, %r3, %r4; st.global.b32 [%rd2], %r3; ret;"
    stored = f"{TID} mov.b32 %r1, 5; mov.b32 %r2, 6; st.shared.v2.b32 [s], {{%r1, %r2}}; bar.sync 0;"
    for mask, right in (("0xff", True), ("0x0f", False), ("0x7f", False)):
        _, out = execute(f'{stored} .pragma "used_bytes_mask {mask}"; {load}')
        assert (out == 11).all() == right


def test_a_limit_of_steps_is_reached_or_not() -> None:
    """At a barrier, in a loop, behind the last step: a launch ends, or has the one fault that it did not."""
    body = f"""{TID} mov.b32 %r1, 0; loop: add.u32 %r1, %r1, 1; bar.sync 0; setp.lt.u32 %p1, %r1, 3; @%p1 bra loop;
    st.global.b32 [%rd2], %r1; ret;"""
    module = read(f"{HEAD}.entry k(.param .u64 k_0) {{ {REGISTERS}\n{body}\n}}")

    def launched(most: int) -> MachineReport:
        memory = DeviceMemory()
        address = memory.add("out", np.zeros(64, np.uint32))
        return ExecutableEntry(module, "k").launch(
            MachineLaunch((1, 1, 1), (64, 1, 1)), [address], memory, most_steps=most
        )

    needed = launched(10_000).steps
    assert needed > 4
    assert [codes(launched(n)) for n in range(1, needed + 2)] == [{"PTX018"}] * (needed - 1) + [set(), set()]


def test_divergence_and_loops() -> None:
    body = f"""{TID} mov.b32 %r1, 0; mov.b32 %r2, 0;
    loop: setp.ge.u32 %p1, %r2, %r0; @%p1 bra done;
    and.b32 %r3, %r2, 1; setp.eq.u32 %p2, %r3, 0; @%p2 bra even;
    add.u32 %r1, %r1, 100; bra next;
    even: add.u32 %r1, %r1, 1;
    next: add.u32 %r2, %r2, 1; bra loop;
    done: @!%p2 add.u32 %r1, %r1, 1000; st.global.b32 [%rd2], %r1; ret;"""
    report, out = execute(body.replace("mov.b32 %r2, 0;", "mov.b32 %r2, 0; setp.ne.u32 %p2, %r0, %r0;"))
    assert not report.faults
    t = np.arange(64)
    last_odd = (t == 0) | (t % 2 == 0)
    assert (out == (t + 1) // 2 + 100 * (t // 2) + 1000 * last_odd).all()


TWO_WORDS = "add.u64 %rd2, %rd2, %rd1; st.global.b64 [%rd2], %rd4; ret;"

EXCHANGE = """{tid} mov.u64 %rd3, s; cvt.u32.u64 %r1, %rd3; mad.lo.u32 %r2, %r0, 4, %r1;
st.shared.b32 [%r2], %r0; {between}
xor.b32 %r3, %r0, {distance}; mad.lo.u32 %r3, %r3, 4, %r1; ld.shared.b32 %r4, [%r3];
st.global.b32 [%rd2], %r4; ret;"""


@pytest.mark.parametrize(
    ("between", "distance", "expected"),
    [
        ("bar.sync 0;", 63, set()),
        ("barrier.sync.aligned 0;", 63, set()),
        ("bar.sync 1, 64;", 63, set()),
        ("bar.warp.sync 0xffffffff;", 31, set()),
        ("", 63, {"PTX012"}),
        ("bar.warp.sync 0xffffffff;", 63, {"PTX012"}),
        ("", 1, {"PTX012"}),
    ],
)
def test_a_barrier_orders_what_threads_exchange(between: str, distance: int, expected: set[str]) -> None:
    report, out = execute(EXCHANGE.format(tid=TID, between=between, distance=distance))
    assert codes(report) == expected
    if not expected:
        assert (out == (np.arange(64) ^ distance)).all()


MBARRIER = """{tid} .shared .align 8 .b64 bar; mov.u64 %rd3, s; cvt.u32.u64 %r1, %rd3; mov.u64 %rd4, bar; cvt.u32.u64 %r5, %rd4;
setp.ne.u32 %p1, %r0, 0; @%p1 bra ready; mbarrier.init.shared.b64 [%r5], 32; ready: bar.sync 0;
setp.lt.u32 %p2, %r0, 32; @%p2 bra producer;
wait: {wait}
add.u32 %r3, %r0, -32; mad.lo.u32 %r3, %r3, 4, %r1; ld.shared.b32 %r4, [%r3]; st.global.b32 [%rd2], %r4; ret;
producer: mad.lo.u32 %r2, %r0, 4, %r1; add.u32 %r6, %r0, 5; st.shared.b32 [%r2], %r6; {arrive} st.global.b32 [%rd2], %r0; ret;"""
WAIT = "mbarrier.try_wait.parity.shared.b64 %p3, [%r5], {}; @!%p3 bra wait;"
ARRIVE = "mbarrier.arrive.shared.b64 %rd5, [%r5];"


@pytest.mark.parametrize("schedules", [1, 8])
def test_mbarriers(schedules: int) -> None:
    report, out = execute(MBARRIER.format(tid=TID, wait=WAIT.format(0), arrive=ARRIVE), schedules=schedules)
    assert report
    assert (out == np.where(np.arange(64) < 32, np.arange(64), np.arange(64) - 27)).all()


@pytest.mark.parametrize(
    ("wait", "arrive", "expected"),
    [
        ("", ARRIVE, "PTX012"),
        (WAIT.format(1), ARRIVE, "PTX012"),
        (WAIT.format(0), "", "PTX017"),
        (WAIT.format(0), ARRIVE * 2, "PTX017"),
        (WAIT.format(0), ARRIVE.replace("];", "], 2;"), "PTX019"),
        (WAIT.format(0).replace("try_wait", "try_wait").replace("[%r5]", "[%r1]"), ARRIVE, "PTX013"),
        (WAIT.format(0).replace("parity.", "parity.relaxed.cta."), ARRIVE, "PTX012"),
    ],
)
def test_broken_mbarriers(wait: str, arrive: str, expected: str) -> None:
    report, _ = execute(MBARRIER.format(tid=TID, wait=wait, arrive=arrive))
    assert expected in codes(report)


@pytest.mark.parametrize(
    ("body", "words", "expected"),
    [
        ("st.global.b32 [%rd2], %r0; ret;", 64, set()),
        ("st.global.b32 [%rd2], %r0; ret;", 63, {"PTX010"}),
        ("st.global.b32 [%rd2+-4], %r0; ret;", 64, {"PTX010"}),
        ("ld.global.v2.b32 {%r1, %r2}, [%rd2]; st.global.b32 [%rd2], %r1; ret;", 64, {"PTX011"}),
        ("mov.u64 %rd3, s; ld.shared.b32 %r1, [%rd3]; st.global.b32 [%rd2], %r1; ret;", 64, {"PTX013"}),
        ("st.shared.b32 [s+512], %r0; ret;", 64, {"PTX010"}),
        ("@%p1 mov.b32 %r1, 5; st.global.b32 [%rd2], %r1; ret;", 64, {"PTX014"}),
        ("setp.eq.u32 %p1, %r0, 64; @%p1 mov.b32 %r1, 5; st.global.b32 [%rd2], %r1; ret;", 64, {"PTX014"}),
        ("setp.le.u32 %p1, %r0, 64; @%p1 mov.b32 %r1, 5; st.global.b32 [%rd2], %r1; ret;", 64, set()),
        ("add.u32 %r2, %r1, 1; st.global.b32 [%rd2], %r2; ret;", 64, {"PTX014"}),
        ("add.u32 %r2, %r1, 1; st.global.b32 [%rd2], %r0; ret;", 64, set()),
        (f"mov.b64 %rd3, {{%r0, %r1}}; and.b64 %rd4, %rd3, 4294967295; {TWO_WORDS}", 128, set()),
        (f"mov.b64 %rd3, {{%r1, %r0}}; and.b64 %rd4, %rd3, 4294967295; {TWO_WORDS}", 128, {"PTX014"}),
        (f"mov.b64 %rd3, {{%r0, %r1}}; and.b64 %rd4, %rd3, 8589934591; {TWO_WORDS}", 128, {"PTX014"}),
        (f"mov.b64 %rd4, {{%r0, %r1}}; {TWO_WORDS}", 128, {"PTX014"}),
        ("setp.eq.u32 %p1, %r0, 0; @%p1 bra out; bar.sync 1, 64; out: st.global.b32 [%rd2], %r0; ret;", 64, {"PTX017"}),
        ("st.shared.b32 [s], %r0; ret;", 64, {"PTX012"}),
        ("tcgen05.wait::ld.sync.aligned; ret;", 64, {"PTX015"}),
        ("trap;", 64, {"PTX019"}),
    ],
)
def test_faults(body: str, words: int, expected: set[str]) -> None:
    report, _ = execute(f"{TID} {body}", words=words)
    assert codes(report) == expected
    refused = pytest.raises(TilewrightError) if expected else nullcontext()
    with refused as raised:
        report.require("k")
    assert raised is None or {d.code for d in raised.value.diagnostics} == expected


def test_a_result_that_depends_on_the_schedule_is_reported() -> None:
    """Two warps store to one word, each behind a wait; which comes last is open."""
    body = f"""{TID} .shared .align 8 .b64 bar; mov.u64 %rd4, bar; cvt.u32.u64 %r5, %rd4; setp.ne.u32 %p1, %r0, 0; @%p1 bra ready;
    mbarrier.init.shared.b64 [%r5], 256; ready: bar.sync 0; mbarrier.arrive.shared.b64 %rd5, [%r5];
    wait: mbarrier.try_wait.parity.shared.b64 %p3, [%r5], 0; @!%p3 bra wait; shr.u32 %r6, %r0, 5; st.global.b32 [%rd0], %r6; ret;"""
    report, _ = execute(body, threads=256, schedules=8)
    assert report.differing == ("out",)
    with pytest.raises(TilewrightError, match="PTX016"):
        report.require("k")


def test_atomics_count_every_thread() -> None:
    body = (
        f"{TID} st.shared.b32 [s], 0; bar.sync 0; atom.shared.add.u32 %r1, [s], 2; red.global.max.u32 [%rd0], %r1; ret;"
    )
    report, out = execute(body.replace("st.shared", "setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared"))
    assert not report.faults
    assert out[0] == 126


def last_arriver(last: int) -> str:
    """Four CTAs leave 32 words each; who draws ticket ``last`` adds those of all, in their order, behind word 129."""
    return f"""{TID} mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 32, %r0; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd0, %rd3;
    mul.lo.u32 %r3, %r2, %r2; st.global.b32 [%rd3], %r3; bar.sync 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra met;
    atom.acq_rel.gpu.global.add.u32 %r4, [%rd0+512], 1; st.shared.b32 [s], %r4;
    met: bar.sync 0; ld.shared.b32 %r5, [s]; setp.ne.u32 %p2, %r5, {last}; @%p2 bra done;
    ld.global.b32 %r6, [%rd2]; ld.global.b32 %r7, [%rd2+128]; shl.b32 %r6, %r6, 1; add.u32 %r6, %r6, %r7;
    ld.global.b32 %r7, [%rd2+256]; shl.b32 %r6, %r6, 1; add.u32 %r6, %r6, %r7;
    ld.global.b32 %r7, [%rd2+384]; shl.b32 %r6, %r6, 1; add.u32 %r6, %r6, %r7; st.global.b32 [%rd2+516], %r6;
    done: ret;"""


def test_the_last_cta_to_arrive_adds_what_all_left_in_the_same_order() -> None:
    report, out = execute(last_arriver(3), threads=32, schedules=8, words=161, grid=4)
    assert not report.faults
    assert not report.differing
    part = np.arange(128, dtype=np.uint32).reshape(4, 32) ** 2
    assert out[128] == 4
    assert (out[129:] == 8 * part[0] + 4 * part[1] + 2 * part[2] + part[3]).all()


def test_no_fifth_ticket_is_drawn_by_four_ctas() -> None:
    report, out = execute(last_arriver(4), threads=32, schedules=8, words=161, grid=4)
    assert not report.faults
    assert out[128] == 4
    assert not out[129:].any()


def test_sums_of_f32_flush_subnormals_in_global_memory_alone() -> None:
    """3e-40 is 0x000344ae."""
    body = f"""{TID} setp.ne.u32 %p1, %r0, 0; @%p1 bra done; st.shared.b32 [s], 0; st.global.b32 [%rd0], 0;
    atom.shared.add.f32 %f1, [s], 0f000344ae; red.global.add.f32 [%rd0], 0f000344ae; ld.shared.b32 %r1, [s];
    st.global.b32 [%rd0+4], %r1; st.global.b32 [%rd0+8], 0f3f800000; red.global.add.f32 [%rd0+8], 0f3f800000; done: ret;"""
    report, out = execute(body)
    assert not report.faults
    assert out[:3].tolist() == [0, 0x000344AE, 0x40000000]


def test_shuffles_votes_and_reductions() -> None:
    body = f"""{TID} shfl.sync.bfly.b32 %r1|%p1, %r0, 1, 31, -1; shfl.sync.up.b32 %r2|%p2, %r0, 4, 0, -1;
    setp.lt.u32 %p3, %r0, 40; vote.sync.ballot.b32 %r3, %p3, -1; redux.sync.add.u32 %r4, %r0, -1;
    match.any.sync.b32 %r5, %r0, -1; elect.sync %r6|%p4, -1;
    selp.b32 %r7, 1000, 0, %p2; @%p4 add.u32 %r7, %r7, 5; add.u32 %r7, %r7, %r1; add.u32 %r7, %r7, %r2;
    popc.b32 %r3, %r3; add.u32 %r7, %r7, %r3; add.u32 %r7, %r7, %r4; popc.b32 %r5, %r5; add.u32 %r7, %r7, %r5;
    st.global.b32 [%rd2], %r7; ret;"""
    report, out = execute(body)
    t = np.arange(64)
    lane = t % 32
    up = np.where(lane >= 4, t - 4, t)
    want = (
        1000 * (lane >= 4) + 5 * (lane == 0) + (t ^ 1) + up + np.where(t < 32, 32, 8) + np.where(t < 32, 496, 1520) + 1
    )
    assert not report.faults
    assert (out == want).all()


@pytest.mark.parametrize(("threads", "schedules"), [(64, 1), (256, 4)])
def test_a_barrier_counts_the_threads_for_which_a_predicate_holds(threads: int, schedules: int) -> None:
    """Of each CTA alone, at its second round as at the first, and it orders what threads write before it."""
    body = f"""{TID} mov.u32 %r9, %ctaid.x; add.u32 %r8, %r9, 3; setp.lt.u32 %p1, %r0, %r8; mov.u32 %r7, s; shl.b32 %r6, %r0, 2;
    add.u32 %r7, %r7, %r6; st.shared.b32 [%r7], %r0; bar.red.popc.u32 %r1, 0, %p1; setp.eq.u32 %p2, %r0, 1;
    barrier.cta.red.popc.aligned.u32 %r2, 0, !%p2; ld.shared.b32 %r3, [s+4]; mad.lo.u32 %r2, %r2, 1000, %r1;
    mad.lo.u32 %r2, %r3, 1000000, %r2; mul.lo.u32 %r9, %r9, {4 * threads}; cvt.u64.u32 %rd5, %r9; add.u64 %rd2, %rd2, %rd5;
    st.global.b32 [%rd2], %r2; ret;"""
    report, out = execute(body, threads=threads, schedules=schedules, grid=2, shared=f".shared .b32 s[{threads}];")
    assert not report.faults
    assert (out.reshape(2, threads) == np.array([[3], [4]]) + 1000 * (threads - 1) + 1000000).all()


def test_a_barrier_that_counts_in_one_branch_alone_is_reported() -> None:
    body = f"""{TID} setp.lt.u32 %p1, %r0, 32; @%p1 bra one; bar.sync 0; bra end; one: bar.red.popc.u32 %r1, 0, %p1;
    end: st.global.b32 [%rd2], %r0; ret;"""
    report, _ = execute(body)
    assert "PTX015" in codes(report)


def test_clusters_share_memory() -> None:
    body = """mov.u32 %r0, %tid.x; mov.u32 %r9, %cluster_ctarank; mov.u64 %rd3, s; cvt.u32.u64 %r1, %rd3; mad.lo.u32 %r2, %r0, 4, %r1;
    mad.lo.u32 %r8, %r9, 100, %r0; st.shared.b32 [%r2], %r8; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
    xor.b32 %r7, %r9, 1; mapa.shared::cluster.u32 %r3, %r2, %r7; ld.shared::cluster.b32 %r4, [%r3];
    mov.u32 %r5, %ctaid.x; mad.lo.u32 %r6, %r5, 64, %r0; mul.wide.u32 %rd1, %r6, 4; ld.param.u64 %rd0, [k_0]; add.u64 %rd2, %rd0, %rd1;
    st.global.b32 [%rd2], %r4; {last} ret;"""
    barrier = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
    report, out = execute(body.replace("{last}", barrier), grid=4, cluster=2)
    assert not report.faults
    assert (out.reshape(4, 64) == np.arange(64) + 100 * np.array([[1], [0], [1], [0]])).all()
    report, _ = execute(body.replace("{last}", "").replace(barrier, ""), grid=4, cluster=2)
    assert "PTX013" in codes(report) or "PTX012" in codes(report)


# -- the examples: NumPy and the simulator


SHAPES = {
    "matmul": {"M": 256, "N": 256, "K": 128},
    "attention": {"B": 1, "H": 2, "G": 1, "S": 64, "T": 64},
    "rotary": {"T": 16, "H": 4, "D": 64},
    "transpose": {"M": 64, "N": 72},
}
WITHIN = {"f32": 2e-6, "bf16": 8e-3}


def compiled(
    name: str, dtype: DType, extents: Mapping[str, int] | None = None
) -> tuple[Artifact, dict[str, np.ndarray], dict[str, np.ndarray]]:
    example = EXAMPLES_BY_NAME[name]
    dims = set(example.shapes[0])
    extents = (
        extents
        or SHAPES.get(name)
        or (
            {"M": 1000}
            if dims == {"M"}
            else {"M": 17, "N": 200}
            if dims == {"M", "N"}
            else {"A": 2, "B": 16, "C": 8, "D": 16}
        )
    )
    made, expected = example.arrays(extents, dtype)
    arrays = {n: np.ascontiguousarray(a) for n, a in made.items()}
    return _artifact(name, dtype, tuple(extents.items())), arrays, expected


@cache
def _artifact(name: str, dtype: DType, extents: tuple[tuple[str, int], ...]) -> Artifact:
    arrays, _ = EXAMPLES_BY_NAME[name].arrays(dict(extents), dtype)
    return serving(name, dtype, {n: np.ascontiguousarray(a) for n, a in arrays.items()})


def faults(driver: MachineDriver) -> list[str]:
    return [f"{symbol} {f}" for symbol, r in driver.reports for f in r.faults] + [
        n for _, r in driver.reports for n in r.differing
    ]


LIKE_OTHERS = ("residual_rms_norm", "column_max", "permute")
"""Of the same schedules as rms_norm, column_sum and permute_inner."""


@pytest.mark.parametrize(
    "name", rest_slow(sorted(EXAMPLES_BY_NAME), [n for n in sorted(EXAMPLES_BY_NAME) if n not in LIKE_OTHERS])
)
def test_examples_agree_with_numpy(name: str) -> None:
    dtype = DTYPES["bf16" if name in ("matmul", "attention") else "f32"]
    artifact, arrays, expected = compiled(name, dtype)
    driver = run_artifact(artifact, arrays, EXAMPLES_BY_NAME[name].scalars, schedules=2)
    assert faults(driver) == []
    for n, want in expected.items():
        got = arrays[n].astype(np.float64)
        assert (np.isnan(got) == np.isnan(want.astype(np.float64))).all()
        assert np.nanmax(np.abs(got - want) / (1 + np.abs(want))) <= WITHIN[dtype.name]


ROUNDED = {"swiglu": 2e-6, "cross_entropy": 2e-6, "softmax_streamed": 2e-6}
"""Kernels with approximate instructions, which the two opinions may compute differently within their bounds."""


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "axpy",
        "row_sum",
        "row_max",
        "column_max",
        "argmax",
        "transpose",
        "permute",
        "permute_inner",
        "rotary",
        *ROUNDED,
    ],
)
def test_examples_agree_with_the_simulator(name: str) -> None:
    """The IR's simulator and the PTX machine, bit for bit but for approximate instructions."""
    artifact, arrays, expected = compiled(name, DTYPES["f32"])
    simulated = {n: a.copy() for n, a in arrays.items()}
    example = EXAMPLES_BY_NAME[name]
    run_artifact(artifact, arrays, example.scalars)
    example.kernel(**simulated, **example.scalars, **example.keywords)
    for n in expected:
        if name in ROUNDED:
            assert np.allclose(arrays[n], simulated[n], ROUNDED[name], ROUNDED[name])
        else:
            assert arrays[n].tobytes() == simulated[n].tobytes()


@pytest.mark.slow
def test_eight_schedules_of_a_matmul() -> None:
    artifact, arrays, expected = compiled("matmul", DTYPES["bf16"])
    start = time.process_time()
    driver = run_artifact(artifact, arrays, schedules=8)
    assert time.process_time() - start < 20  # a second on an idle core
    assert faults(driver) == []
    assert (np.abs(arrays["c"].astype(np.float64) - expected["c"]) <= 2**-8 * np.abs(expected["c"]) + 1e-5).all()


UNNEEDED = {"argmax": [4, 6], "cross_entropy": [4, 6]}
"""Barriers that order nothing in this launch: each reduction writes a buffer of its own, once, and they stand before that."""
BARRIER = re.compile(r"\n\s*(?:bar|barrier)\.(?:sync|cta\.sync)[^;]*;")


@pytest.mark.parametrize(
    "name", ["transpose", "permute_inner", "column_sum", "softmax", "row_sum", "argmax", "cross_entropy", "layer_norm"]
)
def test_every_dropped_barrier_of_a_plain_kernel_is_reported(name: str) -> None:
    """A barrier that the launch executes can't be left out unnoticed."""
    artifact, arrays, _ = compiled(name, DTYPES["f32"])
    driver = run_artifact(artifact, {n: a.copy() for n, a in arrays.items()}, EXAMPLES_BY_NAME[name].scalars)
    ran = {symbol for symbol, _ in driver.reports}
    text = next(image.ptx for image in artifact.kernels if image.symbol in ran)
    unnoticed = []
    for number, match in enumerate(BARRIER.finditer(text)):
        start, end = match.span()

        def drop(ptx: str, start: int = start, end: int = end) -> str:
            return ptx[:start] + ptx[end:] if ptx == text else ptx

        found = faults(
            run_artifact(artifact, {n: a.copy() for n, a in arrays.items()}, EXAMPLES_BY_NAME[name].scalars, edit=drop)
        )
        if not found and _reached(text, start, driver):
            unnoticed.append(number)
    assert unnoticed == UNNEEDED.get(name, [])


def _reached(text: str, position: int, driver: MachineDriver) -> bool:
    """Whether the launch executes the barrier at a position of the text."""
    line = text.count("\n", 0, position) + 2
    return any(
        executable(driver.texts[symbol], symbol).entry.body[first].line == line
        for symbol, report in driver.reports
        for first in report.executed
    )


PROTOCOL = {
    "a proxy fence": r"fence\.proxy\.async[^;]*;",
    "a named barrier": r"bar\.sync\s+%r\d+, %r\d+;",
    "a wait of try_wait": r"mbarrier\.try_wait\.parity[^;]*;",
    "an arrival": r"mbarrier\.arrive\.shared[^;]*;",
    "the wait for products": r"wgmma\.wait_group[^;]*;",
}


@pytest.mark.parametrize("what", rest_slow(PROTOCOL, [what for what in PROTOCOL if what != "a proxy fence"]))
def test_a_broken_pipeline_is_reported(what: str) -> None:
    """All synchronising instructions of one kind left out of a matmul whose rings wrap; waits succeed at once."""
    artifact, arrays, _ = compiled("matmul", DTYPES["bf16"], {"M": 128, "N": 128, "K": 4096})
    assert any(re.search(PROTOCOL[what], image.ptx) for image in artifact.kernels)

    def broken(ptx: str) -> str:
        by = "setp.eq.u32 p, 0, 0;" if "try_wait" in what else ""
        text = re.sub(PROTOCOL[what], by, ptx)
        return re.sub(r"setp\.eq\.u32 p, 0, 0;", _true(ptx), text) if by else text

    assert faults(run_artifact(artifact, arrays, {}, edit=broken))


def _true(ptx: str) -> str:
    """An instruction that sets the predicate which the waits of a text set."""
    match = re.search(r"mbarrier\.try_wait\.parity\S*\s+(\S+),", ptx)
    return f"setp.eq.u32 {match[1]}, 0, 0;" if match else ""


# -- PTX of another compiler


@pytest.mark.parametrize("schedules", [1, 4])
def test_softmax_of_triton(schedules: int) -> None:
    rows, columns = 5, 777
    x = np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)
    out = np.zeros_like(x)
    memory = DeviceMemory()
    parameters = [memory.add("out", out), memory.add("x", x, writable=False), columns, columns, 0, 0]
    module = read((DATA / "triton_softmax_90.ptx").read_text())
    report = run(
        module, MachineLaunch((rows, 1, 1), (128, 1, 1), shared_bytes=16), parameters, memory, schedules=schedules
    )
    assert report, report.faults
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.abs(out - e / e.sum(1, keepdims=True)).max() < 1e-7


@pytest.mark.parametrize("capability", [80, 90])
def test_matmul_of_triton(capability: int) -> None:
    """mma.sync and ldmatrix for sm_80, wgmma for sm_90."""
    m, n, k = 100, 72, 96
    rng = np.random.default_rng(1)
    dtype = np.dtype("bfloat16")
    a, b = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    c = np.zeros((m, n), dtype)
    memory = DeviceMemory()
    addresses = [memory.add("a", a, False), memory.add("b", b, False), memory.add("c", c)]
    module = read((DATA / f"triton_matmul_{capability}.ptx").read_text())
    report = run(
        module, MachineLaunch((2, 2, 1), (128, 1, 1), shared_bytes=8192), [*addresses, m, n, k, k, n, n, 0, 0], memory
    )
    assert report, report.faults
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert (np.abs(c.astype(np.float64) - want) <= 2**-8 * np.abs(want) + 1e-5).all()


@pytest.mark.parametrize("size", [4, 8, 16])
def test_cp_async_takes_any_number_of_bytes(size: int) -> None:
    """``src-size`` counts bytes (PTX ISA, cp.async): what lies behind them is 0, also inside of a word."""
    body = f"""{TID} mov.u64 %rd3, s; cvt.u32.u64 %r1, %rd3; mad.lo.u32 %r2, %r0, 16, %r1; st.global.b32 [%rd2], 0x7f7e7d7c;
    bar.sync 0; cp.async.{"cg" if size == 16 else "ca"}.shared.global [%r2], [%rd0], {size}, %r0; cp.async.wait_all;
    mov.b32 %r3, 0; mov.b32 %r4, 0;
    next: add.u32 %r5, %r2, %r3; ld.shared.u8 %r6, [%r5]; setp.ne.u32 %p1, %r6, 0; @%p1 add.u32 %r4, %r4, 1;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, {size}; @%p2 bra next; st.global.b32 [%rd2], %r4; ret;"""
    report, out = execute(body, threads=size + 1, shared=f".shared .align 16 .b8 s[{16 * (size + 1)}];")
    assert not codes(report)
    assert out.tolist() == list(range(size + 1))


def test_what_a_kernel_prints_is_not_compared() -> None:
    """Arguments of a call lie beside local variables; any other function is not executed."""
    given = "{ .param .b64 given; st.param.b64 [given], %rd2; .param .b64 values; st.param.b64 [values], %rd2;"
    call = ".param .b32 got; call.uni (got), vprintf, (given, values); ld.param.b32 %r1, [got]; }"
    body = f"{TID} {given} {call} add.u32 %r1, %r1, %r0; st.global.b32 [%rd2], %r1; ret;"
    declared = ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
    report, out = execute(body, declared=declared)
    assert codes(report) == set()
    assert (out == np.arange(64)).all()
    another = (text.replace("vprintf", "another") for text in (body, declared))
    assert codes(execute(next(another), declared=next(another))[0]) == {"PTX015"}
