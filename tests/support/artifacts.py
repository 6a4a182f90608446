"""Small artifacts for tests of the bundle, the runtime and the command line."""

from __future__ import annotations

from dataclasses import replace

from tilewright.artifact.descriptor import TensorMapRecipe
from tilewright.artifact.schema import (
    CHECKED,
    AccessMode,
    ArgumentBound,
    Artifact,
    Copy,
    EncodeTensorMap,
    Fill,
    FloatScalar,
    IntScalar,
    KernelImage,
    Launch,
    Obligation,
    PromiseReport,
    ScalarArgument,
    TensorArgument,
    TensorMapArg,
    TensorPointer,
    Toolchain,
    Variant,
    WorkspacePointer,
)
from tilewright.base.expr import TRUE, Const, ceildiv, parse, sym
from tilewright.hw.tensormap import DataType, L2Promotion, Swizzle

M, N = sym("M"), sym("N")


def scale() -> Artifact:
    """y[m, n] = alpha * x[m, n] with a contiguous inner axis of at most 4096, narrow and wide variants."""
    args = (
        TensorPointer("x"),
        TensorPointer("y"),
        IntScalar(sym("x.stride0"), 64),
        IntScalar(M),
        IntScalar(N),
        FloatScalar("alpha"),
        IntScalar(sym("n")),
    )
    return Artifact(
        name="scale",
        target="sm_90a",
        parameters=(
            TensorArgument("x", "bf16", (M, N), AccessMode.READ),
            TensorArgument("y", "bf16", (M, N), AccessMode.WRITE),
            ScalarArgument("alpha", "f32"),
            ScalarArgument("n", "i32"),
        ),
        facts=(parse("x.stride1 == 1"), parse("x.address % 16 == 0")),
        bounds=(ArgumentBound("N", 4096),),
        variants=(
            Variant("narrow", parse("N <= 128"), (Launch("scale_narrow", (ceildiv(M, 4), Const(1), Const(1)), args),)),
            Variant("wide", TRUE, (Launch("scale_wide", (M, Const(1), Const(1)), args),), plan="one row a CTA"),
        ),
        kernels=(
            KernelImage(
                "scale_narrow", 128, b"\x7fELF narrow", "// narrow\n", ".version 9.0\n", "transport", registers=32
            ),
            KernelImage(
                "scale_wide",
                256,
                b"\x7fELF wide",
                "// wide\n",
                shared_bytes=65536,
                certificate=(Obligation("cover", "isl", "every element once"), Obligation("guards", "isl")),
            ),
        ),
        toolchain=(Toolchain("nvrtc", "13.0.88"),),
        plan=("two variants by row length",),
        schedule="Schedule()",
        tile_ir="tile.func @scale",
    )


def staged() -> Artifact:
    """A program with every kind of step: fill a workspace, encode a descriptor, launch, copy the result out."""
    recipe = TensorMapRecipe(
        DataType.BFLOAT16,
        sym("a.address"),
        (N, M),
        (sym("a.stride0") * 2,),
        (64, 128),
        (1, 1),
        swizzle=Swizzle.B128,
        l2_promotion=L2Promotion.L2_256B,
    )
    return Artifact(
        name="staged",
        target="sm_90a",
        parameters=(
            TensorArgument("a", "bf16", (M, N), AccessMode.READ),
            TensorArgument("out", "f32", (M,), AccessMode.WRITE),
        ),
        variants=(
            Variant(
                "only",
                TRUE,
                (
                    Fill(WorkspacePointer(0), 0, 4, M),
                    EncodeTensorMap(0, recipe),
                    Launch(
                        "staged", (M, Const(1), Const(1)), (TensorMapArg(0), WorkspacePointer(0, M * 0), IntScalar(M))
                    ),
                    Copy(WorkspacePointer(0), TensorPointer("out"), M * 4),
                ),
                workspace=(M * 4,),
            ),
        ),
        kernels=(KernelImage("staged", 128, b"\x7fELF staged", cluster=(2, 1, 1)),),
    )


def promised() -> Artifact:
    """A program that relies on two promises: steps count in a workspace of the call, and in one that outlives it."""
    counts, failed = WorkspacePointer(0), WorkspacePointer(1)
    return Artifact(
        name="promised",
        target="sm_90a",
        parameters=(
            TensorArgument("rows", "i32", (N,), AccessMode.READ),
            TensorArgument("offsets", "i64", (M + 1,), AccessMode.READ),
            TensorArgument("out", "f32", (N,), AccessMode.WRITE),
        ),
        facts=(parse("rows.stride0 == 1"),),
        variants=(
            Variant(
                "only",
                TRUE,
                (
                    Fill(counts, 0, 4, N),
                    Launch(
                        "count", (ceildiv(N, 128), Const(1), Const(1)), (TensorPointer("rows"), counts, IntScalar(N))
                    ),
                    Launch("judge", (Const(1), Const(1), Const(1)), (TensorPointer("offsets"), counts, failed)),
                    Launch("store", (N, Const(1), Const(1)), (counts, TensorPointer("out"))),
                ),
                workspace=(N * 4, Const(8)),
                certificate=(Obligation("unique(rows)", CHECKED),),
                reports=(PromiseReport(1, ("unique(rows)", "offsets(offsets)")),),
            ),
        ),
        kernels=tuple(KernelImage(name, 128, b"\x7fELF " + name.encode()) for name in ("count", "judge", "store")),
    )


def renamed(artifact: Artifact, name: str) -> Artifact:
    """The same program under another name."""
    return replace(artifact, name=name)
