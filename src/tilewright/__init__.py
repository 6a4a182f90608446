"""Tilewright: a compiler, verifier and runtime for GPU tile kernels.

``import tilewright as tw`` loads the language only; the compiler, the runtime and their dependencies load on first use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cached_property
from math import inf, nan
from typing import TYPE_CHECKING, Any, NoReturn, overload

from tilewright.base.dtypes import bf16, e4m3, e5m2, f16, f32, i8, i16, i32, i64, tf32, u8, u16, u32
from tilewright.base.dtypes import bool_ as bool
from tilewright.diag import Diagnostic, TilewrightError, fail
from tilewright.lang.builtins import (
    axis,
    clipped,
    dot,
    full,
    grid,
    ragged_grid,
    reduce_add,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    stream,
    zeros,
)
from tilewright.lang.builtins import print_ as print
from tilewright.lang.elementwise import abs_ as abs
from tilewright.lang.elementwise import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitcast,
    cbrt,
    ceil,
    clamp,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    fma,
    fmod,
    hypot,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    maximum,
    minimum,
    present,
    reciprocal,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
    where,
)
from tilewright.lang.elementwise import pow_ as pow
from tilewright.lang.elementwise import round_ as round
from tilewright.lang.params import KernelFunction, auto, read_kernel, refuse_options
from tilewright.lang.random import philox, rand
from tilewright.lang.scans import cummax, cummin, cumprod, cumsum, scan
from tilewright.lang.schedule import Schedule
from tilewright.lang.search import searchsorted, take
from tilewright.lang.sorts import argsort, histogram, sort, topk
from tilewright.lang.tensors import Offsets, Tensor, Unique
from tilewright.lang.values import Fragment, Range, Scalar, Tile
from tilewright.ops.packing.policy import KEEP_ALL, PackPolicy

if TYPE_CHECKING:
    from tilewright import jit

__version__ = "0.1.0.dev0"

__all__ = [
    "Diagnostic",
    "Fragment",
    "Kernel",
    "Offsets",
    "PackPolicy",
    "Range",
    "Scalar",
    "Schedule",
    "Tensor",
    "Tile",
    "TilewrightError",
    "Unique",
    "abs",
    "acos",
    "acosh",
    "argsort",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "auto",
    "axis",
    "bf16",
    "bitcast",
    "bool",
    "build_pack_plan",
    "cbrt",
    "ceil",
    "check",
    "clamp",
    "clipped",
    "cos",
    "cosh",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "dot",
    "e4m3",
    "e5m2",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "f16",
    "f32",
    "floor",
    "fma",
    "fmod",
    "full",
    "grid",
    "histogram",
    "hypot",
    "i8",
    "i16",
    "i32",
    "i64",
    "inf",
    "isfinite",
    "isinf",
    "isnan",
    "kernel",
    "log",
    "log1p",
    "log2",
    "log10",
    "maximum",
    "minimum",
    "nan",
    "op",
    "pack",
    "patch",
    "philox",
    "pow",
    "present",
    "print",
    "ragged_grid",
    "rand",
    "reciprocal",
    "reduce_add",
    "reduce_and",
    "reduce_max",
    "reduce_min",
    "reduce_or",
    "round",
    "rsqrt",
    "scan",
    "searchsorted",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sort",
    "sqrt",
    "square",
    "stream",
    "take",
    "tan",
    "tanh",
    "tf32",
    "topk",
    "trunc",
    "u8",
    "u16",
    "u32",
    "unpack",
    "where",
    "zeros",
]


def op(kernel: Any = None, **declared: Any) -> Any:
    """Make a kernel an operator of PyTorch, above ``@tw.kernel``; see ``tilewright.ops.registration.op``."""
    from tilewright.ops import registration  # noqa: PLC0415 - PyTorch loads with it

    return registration.op(kernel, **declared) if kernel is not None else registration.op(**declared)


def check() -> None:
    """Wait for the launches so far, and raise RUN023 if one of them broke a promise about its tensors."""
    from tilewright import runtime  # noqa: PLC0415 - the language must not load the runtime

    runtime.index_promises.check()


def build_pack_plan(indices: Any, buckets: int, policy: PackPolicy = KEEP_ALL, *, unique: Any = False) -> Any:
    """Where rows go that are packed by bucket; see ``tilewright.ops.packing.plan.build_pack_plan``."""
    from tilewright.ops.packing import plan  # noqa: PLC0415 - its kernels load with it

    return plan.build_pack_plan(indices, buckets, policy, unique=unique)


def pack(plan: Any, x: Any) -> Any:
    """Rows at their packed places; see ``tilewright.ops.packing.moving.pack``."""
    from tilewright.ops.packing import moving  # noqa: PLC0415 - its kernels load with it

    return moving.pack(plan, x)


def unpack(plan: Any, y: Any, weights: Any = None, added: Any = None) -> Any:
    """Packed rows added up by token; see ``tilewright.ops.packing.moving.unpack``."""
    from tilewright.ops.packing import moving  # noqa: PLC0415 - its kernels load with it

    return moving.unpack(plan, y, weights, added)


def patch(model: Any, **wanted: Any) -> Any:
    """Replace what operators can compute in a ``torch.nn.Module``; see ``tilewright.ops.patching.patch``."""
    from tilewright.ops import patching  # noqa: PLC0415 - PyTorch loads with it

    return patching.patch(model, **wanted)


if not TYPE_CHECKING:  # a type checker knows the names

    def __getattr__(name: str):
        """Names of other languages are refused with what to write here."""
        if name.startswith("_"):
            raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
        from tilewright.lang import hints, source_locations  # noqa: PLC0415 - for a mistake only

        where = source_locations.location(sys._getframe(1))
        raise hints.no_such_name("tw.", name, hints.FUNCTIONS, __all__, where)


class Kernel(KernelFunction):
    """A kernel that compiles on first use: ``kernel(x, y)``, ``kernel.compile(...)``, ``kernel.explain()``.

    It has its function's name, documentation and signature, and is pickled by name, as functions are.
    """

    def __init__(self, read: KernelFunction) -> None:
        super().__init__(
            read.fn, read.name, read.params, read.numerics, read.where, read.on_out_of_range, read.sentinel
        )
        names = ("__module__", "__name__", "__qualname__", "__doc__")
        self.__dict__.update({name: getattr(self.fn, name) for name in names}, __wrapped__=self.fn)

    def __repr__(self) -> str:
        return f"<kernel {self.name} at {self.where}>"

    def __reduce__(self) -> str:
        return self.fn.__qualname__

    @cached_property
    def compiled(self) -> jit.Kernel:
        """The object that compiles, stores, launches and explains; the compiler's rooms load with it."""
        from tilewright import jit  # noqa: PLC0415 - the language must not load the compiler

        return jit.Kernel(self)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run on the arguments' device, arrays of the host in the simulator; returns the results that were left out."""
        return self.compiled(*args, **kwargs)

    def __getitem__(self, grid: object) -> NoReturn:
        """A launch as in Triton is refused with what to write."""
        fail(
            "JIT001",
            found=f"{self.name}[...], a grid given to the launch",
            required=f"{self.name}({', '.join(p.name for p in (*self.tensors, *self.scalars))})",
            help="the grid is what tw.grid says in the body: call the kernel with its arguments",
        )

    def compile(self, *args: Any, **options: Any) -> Any:
        """Compile without running; see ``tilewright.jit.Kernel.compile``."""
        return self.compiled.compile(*args, **options)

    def plan(self, *args: Any, **options: Any) -> Any:
        """The variants before code is generated; see ``tilewright.jit.Kernel.plan``."""
        return self.compiled.plan(*args, **options)

    def explain(self, *args: Any, **options: Any) -> Any:
        """The plan with its reasons; see ``tilewright.jit.Kernel.explain``."""
        return self.compiled.explain(*args, **options)

    def tune(self, /, *args: Any, **options: Any) -> Any:
        """Time schedules on a call's CUDA tensors and keep the quickest; see ``tilewright.jit.Kernel.tune``."""
        return self.compiled.tune(*args, **options)


