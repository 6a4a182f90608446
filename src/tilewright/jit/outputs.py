"""Which tensors of a kernel are its results, and the allocation of those that a call leaves out.

What the body does with each parameter is read from its source and from that of the functions that it calls, so that a
call without the compiler knows it too. The traced program is compared with it before it runs (``jit.kernel``).
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from types import FunctionType
from typing import Any

from tilewright.base.cached import cached_property
from tilewright.base.dtypes import STORED, DType, dtype_named
from tilewright.base.expr import solve
from tilewright.diag import fail, type_shown
from tilewright.jit import lazy, pytorch
from tilewright.lang.enums import AtomicFn
from tilewright.lang.params import KernelFunction, TensorParam, as_declared, extent_of


@dataclass(frozen=True)
class ParameterUses:
    """Names of tensor parameters by what the body does with them. ``unclear`` are handed to other code or renamed."""

    read: frozenset[str]
    stored: frozenset[str]
    added: frozenset[str]
    unclear: frozenset[str]

    @property
    def written(self) -> frozenset[str]:
        return self.stored | self.added

    @property
    def results(self) -> frozenset[str]:
        """Written and never read: what a call may leave out."""
        return self.written - self.read - self.unclear


@cache
def uses_of(fn: Callable[..., object]) -> ParameterUses | None:
    """How the body of ``fn`` uses its parameters; None without its source."""
    return _uses(fn, frozenset())


def _uses(fn: Callable[..., object], callers: frozenset[Callable[..., object]]) -> ParameterUses | None:
    """``uses_of``, called by ``callers``: what a recursive call does with its arguments stays unclear."""
    node = _source_of(fn)
    if node is None:
        return None
    reader = _BodyReader(fn, node, callers | {fn})
    for statement in node.body:
        reader.visit(statement)
    return ParameterUses(*(frozenset(names) for names in (reader.read, reader.stored, reader.added, reader.unclear)))


def _source_of(fn: Callable[..., object]) -> ast.FunctionDef | None:
    """Its definition, by the file's: ``inspect.getsource`` takes half of the import of all operators."""
    fn = inspect.unwrap(fn)
    if not isinstance(fn, FunctionType):
        return None
    code = fn.__code__
    linecache.checkcache(code.co_filename)
    defined = _functions_of("".join(linecache.getlines(code.co_filename, fn.__globals__)))
    found = defined.get(code.co_firstlineno)
    return found if found is not None and found.name == code.co_name else None


