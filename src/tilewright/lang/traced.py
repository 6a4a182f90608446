"""What Python may not do with a value known only when the kernel runs: test, convert, hash or iterate it."""

from __future__ import annotations

from typing import NoReturn

from tilewright.lang.places import refuse, truth_asked_by, user_frame

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


class Traced:
    """Base of all proxies: each Python protocol that needs the value itself is refused at the user's line."""

    __slots__ = ()

    # NumPy scalars on the left leave the operation to us.
    __array_ufunc__ = None

    def _refuse_value(self, use: str, help: str) -> NoReturn:
        refuse("LNG007", found=f"{use} of a {type(self).__name__}", required="a compile-time value", help=help)

    def __bool__(self) -> bool:
        asked = truth_asked_by(user_frame())
        refuse(
            "LNG006",
            found=f"`{asked}` on a {type(self).__name__}" if asked else f"bool() of a {type(self).__name__}",
            required="a compile-time value",
            help=_TRUTH_HELP.get(asked, "use tw.where, & | ~, tw.maximum / tw.minimum on traced values"),
        )

    def __int__(self) -> int:
        self._refuse_value("int()", "cast with .to(tw.i32)")

    def __float__(self) -> float:
        self._refuse_value("float()", "cast with .to(tw.f32); for math functions use tw.exp, tw.log, tw.sqrt ...")

    def __index__(self) -> int:
        self._refuse_value("a Python index or range()", "loop with `for k in tw.stream(extent, step)`")

    def __hash__(self) -> int:
        self._refuse_value("hash()", "keep traced values in variables, lists or as values of a dict")

    def __contains__(self, item: object) -> bool:
        self._refuse_value("`in`", "compare with == and reduce the result with .max()")

    def __iter__(self) -> NoReturn:
        self._refuse_value("iteration", "loop with `for k in tw.stream(extent, step)`; index axes with Ranges")

    def __len__(self) -> int:
        self._refuse_value("len()", "use .shape")

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        self._refuse_value("a NumPy conversion", "use the functions of tilewright: tw.exp, tw.where, x.sum(axis) ...")
