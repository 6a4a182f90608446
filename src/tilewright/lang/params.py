"""A decorated function and its parameters, read from annotations."""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import FrameType, NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeGuard, Union, get_args, get_origin

from tilewright.base.dtypes import DType, dtype_named, f32, i32, i64, u32
from tilewright.base.expr import (
    FALSE,
    Const,
    Expr,
    ExprError,
    FloorDiv,
    Mod,
    Product,
    Sum,
    Sym,
    parse,
    unsolved,
)
from tilewright.diag import Location, shown
from tilewright.lang.enums import Numerics, OutOfRange
from tilewright.lang.source_locations import location, refuse
from tilewright.lang.tensors import Promise, Tensor, TensorSpec


class Auto:
    """A tile extent left to the schedule; the one value is ``auto``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "tw.auto"


auto: Any = Auto()


class ChosenExtent(int):
    """The value of a ``tw.auto`` keyword in a kernel's body: the schedule's choice, or a probe."""

    __slots__ = ()


@dataclass(frozen=True)
class TensorParam:
    """``name: Tensor["M", 128]``; ``optional`` if a call may leave it out, and the body then finds None; ``planned`` if
    a plan of ours made its integers, so that they are unique by construction."""

    name: str
    dims: tuple[str | int, ...]
    optional: bool = False
    promise: Promise | None = None
    planned: bool = False


@dataclass(frozen=True)
class ScalarParam:
    """A runtime scalar, ``name: tw.f32`` or ``tw.i32``; ``default`` is None if a call must give it."""

    name: str
    dtype: DType
    default: float | int | None = None


@dataclass(frozen=True)
class KeywordParam:
    """A compile-time keyword; ``required`` if it has no default, ``auto`` if its default is the schedule's choice."""

    name: str
    default: object
    required: bool = False

    @property
    def auto(self) -> bool:
        return isinstance(self.default, Auto)


Param: TypeAlias = TensorParam | ScalarParam | KeywordParam


@dataclass(frozen=True, eq=False)
class KernelFunction:
    """A function decorated with ``@tw.kernel``, not yet traced."""

    fn: Callable[..., None]
    name: str
    params: tuple[Param, ...]
    numerics: Numerics
    where: Location
    on_out_of_range: OutOfRange = OutOfRange.SKIP
    sentinel: int = -1
    """The loaded index that is always skipped and never traps."""

    @property
    def tensors(self) -> tuple[TensorParam, ...]:
        """Tensor parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, TensorParam))

    @property
    def optional(self) -> tuple[str, ...]:
        """Names of the tensors that a call may leave out."""
        return tuple(t.name for t in self.tensors if t.optional)

    def without(self, absent: Collection[str]) -> KernelFunction:
        """The kernel without some of its optional tensors, whose names are None in its body."""
        params = tuple(KeywordParam(p.name, None) if p.name in absent else p for p in self.params)
        return self._with(params)

    def with_planned(self, names: Collection[str]) -> KernelFunction:
        """The kernel for calls in which plans have made these tensors."""
        params = tuple(
            replace(p, planned=True) if isinstance(p, TensorParam) and p.name in names else p for p in self.params
        )
        return self._with(params)

    def _with(self, params: tuple[Param, ...]) -> KernelFunction:
        """The function with other parameters; of a subclass, which is made of one, a plain one."""
        return KernelFunction(
            self.fn, self.name, params, self.numerics, self.where, self.on_out_of_range, self.sentinel
        )

    @property
    def scalars(self) -> tuple[ScalarParam, ...]:
        """Runtime scalars, in order."""
        return tuple(p for p in self.params if isinstance(p, ScalarParam))

    @property
    def keywords(self) -> tuple[KeywordParam, ...]:
        """Compile-time keywords, those left to the schedule included."""
        return tuple(p for p in self.params if isinstance(p, KeywordParam))

    @property
    def autos(self) -> tuple[str, ...]:
        """Names of the keywords whose default is ``tw.auto``."""
        return tuple(p.name for p in self.keywords if p.auto)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the symbolic dimensions, in order of appearance."""
        return tuple(dict.fromkeys(s for t in self.tensors for d in t.dims for s in symbols_of(d)))


