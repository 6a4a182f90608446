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
        "Kernels compute with f32 f16 bf16 e4m3 e5m2 i8 i16 i32 i64 u8 u16 u32 bool.",
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
    Code(
        "JIT007",
        "a result that cannot be allocated",
        "A call may leave out the tensors that the kernel only writes. They are allocated with the extents that the "
        "other tensors give to their dimensions, by the library that these come from.",
        bad='column_sums(x), where y is of ["P", "N"] and no other tensor has P',
        good="column_sums(x, torch.empty(16, 512, device=x.device))",
        source="tilewright.jit.outputs",
        help="allocate the result and pass it",
    ),
    Code(
        "JIT008",
        "a kernel does not do with a tensor what its source shows",
        "Results that a call leaves out, and the mutated arguments of a PyTorch operator, are read from the stores in "
        "the kernel's source. The compiled program is compared with them: a result that it never writes would come "
        "back with whatever its memory held.",
        bad="if causal: y[m] = x[m], called as y = kernel(x)",
        good="y[m] = tw.where(keep, x[m], 0)",
        source="tilewright.jit.outputs",
        help="write results by their parameters' own names, on every path",
    ),
    Code(
        "JIT009",
        "a kernel that cannot be an operator of PyTorch",
        "An operator has a schema: its tensors, numbers and flags, and which tensors it returns or changes. All of it "
        "is read from the kernel's signature and source, the rest is declared to @tw.op.",
        bad="@tw.op of a kernel that reads and writes its parameter cache",
        good='@tw.op(mutates=("cache",))',
        source="tilewright.ops.signature",
    ),
    Code(
        "JIT010",
        "an operator's arguments",
        "An operator takes its tensors in the order of the kernel's signature, its numbers and flags behind them or by "
        "name. Its results have the shapes and dtypes that the signature says, wherever they are computed.",
        bad="rms_norm(x, w.unsqueeze(0))",
        good="rms_norm(x, w)",
        source="tilewright.ops.signature",
    ),
    Code(
        "JIT011",
        "no gradient",
        "An operator has the gradients that its backward computes. Without one, and of what the backward itself "
        "computes, there is none; a zero, or nothing, would be a wrong gradient.",
        bad="torch.autograd.grad(ops.rms_norm(x, w).sum(), x, create_graph=True)[0].sum().backward()",
        good="@tw.op(backward=softmax_backward)",
        source="tilewright.ops.gradients",
        help="give @tw.op a backward, detach the tensor, or call the operator under torch.no_grad()",
    ),
    Code(
        "JIT012",
        "a pack plan that cannot be made or used",
        "A plan shares rows out to buckets by integers of (tokens,) or (tokens, choices). Buckets, alignment and "
        "capacity are numbers that the host knows; rows and weights that are packed and unpacked have the extents that "
        "the plan has.",
        bad="tw.build_pack_plan(expert_ids.float(), 128)",
        good="tw.build_pack_plan(expert_ids, 128, tw.PackPolicy(align=128))",
        source="tilewright.ops.packing",
    ),
    Code(
        "JIT013",
        "schedules that cannot be timed",
        "Launches are timed on the GPU that holds the tensors, by schedules of the kernel.",
        bad="product.tune(numpy_a, numpy_b, numpy_c)",
        good="product.tune(a, b, c, best=8)   # CUDA tensors",
        source="tilewright.jit.tuning",
        help="without a GPU, plan(schedule=...) and explain() show what a schedule leads to",
    ),
)
