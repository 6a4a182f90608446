"""A class of arguments whose kernel can't be compiled is left out and named; what is pinned, or all, is refused."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright as tw
from tilewright.artifact.bundle import from_bytes, to_bytes
from tilewright.artifact.schema import ArgumentBound, Artifact, Obligation
from tilewright.base.expr import Sym
from tilewright.cli.commands import app
from tilewright.codegen.assemble import Assembled
from tilewright.codegen.cuda import Emitted
from tilewright.compiler import build as build_room
from tilewright.compiler import products as products_room
from tilewright.compiler.planned import PlannedProgram
from tilewright.diag import TilewrightError
from tilewright.jit import arrays
from tilewright.runtime import check
from tilewright.runtime.arguments import TensorDescription
from tilewright.transport.dialect import Kernel

pytestmark = pytest.mark.sample(1)

EXAMPLES = Path(__file__).parents[2] / "examples"
N, K = Sym("N"), Sym("K")


@tw.kernel
def centred(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, upto: int = 1024):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=upto)
    y[m, n] = x[m, n] - x[m, n].mean(1)[:, None]


@tw.kernel
def turned(x: tw.Tensor["M", "N"], y: tw.Tensor["N", "M"], *, upto: int = 8192):
    m, n = tw.grid(x.shape[0], 8), tw.axis(x.shape[1], upto=upto)
    y[n, m] = x[m, n].T


@tw.kernel
def turned_often(x: tw.Tensor["M", "N"], y: tw.Tensor["B", "N", "M"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(x, (bm, bn))
    for b in range(8):
        y[b, n, m] = x[m, n].T * b


@tw.kernel
def product(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    m, n = tw.grid(c, (64, 64))
    k = tw.axis(a.shape[1], upto=256)
    c[m, n] = tw.dot(a[m, k], b[n, k].T)


def spilling(names: Collection[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An assembler that spills in the kernels of these names, whatever their schedule."""

    def assembled(source: str, arch: str, name: str) -> Assembled:
        return Assembled("", b"cubin", 255, 96 if name.removeprefix("kernel_") in names else 0, 0, "")

    monkeypatch.setattr(build_room, "assemble", assembled)


def planned(kernel: tw.Kernel, dtypes: dict[str, str] | None = None, **options: object) -> PlannedProgram:
    compiled = kernel.compiled
    return compiled._plan(compiled._ahead("sm_90a", dtypes, None, options.pop("schedule", None), None, options))


def built(kernel: tw.Kernel, **options: object) -> Artifact:
    return build_room.build(planned(kernel, **options))


def tensors(artifact: Artifact, rows: int, columns: int) -> dict[str, TensorDescription]:
    extents = {"M": rows, "N": columns}
    shapes = {t.name: [extents[str(d)] for d in t.dims] for t in artifact.tensors}
    # far apart, so that none overlaps another
    return {
        name: replace(arrays.describe(name, np.empty(shape, np.float32)), address=i << 30)
        for i, (name, shape) in enumerate(shapes.items())
    }


def test_the_widest_class_is_left_out_and_the_bound_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    spilling(["centred_2"], monkeypatch)
    artifact = built(centred)
    assert [v.name for v in artifact.variants] == ["centred_0", "centred_1"]
    assert [k.symbol for k in artifact.kernels] == ["kernel_centred_0", "kernel_centred_1"]
    assert artifact.bounds == (ArgumentBound("N", 512),)
    (left,) = artifact.left_out
    assert left.predicate == (N <= 1024)
    assert "96 bytes spilled" in left.reason
    assert "CGN002" in left.reason
    symbols = check(artifact, tensors(artifact, 3, 512), {})
    assert any(v.predicate.evaluate(symbols) for v in artifact.variants)
    with pytest.raises(TilewrightError, match="RUN021") as caught:
        check(artifact, tensors(artifact, 3, 513), {})
    for words in ("N = 513", "N <= 512", "no kernel if N <= 1024: 96 bytes spilled", "tw.stream"):
        assert words in str(caught.value)
    with pytest.raises(TilewrightError, match="RUN007"):  # so many were never asked for
        check(artifact, tensors(artifact, 3, 1025), {})
    assert from_bytes(to_bytes(artifact), "here") == artifact


def test_several_classes_are_left_out_but_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    spilling(["centred_1", "centred_2"], monkeypatch)
    artifact = built(centred)
    assert [v.name for v in artifact.variants] == ["centred_0"]
    assert artifact.bounds == (ArgumentBound("N", 128),)
    assert [left.predicate for left in artifact.left_out] == [N <= 512, N <= 1024]
    spilling(["centred_0", "centred_1", "centred_2"], monkeypatch)
    with pytest.raises(TilewrightError, match="CGN002"):
        built(centred)