@lru_cache(16)
def _functions_of(source: str) -> dict[int, ast.FunctionDef]:
    """Functions of a file by their first lines, which may be decorators."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef))
    return {min(n.lineno for n in (node, *node.decorator_list)): node for node in functions}


_REDUCTIONS = frozenset(f"reduce_{fn}" for fn in AtomicFn)


class _BodyReader(ast.NodeVisitor):
    """Sorts the parameters that are subscripted, themselves or their views (``xs = x.reshape(M, -1, 32)``), here or in
    a function that they are given to; any use that is neither that, nor of an attribute, is unclear."""

    def __init__(
        self, fn: Callable[..., object], body: ast.FunctionDef, callers: frozenset[Callable[..., object]]
    ) -> None:
        names = inspect.signature(fn).parameters
        self._names = {name: name for name in names}  # and views' names, by the parameters that they are of
        self._fn, self._body, self._callers = fn, body, callers
        self.read: set[str] = set()
        self.stored: set[str] = set()
        self.added: set[str] = set()
        self.unclear: set[str] = set()

    @cached_property
    def _bound(self) -> frozenset[str]:
        return frozenset(_bound_names(self._body))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        viewed = self._viewed(node.value)
        if isinstance(node.value, ast.Name):
            self._subscripted(node.value.id, node.ctx)
        elif viewed is not None:
            self._subscripted(viewed, node.ctx)
        else:
            self.visit(node.value)
        self.visit(node.slice)

    def _subscripted(self, name: str, context: ast.expr_context) -> None:
        if name in self._names:
            (self.read if isinstance(context, ast.Load) else self.stored).add(self._names[name])

    def _viewed(self, node: ast.expr) -> str | None:
        """The name of which ``x.reshape(...)`` makes a view."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reshape":
            tensor = node.func.value
            return tensor.id if isinstance(tensor, ast.Name) and tensor.id in self._names else None
        return None

    def visit_Assign(self, node: ast.Assign) -> None:
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        for to, source in pairs:
            viewed = self._viewed(source)
            if viewed is not None and isinstance(to, ast.Name) and len(node.targets) == 1:
                parameter = self._names[viewed]
                if self._names.setdefault(to.id, parameter) != parameter:  # one name of two
                    self.unclear |= {parameter, self._names[to.id]}
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript) and isinstance(node.target.value, ast.Name):
            self._subscripted(node.target.value.id, ast.Load())
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.value, ast.Name):
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        """``bias is not None`` reads no element."""
        for part in (node.left, *node.comparators):
            if not isinstance(part, ast.Name):
                self.visit(part)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        arguments = list(node.args)
        first = arguments[0] if arguments else None
        name = first.id if isinstance(first, ast.Name) else None if first is None else self._viewed(first)
        if name is not None and called in ("grid", "ragged_grid", *_REDUCTIONS):
            if isinstance(first, ast.Name):
                del arguments[0]
            if called == "reduce_add" and name in self._names:
                self.added.add(self._names[name])
            elif called == "ragged_grid" and name in self._names:
                self.read.add(self._names[name])
            elif called != "grid" and name in self._names:  # what it held counts, and is not known here
                self.read.add(self._names[name])
                self.stored.add(self._names[name])
        self.visit(node.func)
        by_parameter = self._handed_on(node) if arguments == node.args else {}
        for argument in (*arguments, *(keyword.value for keyword in node.keywords)):
            if argument not in by_parameter.values():
                self.visit(argument)

    def _handed_on(self, call: ast.Call) -> dict[str, ast.Name]:
        """The tensors that a call gives to a function whose source shows what it does with them, by its parameters;
        these uses are noted."""
        callee = self._function_named(call.func)
        uses = _uses(callee, self._callers) if callee is not None and callee not in self._callers else None
        if callee is None or uses is None or any(isinstance(a, ast.Starred) for a in call.args):
            return {}
        keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        try:
            given = inspect.signature(callee).bind_partial(*call.args, **keywords).arguments
        except TypeError:  # the call fails when it is traced
            return {}
        names = {p: a for p, a in given.items() if isinstance(a, ast.Name) and a.id in self._names}
        for parameter, argument in names.items():
            for kind in ("read", "stored", "added", "unclear"):
                if parameter in getattr(uses, kind):
                    getattr(self, kind).add(self._names[argument.id])
        return names

    def _function_named(self, func: ast.expr) -> FunctionType | None:
        """The Python function that a name stands for throughout the body, unless it is the language's, which does
        with its arguments what no source shows."""
        if not isinstance(func, ast.Name) or func.id in self._bound or not isinstance(self._fn, FunctionType):
            return None
        cells = dict(zip(self._fn.__code__.co_freevars, self._fn.__closure__ or (), strict=True))
        try:
            found = cells[func.id].cell_contents if func.id in cells else self._fn.__globals__.get(func.id)
        except ValueError:  # a cell that is still empty
            return None
        ours = isinstance(found, FunctionType) and not found.__module__.startswith("tilewright.lang.")
        return found if ours else None

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in self._names:
            self.unclear.add(self._names[node.id])


def _bound_names(body: ast.FunctionDef) -> Iterator[str]:
    """The names to which a function's body, or one inside it, assigns; and the parameters of all."""
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node is not body:
            yield node.name


def solved(params: Iterable[TensorParam], given: Mapping[str, Any]) -> dict[str, Any]:
    """The extent of each symbol, by the first tensors in ``given`` that have it."""
    extents: dict[str, Any] = {}
    pairs = (
        (extent_of(dim), extent)
        for param in params
        if (tensor := given.get(param.name)) is not None and len(tensor.shape) == len(param.dims)
        for dim, extent in zip(param.dims, tensor.shape, strict=True)
    )
    solve(pairs, extents)
    return extents


