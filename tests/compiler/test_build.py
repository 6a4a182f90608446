"""What the compiler does when the assembler spills, when nothing helps, and when a kernel is not proved."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest
from xdsl.dialects.builtin import IntAttr

import tilewright as tw
from support.example_cases import EXAMPLES_BY_NAME
from tilewright.base.dtypes import bf16
from tilewright.base.expr import TRUE, Const, Sym, all_of
from tilewright.base.verdict import Unknown
from tilewright.codegen.assemble import ROLE_SPILL_TOLERANCE_BYTES, SPILL_TOLERANCE_BYTES, Assembled, defects
from tilewright.compiler import build as build_room
from tilewright.compiler.proofs import stores as certify_room
from tilewright.compiler.proofs.stores import certified, prove_stores
from tilewright.compiler.requests import Observed, observe_facts
from tilewright.diag import TilewrightError
from tilewright.jit import Kernel
from tilewright.lang.params import KernelFunction
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import dialect as transport

pytestmark = pytest.mark.sample(1)


@tw.kernel
def scaled(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(x, (bm, bn))
    y[m, n] = x[m, n] * 2


@tw.kernel
def pinned(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=1024):
    m = tw.grid(x, b)
    y[m] = x[m] * 2


@tw.kernel
def product(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def written_twice(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    i = tw.grid(x, None)
    y[i // 2] = x[i]


def fits_from(attempts: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The assembler spills until it has been asked so often for a kernel; returns the sources it was given."""
    sources: list[str] = []
    asked: Counter[str] = Counter()

    def assembled(source: str, arch: str, name: str) -> Assembled:
        sources.append(source)
        asked[name] += 1
        return Assembled("", b"cubin", 255, 0 if asked[name] > attempts else 96, 0, "")

    monkeypatch.setattr(build_room, "assemble", assembled)
    return sources


def built(kernel: KernelFunction, **options: object) -> build_room.Artifact:
    compiled = Kernel(kernel)
    ahead = compiled._ahead("sm_90a", options.get("dtypes"), None, options.get("schedule"), None, {})
    return build_room.build(compiled._plan(ahead))


def test_a_spill_is_answered_by_fewer_ctas_then_smaller_tiles_then_more_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = fits_from(3, monkeypatch)
    artifact = built(pinned)
    assert artifact.kernels[0].spill_bytes == 0
    bounds = [s.split("__launch_bounds__(")[1].split(")")[0] for s in sources]
    threads = [int(b.split(",")[0]) for b in bounds]
    ctas = [int(b.split(",")[1]) for b in bounds]
    assert ctas[0] > 1
    assert ctas[1] == 1
    assert threads[:2] == [threads[0]] * 2
    assert threads[2] == 2 * threads[0]

    sources = fits_from(3, monkeypatch)
    built(scaled)
    tries = [s.split("void __launch")[1] for s in sources if "scaled_0(" in s]
    assert len(tries) == len(set(tries)) == 4
    assert "(128, 1)" in tries[1]


def test_a_kernel_that_spills_whatever_is_done_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fits_from(10**6, monkeypatch)
    for kernel in (scaled, pinned):
        with pytest.raises(TilewrightError, match="CGN002") as caught:
            built(kernel)
        assert "96 bytes spilled" in str(caught.value)
    with pytest.raises(TilewrightError, match="CGN002"):
        built(pinned, schedule=tw.Schedule(warps=4))


# ptxas' own words; those on wgmma.wait and setmaxnreg were recorded from kernels of ours that were changed for it
SERIALISED = (
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
    "insufficient register resources for the wgmma pipeline in the function 'product'"
)
IGNORED = (
    "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at "
    "entry."
)
WAITED = (
    "ptxas info    : (C7517) warpgroup.wait is injected in around line 566 by compiler to allow use of registers "
    "defined by GMMA in function 'product'"
)
assemble_once = cache(build_room.assemble)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda good: replace(good, log=f"{good.log}\n{SERIALISED}"), "C7510"),
        (lambda good: replace(good, log=f"{good.log}\n{IGNORED}"), "C7508"),
        (lambda good: replace(good, log=f"{good.log}\n{WAITED}"), "C7517"),
        (
            lambda good: replace(good, spill_bytes=ROLE_SPILL_TOLERANCE_BYTES + 4),
            f"{ROLE_SPILL_TOLERANCE_BYTES + 4} bytes spilled",
        ),
        (lambda good: replace(good, ptx=good.ptx.replace("wgmma.fence", "// ", 1)), "CGN004, role consumer"),
    ],
)
def test_what_the_assembler_spoils_falls_to_the_next_schedule(
    monkeypatch: pytest.MonkeyPatch, spoilt: Callable[[Assembled], Assembled], said: str
) -> None:
    sources: list[str] = []

    def assembled(source: str, arch: str, name: str) -> Assembled:
        sources.append(source)
        found = assemble_once(source, arch, name)
        return spoilt(found) if len(sources) == 1 else found

    monkeypatch.setattr(build_room, "assemble", assembled)
    artifact = built(product, dtypes=dict.fromkeys("abc", "bf16"))
    assert len(set(sources)) == len(sources) == 2
    assert artifact.kernels[0].source == sources[1]
    assert any("given up: " in line and said in line for line in artifact.plan)