class _Dimension(str):
    """The name of a dimension without quotes, and what is computed of it: ``Offsets[G + 1]``, ``Tensor[2 * N]``."""

    __slots__ = ()

    def _joined(self, left: object, sign: str, right: object) -> Any:
        sides = [f"({x})" if isinstance(x, _Dimension) else str(x) for x in (left, right)]
        numbers = isinstance(left, int | str) and isinstance(right, int | str)
        return _Dimension(f"{sides[0]} {sign} {sides[1]}") if numbers else NotImplemented

    def __add__(self, other: object) -> Any:
        return self._joined(self, "+", other)

    def __radd__(self, other: object) -> Any:
        return self._joined(other, "+", self)

    def __sub__(self, other: object) -> Any:
        return self._joined(self, "-", other)

    def __rsub__(self, other: object) -> Any:
        return self._joined(other, "-", self)

    def __mul__(self, other: object) -> Any:
        return self._joined(self, "*", other)

    def __rmul__(self, other: object) -> Any:
        return self._joined(other, "*", self)

    def __floordiv__(self, other: object) -> Any:
        return self._joined(self, "//", other)

    def __neg__(self) -> Any:
        return self._joined(0, "-", self)


class _Names(dict[str, object]):
    """Names for annotation text: the definer's, the module's, Python's; any other stands for itself.

    Under ``from __future__ import annotations`` formatters take the quotes off ``Tensor["M"]``.
    """

    def __init__(self, fn: Callable[..., None], scope: FrameType | None):
        super().__init__({**vars(builtins), **fn.__globals__, **(scope.f_locals if scope is not None else {})})

    def __missing__(self, name: str) -> str:
        return _Dimension(name)


def read_parameters(fn: Callable[..., None], where: Location, scope: FrameType | None) -> tuple[Param, ...]:
    """The parameters of a kernel; ``scope`` is the frame that defines it, whose names its annotations may use."""
    parameters = inspect.signature(fn).parameters.values()
    if any(isinstance(p.annotation, str) for p in parameters):
        names = _Names(fn, scope)
        parameters = [p.replace(annotation=_evaluated(p.annotation, names, where)) for p in parameters]
    params = tuple(_read(p, where) for p in parameters)
    _check_names(params, where)
    _check_solved(params, where)
    return params


def _evaluated(annotation: object, names: _Names, where: Location) -> object:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, {}, names)  # the user's own source, as Python itself would evaluate it
    except Exception as error:  # whatever the expression raises
        refuse(
            "LNG001",
            where=where,
            found=f"the annotation {annotation} can't be evaluated: {error}",
            required='tw.Tensor["M", "N"], tw.f32, tw.i32, tw.u32 or tw.i64',
            help="import tilewright as tw, and write dimension names as strings",
        )


def _plain(annotation: object) -> object:
    """``Annotated[Tensor, "M", 128]`` as ``Tensor["M", 128]``, also with ``| None``, and ``Annotated[float, f32]`` as
    ``f32``: what type checkers, which know no names of dimensions, accept."""
    union = get_origin(annotation) in (Union, UnionType)
    members = [m for m in (get_args(annotation) if union else (annotation,)) if m is not NoneType]
    if len(members) != 1 or get_origin(members[0]) is not Annotated:
        return annotation
    of, *metadata = get_args(members[0])
    if _is_tensor(of):
        spec = of[tuple(metadata)]
        return spec | None if union else spec
    return metadata[0] if not union and len(metadata) == 1 and isinstance(metadata[0], DType) else annotation


