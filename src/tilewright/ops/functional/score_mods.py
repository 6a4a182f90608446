"""Functions of attention's scores, written for PyTorch: traced, and computed by a kernel on tiles."""

# PyTorch ships no types that our checker reads, and a lambda names none.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import tilewright as tw
from tilewright.diag import fail
from tilewright.ops.pytorch import torch

MOST_TENSORS = 4
"""Tensors that a function may read: a kernel has so many arguments for them."""
READ = frozenset((torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64, torch.bool))
"""Dtypes of these."""
_MOST_AXES = 4
_SHARED = (
    *("abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "maximum", "minimum"),
    *("round", "rsqrt", "sigmoid", "sin", "sqrt", "square", "tanh", "trunc", "where"),
)
_FUNCTIONS: dict[Any, Callable[..., Any]] = {getattr(torch, name): getattr(tw, name) for name in _SHARED} | {
    torch.clamp: lambda x, min=None, max=None: tw.clamp(x, min, max)
}
_OPERATORS = frozenset(
    (
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
        *(operator.neg, operator.abs),
        *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
        *(operator.and_, operator.or_, operator.xor, operator.invert),
    )
)


_CONSTANT = ("torch", "math", "operator", "numpy")
"""Libraries whose values don't change."""


# -- what a function reads --------------------------------------------------------------------------------------------
class Captures:
    """What a function reads from around it, and functions that it calls: ``tensors``, and a ``key`` that tells it from
    functions whose kernels differ. Two closures of one text and one set of numbers have one key; their tensors may be
    others of as many axes. Of a function that reads an object, a list, a module of the user's or attributes of a
    function, which may change unseen, the key is None: its graph alone says what it computes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.tensors: list[Any] = []
        self._within: list[object] = []
        self._is_told = True
        told = self._told(function)
        self.key: Hashable | None = told if self._is_told else None

    def place(self, tensor: Any) -> int | None:
        """The number of a tensor among ``tensors``."""
        return next((i for i, t in enumerate(self.tensors) if t is tensor), None)

    def _told(self, value: Any) -> Hashable:
        if isinstance(value, torch.Tensor):
            if self.place(value) is None:
                self.tensors.append(value)
            return "tensor", self.place(value), value.dim()
        if _is_users(value) and not any(value is other for other in self._within):
            self._within.append(value)
            self._is_told &= not value.__dict__
            given = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            read = (self._told(v) for v in (*_cells(value), *_globals(value).values(), *given))
            return value.__code__, tuple(read)
        if type(value) in _NUMBERS:
            return type(value), repr(value)
        self._is_told &= _is_constant(value) or any(value is other for other in self._within)
        return _Same(value)


class _Same:
    """An object that is equal to itself alone, and kept."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


_NUMBERS = (int, float, bool, str, type(None))


def _is_constant(value: Any) -> bool:
    """Whether what a function reads of it is the same at each call: a library, and what is its own."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in _CONSTANT
    if isinstance(value, BuiltinFunctionType):  # no method of a list or dict
        return value.__self__ is None or isinstance(value.__self__, ModuleType | type)
    return isinstance(value, FunctionType | torch.dtype)


def _is_users(value: Any) -> bool:
    """A function in Python that is not PyTorch's."""
    return isinstance(value, FunctionType) and not str(value.__module__).startswith("torch.")


def _cells(function: FunctionType) -> list[Any]:
    return [cell.cell_contents for cell in function.__closure__ or ()]


def _globals(function: FunctionType) -> dict[str, Any]:
    """The module's values that the function may name."""
    around = function.__globals__
    return {name: around[name] for name in sorted(set(_names(function.__code__))) if name in around}


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


class _TensorProxy:
    """Stands for a tensor while a function is traced."""

    def __init__(self, place: int, tracer: Any) -> None:
        self._place, self._tracer = place, tracer

    def __getitem__(self, index: Any) -> Any:
        whole = index if isinstance(index, tuple) else (index,)
        return self._tracer.create_proxy("call_function", _element, (self._place, *whole), {})


def _element(*_: Any) -> Any:
    raise AssertionError("computed by ScoreMod alone")


def _with_proxies(function: Any, captures: Captures, tracer: Any, made: dict[int, Any]) -> Any:
    """The function with a ``_TensorProxy`` for each tensor that it reads."""

    def replaced(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _TensorProxy(captures.place(value) or 0, tracer)
        return _with_proxies(value, captures, tracer, made)

    if not _is_users(function):
        return function
    if id(function) not in made:
        around = dict(function.__globals__)
        cells = tuple(CellType() for _ in function.__closure__ or ())
        defaults = tuple(map(replaced, function.__defaults__ or ()))
        made[id(function)] = FunctionType(function.__code__, around, function.__name__, defaults, cells)
        made[id(function)].__dict__.update(function.__dict__)
        made[id(function)].__kwdefaults__ = {n: replaced(v) for n, v in (function.__kwdefaults__ or {}).items()}
        for cell, value in zip(cells, _cells(function), strict=True):
            cell.cell_contents = replaced(value)
        around.update({name: replaced(value) for name, value in _globals(function).items()})
    return made[id(function)]


# -- the traced function ----------------------------------------------------------------------------------------------
MOST_PLACES = 1 << 24
"""Batches, heads, queries and keys that kernels have where a function changes scores: positions are i32 there, and what
is computed of them is i64 from where these bounds leave i32, as all integers of PyTorch's positions are."""
_I32, _I64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
_SPANS_OF = {tw.i64: _I64, tw.i32: _I32, tw.bool: (0, 1)}
Span = tuple[int, int]


def _ends(rule: Callable[[int, int], int]) -> Callable[[Span, Span], Span]:
    def ends(a: Span, b: Span) -> Span:
        found = [rule(x, y) for x in a for y in b]
        return min(found), max(found)

    return ends


_SPANS: dict[str, Callable[[Span, Span], Span]] = {
    "add": _ends(operator.add),
    "sub": _ends(operator.sub),
    "mul": _ends(operator.mul),
    "floordiv": lambda a, b: (-_most(a), _most(a)),
    "mod": lambda a, b: (-_most(b), _most(b)),
    "neg": lambda a, _: (-a[1], -a[0]),
    "abs": lambda a, _: (0, _most(a)),
    "square": lambda a, _: (0, _most(a) ** 2),
    "pow": lambda a, b: (-(_most(a) ** min(_most(b), 64)), _most(a) ** min(_most(b), 64)),
    **dict.fromkeys(("and_", "or_", "xor", "invert"), lambda a, b: _I64 if _leaves_i32(a) or _leaves_i32(b) else _I32),
}
"""What integers may become, of the spans of up to two of them."""


def _most(a: Span) -> int:
    return max(abs(a[0]), abs(a[1]))


def _leaves_i32(a: Span) -> bool:
    return a[0] < _I32[0] or a[1] > _I32[1]


Readers = tuple[Callable[..., Any], ...]


class ScoreMod:
    """The graph of ``function(score, batch, head, query, key)``, called with what a kernel's body has for these. JIT010
    for a function that branches on them, reads tensors but by element, or uses what kernels have not."""

    def __init__(self, function: Callable[..., Any], captures: Captures) -> None:
        self.function = function
        tracer = torch.fx.Tracer()
        traced = _with_proxies(function, captures, tracer, {})
        try:
            graph = tracer.trace(lambda score, batch, head, query, key: traced(score, batch, head, query, key))
        except Exception as error:  # whatever the function raises of proxies
            _refuse(f"{_named(function)}: {error}")
        graph.eliminate_dead_code()
        self._nodes = tuple(graph.nodes)
        self._calls = {node: self._callee(node) for node in self._nodes if node.op.startswith("call")}
        if any(node.op == "get_attr" for node in self._nodes):
            _refuse("a tensor that it reads")
        if not self._nodes[0].users:
            _refuse(f"{_named(function)}, whose result does not depend on the score")
        axes = [t.dim() for t in captures.tensors]
        if len(axes) > MOST_TENSORS or any(not 1 <= count <= _MOST_AXES for count in axes):
            _refuse(f"{_named(function)}, which reads tensors of {', '.join(map(str, axes))} axes")
        for node in self._nodes:
            if node.target is _element and len(node.args) != 1 + axes[node.args[0]]:
                found = f"{len(node.args) - 1} of {axes[node.args[0]]} axes of a tensor"
                _refuse(f"{_named(function)}, which reads {found}")
        self.axes = tuple(axes)

    @property
    def key(self) -> Hashable:
        """Identifies the computation: the ops of its graph with their constants, and the axes of the tensors that it
        reads."""
        places = {node: f"%{i}" for i, node in enumerate(self._nodes)}

        def step(node: Any) -> Hashable:
            return node.op, node.target, repr(torch.fx.map_arg((node.args, node.kwargs), places.__getitem__))

        return self.axes, tuple(map(step, self._nodes))

    def _callee(self, node: Any) -> Callable[..., Any]:
        target = getattr(torch, node.target, None) if node.op == "call_method" else node.target
        if target is _element:
            return _element
        found = target if target in _OPERATORS else _FUNCTIONS.get(target)
        if found is None or (node.kwargs and target is not torch.clamp):
            _refuse(f"{getattr(node.target, '__name__', node.target)} in {_named(self.function)}")
        return found

    def score(self, read: Readers, *given: Any) -> Any:
        """The new score, in a kernel's body; ``read`` takes elements of the tensors that the function reads."""
        return self._evaluated(tw, read, given, slopes={})[0]

    def with_slope(self, read: Readers, *given: Any) -> tuple[Any, Any]:
        """And its derivative by the score, None for 1."""
        return self._evaluated(tw, read, given, slopes={self._nodes[0]: 1.0})

    def by_pytorch(self, tensors: tuple[Any, ...], *given: Any) -> tuple[Any, Any]:
        """The same computed by PyTorch."""
        read = tuple(lambda *index, t=t: t[index] for t in tensors)
        return self._evaluated(torch, read, given, slopes={self._nodes[0]: 1.0})

    def _evaluated(
        self, library: Any, read: Readers, given: tuple[Any, ...], slopes: dict[Any, Any]
    ) -> tuple[Any, Any]:
        """By the functions of a library; ``slopes`` are derivatives by the score (forward mode, node by node) of what
        depends on it."""
        values: dict[Any, Any] = {}
        spans: dict[Any, Span] = {}
        for node, value in zip(self._nodes, given, strict=False):
            values[node] = value
            if library is tw and node is not self._nodes[0]:
                spans[node] = 0, MOST_PLACES - 1
        for node in self._nodes[len(given) :]:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            args = self._wide_enough(node, args, spans)
            if node.op == "output":
                slope = slopes.get(node.args[0])
                return args[0], None if isinstance(slope, float) and slope == 1.0 else slope
            values[node] = self._value(library, node, read, args, kwargs)
            steps = [slopes.get(a) if isinstance(a, torch.fx.Node) else None for a in node.args]
            if any(s is not None for s in steps):
                slope = self._slope(library, node, values[node], args, steps)
                slopes |= {} if slope is None else {node: slope}
        raise AssertionError("a traced function has an output")

    def _wide_enough(self, node: Any, args: Any, spans: dict[Any, Span]) -> Any:
        """The operands, in i64 where the op, of positions among others, may leave i32; adds to ``spans``."""
        of_positions = any(isinstance(a, torch.fx.Node) and a in spans for a in node.args)
        if node.op == "output" or not of_positions or self._calls[node] is _element:  # what is read is no position
            return args
        name, found = _target(node).__name__, (0, 0)
        first = 1 if name == "where" else 0  # which is chosen by bools
        known = [_span(a, value, spans) for a, value in zip(node.args[first:], args[first:], strict=True)]
        whole = [a for a in known if a is not None]
        if len(whole) == len(known) and name != "truediv":
            a, b = whole[0], whole[-1]
            found = _SPANS[name](a, b) if name in _SPANS else (min(a[0], b[0]), max(a[1], b[1]))
            if name not in _COMPARISONS:
                spans[node] = max(found[0], _I64[0]), min(found[1], _I64[1])
        return tuple(map(_widened, args)) if any(map(_leaves_i32, (*whole, found))) else args

    def _value(self, library: Any, node: Any, read: Readers, args: Any, kwargs: Any) -> Any:
        run = self._calls[node]
        if run is not _element:
            return (_target(node) if library is torch else run)(*args, **kwargs)
        found = read[args[0]](*args[1:])
        return found.to(tw.f32) if library is tw and found.dtype in (tw.f16, tw.bf16) else found

    def _slope(self, library: Any, node: Any, y: Any, args: Any, steps: list[Any]) -> Any:
        name = _target(node).__name__
        if name in _FLAT:
            return None
        rule = _SLOPES.get(name)
        if rule is None or (name in ("mod", "pow", "clamp") and any(s is not None for s in steps[1:])):
            _refuse(f"the derivative of {name} in {_named(self.function)}")
        return rule(library, y, *args, *steps)


_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _span(arg: Any, value: Any, spans: Mapping[Any, Span]) -> Span | None:
    """What an operand may be, None for what is no integer."""
    if isinstance(arg, torch.fx.Node) and arg in spans:
        return spans[arg]
    if isinstance(value, int):
        return int(value), int(value)
    return _SPANS_OF.get(getattr(value, "dtype", tw.f32))


def _widened(x: Any) -> Any:
    return x.to(tw.i64) if getattr(x, "dtype", None) is tw.i32 else x


def _target(node: Any) -> Any:
    return getattr(torch, node.target) if node.op == "call_method" else node.target


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _times(slope: Any, factor: Any) -> Any:
    """Where the slope is 1, the factor."""
    return None if slope is None else factor if isinstance(slope, float) and slope == 1.0 else slope * factor


def _negative(slope: Any) -> Any:
    return None if slope is None else -slope


def _chosen(library: Any, condition: Any, a: Any, b: Any) -> Any:
    return library.where(condition, 0.0 if a is None else a, 0.0 if b is None else b)


_FLAT = frozenset(
    (
        *("lt", "le", "gt", "ge", "eq", "ne", "and_", "or_", "xor", "invert"),
        *("ceil", "floor", "round", "trunc", "floordiv"),
    )
)
"""Of these the derivative is 0 wherever there is one."""
_SLOPES: dict[str, Callable[..., Any]] = {
    # of the library, the result, the arguments and their derivatives, None for 0
    "add": lambda _, y, a, b, da, db: _sum(da, db),
    "sub": lambda _, y, a, b, da, db: _sum(da, _negative(db)),
    "mul": lambda _, y, a, b, da, db: _sum(_times(da, b), _times(db, a)),
    "truediv": lambda _, y, a, b, da, db: _sum(_times(da, 1.0 / b), _negative(_times(db, y / b))),
    "neg": lambda _, y, a, da: -da,
    "abs": lambda lib, y, a, da: _times(da, lib.where(a > 0, 1.0, lib.where(a < 0, -1.0, 0.0))),
    "pow": lambda _, y, a, n, da, dn: _times(da, n * a ** (n - 1)),
    "mod": lambda _, y, a, n, da, dn: da,
    "exp": lambda _, y, a, da: _times(da, y),
    "exp2": lambda _, y, a, da: _times(da, y * math.log(2)),
    "log": lambda _, y, a, da: _times(da, 1.0 / a),
    "log2": lambda _, y, a, da: _times(da, 1.0 / (a * math.log(2))),
    "tanh": lambda _, y, a, da: _times(da, 1.0 - y * y),
    "sigmoid": lambda _, y, a, da: _times(da, y * (1.0 - y)),
    "sin": lambda lib, y, a, da: _times(da, lib.cos(a)),
    "cos": lambda lib, y, a, da: _times(da, -lib.sin(a)),
    "sqrt": lambda _, y, a, da: _times(da, 0.5 / y),
    "rsqrt": lambda _, y, a, da: _times(da, -0.5 * y / a),
    "square": lambda _, y, a, da: _times(da, 2.0 * a),
    "erf": lambda lib, y, a, da: _times(da, 2 / math.sqrt(math.pi) * lib.exp(-a * a)),
    "maximum": lambda lib, y, a, b, da, db: _greater(lib, a, b, da, db),
    "minimum": lambda lib, y, a, b, da, db: _greater(lib, b, a, da, db),
    "where": lambda lib, y, c, a, b, dc, da, db: _chosen(lib, c, da, db),
    "clamp": lambda lib, y, a, *rest: _chosen(lib, y == a, rest[len(rest) // 2], None),  # bounds, then derivatives
}


def _greater(library: Any, a: Any, b: Any, da: Any, db: Any) -> Any:
    """The derivative of what is greater; at a tie as PyTorch has it."""
    return library.where(a == b, _sum(da, db) * 0.5, _chosen(library, a > b, da, db))


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _refuse(found: str) -> NoReturn:
    names = ", ".join(f"torch.{name}" for name in _SHARED)
    fail(
        "JIT010",
        found=found,
        required="a score_mod of (score, batch, head, query, key) of Python's operators without branches on these, of "
        f"torch.clamp, {names}, and of elements of at most {MOST_TENSORS} tensors: table[head], document[batch, query]",
        help="a tensor is read by an index for each of its axes, and is a variable of the function or around it; "
        "numbers that it reads are constants of its kernel; choose by torch.where",
    )