@pytest.mark.parametrize("validate", [False, True])
def test_of_schedules_that_all_spill_the_one_that_does_least_is_kept(
    monkeypatch: pytest.MonkeyPatch, validate: bool
) -> None:
    spills: list[int] = []

    def assembled(source: str, arch: str, name: str) -> Assembled:
        spills.append(200 if len(spills) == 1 else 400 + len(spills))
        return replace(assemble_once(source, arch, name), spill_bytes=spills[-1])

    monkeypatch.setattr(build_room, "assemble", assembled)
    compiled = Kernel(product)
    ahead = compiled._ahead("sm_90a", dict.fromkeys("abc", "bf16"), None, None, None, {})
    artifact = build_room.build(compiled._plan(ahead), validate=validate)
    assert len(spills) > 2
    assert [kernel.spill_bytes for kernel in artifact.kernels] == [200]


@tw.kernel
def of_groups(offsets: tw.Offsets["G + 1"], a: tw.Tensor["T", 64], b: tw.Tensor["G", 64, 64], c: tw.Tensor["T", 64]):
    g, m, n = tw.ragged_grid(offsets, c.shape, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc


@pytest.mark.parametrize(
    ("clipped", "others", "kept"), [(76, 44, 44), (44, 76, 44), (SPILL_TOLERANCE_BYTES, 0, SPILL_TOLERANCE_BYTES)]
)
def test_of_two_ways_to_store_the_one_that_spills_less_is_kept(
    monkeypatch: pytest.MonkeyPatch, clipped: int, others: int, kept: int
) -> None:
    """Where more spills than a register or two."""

    def assembled(source: str, arch: str, name: str) -> Assembled:
        spilled = clipped if "tma_store_4d" in source else others
        return replace(assemble_once(source, arch, name), spill_bytes=spilled)

    monkeypatch.setattr(build_room, "assemble", assembled)
    dtypes = {"offsets": "i32", **dict.fromkeys("abc", "bf16")}
    compiled = Kernel(of_groups)
    ahead = compiled._ahead("sm_90a", dtypes, None, None, None, {})
    artifact = build_room.build(compiled._plan(ahead), validate=False)
    (kernel,), (variant,) = artifact.kernels, artifact.variants
    assert kernel.spill_bytes == kept
    assert ("tma_store_4d" in kernel.source) is (kept == clipped)
    assert (f"{clipped} bytes spilled" in variant.plan) is (kept != clipped)


def test_what_ptxas_says_against_the_schedule_is_a_defect() -> None:
    clean = Assembled("", b"cubin", 32, 0, 0, "ptxas info    : Used 32 registers")
    assert defects(clean) == ()
    for line in (
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ...",
        "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count",
        "ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register count",
    ):
        assert defects(replace(clean, log=line)) == (line,)
    assert defects(replace(clean, spill_bytes=SPILL_TOLERANCE_BYTES + 4)) == (
        f"{SPILL_TOLERANCE_BYTES + 4} bytes spilled",
    )
    assert defects(replace(clean, spill_bytes=ROLE_SPILL_TOLERANCE_BYTES), ROLE_SPILL_TOLERANCE_BYTES) == ()
    assert defects(replace(clean, spill_bytes=SPILL_TOLERANCE_BYTES)) == ()


def test_emitted_code_that_does_not_compile() -> None:
    with pytest.raises(TilewrightError, match="CGN001") as caught:
        build_room.assemble('extern "C" __global__ void k() { nonsense; }', "sm_90a", "k")
    assert "nonsense" in str(caught.value)


def test_two_programs_that_store_to_one_place_are_refused() -> None:
    with pytest.raises(TilewrightError, match="ACC002") as caught:
        Kernel(written_twice).compile()
    assert caught.value.diagnostics[0].where is not None
    assert caught.value.diagnostics[0].where.line == written_twice.where.line + 3


def test_what_cannot_be_proved_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certify_room, "prove_accesses", lambda *_: Unknown("cover y", "too hard", "try less"))
    with pytest.raises(TilewrightError, match="ACC005") as caught:
        Kernel(scaled)._plan(Kernel(scaled)._ahead("sm_90a", None, None, None, None, {}))
    assert "too hard" in str(caught.value)


