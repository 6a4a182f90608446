"""Programs of two steps: tensors that no tensor copy can bring are read from aligned copies."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.products import nt
from tilewright.artifact.schema import Artifact, EncodeTensorMap, Launch, TensorPointer, WorkspacePointer
from tilewright.base.dtypes import bf16, e4m3, f16
from tilewright.base.expr import TRUE, Const, parse, sym
from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan, traced
from tilewright.compiler.proofs.steps import certify_steps
from tilewright.compiler.requests import Observed, Request, observe_facts
from tilewright.compiler.staging import residual, staged_tensors
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.jit import Kernel
from tilewright.lang.params import KernelFunction
from tilewright.simulate import run_steps
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import coord_attr
from tilewright.transport import dialect as transport
from tilewright.transport.text import tile_kernel, transport_kernel
from tilewright.validate.transport_to_ptx import compare

pytestmark = pytest.mark.sample(1)


@tw.kernel
def batched_nn(
    a: tw.Tensor["B", "M", "K"], b: tw.Tensor["B", "K", "N"], c: tw.Tensor["B", "M", "N"], *, bm=64, bn=64, bk=64
):
    i, m, n = tw.grid(c, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[2], bk):
        acc += tw.dot(a[i, m, k], b[i, k, n])
    c[i, m, n] = acc


@tw.kernel
def copied(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x, (16, 64))
    y[m, n] = x[m, n]


def requested(kernel: KernelFunction, **arrays: tuple[object, tuple[int, ...], tuple[int, ...]]) -> Request:
    observed = {name: Observed(dtype, 0, shape, strides) for name, (dtype, shape, strides) in arrays.items()}
    return Kernel(kernel)._request(SM90A, {n: o.dtype for n, o in observed.items()}, {}, observe_facts(observed))


def odd(m: int = 4100, n: int = 4100, k: int = 4100) -> Request:
    return requested(nt, a=(bf16, (m, k), (k, 1)), b=(bf16, (n, k), (k, 1)), c=(bf16, (m, n), (n, 1)))


def sizes(m: int, n: int, k: int) -> dict[str, int]:
    found = {"M": m, "N": n, "K": k, "a.address": 0, "b.address": 0, "c.address": 0}
    return found | {"a.stride0": k, "a.stride1": 1, "b.stride0": k, "b.stride1": 1, "c.stride0": n, "c.stride1": 1}


def test_rows_of_odd_pitch_are_staged_where_that_pays() -> None:
    (large,) = plan(odd(), sizes(4100, 4100, 4100)).variants
    assert [copy.item.name for copy in large.copies] == ["a", "b"]
    (small,) = plan(odd(64, 64, 68), sizes(64, 64, 68)).variants
    assert small.copies == ()
    assert not large.predicate.evaluate(sizes(64, 64, 68))


@tw.kernel
def sized(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@pytest.mark.parametrize(
    ("m", "n", "k", "staged"),
    [
        (4100, 4100, 4100, True),
        (1000, 2884, 2884, True),
        (64, 4100, 4100, False),
        (16, 8196, 8196, False),
        (4100, 4100, 68, False),
        (1024, 1024, 1028, False),
    ],
)
def test_small_products_are_fed_by_threads_large_ones_from_a_copy(m: int, n: int, k: int, staged: bool) -> None:
    """As measured on H200: benchmarks/results/unaligned.json."""
    request = requested(sized, a=(bf16, (m, k), (k, 1)), b=(bf16, (n, k), (k, 1)), c=(bf16, (m, n), (n, 1)))
    (taken,) = plan(request, sizes(m, n, k)).variants
    assert bool(taken.copies) is staged


def test_only_what_is_not_aligned_is_staged() -> None:
    request = requested(
        nt,
        a=(bf16, (4100, 4096), (4096, 1)), b=(bf16, (4100, 4096), (4100, 1)), c=(bf16, (4100, 4100), (4100, 1)),
    )  # fmt: skip
    kernel = traced(request)
    assert [item.name for item in staged_tensors(kernel, request.facts, request.target)] == ["b"]


def test_eight_bit_operands_are_turned_over_on_the_way() -> None:
    request = requested(
        batched_nn,
        a=(e4m3, (2, 256, 256), (65536, 256, 1)), b=(e4m3, (2, 256, 256), (65536, 256, 1)),
        c=(bf16, (2, 256, 256), (65536, 256, 1)),
    )  # fmt: skip
    (item,) = staged_tensors(traced(request), request.facts, request.target)
    assert (item.name, item.unit_axis) == ("b", 1)
    assert [s.evaluate({"B": 2, "K": 200, "N": 256}) for s in item.strides] == [256 * 256, 1, 256]


STAGED = tw.Schedule(staged=True)


@pytest.mark.parametrize(("m", "n", "k"), [(65, 127, 100), (130, 7, 63), (7, 65, 3)])
def test_a_staged_product_is_right(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    (variant,) = plan(replace(odd(m, n, k), schedule=STAGED), sizes(m, n, k)).variants
    assert [copy.item.name for copy in variant.copies] == ["a", "b"]
    reports = run_steps(variant.steps, variant.scratch, {"a": a, "b": b, "c": c}, symbols=sizes(m, n, k))
    assert len(reports) == 3
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.allclose(c.astype(np.float64), exact, rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("staged", [True, False])
def test_batches_of_odd_rows(staged: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = {"a": (2, 70, 33), "b": (2, 33, 65), "c": (2, 70, 65)}
    arrays = {n: rng.standard_normal(s).astype(np.float16) for n, s in shapes.items()}
    strides = {n: (s[1] * s[2], s[2], 1) for n, s in shapes.items()}
    request = requested(batched_nn, **{n: (f16, s, strides[n]) for n, s in shapes.items()})
    program = plan(replace(request, schedule=tw.Schedule(staged=staged)))
    variant = program.variants[0]
    assert [copy.item.name for copy in variant.copies] == (["a", "b"] if staged else [])
    symbols = {"B": 2, "M": 70, "K": 33, "N": 65}
    run_steps(variant.steps, variant.scratch, arrays, symbols=symbols)
    exact = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64)
    assert np.allclose(arrays["c"].astype(np.float64), exact, rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("how", ["broadcast", "flipped", "every second column"])
def test_strides_that_no_map_has_are_staged(how: str) -> None:
    """Aligned, but of stride 0, negative, or with gaps."""
    rng = np.random.default_rng(1)
    whole = rng.standard_normal((64, 128)).astype(np.float16)
    a = {
        "broadcast": np.broadcast_to(whole[:1, :64], (64, 64)),
        "flipped": whole[::-1, :64],
        "every second column": whole[:, ::2],
    }[how]
    b, c = rng.standard_normal((64, 64)).astype(np.float16), np.full((64, 64), np.nan, np.float16)
    strides = tuple(s // 2 for s in a.strides)
    request = requested(nt, a=(f16, (64, 64), strides), b=(f16, (64, 64), (64, 1)), c=(f16, (64, 64), (64, 1)))
    assert request.facts.of("a").forward is (how == "every second column")
    (variant, *_) = plan(replace(request, schedule=STAGED)).variants
    assert [copy.item.name for copy in variant.copies] == ["a"]
    run_steps(variant.steps, variant.scratch, {"a": a, "b": b, "c": c}, symbols={"M": 64, "N": 64, "K": 64})
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.allclose(c.astype(np.float64), exact, rtol=2**-8, atol=2**-8)


def test_a_pin_that_nothing_can_keep_is_refused() -> None:
    request = requested(nt, a=(bf16, (64, 64), (64, 1)), b=(bf16, (64, 64), (64, 1)), c=(bf16, (64, 64), (64, 1)))
    plain = requested(copied, x=(bf16, (65, 65), (65, 1)), y=(bf16, (65, 65), (65, 1)))
    for each in (request, plain):
        with pytest.raises(TilewrightError, match="SCH002"):
            plan(replace(each, schedule=STAGED))


# -- the program ------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def large() -> tuple[PlannedKernel, Artifact, Request]:
    request = odd()
    program = plan(request, sizes(4100, 4100, 4100))
    return program.variants[0], build(program), request


def test_the_ptx_of_the_copies_and_of_the_product_validates(
    large: tuple[PlannedKernel, Artifact, Request],
) -> None:
    _, artifact, _ = large
    launches = [step for step in artifact.variants[0].steps if isinstance(step, Launch)]
    for launch in launches:
        image = artifact.kernel(launch.kernel)
        assert compare(transport_kernel(image.transport_ir), image.ptx, launch.args, launch.grid[0]) == ()


def test_steps_of_the_artifact(large: tuple[PlannedKernel, Artifact, Request]) -> None:
    planned, artifact, _ = large
    (variant,) = artifact.variants
    launches = [step.kernel for step in variant.steps if isinstance(step, Launch)]
    assert launches == ["kernel_nt_stage_a", "kernel_nt_stage_b", "kernel_nt"]
    assert [w.evaluate({"M": 4100, "N": 7, "K": 4100}) for w in variant.workspace] == [4100 * 8320, 7 * 8320]
    recipes = [step.recipe for step in variant.steps if isinstance(step, EncodeTensorMap)]
    assert [str(r.address) for r in recipes] == ["$workspace0.address", "$workspace1.address"]
    assert [r.strides_bytes[0].evaluate({"K": 4100}) for r in recipes] == [8320, 8320]
    assert [r.dims[0] for r in recipes] == [parse("max(K, 1)")] * 2  # beyond K the hardware fills with zeros
    copy = next(step for step in variant.steps if isinstance(step, Launch))
    assert copy.args[:2] == (TensorPointer("a"), WorkspacePointer(0))
    names = [o.name for o in variant.certificate]
    assert names == ["order", "order", "whole", "inside", "whole", "inside", "copied", "copied", "bound"]
    assert planned.predicate == variant.predicate


def test_steps_that_do_not_hand_their_data_on_are_refused(large: tuple[PlannedKernel, Artifact, Request]) -> None:
    planned, artifact, _ = large
    (variant,) = artifact.variants
    kernels = {f"kernel_{c.planned.transport.sym_name.data}": c.planned for c in planned.copies}
    kernels |= {"kernel_nt": planned}
    assert certify_steps(variant.steps, kernels, planned.predicate) == variant.certificate
    copies, rest = variant.steps[:2], variant.steps[2:]
    faults = {
        "before anything fills it": (*rest, *copies),
        "reads workspace 1 before": (copies[0], *rest),
        "both fill": (copies[0], *variant.steps),
    }
    for words, steps in faults.items():
        with pytest.raises(TilewrightError, match=rf"(?s)CRT003.*{words}"):
            certify_steps(steps, kernels, planned.predicate)
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*bound: nt"):
        certify_steps(variant.steps, kernels, TRUE)
    first = planned.copies[0].planned
    (item,) = first.workspaces.values()
    half = replace(first, workspaces={"a$staged": replace(item, dims=(item.dims[0] * 2, item.dims[1]))})
    lowered = first.transport.clone()
    next(op for op in lowered.walk() if isinstance(op, transport.Store)).detach()
    shifted = first.tile.clone()
    load = next(op for op in shifted.walk() if isinstance(op, tile.Load))
    load.attributes["coords"] = type(load.coords)([coord_attr(Const(0)), *load.coords.data[1:]])
    of_b = tile_kernel(str(first.tile).replace("!tile.tensor<a, ", "!tile.tensor<b, ").replace('"a" %a', '"b" %a'))
    broken = {
        "another tensor": half,
        "whole": replace(first, transport=lowered),
        "copied: kernel_nt_stage_a computes what a": replace(first, tile=shifted),
        "copied: kernel_nt_stage_a computes what": replace(first, tile=of_b),
    }
    for words, kernel in broken.items():
        wrong = {**kernels, "kernel_nt_stage_a": kernel}
        with pytest.raises(TilewrightError, match=rf"(?s)CRT003.*{words}"):
            certify_steps(variant.steps, wrong, planned.predicate)


def test_what_follows_of_a_workspace_is_not_asked() -> None:
    binding = {"a.address": sym("$workspace0.address"), "a.stride0": parse("(K + 63) // 64 * 64")}
    facts = (parse("a.address % 16 == 0"), parse("M <= 1 or a.stride0 * 2 % 16 == 0"), parse("a.stride0 * M < 100"))
    assert residual(facts, binding) == parse("((K + 63) // 64 * 64) * M < 100")
    assert residual((parse("b.stride0 == 7"),), binding) == TRUE
    assert residual(facts[:1], {"a.address": sym("$workspace0.address") + 8}) != TRUE
    assert residual((parse("a.stride0 == 3"),), {"a.stride0": Const(4)}).constant == 0