def _read(parameter: inspect.Parameter, where: Location) -> Param:
    annotation: Any = _plain(parameter.annotation)
    name, default = parameter.name, parameter.default
    missing = default is inspect.Parameter.empty
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        refuse(
            "LNG001", where=where, found=f"*{name}", required="named parameters", help="name each tensor and keyword"
        )
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        found, required = f"{name}, a parameter before `/`", "parameters that a call may give by name"
        refuse("LNG001", where=where, found=found, required=required, help="leave the `/` out")
    if isinstance(annotation, TensorSpec):
        if not missing and default is not None:
            found, required = f"{name} = {shown(default)}", "None, or no default"
            refuse(
                "LNG001", where=where, found=found, required=required, help="write None for a tensor that may be absent"
            )
        dims = tuple(_dim(d, name, where) for d in annotation.dims)
        return TensorParam(name, dims, annotation.optional or not missing, annotation.promise)
    if annotation in RUNTIME_SCALARS:
        return ScalarParam(name, annotation, None if missing else _scalar_default(default, annotation, name, where))
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not isinstance(annotation, DType):
        return KeywordParam(name, None if missing else default, required=missing)
    refuse(
        "LNG001",
        where=where,
        found=f"{name}: {'no annotation' if annotation is inspect.Parameter.empty else _shown(annotation)}",
        required='tw.Tensor["M", ...] for a tensor, tw.f32, tw.i32, tw.u32 or tw.i64 for a runtime scalar',
        help=_annotated(name, annotation),
    )


def _shown(annotation: object) -> str:
    if isinstance(annotation, type):
        return f"tw.{annotation.__name__}" if _is_tensor(annotation) else annotation.__name__
    return shown(annotation)


def _is_tensor(annotation: object) -> TypeGuard[type[Tensor]]:
    return isinstance(annotation, type) and issubclass(annotation, Tensor)


def _annotated(name: str, annotation: object) -> str:
    """The suggested annotation of a parameter without one."""
    if _is_tensor(annotation):
        return f'name its dimensions: {name}: tw.{annotation.__name__}["M", "N"]'
    if name in ("self", "cls") and annotation is inspect.Parameter.empty:
        return "a kernel is a function, no method: define it outside of the class, or put @staticmethod above it"
    if isinstance(annotation, DType):
        return f"runtime scalars are {name}: tw.i32, or tw.f32, tw.u32, tw.i64; a tensor is {name}: tw.Tensor[...]"
    for python, ours in ((int, "i32"), (float, "f32")):
        if annotation is python:
            return f"write {name}: tw.{ours}, or put it after `*` to make it a compile-time keyword"
    return f"annotate {name}, or put it after `*` to make it a compile-time keyword"


def as_declared(tensor: str, dims: Iterable[str | int]) -> str:
    """A tensor and its dimensions as errors write them: ``a[M, K]``."""
    return f"{tensor}[{', '.join(map(str, dims))}]"


@cache
def extent_of(dim: str | int) -> Expr:
    """The extent that an annotation names: ``"N"``, ``"G + 1"``, ``"2*N"``, ``"H*D"``, ``"K // 8"``."""
    return Const(dim) if isinstance(dim, int) else parse(dim)


def symbols_of(dim: str | int) -> tuple[str, ...]:
    """The symbols of an extent, in the order of their names where it has several."""
    return tuple(sorted(extent_of(dim).symbols))


_WORDS = re.compile(r"[A-Za-z_]\w*")
_WORDS_OF_EXTENTS = ("half", "short")
"""Names of dtypes in PyTorch that dimensions have, too: ``x[T, 2*half]``."""