@tw.kernel
def two_stores(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"]):
    m = tw.grid(x, 64)
    value = x[m] * 2
    y[m] = value
    z[m] = value


def test_an_element_that_is_never_written_is_told_at_its_store() -> None:
    kernel = Kernel(two_stores)
    planned = kernel._plan(kernel._ahead("sm_90a", None, None, None, None, {})).variants[-1]
    lowered = planned.transport.clone()
    [op for op in accesses(lowered) if isinstance(op, transport.Store)][-1].detach()
    with pytest.raises(TilewrightError, match="ACC003") as caught:
        certified(planned.tile, prove_stores(planned.tile, lowered))
    (found,) = caught.value.diagnostics
    assert found.where is not None
    assert found.where.text == "z[m] = value"


# Every lowered kernel is proved: a fault put into one after the other part of its text is found.
def accesses(kernel: transport.Kernel) -> Iterator[transport.Load | transport.Store]:
    return (op for op in kernel.walk() if isinstance(op, transport.Load | transport.Store))


@pytest.mark.parametrize("fault", ["guard", "shifted", "narrow", "no store", "grid"])
def test_a_fault_in_the_lowering_is_found(fault: str) -> None:
    kernel = Kernel(scaled)
    planned = kernel._plan(kernel._ahead("sm_90a", None, None, None, None, {})).variants[-1]
    lowered = planned.transport.clone()
    assert certified(planned.tile, prove_stores(planned.tile, lowered))
    loads = [op for op in accesses(lowered) if isinstance(op, transport.Load)]
    stores = [op for op in accesses(lowered) if isinstance(op, transport.Store)]
    guarded = next(op for op in stores if op.guard.expr != TRUE)
    match fault:
        case "guard":
            next(op for op in loads if op.guard.expr != TRUE).attributes["guard"] = ExprAttr.of(TRUE)
        case "shifted":
            row, column = (c.expr for c in stores[0].coords)
            stores[0].attributes["coords"] = type(stores[0].coords)([ExprAttr.of(row), ExprAttr.of(column + 1)])
        case "narrow":
            guarded.attributes["guard"] = ExprAttr.of(all_of([guarded.guard.expr, Sym("$tid") < 31]))
        case "no store":
            stores[0].detach()
        case "grid":
            programs = next(op for op in lowered.walk() if isinstance(op, transport.Programs))
            extents = [ExprAttr.of(e.expr - Const(1)) for e in programs.extents]
            programs.attributes["extents"] = type(programs.extents)(extents)
        case _:
            raise ValueError(fault)
    with pytest.raises(TilewrightError, match=r"ACC00[1-4]"):
        certified(planned.tile, prove_stores(planned.tile, lowered))
    assert isinstance(lowered.threads, IntAttr)


@pytest.mark.slow
def test_what_the_last_schedule_counts_is_asked_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys whose rows no tensor copy reaches: steps of 128 keys spill, and steps of 64 are twice as many."""
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "0")
    heads, rows, width = (1, 8), 200, 128
    pitches = {"q": width, "k": width + 1, "v": width + 1, "o": width}
    seen = {
        name: Observed(bf16, 0, (*heads, rows, width), (8 * rows * pitch, rows * pitch, pitch, 1))
        for name, pitch in pitches.items()
    }
    kernel = EXAMPLES_BY_NAME["attention"].kernel
    artifact = kernel.compile(dtypes=dict.fromkeys("qkvo", "bf16"), facts=observe_facts(seen))
    assert any("(T + 63) // 64" in str(fact) for fact in artifact.facts)
