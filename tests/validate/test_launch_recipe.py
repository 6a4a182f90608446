"""The launch recipe against the kernels' texts: what the compiler makes is found right, and every field that is changed
is found wrong."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest
from xdsl.dialects.builtin import ArrayAttr, IntAttr

import tilewright as tw
from support import products as p
from support.timing import quickest
from tilewright.artifact.descriptor import TensorMapRecipe
from tilewright.artifact.schema import (
    AccessMode,
    Artifact,
    Copy,
    EncodeTensorMap,
    Fill,
    FloatScalar,
    IntScalar,
    Launch,
    TensorMapArg,
    TensorPointer,
    Variant,
    WorkspacePointer,
)
from tilewright.base.dtypes import bf16
from tilewright.base.expr import TRUE, Const, Expr, minimum, parse, sym
from tilewright.base.verdict import Proved
from tilewright.compiler import build as building
from tilewright.compiler.build import build
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.compiler.requests import Observed, Request, default_facts, observe_facts
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import DataType, Interleave, L2Promotion, OobFill, Swizzle
from tilewright.jit import Kernel
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.text import transport_kernel
from tilewright.validate.expr_equality import difference
from tilewright.validate.launch_recipe import recipe_faults, require_recipe

pytestmark = pytest.mark.sample(1)

Texts = dict[str, t.Kernel]


@tw.kernel
def scaled(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, by: tw.f32, shift: tw.i32, bm=16, bn=64):
    """A plain kernel with scalars."""
    m, n = tw.grid(x, (bm, bn))
    y[m, n] = (x[m, n].to(tw.f32) * by + shift).to(tw.bf16)


@tw.kernel
def products(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=128, bn=128, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


def scaling() -> Request:
    return Request(scaled, Signature.of({"x": bf16, "y": bf16}), default_facts(scaled), SM90A, Schedule())


def made(request: Request, dims: dict[str, int] | None = None) -> Artifact:
    program = plan(request, dims)
    return build(replace(program, left_out=()))


@pytest.fixture(scope="module")
def plain() -> Artifact:
    return made(scaling())


@pytest.fixture(scope="module")
def clustered() -> Artifact:
    return made(replace(p.request(products), schedule=tw.Schedule(cluster=(2, 1))))


@pytest.fixture(scope="module")
def staged() -> Artifact:
    """Two copies into workspaces, then a product that reads them through tensor maps."""
    shape = {"a": (4100, 4100), "b": (4100, 4100), "c": (4100, 4100)}
    seen = {name: Observed(bf16, 0, s, (s[1], 1)) for name, s in shape.items()}
    request = Kernel(products)._request(SM90A, dict.fromkeys(shape, bf16), {}, observe_facts(seen))
    dims = {"M": 4100, "N": 4100, "K": 4100, **{f"{n}.address": 0 for n in shape}}
    dims |= {f"{n}.stride{i}": (4100, 1)[i] for n in shape for i in (0, 1)}
    return made(request, dims)


@pytest.fixture(scope="module", params=["plain", "clustered", "staged"])
def artifact(request: pytest.FixtureRequest) -> Artifact:
    return request.getfixturevalue(request.param)


def texts(artifact: Artifact) -> Texts:
    """The kernels' texts, read once."""
    return {image.symbol: _read(image.transport_ir) for image in artifact.kernels}


_read = cache(transport_kernel)


# -- what can be changed -----------------------------------------------------------------------------------------------
Change = Callable[[Artifact], Artifact]


def image(**changes: Callable[[Any], Any]) -> Change:
    """Changes fields of the last kernel."""

    def apply(artifact: Artifact) -> Artifact:
        *others, last = artifact.kernels
        new = {name: change(getattr(last, name)) for name, change in changes.items()}
        return replace(artifact, kernels=(*others, replace(last, **new)))

    return apply


def variant(change: Callable[[Variant], Variant]) -> Change:
    """Changes the last variant."""
    return lambda x: replace(x, variants=(*x.variants[:-1], change(x.variants[-1])))


def step(kind: type, change: Callable[[Any], Any], number: int = -1) -> Change:
    """Changes a step of a kind."""

    def apply(found: Variant) -> Variant:
        at = [i for i, s in enumerate(found.steps) if isinstance(s, kind)][number]
        return replace(found, steps=(*found.steps[:at], change(found.steps[at]), *found.steps[at + 1 :]))

    return variant(apply)


def grid(change: Callable[[Expr], Expr], axis: int = 0) -> Change:
    def apply(launch: Launch) -> Launch:
        extents = [change(e) if i == axis else e for i, e in enumerate(launch.grid)]
        return replace(launch, grid=tuple(extents))

    return step(Launch, apply)