def _dim(dim: object, name: str, where: Location) -> str | int:
    """An extent as text: of an expression that of the compiler."""
    if isinstance(dim, DType) or (dim not in _WORDS_OF_EXTENTS and dtype_named(str(dim)) is not None):
        refuse(
            "LNG001",
            where=where,
            found=f"dtype {dim} among the dimensions of {name}",
            required="extents: a tensor has the dtype of the argument that a call gives",
            help=f'leave it out; ahead of time, kernel.compile(dtypes={{"{name}": "{dim}"}})',
        )
    if isinstance(dim, int) and not isinstance(dim, bool) and dim >= 1:
        return dim
    if isinstance(dim, str) and dim.isascii() and not any(map(keyword.iskeyword, _WORDS.findall(dim))):
        try:
            extent = parse(dim)
        except ExprError:
            extent = FALSE
        divides = [e.denominator.constant for e in _inside(extent) if isinstance(e, FloorDiv | Mod)]
        plain = all(isinstance(e, Sym | Const | Sum | Product | FloorDiv | Mod) for e in _inside(extent))
        if plain and extent.symbols and all(s.isidentifier() for s in extent.symbols) and None not in divides:
            return str(extent)
        if plain and extent.constant is not None and extent.constant >= 1:
            return int(extent.constant)
    refuse(
        "LNG001",
        where=where,
        found=f"dimension {dim!r} of {name}",
        required="an extent of at least 1, an identifier in ASCII, or sums, products and quotients of these: "
        '"G + 1", "2*N", "H*D", "K // 8"',
        help=f'write "{dim.replace("/", "//")}"'
        if isinstance(dim, str) and re.search(r"[^/]/[^/]", dim)
        else 'write tw.Tensor["M", 128]',
    )


def _inside(extent: Expr) -> Iterator[Expr]:
    """An expression and all that it is made of."""
    yield extent
    for child in extent.children:
        yield from _inside(child)


def _check_solved(params: tuple[Param, ...], where: Location) -> None:
    """Refuse (LNG001) dimensions that the extents of no tensors give: a quotient is that of several numbers."""
    tensors = [p for p in params if isinstance(p, TensorParam)]
    unknown = sorted(unsolved(extent_of(d) for t in tensors if not t.optional for d in t.dims))
    for symbol in unknown:
        found = [(t, d) for t in tensors for d in t.dims if symbol in extent_of(d).symbols]
        required = [(t, d) for t, d in found if not t.optional]
        if not required or (found != required and not unsolved(extent_of(d) for t in tensors for d in t.dims)):
            continue  # given by tensors that a call may leave out, then with all that has it
        tensor, dim = required[0]
        refuse(
            "LNG001",
            where=where,
            found=f"dimension {dim!r} of {tensor.name}, which does not say what {symbol} is",
            required=f"a tensor with the dimension {symbol}, or a multiple of it",
            help=f'name {symbol} where a tensor has it: x: tw.Tensor["M", "{symbol}"]; or give this extent a name',
        )


def _scalar_default(default: object, dtype: DType, name: str, where: Location) -> float | int:
    if isinstance(default, int) or (isinstance(default, float) and dtype.is_float):
        return default
    refuse("LNG001", where=where, found=f"{name} = {default!r}", required=f"a number of {dtype}", help="give a number")


RUNTIME_SCALARS = (f32, i32, u32, i64)
"""Element types of numbers that a launch gives."""
KERNEL_OPTIONS = ("numerics", "on_out_of_range", "sentinel")
"""What ``@tw.kernel`` takes besides the function."""

_OF_CALLS = frozenset(("stream", "budget"))
_OF_COMPILE = frozenset(("self", "target", "dtypes", "static", "schedule", "facts", "debug"))


