"""RUN: what a launch refuses: its arguments, its device, or an error of the driver."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_RULES = "Tilewright launch rules, tilewright.runtime"
_DRIVER = "CUDA Driver API"

CODES: tuple[Code, ...] = (
    Code(
        "RUN001",
        "an argument is not a tensor the runtime can describe",
        "A launch needs an address, extents, strides and a dtype. It reads them from data_ptr/stride/shape/dtype (as "
        "PyTorch has), from __cuda_array_interface__, or from __dlpack__.",
        bad="kernel([1.0, 2.0], y)",
        good="kernel(torch.tensor([1.0, 2.0], device='cuda'), y)",
        source=_RULES,
        help="pass a PyTorch, CuPy or JAX array, or anything with DLPack",
    ),
    Code(
        "RUN002",
        "an argument is missing or unknown",
        "Each parameter of the kernel gets exactly one argument, by position or by name.",
        bad="program.launch({'x': x, 'z': z})",
        good="program.launch({'x': x, 'y': y})",
        source=_RULES,
        help="pass each parameter once, by position or by name",
    ),
    Code(
        "RUN003",
        "a tensor has the wrong rank",
        "The annotation fixes the number of dimensions; the kernel's address arithmetic has one stride for each.",
        bad='x: tw.Tensor["M", "N"] called with x of shape (4, 8, 16)',
        good='x: tw.Tensor["M", "N"] called with x.flatten(0, 1)',
        source=_RULES,
        help="reshape the tensor, or give the annotation as many dimensions as it has",
    ),
    Code(
        "RUN004",
        "a tensor has the wrong dtype",
        "The compiled kernel reads the bytes as the dtype it was compiled for. Another dtype needs another compile.",
        bad="a program compiled for bf16, launched with x of float32",
        good="launched with x.to(torch.bfloat16)",
        source=_RULES,
        help="cast the tensor, or compile the kernel for this dtype",
    ),
    Code(
        "RUN005",
        "dimensions of the same name disagree",
        "A name that occurs twice states that the extents are equal; the certificate assumes it.",
        bad='a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"] with a of (64, 128), b of (32, 127)',
        good="b of (32, 128)",
        source=_RULES,
        help="pass tensors whose dimensions of one name agree, or name them apart in the annotations",
    ),
    Code(
        "RUN006",
        "a dimension differs from the extent that the annotation gives",
        "An integer in the annotation, or a dimension compiled with --static, is a constant in the kernel; of an "
        'expression such as "2*N" or "H*D" other dimensions give the value.',
        bad='q: tw.Tensor["S", 128] with q of (512, 64)',
        good='q: tw.Tensor["S", 64]',
        source=_RULES,
        help="pass a tensor of that extent, or annotate the one that it has",
    ),
    Code(
        "RUN007",
        "a dimension is beyond its bound",
        "The axis was declared upto= a limit, and the kernel's tile was sized for that limit.",
        bad="upto=4096 with 4097 columns",
        good="upto=8192, or a stream over the axis",
        source=_RULES,
    ),
    Code(
        "RUN008",
        "the arguments are outside the class this artifact was compiled for",
        "An artifact serves arguments for which its facts hold (alignment, unit stride, offsets within 32 bits). The "
        "code uses them: a 16-byte load from an address that is not a multiple of 16 faults.",
        bad="a program compiled with x.address % 16 == 0, launched with x[1:]",
        good="call the kernel itself, which compiles one artifact per class",
        source=_RULES,
        help="call the kernel itself, which compiles one artifact per class, or compile with facts= of these tensors",
    ),
    Code(
        "RUN009",
        "elements of an output overlap",
        "Two elements at one address (a stride of zero, or strides that fold) would be written by two threads; which "
        "value stays is undefined. The certificate assumes that every element has its own bytes.",
        bad="out = torch.empty(1, 8, device='cuda').expand(4, 8)",
        good="out = torch.empty(4, 8, device='cuda')",
        source=_RULES,
        help="pass an output in which every element has an address of its own: torch.empty, not an expanded view",
    ),
    Code(
        "RUN010",
        "arguments share bytes and one of them is written",
        "The kernel may write an element before another thread has read the same bytes through the other argument. A "
        "tensor that is read and written at the same place is one parameter, not two.",
        bad="add(x, y, x)",
        good="add(x, y, torch.empty_like(x)), or a kernel that updates its parameter in place",
        source=_RULES,
    ),
    Code(
        "RUN011",
        "the tensors are not on one GPU",
        "All tensors of a launch must be in the memory of the device that runs it.",
        bad="kernel(x.to('cuda:0'), y.to('cuda:1'))",
        good="kernel(x, y.to(x.device))",
        source=_RULES,
        help="move all tensors to one device before the call",
    ),
    Code(
        "RUN012",
        "the artifact was compiled for another architecture",
        "A cubin runs on the compute capability it was assembled for: those with the suffix a on exactly that one, "
        "others on the same major version with an equal or higher minor.",
        bad="a bundle for sm_100a on an H200",
        good="tilewright compile kernel.py:add --target sm_90a --out add.bundle",
        source="CUDA C++ Programming Guide, Compute Capabilities",
    ),
    Code(
        "RUN013",
        "no GPU driver",
        "Launching needs libcuda and a device. Everything else (compiling, checking, simulating) works without.",
        bad="tilewright run add.bundle on a machine without a GPU",
        good="call the kernel with NumPy arrays, which runs the simulator",
        source=_DRIVER + ", cuInit",
    ),
    Code(
        "RUN014",
        "the CUDA driver refused a call",
        "The driver returned an error. One that appears after kernels have run may stem from an earlier launch, since "
        "launches are asynchronous.",
        bad="a launch after an illegal memory access",
        good="CUDA_LAUNCH_BLOCKING=1 finds the launch that caused it",
        source=_DRIVER + ", CUresult",
        help="CUDA_LAUNCH_BLOCKING=1 finds the launch that caused it",
    ),
    Code(
        "RUN015",
        "no variant of the program covers these arguments",
        "Each variant states for which extents it runs, and the arguments satisfy none.",
        bad="a program whose only variant has N <= 1024, launched with N = 2000",
        good="compile without the schedule that limits N",
        source=_RULES,
        help="compile without the pin or the bound that leaves these extents out",
    ),
    Code(
        "RUN016",
        "a scalar argument has the wrong type or does not fit",
        "A scalar is passed by value in its declared dtype.",
        bad="n: tw.i32 called with n=2**31",
        good="n: tw.u32",
        source=_RULES,
        help="pass a number of the declared type, or declare a wider one",
    ),
    Code(
        "RUN017",
        "a size is outside what a launch can carry",
        "Grid extents have limits (2^31 - 1 in x, 65535 in y and z), and an integer argument must fit its width.",
        bad="a grid of 70000 in y",
        good="put the long axis first",
        source="CUDA C++ Programming Guide, Technical Specifications per Compute Capability",
        help="split the call, or put the long axis first in the grid",
    ),
    Code(
        "RUN018",
        "not a stream",
        "stream is None (the legacy default stream), a handle as int, or an object with __cuda_stream__.",
        bad="kernel(x, y, stream='main')",
        good="kernel(x, y, stream=torch.cuda.current_stream().cuda_stream)",
        source=_RULES,
        help="pass None, a handle, or an object with __cuda_stream__, such as a stream of PyTorch",
    ),
    Code(
        "RUN019",
        "a read-only array is written",
        "The array's owner marked it read-only, and the kernel stores to it.",
        bad="an output whose __cuda_array_interface__ says data = (pointer, True)",
        good="an array of your own",
        source="CUDA Array Interface, version 3, data",
        help="pass a copy that may be written",
    ),
    Code(
        "RUN020",
        "the driver refused a tensor map",
        "The descriptor's fields (address, extents, strides, box) break a rule of the hardware. The compiler proves "
        "them legal for the whole class, so this is an error of the artifact.",
        bad="a global stride that is not a multiple of 16 bytes",
        good="compile the kernel again with this version of Tilewright",
        source=_DRIVER + ", cuTensorMapEncodeTiled",
        help="compile the kernel again with this version of Tilewright",
    ),
    Code(
        "RUN021",
        "the kernel for these arguments could not be compiled",
        "A program has kernels for several classes of arguments. Where one of them can't be compiled (its values don't "
        "fit the registers, its tiles the shared memory), the others still are, and the program says which class was "
        "left out and why.",
        bad="a softmax whose rows are one tile, upto=65536 of f32, launched with N = 65536",
        good="launched with N = 32768; or a kernel that streams over its rows",
        source=_RULES,
        help="use smaller tiles, or stream over the long axis with tw.stream",
    ),
    Code(
        "RUN022",
        "an axis is too long",
        "Coordinates are 32-bit integers. An axis of at most 2^31 - 2^21 elements leaves room for a whole tile behind "
        "its end, so that no coordinate of a kernel wraps around.",
        bad="x of shape (2147483000,) for x: tw.Tensor['M']",
        good="the same elements as (M // 4096, 4096) and the rest",
        source=_RULES,
        help="give the axis two dimensions, or call the kernel on parts of it",
    ),
    Code(
        "RUN023",
        "a promise about a tensor does not hold",
        "A kernel relies on integers in a tensor (tw.Unique). Steps before it check them at each launch; where they "
        "find the promise broken nothing is stored, and a later call, or tw.check(), raises this.",
        bad="rows = [3, 5, 3] for rows: tw.Unique['M'], and y[rows[m], n] = x[m, n]",
        good="rows = [3, 5, 4]",
        source=_RULES,
        help="add with tw.reduce_add, or correct the tensor",
    ),
)