def argument(kind: type, change: Callable[[Any], Any], number: int = 0) -> Change:
    def apply(launch: Launch) -> Launch:
        at = [i for i, x in enumerate(launch.args) if isinstance(x, kind)][number]
        return replace(launch, args=(*launch.args[:at], change(launch.args[at]), *launch.args[at + 1 :]))

    return step(Launch, apply)


def tensor_map(**changes: Callable[[Any], Any]) -> Change:
    def apply(encode: EncodeTensorMap) -> EncodeTensorMap:
        recipe = encode.recipe
        return replace(encode, recipe=replace(recipe, **{n: f(getattr(recipe, n)) for n, f in changes.items()}))

    return step(EncodeTensorMap, apply)


def steps(change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Change:
    return variant(lambda v: replace(v, steps=change(v.steps)))


def parameter(**changes: Any) -> Change:
    return lambda x: replace(x, parameters=(replace(x.parameters[0], **changes), *x.parameters[1:]))


def swapped(found: tuple[Any, ...], i: int, j: int) -> tuple[Any, ...]:
    other = list(found)
    other[i], other[j] = other[j], other[i]
    return tuple(other)


ANY: dict[str, Change] = {
    "a CTA less": grid(lambda e: e - 1),
    "a CTA more": grid(lambda e: e + 1),
    "a CTA less of many": grid(lambda e: e - (e // 1000)),
    "rows of CTAs": grid(lambda e: e + 1, axis=1),
    "planes of CTAs": grid(lambda e: e + 1, axis=2),
    "half the threads": image(threads=lambda n: n // 2),
    "a warp more": image(threads=lambda n: n + 32),
    "a cluster more": image(cluster=lambda n: (n[0] * 2, *n[1:])),
    "a cluster of columns": image(cluster=lambda n: (1, 2 * n[0], 1)),
    "less shared memory": image(shared_bytes=lambda n: n - 1),
    "more shared memory": image(shared_bytes=lambda n: n + 1),
    "another kernel": image(symbol=lambda n: n + "_"),
    "another target": lambda x: replace(x, target="sm_80"),
    "a tensor for another": step(Launch, lambda s: replace(s, args=tuple(map(_other_tensor, s.args)))),
    "behind the tensor": argument(TensorPointer, lambda x: replace(x, offset=Const(16))),
    "an integer more": argument(IntScalar, lambda x: replace(x, value=x.value + 1)),
    "a wider integer": argument(IntScalar, lambda x: replace(x, bits=96 - x.bits)),
    "the last one missing": step(Launch, lambda s: replace(s, args=s.args[:-1])),
    "one too many": step(Launch, lambda s: replace(s, args=(*s.args, s.args[-1]))),
    "the last two swapped": step(Launch, lambda s: replace(s, args=swapped(s.args, -1, -2))),
    "launched twice": steps(lambda s: (*s, s[-1])),
    "launched never": steps(lambda s: s[:-1]),
    "a copy to a tensor": steps(lambda s: (*s, Copy(TensorPointer("x"), TensorPointer("y"), Const(1)))),
    "a fill before": steps(lambda s: (Fill(TensorPointer("y"), 0, 1, Const(1 << 40)), *s)),
    "a fill behind": steps(lambda s: (*s, Fill(TensorPointer("y"), 0, 1, Const(1)))),
    "a workspace more": variant(lambda v: replace(v, workspace=(*v.workspace, Const(256)))),
    "for all arguments": lambda x: replace(variant(lambda v: replace(v, predicate=TRUE))(x), facts=()),
    "a fact less": lambda x: replace(x, facts=x.facts[1:]),
    "an input that is written": lambda x: replace(
        x, parameters=tuple(replace(q, access=AccessMode.READ) if hasattr(q, "access") else q for q in x.parameters)
    ),
    "an output that nobody writes": parameter(access=AccessMode.READ_WRITE),
    "another element": parameter(dtype="f32"),
    "another extent": parameter(dims=(sym("M"), sym("M"))),
    "a kernel that nobody launches": lambda x: replace(x, kernels=(*x.kernels, replace(x.kernels[-1], symbol="idle"))),
}

MAPS: dict[str, tuple[str, Change]] = {
    "element": ("element", tensor_map(element=lambda _: DataType.FLOAT16)),
    "address": ("address", tensor_map(address=lambda e: e + 16)),
    "of another tensor": (
        "address",
        tensor_map(address=lambda e: sym("b.address" if "a.address" in e.symbols else "a.address")),
    ),
    "extents swapped": ("dims", tensor_map(dims=lambda d: d[::-1])),
    "extent one less": ("dims", tensor_map(dims=lambda d: (d[0] - 1, *d[1:]))),
    "extents cut off": ("dims", tensor_map(dims=lambda d: tuple(minimum(x, 1 << 16) for x in d))),
    "strides doubled": ("strides_bytes", tensor_map(strides_bytes=lambda s: tuple(2 * x for x in s))),
    "no stride": ("strides_bytes", tensor_map(strides_bytes=lambda s: s[1:])),
    "box": ("box", tensor_map(box=lambda b: (b[0], b[1] // 2, *b[2:]))),
    "box swapped": ("box", tensor_map(box=lambda b: (b[1] * 2, b[0], *b[2:]))),
    "element strides": ("element_strides", tensor_map(element_strides=lambda s: (2, *s[1:]))),
    "interleave": ("interleave", tensor_map(interleave=lambda _: Interleave.B16)),
    "no swizzle": ("swizzle", tensor_map(swizzle=lambda _: Swizzle.NONE)),
    "half the swizzle": ("swizzle", tensor_map(swizzle=lambda _: Swizzle.B64)),
    "promotion": ("l2_promotion", tensor_map(l2_promotion=lambda x: L2Promotion((int(x) + 1) % 4))),
    "fill": ("oob_fill", tensor_map(oob_fill=lambda _: OobFill.NAN_REQUEST_ZERO_FMA)),
}

MAPPED: dict[str, Change] = {
    "slots swapped": step(Launch, lambda s: replace(s, args=tuple(map(_other_slot, s.args)))),
    "maps swapped": steps(lambda s: swapped(s, *[i for i, x in enumerate(s) if isinstance(x, EncodeTensorMap)][:2])),
    "another slot": step(EncodeTensorMap, lambda s: replace(s, slot=s.slot + 1)),
    "encoded behind the launch": steps(lambda s: tuple(sorted(s, key=lambda x: isinstance(x, EncodeTensorMap)))),
    "not encoded": steps(lambda s: tuple(x for x in s if not (isinstance(x, EncodeTensorMap) and x.slot))),
}

STAGED: dict[str, Change] = {
    "a smaller workspace": variant(lambda v: replace(v, workspace=(v.workspace[0] - 2, *v.workspace[1:]))),
    "a larger workspace": variant(lambda v: replace(v, workspace=(v.workspace[0] + 2, *v.workspace[1:]))),
    "workspaces swapped": variant(lambda v: replace(v, workspace=v.workspace[::-1])),
    "a workspace less": variant(lambda v: replace(v, workspace=v.workspace[:1])),
    "a workspace for another": step(
        Launch,
        lambda s: replace(s, args=tuple(WorkspacePointer(1) if isinstance(x, WorkspacePointer) else x for x in s.args)),
        0,
    ),
    "the product first": steps(lambda s: (*s[2:], *s[:2])),
    "a copy less": steps(lambda s: s[1:]),
    "copies swapped with the product": steps(lambda s: (s[0], *s[2:], s[1])),
    "where copies are too large": variant(lambda v: replace(v, predicate=TRUE)),
}


def _other_tensor(arg: Any) -> Any:
    if isinstance(arg, WorkspacePointer):
        return WorkspacePointer(1 - arg.index)
    return TensorPointer(arg.name + "_") if isinstance(arg, TensorPointer) else arg


def _other_slot(arg: Any) -> Any:
    return TensorMapArg(arg.slot ^ 1) if isinstance(arg, TensorMapArg) else arg


# -- tests -------------------------------------------------------------------------------------------------------------
def test_what_is_compiled_is_found_right(artifact: Artifact) -> None:
    assert recipe_faults(artifact, texts(artifact)) == ()


@pytest.mark.parametrize("name", ANY)
def test_a_changed_field_is_found(name: str, artifact: Artifact) -> None:
    kernels = texts(artifact)
    changed = ANY[name](artifact)
    if changed == artifact:
        pytest.skip("nothing of the kind in this artifact")
    faults = recipe_faults(changed, kernels)
    assert faults
    with pytest.raises(TilewrightError, match="CRT007"):
        require_recipe(changed, kernels)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("which", ["clustered", "staged"])
def test_a_changed_field_of_a_tensor_map_is_named(name: str, which: str, request: pytest.FixtureRequest) -> None:
    artifact: Artifact = request.getfixturevalue(which)
    field, change = MAPS[name]
    changed = change(artifact)
    assert changed != artifact
    assert {fault.field.split(".")[-1].split("[")[0] for fault in recipe_faults(changed, texts(artifact))} == {field}


def test_every_field_of_a_tensor_map_is_changed_above() -> None:
    assert {field for field, _ in MAPS.values()} == {field.name for field in fields(TensorMapRecipe)}


@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.parametrize("which", ["clustered", "staged"])
def test_maps_and_slots_belong_together(name: str, which: str, request: pytest.FixtureRequest) -> None:
    artifact: Artifact = request.getfixturevalue(which)
    assert recipe_faults(MAPPED[name](artifact), texts(artifact))


@pytest.mark.parametrize("name", STAGED)
def test_steps_and_workspaces(name: str, staged: Artifact) -> None:
    assert recipe_faults(STAGED[name](staged), texts(staged))


def test_scalars_are_in_order(plain: Artifact) -> None:
    (launch,) = (s for s in plain.variants[-1].steps if isinstance(s, Launch))
    kinds = [type(x) for x in launch.args]
    assert kinds[:4] == [TensorPointer, TensorPointer, FloatScalar, IntScalar]
    assert recipe_faults(argument(FloatScalar, lambda x: replace(x, name="shift"))(plain), texts(plain))
    assert recipe_faults(step(Launch, lambda s: replace(s, args=swapped(s.args, 0, 1)))(plain), texts(plain))
    assert recipe_faults(step(Launch, lambda s: replace(s, args=swapped(s.args, 2, 3)))(plain), texts(plain))


@tw.kernel
def rows(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
    """Two variants: narrow rows and wide ones."""
    m, n = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=256)
    y[m] = x[m, n].to(tw.f32).sum(1)


def test_tiles_are_as_wide_as_dispatch_lets_rows_be() -> None:
    signature = Signature.of({"x": bf16, "y": bf16})
    artifact = made(Request(rows, signature, default_facts(rows), SM90A, Schedule()))
    first, *others = artifact.variants
    assert len(others) == 1
    assert str(first.predicate) == "N <= 128"
    assert [str(bound) for bound in artifact.bounds] == ["N <= 256"]
    kernels = texts(artifact)
    assert recipe_faults(artifact, kernels) == ()
    for faulty in (
        replace(artifact, variants=(replace(first, predicate=TRUE), *others)),
        replace(artifact, variants=(replace(first, predicate=sym("N") <= 129), *others)),
        replace(artifact, bounds=()),
        replace(artifact, bounds=(replace(artifact.bounds[0], limit=257),)),
    ):
        (fault,) = recipe_faults(faulty, kernels)
        assert "asked of no launch" in fault.found


# -- the same in the kernels' texts ------------------------------------------------------------------------------------
def changed_text(artifact: Artifact, change: Callable[[t.Kernel], None]) -> Texts:
    found = {symbol: kernel.clone() for symbol, kernel in texts(artifact).items()}
    change(found[artifact.kernels[-1].symbol])
    return found


def shared(by: int) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        op = [op for op in kernel.body.block.ops if isinstance(op, a.Mbarriers)][-1]
        op.attributes["offset"] = IntAttr(op.offset.data + by)

    return apply


@pytest.mark.parametrize(("found", "by"), [("shared_bytes", 1 << 10), ("mbarriers", -8), ("mbarriers", -1024)])
def test_barriers_lie_apart_and_in_what_is_asked_for(found: str, by: int, clustered: Artifact) -> None:
    faults = recipe_faults(clustered, changed_text(clustered, shared(by)))
    assert found in {fault.field.split(".")[-1] for fault in faults}


def test_buffers_and_barriers_are_aligned(clustered: Artifact) -> None:
    faults = recipe_faults(clustered, changed_text(clustered, shared(4)))
    assert any("multiple of 8" in fault.required for fault in faults)

    def odd(kernel: t.Kernel) -> None:
        op = next(op for op in kernel.body.block.ops if isinstance(op, t.Shared))
        op.attributes["offset"] = IntAttr(op.offset.data + 8)

    assert any("multiple of 16" in fault.required for fault in recipe_faults(clustered, changed_text(clustered, odd)))


@pytest.mark.parametrize(("attribute", "number"), [("first", 1), ("threads", 0), ("threads", 1)])
def test_roles_are_all_threads_of_a_cta(attribute: str, number: int, clustered: Artifact) -> None:
    def moved(kernel: t.Kernel) -> None:
        op = [op for op in kernel.body.block.ops if isinstance(op, a.Role)][number]
        op.attributes[attribute] = IntAttr(op.attributes[attribute].data + 128)

    faults = recipe_faults(clustered, changed_text(clustered, moved))
    assert any(fault.field.endswith("threads") for fault in faults)


def test_a_grid_that_is_no_whole_clusters(clustered: Artifact) -> None:
    def odd(kernel: t.Kernel) -> None:
        for op in kernel.walk():
            if isinstance(op, t.Programs):
                first, *rest = op.extents
                op.attributes["extents"] = ArrayAttr([ExprAttr.of(first.expr + 1), *rest])

    assert any("multiple of 2" in fault.required for fault in recipe_faults(clustered, changed_text(clustered, odd)))


def test_roles_that_walk_other_programs(clustered: Artifact) -> None:
    def other(kernel: t.Kernel) -> None:
        op = [op for op in kernel.walk() if isinstance(op, t.Programs)][-1]
        op.attributes["extents"] = ArrayAttr([ExprAttr.of(e.expr * 2) for e in op.extents])

    faults = recipe_faults(clustered, changed_text(clustered, other))
    assert any(fault.field.endswith("grid") for fault in faults)


def test_a_workspace_that_its_text_makes_too_small(staged: Artifact) -> None:
    """Recipe and texts agree, and the tensor does not fit."""

    def smaller(kernel: t.Kernel) -> None:
        found = [
            t.Workspace(w.tensor, w.index, w.strides, ExprAttr.of(w.size_bytes.expr - 2), w.extents)
            for w in kernel.workspaces
        ]
        kernel.attributes["workspaces"] = ArrayAttr(found)

    kernels = {symbol: kernel.clone() for symbol, kernel in texts(staged).items()}
    for kernel in kernels.values():
        smaller(kernel)
    changed = variant(lambda v: replace(v, workspace=tuple(w - 2 for w in v.workspace)))(staged)
    assert {fault.required for fault in recipe_faults(changed, kernels)} == {"rows that nest and fill them"}


def test_a_grid_one_short_in_the_schedule_is_no_cover(plain: Artifact) -> None:
    """Planted in the lowered kernel, the recipe follows, and the stores do not cover the tensor."""
    planned = plan(scaling()).variants[-1]
    lowered = planned.transport.clone()
    assert isinstance(prove_stores(planned.tile, lowered), Proved)
    (op,) = (op for op in lowered.walk() if isinstance(op, t.Programs))
    first, *rest = op.extents
    op.attributes["extents"] = ArrayAttr([ExprAttr.of(first.expr - 1), *rest])
    assert not isinstance(prove_stores(planned.tile, lowered), Proved)


def test_no_program_leaves_the_compiler_with_another_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    right = building.recipe

    def short(kernels: Any) -> Any:
        found = right(kernels)
        *others, launch = found.steps
        return replace(found, steps=(*others, replace(launch, grid=(launch.grid[0] - 1, *launch.grid[1:]))))

    monkeypatch.setattr(building, "recipe", short)
    with pytest.raises(TilewrightError, match=r"(?s)CRT007.*grid"):
        build(plan(scaling()))


# -- expressions -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("found", "required", "said"),
    [
        ("M*N", "N*M", ""),
        ("(M + 63) // 64", "(M + 63) // 64", ""),
        ("max(M, 1)", "max(1, M)", ""),
        ("(M + 63) // 64", "(M + 64) // 64", "M = 0"),
        ("min(M, 132)", "min(M, 131)", "132 and 131"),
        ("3", "4", "3 and 4"),
        ("M", "max(M, 0)", "not shown"),
        ("M // N", "M // (N + 1)", "at M = "),
    ],
)
def test_expressions_are_the_same_or_not_shown_to_be(found: str, required: str, said: str) -> None:
    why = difference(parse(found), parse(required))
    assert said in why
    assert bool(why) is bool(said)


def test_it_takes_no_time(artifact: Artifact) -> None:
    kernels = texts(artifact)
    bound = 0.05 * len(artifact.variants)
    assert quickest(lambda: recipe_faults(artifact, kernels), bound) < bound


def test_it_shares_nothing_with_what_it_judges() -> None:
    from tilewright.compiler import launch_recipe as ours  # noqa: PLC0415
    from tilewright.validate import expr_equality, launch_recipe, launch_requirements  # noqa: PLC0415

    for module in (expr_equality, launch_requirements, launch_recipe):
        assert "tilewright.compiler" not in inspect.getsource(module)
        assert "parameters_of" not in inspect.getsource(module)
    assert "tilewright.validate" not in inspect.getsource(ours).split('"""', 2)[2]
