"""Streams that are cut into parts, and swapped operands: values, refusals, and proofs that see what is changed."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr
from xdsl.rewriter import Rewriter

import tilewright as tw
from support import products as p
from support.tile_changes import first, trip
from tilewright.artifact.schema import VALIDATION
from tilewright.base.expr import Const, Sym
from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan, traced
from tilewright.compiler.proofs.rewritten import certify_split, certify_swapped
from tilewright.compiler.requests import Request
from tilewright.diag import TilewrightError
from tilewright.lang.enums import BinaryFn
from tilewright.schedule.transforms.split_k import PARTS, NotSplitError, split
from tilewright.schedule.transforms.swapped_operands import swapped
from tilewright.simulate import run_steps
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr, coord_attr

pytestmark = pytest.mark.sample(1)

BF16 = ml_dtypes.bfloat16


@tw.kernel
def sized(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def moments(x: tw.Tensor["M", "N"], mean: tw.Tensor["N"], power: tw.Tensor["N"], *, bm=tw.auto, bn=tw.auto):
    n = tw.grid(mean, bn)
    total, squares = tw.zeros(n, tw.f32), tw.zeros(n, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        part = x[m, n].to(tw.f32)
        total += part.sum(0)
        squares += (part * part).sum(0)
    count = tw.maximum(x.shape[0], 1).to(tw.f32)
    mean[n] = total / count
    power[n] = squares / count


@tw.kernel
def rescaled(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc.set(acc * 0.5 + tw.dot(a[m, k], b[n, k].T))
    c[m, n] = acc


@tw.kernel
def from_one(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    m, n = tw.grid(c, (64, 64))
    acc = tw.full((m, n), 1.0, tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


def pinned(kernel: tw.Kernel, parts: int, **keywords: object) -> Request:
    return replace(p.request(kernel, **keywords), schedule=tw.Schedule(split_k=parts))


def ran(variant: PlannedKernel, shapes: dict[str, tuple[int, ...]], symbols: dict[str, int]) -> dict[str, np.ndarray]:
    """The arrays after a simulated launch: outputs were NaN."""
    rng = np.random.default_rng(7)
    arrays = {name: rng.standard_normal(shape).astype(BF16) for name, shape in shapes.items()}
    arrays["c"][:] = np.nan
    run_steps(variant.steps, variant.scratch, arrays, symbols=symbols)
    return arrays


def off(got: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(got.astype(np.float64) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize(("m", "n", "k", "parts"), [(70, 104, 520, 3), (64, 64, 72, 10), (130, 8, 64, 2)])
def test_parts_add_up(m: int, n: int, k: int, parts: int) -> None:
    """Few and many; also more than there are steps, of which some have none."""
    (variant,) = plan(pinned(p.nt, parts)).variants
    assert len(variant.steps) == 2
    got = ran(variant, {"a": (m, k), "b": (n, k), "c": (m, n)}, {"M": m, "N": n, "K": k})
    assert off(got["c"], got["a"].astype(np.float64) @ got["b"].astype(np.float64).T) < 3e-3


def test_the_epilogue_is_done_once() -> None:
    m, n, k = 70, 136, 328
    (variant,) = plan(pinned(p.biased, 2)).variants
    shapes = {"a": (m, k), "b": (n, k), "bias": (n,), "r": (m, n), "c": (m, n)}
    got = {name: x.astype(np.float64) for name, x in ran(variant, shapes, {"M": m, "N": n, "K": k}).items()}
    assert off(got["c"], np.maximum(got["a"] @ got["b"].T + got["bias"], 0) + got["r"]) < 3e-3


def test_two_fragments_have_sums_each() -> None:
    m, n, k = 66, 72, 200
    (variant,) = plan(pinned(p.gated, 3)).variants
    shapes = {"x": (m, k), "v": (n, k), "w": (n, k), "c": (m, n)}
    got = {name: x.astype(np.float64) for name, x in ran(variant, shapes, {"M": m, "N": n, "K": k}).items()}
    g, u = got["x"] @ got["v"].T, got["x"] @ got["w"].T
    assert off(got["c"], g / (1 + np.exp(-g)) * u) < 3e-3
    assert len(variant.scratch) == 2


def test_every_batch_has_its_own_parts() -> None:
    i, m, n, k = 3, 40, 72, 136
    (variant,) = plan(pinned(p.batched, 2)).variants
    symbols = {"B": i, "M": m, "N": n, "K": k}
    got = ran(variant, {"a": (i, m, k), "b": (i, n, k), "c": (i, m, n)}, symbols)
    exact = np.einsum("imk,ink->imn", got["a"].astype(np.float64), got["b"].astype(np.float64))
    assert off(got["c"], exact) < 3e-3


SIZES = {f"{t}.stride1": 1 for t in "abc"} | {f"{t}.address": 0 for t in "abc"}


def served(m: int, n: int, k: int) -> PlannedKernel:
    symbols = {"M": m, "N": n, "K": k, "a.stride0": k, "b.stride0": k, "c.stride0": n, **SIZES}
    (variant,) = plan(p.request(sized), symbols).variants
    return variant


@pytest.mark.parametrize(
    ("size", "how"),
    [
        ((128, 128, 65536), "two kernels"),
        ((512, 512, 16384), "two kernels"),
        ((256, 4096, 11008), "a cluster"),
        ((384, 384, 4096), "a cluster"),
        ((256, 1024, 4096), "a cluster"),
        ((512, 512, 512), "as it is"),
        ((8, 1024, 65536), "two kernels"),  # 16 swapped tiles leave most SMs without, four parts half of them
        ((16, 8192, 8192), "swapped"),
        ((4096, 4096, 4096), "as it is"),
        ((128, 8192, 8192), "as it is"),  # bound by what it reads
        ((1024, 1024, 1024), "as it is"),  # so few steps that adding takes longer
    ],
)
def test_few_tiles_of_many_steps_are_cut(size: tuple[int, int, int], how: str) -> None:
    variant = served(*size)
    ways = {1: "swapped", 2: "a cluster"}
    assert how == ("two kernels" if variant.product is not None else ways.get(len(variant.originals), "as it is"))


def test_swapped_operands_give_the_same_product() -> None:
    m, n, k = 9, 136, 200
    variant = served(m, n, k)
    assert len(variant.originals) == 1
    got = ran(variant, {"a": (m, k), "b": (n, k), "c": (m, n)}, {"M": m, "N": n, "K": k})
    assert off(got["c"], got["a"].astype(np.float64) @ got["b"].astype(np.float64).T) < 3e-3


@pytest.mark.slow
def test_what_runs_is_certified_and_validated() -> None:
    """The certificate names the parts; both kernels are validated, also the one that multiplies, whose programs have
    different numbers of steps."""
    artifact = build(plan(pinned(p.nt, 9)), validate=True)
    held = {o.name: o for o in artifact.variants[0].certificate}
    assert held["split"].detail == "9 parts, each step in one of them"
    assert {"order", "whole", "inside", "bound"} <= held.keys()
    product, combine = artifact.kernels
    assert combine.undecided == ()
    assert {o.method for o in product.certificate if o.name in ("lowering", "ptx")} == {VALIDATION}


@pytest.mark.parametrize(
    ("kernel", "why"), [(rescaled, "than to add to it"), (from_one, "begin at zero"), (p.chained, "than to add|stream")]
)
def test_other_streams_are_refused(kernel: tw.Kernel, why: str) -> None:
    with pytest.raises(NotSplitError, match=why):
        split(traced(p.request(kernel)), many=False)
    with pytest.raises(TilewrightError, match="SCH001"):
        plan(pinned(kernel, 2))


def test_a_kernel_without_products_refuses_the_pin() -> None:
    @tw.kernel
    def copied(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(x, (16, 64))
        y[m, n] = x[m, n]

    with pytest.raises(TilewrightError, match="SCH002"):
        plan(pinned(copied, 2))


def test_scaled_products_are_not_swapped() -> None:
    assert swapped(traced(p.request(p.scaled_rows))) is None


# -- the proof ---------------------------------------------------------------------------------------------------------
THREE = {PARTS.name: Const(3)}


def kernels(kernel: tw.Kernel = p.gated, *, many: bool = True) -> tuple[tile.Kernel, tile.Kernel, tile.Kernel]:
    whole = traced(p.request(kernel))
    made = split(whole, many=many)
    return whole, made.product(), made.combine()


def begun_later(kernel: tile.Kernel) -> None:
    stream = first(kernel, tile.StreamLoop)
    stream.attributes["begin"] = ExprAttr(stream.begin.expr + 1)


def shifted(kind: type, index: int) -> Callable[[tile.Kernel], None]:
    """An access whose first coordinate is another one."""

    def change(kernel: tile.Kernel) -> None:
        op = first(kernel, kind, index)
        head, *rest = op.coords.data
        moved = (
            coord_attr(head.data + 1)
            if isinstance(head, ExprAttr)
            else coord_attr(replace(head.data, origin=head.data.origin + 1))
        )
        op.attributes["coords"] = ArrayAttr([moved, *rest])

    return change


def exchanged(kind: type) -> Callable[[tile.Kernel], None]:
    """Two accesses whose tensors are each other's."""

    def change(kernel: tile.Kernel) -> None:
        one, other = (first(kernel, kind, i) for i in range(2))
        at = 1 if kind is tile.Store else 0
        one.operands[at], other.operands[at] = other.operands[at], one.operands[at]

    return change