def test_a_class_in_between_is_taken_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    spilling(["centred_1"], monkeypatch)
    artifact = built(centred)
    assert artifact.bounds == (ArgumentBound("N", 1024),)
    symbols = check(artifact, tensors(artifact, 3, 300), {})
    assert [v.name for v in artifact.variants if v.predicate.evaluate(symbols)] == ["centred_2"]
    assert [left.predicate for left in artifact.left_out] == [N <= 512]


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        ({"schedule": tw.Schedule(warps=4)}, "warps=4"),
        ({"schedule": tw.Schedule(extents={"bm": 2})}, "@bm=2"),
        ({"bm": 2}, "bm=2"),
    ],
)
def test_what_is_pinned_is_refused(pins: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spilling(["centred_2"], monkeypatch)
    with pytest.raises(TilewrightError, match="CGN002") as caught:
        built(centred, **pins)
    assert f"pinned is {said}, which fails where N <= 1024" in str(caught.value)
    assert len(built(centred, upto=1000).left_out) == 1  # a size of the kernel, no pin


def test_what_no_class_can_help_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = build_room.emit_kernel

    def emitted(kernel: Kernel, *, debug: bool) -> Emitted:
        found = emit(kernel, debug=debug)
        return replace(found, source="nonsense") if found.entry == "kernel_centred_2" else found

    monkeypatch.setattr(build_room, "emit_kernel", emitted)
    with pytest.raises(TilewrightError, match="CGN001") as caught:
        built(centred)
    assert caught.value.diagnostics[0].where == centred.where


def test_a_class_that_takes_more_shared_memory_than_there_is() -> None:
    """Eight rows that are turned over: of 8192 f32 they are 256 KB."""
    program = planned(turned)
    (left,) = program.left_out
    assert left.predicate == (N <= 8192)
    assert "263168 bytes of shared memory; required: at most 232448" in left.reason
    assert program.variants[-1].predicate == (N <= 5120)
    assert f"left out: {left}" in turned.explain()
    with pytest.raises(TilewrightError, match="CGN003"):
        planned(turned, schedule=tw.Schedule(warps=8))


def test_smaller_tiles_are_taken_where_shared_memory_is_short() -> None:
    (variant,) = planned(turned_often, {"x": "i64", "y": "i64"}).variants
    assert variant.transport.shared_bytes is not None
    assert 116_000 < variant.transport.shared_bytes.data <= 232_448


def test_a_class_of_products_without_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    prove = products_room.prove

    def proved(kernel: object, lowered: object, judged: object) -> tuple[Obligation, ...] | str:
        name = lowered.sym_name.data  # pyright: ignore[reportAttributeAccessIssue]
        return "it is open" if name == "product_1" else prove(kernel, lowered, judged)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(products_room, "prove", proved)
    program = planned(product, dict.fromkeys("abc", "bf16"))
    (left,) = program.left_out
    assert left.predicate == (K <= 256)
    assert "SCH001" in left.reason
    assert [v.transport.sym_name.data for v in program.variants] == ["product_0", "product_no_steps"]  # of K == 0
    with pytest.raises(TilewrightError, match="SCH001"):
        planned(product, dict.fromkeys("abc", "bf16"), schedule=tw.Schedule(consumers=1))


def test_rows_of_65536_f32_do_not_fit_the_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from softmax import softmax  # pyright: ignore[reportMissingImports]  # noqa: PLC0415

    program = planned(softmax)
    artifact = build_room.build(replace(program, variants=program.variants[-2:]))
    assert artifact.bounds == (ArgumentBound("N", 32768),)
    assert "bytes spilled with 1024 threads a CTA" in artifact.left_out[0].reason


def test_the_command_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spilling(["softmax_2"], monkeypatch)
    file, out = str(EXAMPLES / "softmax.py"), str(tmp_path / "out")
    result = CliRunner().invoke(app, ["compile", f"{file}:softmax", "--set", "upto=1024", "--out", out])
    assert result.exit_code == 0
    assert "left out: no kernel if N <= 1024: 96 bytes spilled" in result.output
    assert "2 kernel(s)" in result.output
    shown = CliRunner().invoke(app, ["show", "bundle", out, "--part", "plan"])
    assert "left out\n  no kernel if N <= 1024" in shown.output
    assert "  N <= 512\n" in shown.output