@overload
def kernel(fn: Callable[..., None]) -> Kernel: ...
@overload
def kernel(
    *, numerics: str = "accurate", on_out_of_range: str = "skip", sentinel: int = -1
) -> Callable[[Callable[..., None]], Kernel]: ...
def kernel(
    fn: Callable[..., None] | None = None,
    *more: object,
    numerics: str = "accurate",
    on_out_of_range: str = "skip",
    sentinel: int = -1,
    **unknown: object,
) -> Kernel | Callable[[Callable[..., None]], Kernel]:
    """Decorate a function as a kernel. Its body is traced when it is first compiled, never called directly.

    ``numerics`` is the policy for float arithmetic: ``accurate`` rounds each operation as written, but computes
    exponentials of differences of computed values by base 2 within a written bound; ``strict`` not even those; ``fast``
    allows contraction and reciprocals.

    ``on_out_of_range="trap"``: in the simulator and in debug builds a loaded coordinate that leads outside, and is not
    the ``sentinel``, ends the launch with index, tensor and line (SIM022). Elsewhere, and by default, it is skipped.
    """
    scope = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - annotations may use the definer's names
    refuse_options(more, unknown, scope)

    def decorate(function: Callable[..., None]) -> Kernel:
        return Kernel(read_kernel(function, numerics, on_out_of_range, sentinel, scope))

    return decorate if fn is None else decorate(fn)
