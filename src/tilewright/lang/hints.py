"""What to write for names of Triton, NumPy and PyTorch that the language has not, or has by another name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from tilewright.diag import Diagnostic, Location, TilewrightError
from tilewright.lang.fns import UnaryFn
from tilewright.lang.places import here

_NONE = "the language has no {}"

FUNCTIONS: dict[str, str] = {
    "load": "index the tensor: row = x[m, n], where m and n are Ranges of tw.grid, tw.stream or tw.axis; no mask",
    "store": "assign to the tensor: y[m, n] = value",
    "program_id": "m = tw.grid(x.shape[0], bm) gives this program's Range; its place is m.start, or m itself with None",
    "num_programs": "the grid follows from tw.grid: one program a block",
    "arange": "coordinates of a Range are m.index; a Range comes from tw.grid, tw.stream or tw.axis",
    "cdiv": "not needed: tw.grid and tw.stream round up; elsewhere -(-a // b)",
    "next_power_of_2": "not needed: tw.axis(extent, upto=4096) covers any extent up to the bound",
    "constexpr": "a parameter after * without a tw annotation is a compile-time value: *, causal=False",
    "jit": "decorate with @tw.kernel",
    "autotune": "block sizes that default to tw.auto are chosen by the schedule",
    "range": "loop with for k in tw.stream(extent, step); Python's range unrolls",
    "static_range": "Python's range unrolls",
    "make_block_ptr": "index the tensor with Ranges: x[m, k]; the compiler plans the copies",
    "advance": "index the tensor with the stream's Range: x[m, k]",
    "make_tensor_descriptor": "index the tensor with Ranges: x[m, k]; the compiler plans tensor maps",
    "atomic_add": "tw.reduce_add(y, (m, n), value)",
    "device_print": 'tw.print("x = {}", x)',
    "debug_barrier": "not needed: the compiler synchronises",
    "multiple_of": "not needed: alignment is read off the arguments",
    "max_contiguous": "not needed: strides are read off the arguments",
    "trans": "x.T, or x.transpose(1, 0)",
    "permute": "x.transpose(1, 0)",
    "expand_dims": "x[:, None]",
    "broadcast_to": "operands broadcast by themselves: x[:, None] + y[None, :]",
    "sum": "x.sum(axis)",
    "max": "x.max(axis), or tw.maximum(a, b) of two values",
    "min": "x.min(axis), or tw.minimum(a, b) of two values",
    "mean": "x.mean(axis)",
    "argmax": "x.argmax(axis)",
    "matmul": "tw.dot(a, b)",
    "mm": "tw.dot(a, b)",
    "addmm": "acc += tw.dot(a, b)",
    "relu": "tw.maximum(x, 0)",
    "silu": "x * tw.sigmoid(x)",
    "gelu": "0.5 * x * (1 + tw.erf(x * 0.7071067811865476))",
    "softmax": "e = tw.exp(x - x.max(1)[:, None]); e / e.sum(1)[:, None]",
    "clamp": "tw.minimum(tw.maximum(x, low), high)",
    "clip": "tw.minimum(tw.maximum(x, low), high)",
    "pow": "x * x, tw.sqrt(x), or tw.exp2(y * tw.log2(x))",
    "square": "x * x",
    "trunc": "x.to(tw.i32).to(tw.f32)",
    "prod": "tw.exp2 of a sum of tw.log2, or a fragment in a stream",
    "any": "x.to(tw.i32).max(axis) > 0",
    "all": "x.to(tw.i32).min(axis) > 0",
    "gather": "index the tensor with an integer tile: x[index[m], n], or x[m.index, index[m]] for one element a row",
    "take": "index the tensor with an integer tile: x[index[m], n]",
    "embedding": "index the table with an integer tile: table[index[m], n]",
    "index_select": "index the tensor with an integer tile: x[index[m], n]",
    "scatter": "tw.reduce_add(y, (index[m], n), value) adds; a plain store at loaded coordinates is refused",
    "scatter_add": "tw.reduce_add(y, (index[m], n), value)",
    "index_add": "tw.reduce_add(y, (index[m], n), value)",
    "roll": "a Range in arithmetic is a coordinate: x[(m + shift) % x.shape[0], n]",
    "flip": "a slice of known extents, x[m, ::-1], or x[x.shape[0] - 1 - m]",
    "pad": "what lies outside a tensor is absent: x[m - 3].fill(0.0)",
    "dot_scaled": "scale what tw.dot gives, or the operands before it",
    "random": "compute a hash of m.index and a seed argument",
    "randn": "compute a hash of m.index and a seed argument",
    "tensor": "numbers are values by themselves; tiles come from tw.full((m, n), value, tw.f32)",
    "array": "numbers are values by themselves; tiles come from tw.full((m, n), value, tw.f32)",
    "fma": "a * b + c: the compiler contracts where a bound allows",
    "zeros_like": "tw.zeros((m, n), tw.f32), by the Ranges of the other value",
    "full_like": "tw.full((m, n), value, tw.f32), by the Ranges of the other value",
    "empty": "tw.zeros((m, n), tw.f32)",
    "cast": "x.to(tw.bf16)",
    "float32": "tw.f32",
    "float": "tw.f32",
    "float16": "tw.f16",
    "half": "tw.f16",
    "bfloat16": "tw.bf16",
    "tfloat32": "tw.tf32",
    "float8e4nv": "tw.e4m3",
    "float8_e4m3fn": "tw.e4m3",
    "float8e5": "tw.e5m2",
    "float8_e5m2": "tw.e5m2",
    "int8": "tw.i8",
    "int32": "tw.i32",
    "int": "tw.i32",
    "int64": "tw.i64",
    "int1": "tw.bool",
    "uint8": "no unsigned types: tw.i8 with & 0xff after .to(tw.i32)",
    "u8": "no unsigned types: tw.i8 with & 0xff after .to(tw.i32)",
    "uint32": "no unsigned types: tw.i64 with & 0xffffffff",
    "u32": "no unsigned types: tw.i64 with & 0xffffffff",
    "float64": "no 64-bit floats: tw.f32",
    "f64": "no 64-bit floats: tw.f32",
    "associative_scan": "tw.scan(fn, x, axis), or tw.scan(fn, (a, b), axis) for states of several tiles",
    "cat": f"{_NONE.format('cat')}: store each part to its own view of the output",
    "reshape": f"{_NONE.format('reshape')}: pass a view of the tensor with the axes that you want",
    "view": f"{_NONE.format('view')}: pass a view of the tensor with the axes that you want",
    "cos": f"{_NONE.format('cos')}: pass a table, or compute a polynomial",
    "sin": f"{_NONE.format('sin')}: pass a table, or compute a polynomial",
}
"""Help by name. What is also a method of values is in ``METHODS``."""

METHODS: dict[str, str] = {
    "sort": "tw.sort(x, axis)",
    "topk": "tw.topk(x, k, axis)",
    "argsort": "tw.argsort(x, axis)",
    **{name: FUNCTIONS[name] for name in ("reshape", "view", "clamp", "clip", "pow", "relu")},
    **{str(f): f"tw.{f}(x)" for f in UnaryFn if f.row.number is not None},
    "astype": "x.to(tw.f32)",
    "type": "x.to(tw.f32)",
    "float": "x.to(tw.f32)",
    "half": "x.to(tw.f16)",
    "bfloat16": "x.to(tw.bf16)",
    "int": "x.to(tw.i32)",
    "item": "values are known when the kernel runs; a runtime scalar is a parameter: *, alpha: tw.f32",
    "numpy": 'tw.print("x = {}", x) shows values; the simulator runs on NumPy arrays',
    "size": ".shape, or x.shape[0] of a dimension",
    "stride": "not needed: strides are read off the arguments",
    "data_ptr": "index the tensor: x[m, n]",
    "t": "x.T",
    "permute": "x.transpose(1, 0)",
    "unsqueeze": "x[:, None]",
    "squeeze": "index the tensor with 0 there, or reduce the axis",
    "flatten": FUNCTIONS["reshape"],
    "expand": FUNCTIONS["broadcast_to"],
    "matmul": "tw.dot(a, b)",
    "dot": "tw.dot(a, b)",
    "softmax": FUNCTIONS["softmax"],
    "argmin": "(-x).argmax(axis)",
    "prod": f"{_NONE.format('prod')}: tw.exp2 of a sum of tw.log2, or a fragment in a stream",
    "any": "x.to(tw.i32).max(axis) > 0",
    "all": "x.to(tw.i32).min(axis) > 0",
    "std": "from x.mean(axis) and the mean of the squares",
    "var": "from x.mean(axis) and the mean of the squares",
    "norm": "tw.sqrt((x * x).sum(axis))",
    "numel": ".shape, or x.shape[0] of a dimension",
    "start": "a tile's place is its Range's: m.start; where a block is None, m is the index itself",
    "stop": "a tile's place is its Range's: m.stop; where a block is None, m is the index itself, and ends at m + 1",
    "index": "coordinates are the Range's: m.index; where a block is None, m is the index itself",
    "square": "x * x",
    "contiguous": "not needed: strides are read off the arguments",
    "cuda": "a kernel runs where its tensors are",
    "cpu": "a kernel runs where its tensors are",
    "step": "the step given to tw.stream is the Range's .size",
}
"""Help by name of an attribute of a tile, tensor or Range."""


class NoSuchNameError(TilewrightError, AttributeError):
    """A name that the language has not: a diagnostic for people, an AttributeError for ``hasattr``."""


def no_such_name(
    whose: str, name: str, help: Mapping[str, str], known: Iterable[str], where: Location | None = None
) -> NoSuchNameError:
    """LNG034, by default at the line of the kernel that is traced, with what to write instead."""
    near = difflib.get_close_matches(name, [k for k in known if not k.startswith("_")], n=2, cutoff=0.7)
    guess = f"did you mean {' or '.join(near)}?" if near else ""
    told, required = help.get(name, guess), "a name of the language"
    found = Diagnostic("LNG034", where=where or here(), found=whose + name, required=required, help=told)
    return NoSuchNameError((found,))