def turned_sums(kernel: tile.Kernel) -> None:
    """The last two extents of a tensor of sums are each other's."""
    arg = next(a for a in reversed(kernel.body.block.args) if isinstance(a.type, tile.TensorType))
    *rest, rows, columns = (dim.expr for dim in arg.type.dims)
    Rewriter.replace_value_with_new_type(
        arg, tile.TensorType.of(arg.type.element, [*rest, columns, rows], arg.type.tensor_name.data)
    )


def folded_otherwise(kernel: tile.Kernel) -> None:
    """What is added is the greatest instead."""
    total = first(kernel, tile.FragmentWrite).value.owner
    assert isinstance(total, tile.Binary)
    assert total.fn.data is BinaryFn.ADD
    total.attributes["fn"] = type(total.fn)(BinaryFn.MAX)


def begun_at_one(kernel: tile.Kernel) -> None:
    zero = next(op for op in kernel.walk() if isinstance(op, tile.Constant) and op.value.data == 0)
    zero.attributes["value"] = type(zero.value)(1.0)


def wider_grid(kernel: tile.Kernel) -> None:
    parts, *rest = kernel.grid.data
    kernel.attributes["grid"] = ArrayAttr([ExprAttr(parts.expr + 1), *rest])


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("kernel", [p.gated, moments], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize(
    ("which", "change"),
    [
        ("product", trip(-1)),
        ("product", trip(1)),
        ("product", wider_grid),
        ("product", folded_otherwise),
        ("product", begun_at_one),
        ("combine", folded_otherwise),
        ("combine", begun_at_one),
        ("product", shifted(tile.Load, 0)),
        ("product", shifted(tile.Store, 1)),
        ("product", exchanged(tile.Store)),
        ("combine", trip(-1)),
        ("combine", begun_later),
        ("combine", shifted(tile.Load, 1)),
        ("combine", exchanged(tile.Load)),
        ("product", turned_sums),
        ("combine", turned_sums),
    ],
)
def test_what_is_changed_is_seen(
    which: str, change: Callable[[tile.Kernel], None], kernel: tw.Kernel, *, many: bool
) -> None:
    whole, product, combine = kernels(kernel, many=many)
    certify_split((whole, whole), product, combine, THREE)
    change({"product": product, "combine": combine}[which])
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*split"):
        certify_split((whole, whole), product, combine, THREE)


def test_parts_may_not_be_none() -> None:
    whole, product, combine = kernels()
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*parts"):
        certify_split((whole, whole), product, combine, {PARTS.name: Sym("K") // 64})


def test_operands_swapped_without_their_result_are_seen() -> None:
    whole = traced(p.request(p.nt))
    made = swapped(whole)
    assert made is not None
    certify_swapped(whole, made)
    dot = first(made, tile.Dot)
    dot.operands[0], dot.operands[1] = dot.operands[1], dot.operands[0]
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*swapped"):
        certify_swapped(whole, made)
