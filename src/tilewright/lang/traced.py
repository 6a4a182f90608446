"""Operations of Python that a value known only at run time does not support: tests, conversions, hashing and
iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.diag import type_shown
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.source_locations import AS_MANY_NAMES, names_unpacked_by, refuse, truth_asked_by, user_frame

_TRUTH_HELP = {
    "if": "choose by element with tw.where(condition, a, b); a compile-time keyword may steer an `if`",
    "while": "loop with `for k in tw.stream(extent, step)`",
    "and / or": "use & and |, each side in parentheses",
    "not": "use ~",
    "in": "compare with == and combine with |",
    "max": "use tw.maximum(a, b), or x.max(axis) for a reduction",
    "min": "use tw.minimum(a, b), or x.min(axis) for a reduction",
    "a chained comparison": "write (a <= x) & (x < b)",
    "assert": "compile-time values may be asserted; a tile's elements can't",
}

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "left_shift": lambda a, b: a << b,
    "right_shift": lambda a, b: a >> b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "power": lambda a, b: a**b,
}
"""Operators by the names that NumPy has for them."""
_FUNCTIONS = {
    "absolute": "abs",
    "fmax": "maximum",
    "fmin": "minimum",
    "rint": "round",
    **{f"arc{name[1:]}": name for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
}
"""Functions that have another name in NumPy."""
_OURS = frozenset(
    (
        *(str(fn) for fn in UnaryFn if fn.row.number is not None),
        *("argsort", "atan2", "clamp", "cumprod", "cumsum", "fmod", "hypot", "isfinite", "isinf", "isnan", "maximum"),
        *("minimum", "pow", "reciprocal", "sign", "sort", "square", "topk", "where"),
    )
)
_REDUCTIONS = frozenset(("all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum"))


def _instead(name: str) -> str:
    """The suggested replacement of a function of NumPy or PyTorch."""
    from tilewright.lang import hints  # noqa: PLC0415 - for a mistake only

    if name in _OURS or name in _REDUCTIONS:
        return f"use tw.{name}" if name in _OURS else f"use x.{name}(axis)"
    return hints.FUNCTIONS.get(name) or hints.METHODS.get(name) or "use the functions and methods of docs/language.md"


class Traced:
    """Base of all proxies: each Python protocol that needs the value itself is refused at the user's line."""

    __slots__ = ()
    _methods_of_loaded: frozenset[str] = frozenset()
    """Names that this has not, and what is loaded of it has."""

    if not TYPE_CHECKING:  # a type checker knows the names

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            from tilewright.lang import hints  # noqa: PLC0415 - for a mistake only

            found = {**hints.FUNCTIONS, **hints.METHODS}
            if name in self._methods_of_loaded:
                found = {name: f"load a tile first: x[m, n].{name}"}
            raise hints.no_such_name(f"{type(self).__name__}.", name, found, dir(type(self)))

    def _refuse_value(self, use: str, help: str) -> NoReturn:
        refuse("LNG007", found=f"{use} of {type_shown(self)}", required="a compile-time value", help=help)

    def __bool__(self) -> bool:
        asked, what = truth_asked_by(user_frame()), type(self).__name__
        help = _TRUTH_HELP.get(asked, "use tw.where, & | ~, tw.maximum / tw.minimum on traced values")
        if what == "Scalar" or getattr(self, "axes", None) == ():
            what = "Scalar" if what == "Scalar" else "value without axes, of Scalars or of a whole tile"
            if asked in ("if", "assert"):
                help = f"{_TRUTH_HELP['if']}, and so may an extent that compile(static=...) or the annotation gives"
        refuse(
            "LNG006",
            found=f"`{asked}` on a {what}" if asked else f"bool() of a {what}",
            required="a compile-time value",
            help=help,
        )

    def __int__(self) -> int:
        self._refuse_value("int()", "cast with .to(tw.i32)")

    def __float__(self) -> float:
        self._refuse_value("float()", "cast with .to(tw.f32); for math functions use tw.exp, tw.log, tw.sqrt ...")

    def __index__(self) -> int:
        self._refuse_value("a Python index or range()", "loop with `for k in tw.stream(extent, step)`")

    def __round__(self, digits: object = None) -> NoReturn:
        self._refuse_value("round()", "use tw.round")

    def __floor__(self) -> NoReturn:
        self._refuse_value("math.floor()", "use tw.floor")

    def __ceil__(self) -> NoReturn:
        self._refuse_value("math.ceil()", "use tw.ceil")

    def __trunc__(self) -> NoReturn:
        self._refuse_value("math.trunc()", "x.to(tw.i32).to(tw.f32)")

    def __complex__(self) -> NoReturn:
        self._refuse_value("complex()", "there are no complex numbers: keep two tiles")

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse_value("a format", 'tw.print("x = {}", x) shows values when the kernel runs')
        return str(self)

    def __delitem__(self, key: object) -> NoReturn:
        self._refuse_value("del of an element", "tiles and tensors keep their elements: store zeros")

    def __hash__(self) -> int:
        self._refuse_value("hash()", "keep traced values in variables, lists or as values of a dict")

    def __contains__(self, item: object) -> bool:
        self._refuse_value("`in`", "compare with == and reduce the result with .max()")

    def __iter__(self) -> NoReturn:
        names = names_unpacked_by(user_frame())
        if names:
            refuse(
                "LNG041",
                found=f"one {type(self).__name__} for {names} names",
                required=AS_MANY_NAMES,
                help="count the names on the left, and the blocks; indices of sorted elements are tw.argsort(x, axis)",
            )
        self._refuse_value("iteration", "loop with `for k in tw.stream(extent, step)`; index axes with Ranges")

    def __len__(self) -> int:
        self._refuse_value("len()", "use .shape")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Python's operators, which a NumPy scalar on the left leaves to us; NumPy's functions are refused."""
        operation, name = _OPERATORS.get(ufunc.__name__), str(ufunc.__name__)
        scalars = all(isinstance(x, Traced) or not getattr(x, "shape", ()) for x in inputs)
        if operation is not None and method == "__call__" and scalars and not kwargs:
            return operation(*(x if isinstance(x, Traced) else x.item() for x in inputs))
        if not scalars:
            array = next(x for x in inputs if not isinstance(x, Traced) and getattr(x, "shape", ()))
            refuse(
                "LNG007",
                found=f"np.{name} of {type_shown(self)} and an array of shape {array.shape}",
                required="tiles and numbers",
                help="pass the array as a tensor parameter, and load it: x[m, n]",
            )
        self._refuse_value(f"np.{name}", _instead(_FUNCTIONS.get(name, name)))

    def __array_function__(self, function: Any, types: object, args: object, kwargs: object) -> NoReturn:
        name = str(function.__name__)
        self._refuse_value(f"np.{name}", _instead(_FUNCTIONS.get(name, name)))

    @classmethod
    def __torch_function__(cls, function: Any, types: object, args: Any = (), kwargs: object = None) -> NoReturn:
        """PyTorch's functions, and operators with a tensor on the left."""
        name = str(getattr(function, "__name__", "?")).strip("_")
        tensor = next((x for x in args if not isinstance(x, Traced) and hasattr(x, "dim")), None)
        help = _instead(_FUNCTIONS.get(name, name))
        if tensor is not None:
            help = "pass the tensor as a parameter, and load it: x[m, n]" if tensor.dim() else "a number: tensor.item()"
        refuse("LNG007", found=f"torch.{name} of a {cls.__name__}", required="a compile-time value", help=help)

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        self._refuse_value("a NumPy conversion", "use the functions of tilewright: tw.exp, tw.where, x.sum(axis) ...")
