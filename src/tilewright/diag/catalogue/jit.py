"""JIT: calls of a kernel and requests to compile one."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

CODES: tuple[Code, ...] = (
    Code(
        "JIT001",
        "the call does not fit the kernel's parameters",
        "Tensors and runtime scalars are positional or named; compile-time keywords are named.",
        bad="softmax(x)",
        good="softmax(x, y)",
        help="pass tensors and runtime scalars in the order of the signature, compile-time keywords by name",
    ),
    Code(
        "JIT002",
        "arguments of different kinds",
        "A kernel runs where its tensors are: all in one GPU's memory, or all NumPy arrays in the simulator.",
        bad="softmax(x_numpy, y_torch)",
        good="softmax(x_numpy, y_numpy)",
    ),
    Code(
        "JIT003",
        "an element type that no kernel has",
        "Kernels compute with f32 f16 bf16 e4m3 e5m2 i8 i32 i64 bool.",
        bad="compile(dtypes={'x': 'float64'})",
        good="compile(dtypes={'x': 'f32'})",
        help="cast the tensor to one of these types before the call",
    ),
    Code(
        "JIT004",
        "an unknown target",
        "Code is generated for the architectures whose limits are rows of hw.target.",
        bad="compile(target='sm_90')",
        good="compile(target='sm_90a')",
        source="tilewright.hw.target",
        help="name one of them, such as sm_90a",
    ),
    Code(
        "JIT005",
        "a part of Tilewright is not installed",
        "pip install tilewright brings what launches compiled kernels. The compiler, the simulator and the provers "
        "need packages that only the extra tilewright[compiler] brings. A kernel needs none of them where its artifact "
        "is in the store or among the shipped ones.",
        bad="softmax(x_numpy, y_numpy), with the runtime alone",
        good="pip install 'tilewright[compiler]', or runtime.load('softmax.bundle').launch((x, y))",
        source="pyproject.toml, optional dependencies",
        help="pip install 'tilewright[compiler]'",
    ),
    Code(
        "JIT006",
        "the simulator runs what the compiler refuses",
        "A kernel is simulated as it was planned and proved. Whether its values fit the registers of a GPU's threads "
        "only the assembler knows; where that is doubtful it is asked once, and what it says comes before the results.",
        bad="a[m], b[n] of 128 x 64 x 64 f32, multiplied by ordinary arithmetic",
        good="a[m].to(tw.tf32), b[n].to(tw.tf32)",
        source="ptxas -v, spilled bytes",
    ),
)