def _check_names(params: tuple[Param, ...], where: Location) -> None:
    dims = {s for p in params if isinstance(p, TensorParam) for d in p.dims for s in symbols_of(d)}
    for param in params:
        if param.name in dims:
            refuse(
                "LNG001",
                where=where,
                found=f"{param.name} is a parameter and the name of a dimension",
                required="one meaning a name",
                help=f"rename the parameter {param.name}",
            )
        _check_ascii(param.name, "parameter", where)
        options = _OF_CALLS if not isinstance(param, KeywordParam) else _OF_CALLS | _OF_COMPILE
        if param.name in options:
            refuse(
                "LNG001",
                where=where,
                found=f"the parameter {param.name}",
                required="a name that is no option of calling or compiling a kernel",
                help=f"rename the parameter {param.name}",
            )
    if not any(isinstance(p, TensorParam) for p in params):
        refuse(
            "LNG001",
            where=where,
            found="no tensor parameter",
            required="at least one",
            help='a kernel writes tensors: y: tw.Tensor["M"]',
        )


def _check_ascii(name: str, what: str, where: Location) -> None:
    if not name.isascii():
        refuse(
            "LNG001",
            where=where,
            found=f"the {what} {name}",
            required="a name in ASCII: it stands in the kernel's artifact",
            help=f"rename the {what}",
        )


def refuse_options(more: Sequence[object], unknown: Iterable[str], scope: FrameType) -> None:
    """LNG001 for arguments of ``@tw.kernel`` that are no option of it."""
    found = [*map(shown, more), *(f"{name}=" for name in unknown)]
    if found:
        import difflib  # noqa: PLC0415 - for a mistake only

        near = difflib.get_close_matches(found[-1].rstrip("="), KERNEL_OPTIONS, n=1)
        refuse(
            "LNG001",
            where=location(scope),
            found=f"{', '.join(found)} in @tw.kernel",
            required=", ".join(f"{name}=" for name in KERNEL_OPTIONS),
            help=f"did you mean {near[0]}=?" if near else "give the kernel's own values as keywords after `*`",
        )


def read_kernel(
    fn: Callable[..., None], numerics: str, on_out_of_range: str, sentinel: int, scope: FrameType | None
) -> KernelFunction:
    """The kernel of a function; refuses parameters without annotation or default."""
    if not (inspect.isfunction(fn) or inspect.ismethod(fn)):
        refuse(
            "LNG001",
            where=location(scope) if scope is not None else None,
            found=f"{shown(fn)} under @tw.kernel",
            required="a function",
            help='write @tw.kernel above `def`; options have names: @tw.kernel(numerics="strict")',
        )
    code = fn.__code__
    where = Location(code.co_filename, code.co_firstlineno)
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        refuse(
            "LNG001",
            where=where,
            found=f"{fn.__name__}, whose body a call does not run",
            required="a plain function, which is traced by calling it",
            help="leave out `async`, `await` and `yield`",
        )
    if not isinstance(numerics, str) or numerics not in tuple(Numerics):  # pyright: ignore[reportUnnecessaryIsInstance]
        refuse(
            "LNG001",
            where=where,
            found=f"numerics={shown(numerics)}",
            required=" or ".join(Numerics),
            help='"precise" is called "strict"' if str(numerics) == "precise" else 'write @tw.kernel(numerics="fast")',
        )
    if not isinstance(on_out_of_range, str) or on_out_of_range not in tuple(OutOfRange):  # pyright: ignore[reportUnnecessaryIsInstance]
        refuse(
            "LNG001",
            where=where,
            found=f"on_out_of_range={shown(on_out_of_range)}",
            required=" or ".join(OutOfRange),
            help='write @tw.kernel(on_out_of_range="trap")',
        )
    if type(sentinel) is not int or not -(2**63) <= sentinel < 0:
        refuse(
            "LNG001",
            where=where,
            found=f"sentinel={shown(sentinel)}",
            required="a negative integer: the index that stands for nowhere lies outside of every tensor",
            help='write @tw.kernel(on_out_of_range="trap", sentinel=-100)',
        )
    _check_ascii(fn.__name__, "kernel", where)
    params = read_parameters(fn, where, scope)
    return KernelFunction(fn, fn.__name__, params, Numerics(numerics), where, OutOfRange(on_out_of_range), sentinel)