def allocated(function: KernelFunction, given: Mapping[str, Any]) -> dict[str, Any]:
    """The results that a call leaves out: row-major, of the library, device and dtype of the first tensor of floats, or
    of the first tensor where none is; sums that are added to in memory begin as zeros. JIT001 for a tensor that is no
    result, JIT007 for an unknown extent, JIT011 where autograd would expect a gradient of what is returned."""
    uses = uses_of(function.fn)
    missing = [t for t in function.tensors if t.name not in given and not t.optional]
    tensors = [given[t.name] for t in function.tensors if given.get(t.name) is not None]
    first = next((t for t in tensors if _of_floats(t)), next(iter(tensors), None))
    for tensor in tensors:
        if pytorch.is_tensor(tensor):
            pytorch.require_strided(tensor)
        elif not hasattr(tensor, "shape"):
            fail(
                "JIT002",
                found=f"{type_shown(tensor)} for a tensor",
                required="arrays of NumPy, or tensors of PyTorch",
                help="convert it: np.asarray(values, np.float32)",
            )
    extents = solved(function.tensors, given)
    if missing and pytorch.wants_gradient(given.values()):
        fail(
            "JIT011",
            found=f"results of {function.name} returned from tensors that need a gradient",
            required="an operator with a backward, tensors that need none, or torch.no_grad()",
            help="write @tw.op(backward=...) above @tw.kernel",
        )
    made: dict[str, Any] = {}
    for param in missing:
        if uses is None or first is None or param.name not in uses.results:
            fail(
                "JIT001",
                found=f"no tensor {param.name}",
                required=", ".join(t.name for t in function.tensors),
                help=_why_no_result(function, param, uses),
            )
        shape = tuple(_extent(d, extents) for d in param.dims)
        if None in shape:
            unknown, odd = param.dims[shape.index(None)], list(_of_other_ranks(function, given))
            fail(
                "JIT007",
                found="; ".join(
                    (f"{as_declared(param.name, param.dims)}, and no tensor of the call has {unknown}", *odd)
                ),
                required="a result whose extents the other tensors have",
                help="pass tensors of the declared dimensions" if odd else f"allocate {param.name} and pass it",
            )
        made[param.name] = empty(first, shape, zero=param.name in uses.added)
    return made


def _why_no_result(function: KernelFunction, param: TensorParam, uses: ParameterUses | None) -> str:
    """What a call is told that leaves out a tensor; empty where it is none that the body writes."""
    if uses is None:
        return f"pass {param.name}: the source of {function.name}, which tells what are results, can't be read"
    if param.name in uses.written | uses.unclear:
        return f"pass {param.name}: results that may be left out are written by their own names, and never read"
    return ""


def _of_other_ranks(function: KernelFunction, given: Mapping[str, Any]) -> Iterator[str]:
    """The tensors with more or fewer dimensions than declared, which determine no extents."""
    for param in function.tensors:
        tensor = given.get(param.name)
        if tensor is not None and len(tensor.shape) != len(param.dims):
            yield f"{as_declared(param.name, param.dims)} was given {tuple(tensor.shape)}"


def _extent(dim: str | int, extents: Mapping[str, Any]) -> Any:
    """A dimension of a result; None where no tensor of the call determines it."""
    wanted = extent_of(dim)
    return wanted.evaluate(extents) if wanted.symbols <= extents.keys() else None


def _of_floats(tensor: Any) -> bool:
    """Whether what a gather takes from an index and a table should be like this tensor."""
    dtype = dtype_named(str(getattr(tensor, "dtype", "")))
    return dtype is not None and dtype.is_float


def empty(like: Any, shape: tuple[Any, ...], dtype: DType | None = None, *, zero: bool = False) -> Any:
    """A row-major tensor of the library and device of ``like``, and of its dtype where none is given; JIT007 for what
    is of neither library."""
    if lazy.is_array(like):
        return lazy.arrays.empty(like, shape, dtype, zero=zero)
    dtype = dtype or dtype_named(str(getattr(like, "dtype", "")))
    if pytorch.is_tensor(like) and not isinstance(dtype, DType):
        fail("JIT003", found=f"results beside a tensor of {like.dtype}", required=" ".join(map(str, STORED)))
    if not pytorch.is_tensor(like) or not isinstance(dtype, DType):
        fail(
            "JIT007",
            found=f"results left out beside a {type(like).__module__}.{type(like).__qualname__}",
            required="tensors of PyTorch or NumPy arrays, whose library allocates them",
            help="allocate the results and pass them",
        )
    return pytorch.empty(like, shape, dtype.name, zero=zero)
