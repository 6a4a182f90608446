"""The guard below the IR: PTX as NVRTC writes it passes, and every change of what a role synchronises is refused."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# ruff: noqa: F821
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import re
from functools import cache

import pytest

import tilewright as tw
from support import products as p
from support.timing import quickest
from tilewright.codegen.assemble import assemble
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.codegen.sync_in_ir import planned_flows, role_threads
from tilewright.codegen.sync_in_ptx import ptx_flows
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)

CASES: dict[str, tuple[tw.Kernel, dict[str, int], Candidate]] = {
    "matmul": (p.nt, {"bm": 128, "bn": 128}, Candidate(2)),
    "cluster": (p.nt, {"bm": 128, "bn": 64}, Candidate(2, cluster=(2, 1))),
    "turns": (p.nt, {"bm": 64, "bn": 64}, Candidate(1, ping_pong=2)),
    "attention": (p.attention, {}, Candidate(1)),
    "threads": (p.nt, {"bm": 64, "bn": 64}, Candidate(1, copies=False)),
}
WORD = re.compile(r"^\s*(mbarrier|barrier|bar|cp\.async\.bulk|fence|wgmma|setmaxnreg|stmatrix)\b", re.MULTILINE)


@cache
def compiled(case: str, pragma: str = "#pragma unroll 1") -> tuple[t.Kernel, str, str]:
    """The kernel of a case, its CUDA C++, and its PTX with another pragma at its loops."""
    kernel, extents, candidate = CASES[case]
    found = p.lower(kernel, candidate, **extents)
    assert not isinstance(found, Refused), found.reason
    emitted = emit_kernel(found.scheduled.kernel)
    source = emitted.source.replace("#pragma unroll 1\n", f"{pragma}\n")
    return found.scheduled.kernel, emitted.source, assemble(source, "sm_90a", emitted.entry).ptx


def synchronising(ptx: str) -> tuple[list[str], list[int]]:
    """The lines of a text, and the numbers of those that synchronise."""
    lines = ptx.split("\n")
    return lines, [i for i, line in enumerate(lines) if WORD.match(line)]


@pytest.mark.parametrize("case", CASES)
def test_what_nvrtc_writes_passes(case: str) -> None:
    kernel, _, ptx = compiled(case)
    found = ptx_flows(ptx, kernel.threads.data, role_threads(kernel))
    planned = planned_flows(kernel)
    assert mismatches(kernel, ptx) == ()
    assert {role: len(flow.instructions) for role, flow in planned.items()} == {
        role: len(flow.instructions) for role, flow in found.items()
    }
    assert all(i.size is not None for flow in found.values() for i in flow.instructions)
    assert sum(len(flow.instructions) for flow in found.values()) == len(synchronising(ptx)[1])


@pytest.mark.parametrize("case", ["cluster", "turns"])
def test_a_dropped_a_repeated_and_a_swapped_instruction_is_refused(case: str) -> None:
    kernel, _, ptx = compiled(case)
    lines, places = synchronising(ptx)
    for place, following in list(zip(places, [*places[1:], None], strict=True))[:: 2 if case == "turns" else 1]:
        dropped, repeated = list(lines), list(lines)
        dropped[place] = ""
        repeated[place] += f"\n{lines[place]}"
        assert mismatches(kernel, "\n".join(dropped)), lines[place]
        assert mismatches(kernel, "\n".join(repeated)), lines[place]
        if following is None or lines[place].split()[0] == lines[following].split()[0]:
            continue
        swapped = list(lines)
        swapped[place], swapped[following] = lines[following], lines[place]
        assert mismatches(kernel, "\n".join(swapped)), (lines[place], lines[following])


@pytest.mark.parametrize("case", ["cluster", "turns"])
def test_an_instruction_in_another_role_is_refused(case: str) -> None:
    kernel, _, ptx = compiled(case)
    lines, places = synchronising(ptx)
    homes = {i: role for role, lines_ in by_role(kernel, ptx).items() for i in lines_}
    for place in places[::3]:
        for other in {role: i for i, role in homes.items() if role != homes[place]}.values():
            moved = list(lines)
            moved[place] = ""
            moved[other] += f"\n{lines[place]}"
            found = mismatches(kernel, "\n".join(moved))
            assert {homes[place], homes[other]} <= {m.role for m in found}, lines[place]


def by_role(kernel: t.Kernel, ptx: str) -> dict[str, list[int]]:
    """Numbers of the lines that synchronise, by role."""
    flows = ptx_flows(ptx, kernel.threads.data, role_threads(kernel))
    return {role: [place - 1 for place in flow.places] for role, flow in flows.items()}


def test_an_unrolled_loop_is_refused() -> None:
    kernel, _, unrolled = compiled("matmul", "#pragma unroll 2")
    assert len(synchronising(unrolled)[1]) > len(synchronising(compiled("matmul")[2])[1])
    assert any("try_wait" in m.ptx for m in mismatches(kernel, unrolled))


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 0;"),
        ("setmaxnreg.inc.sync.aligned.u32 240;", "setmaxnreg.inc.sync.aligned.u32 232;"),
        ("wgmma.mma_async.sync.aligned.m64n128k16", "wgmma.mma_async.sync.aligned.m64n64k16"),
        (".x4.shared.b16", ".x2.shared.b16"),
    ],
)
def test_another_size_is_refused_with_both_sides(line: str, other: str) -> None:
    kernel, _, ptx = compiled("matmul")
    assert line in ptx
    (found,) = mismatches(kernel, ptx.replace(line, other, 1))
    assert str(found).startswith("CGN004, role consumer: the PTX has ")
    assert "; the IR has " in str(found)


@pytest.mark.parametrize("case", ["matmul", "turns"])
@pytest.mark.parametrize("word", [r"mbarrier\.arrive", r"mbarrier\.try_wait\.parity"])
def test_a_relaxed_instruction_is_refused(case: str, word: str) -> None:
    kernel, _, ptx = compiled(case)
    relaxed, count = re.subn(rf"({word})\.shared::cta", r"\1.relaxed.cta.shared::cta", ptx)
    assert count
    assert any("relaxed" in found.ptx for found in mismatches(kernel, relaxed))


def test_another_number_of_bytes_is_refused() -> None:
    kernel, _, ptx = compiled("matmul")
    bytes_ = next(i.size for f in planned_flows(kernel).values() for i in f.instructions if "expect_tx" in i.name)
    assert len(re.findall(rf"mov\.u32 \t%r\d+, {bytes_};", ptx)) == 1
    changed = re.sub(rf"(mov\.u32 \t%r\d+, ){bytes_};", r"\g<1>64;", ptx)
    (found,) = mismatches(kernel, changed)
    assert found.role == "producer"
    assert f"expect_tx {bytes_}" in found.ir
    assert "expect_tx 64" in found.ptx


def test_a_wait_that_does_not_wait_and_a_loop_that_does_not_go_round_are_refused() -> None:
    kernel, _, ptx = compiled("matmul")
    for wait in re.findall(r"bra WAIT_\d+;", ptx):
        (found,) = mismatches(kernel, ptx.replace(wait, ""))
        assert "try_wait after mbarrier.try_wait" in found.ir
    lines = ptx.split("\n")
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.startswith("$L")}
    back = [i for i, line in enumerate(lines) if "bra" in line and labels.get(line.split()[-1][:-1], i) < i]
    noticed: list[str] = []
    for place in back:
        stopped = list(lines)
        stopped[place] = ""
        noticed += [m.role for m in mismatches(kernel, "\n".join(stopped))]
    assert len(back) == 4  # programs and steps, of two roles
    assert noticed == ["consumer"] * 2  # the producer's two loops hold the same ops: either alone spells their words


@tw.kernel
def where_asked(
    asked: tw.Tensor[Q], x: tw.Tensor[M, K], w: tw.Tensor[N, K], y: tw.Tensor[M, N], *, bm: int = 64, bn: int = 64
):
    m, n = tw.grid(y, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for _ in tw.stream(1, None, until=asked[m.start // bm]):
        for k in tw.stream(x.shape[1], 64):
            acc += tw.dot(x[m, k], w[n, k].T)
    y[m, n] = acc


def test_a_loop_of_one_turn_at_most_need_not_go_round() -> None:
    """A loaded bound that is clipped to 1: NVRTC leaves the way back out, and the kernel keeps its pipeline."""
    dtypes = {"asked": "i32", "x": "bf16", "w": "bf16", "y": "bf16"}
    artifact = where_asked.compile(dtypes=dtypes)
    (image,) = artifact.kernels
    assert not any("no back edge" in line for line in artifact.plan)
    assert image.threads == 256  # a producer and a consumer


def test_what_can_not_be_read_is_refused() -> None:
    kernel, _, ptx = compiled("matmul")
    for line, other in (
        ("ret;", "@%p1 call.uni f;"),
        ("\n{", "\n.entry g {"),
        ("\n}", "\n}\n.func f {\n\twgmma.fence.sync.aligned;\n}"),
        ("fence.mbarrier_init", "@%p1 fence.mbarrier_init"),
        ("bra.uni", "bra.uni $nowhere; //"),
        ("setmaxnreg.dec", "brx.idx"),
    ):
        assert line in ptx
        (found,) = mismatches(kernel, ptx.replace(line, other, 1))
        assert "can't be read" in found.ptx


def test_threads_that_leave_a_role_are_noticed() -> None:
    kernel, _, ptx = compiled("matmul")
    warp = re.findall(r"shfl\.sync\.idx\.b32 \t(%r\d+)\|", ptx)
    (test,) = [t for w in warp for t in re.findall(rf"setp\.l[et]\.s32 \t%p\d+, {w}, [34];", ptx)]
    assert mismatches(kernel, ptx.replace(test, test.replace(" 4;", " 8;").replace(" 3;", " 7;")))


@pytest.mark.parametrize("case", CASES)
def test_loops_that_synchronise_are_not_unrolled(case: str) -> None:
    lines = [line.strip() for line in compiled(case)[1].split("\n")]
    loops = [i for i, line in enumerate(lines) if line.startswith("for (")]
    depth, open_ = 0, list[tuple[int, int]]()
    held: set[int] = set()
    for i, line in enumerate(lines):
        if i in loops:
            open_.append((i, depth))
        if re.search(r'\b(mbarrier|tma|named_barrier|wgmma|stmatrix|__syncthreads)|asm volatile\("\w', line):
            held |= {loop for loop, _ in open_}
        depth += line.count("{") - line.count("}")
        while open_ and depth <= open_[-1][1]:
            open_.pop()
    assert held
    assert all(lines[i - 1] == "#pragma unroll 1" for i in held)


def test_the_guard_is_quick() -> None:
    kernel, _, ptx = compiled("turns")
    assert quickest(lambda: mismatches(kernel, ptx), 0.03) < 0.03


@pytest.mark.parametrize("case", CASES)
def test_one_thread_is_elected_by_whole_warps(case: str) -> None:
    """``elect.sync`` and the shuffle that shares the warp's index wait for all lanes: no branch may stand between what
    a role begins with and both, and no body asks for a thread by its number."""
    kernel, source, ptx = compiled(case)
    electing = [op for op in kernel.body.block.ops if isinstance(op, a.Elected)]
    electing += [r for r in kernel.walk() if isinstance(r, a.Role) and any(isinstance(o, a.Elected) for o in r.walk())]
    assert electing
    assert source.count("elect_one() & (warp_of(tid)") == len(electing)
    assert "elect_one() &&" not in source
    assert not re.search(r"if \(\(?tid( & 127)?\)? == 0\)", source)
    lines = [line.strip() for line in ptx.split("\n")]
    elections = [n for n, line in enumerate(lines) if line.startswith("elect.sync")]
    assert len(elections) == len(electing)
    for n in elections:
        shared = next(m for m in range(n, len(lines)) if lines[m].startswith("shfl.sync"))
        assert not any(" bra" in line or line.startswith("bra") for line in lines[n:shared])
