"""Each refusal of the language outside of loop state: its code, the user's line, and the legal twin next to it."""

# ruff: noqa: F821, UP037 - dimension names are strings; some bodies are wrong on purpose

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.refusals import checked, refused, traced
from tilewright.base.dtypes import DType, DTypeKind
from tilewright.diag.catalogue.lang import CODES
from tilewright.lang.signature import Signature
from tilewright.tile.tracer import trace


def on(body: Callable[..., Any], code: str, *, legal: bool = False, dtype: Any = tw.f32) -> None:
    """``body(x, y, m, n)`` in a kernel x[M, N] -> y[M, N]: refused with ``code``, or traced as the legal twin."""

    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, b=8):
        m, n = tw.grid(y, (b, b))
        body(x, y, m, n)  # <-

    if legal:
        traced(kernel, dtype)
        return
    with pytest.raises(tw.TilewrightError) as caught:
        traced(kernel, dtype)
    where = checked(caught.value, code, None).where
    assert where is not None
    assert where.file == __file__
    assert where.column > 0


def store(value: Callable[..., Any]) -> Callable[..., None]:
    """A body that stores ``value(x, m, n)``."""

    def body(x: Any, y: Any, m: Any, n: Any) -> None:
        y[m, n] = value(x, m, n)

    return body


ILLEGAL: list[tuple[str, str, Callable[..., Any], Callable[..., Any]]] = [
    # name, code, illegal, its legal twin
    ("rank too high", "LNG002", lambda x, m, n: x[m, n, n], lambda x, m, n: x[m, n]),
    ("rank too low", "LNG002", lambda x, m, n: x[m], lambda x, m, n: x[m, n]),
    ("not a dtype", "LNG004", lambda x, m, n: x[m, n].to("f32"), lambda x, m, n: x[m, n].to(tw.f32)),
    ("a method of PyTorch", "LNG034", lambda x, m, n: x[m, n].sort(1), lambda x, m, n: x[m, n].cumsum(1)),
    ("a function of Triton", "LNG034", lambda x, m, n: tw.cdiv(4, 2), lambda x, m, n: -(-4 // 2)),
    ("no extent", "LNG041", lambda x, m, n: tw.stream(), lambda x, m, n: 0),
    ("a method without its dtype", "LNG041", lambda x, m, n: x[m, n].to(), lambda x, m, n: x[m, n].to(tw.f32)),
    (
        "PyTorch's dim",
        "LNG041",
        lambda x, m, n: x[m, n].sum(dim=1)[:, None],
        lambda x, m, n: x[m, n].sum(axis=1)[:, None],
    ),
    ("keepdim", "LNG041", lambda x, m, n: x[m, n].sum(1, keepdim=True), lambda x, m, n: x[m, n].sum(1, keepdims=True)),
    (
        "topk of nothing",
        "LNG042",
        lambda x, m, n: tw.topk(x[m, n], 0, 1)[0].sum(1)[:, None],
        lambda x, m, n: tw.topk(x[m, n], 1, 1)[0].sum(1)[:, None],
    ),
    (
        "a reshape by an extent of the launch",
        "LNG043",
        lambda x, m, n: x[m, n].reshape(m, x.shape[1] // 2, 2).sum(2).sum(1)[:, None],
        lambda x, m, n: x[m, n].reshape(m, -1, 2).sum(2).sum(1)[:, None],
    ),
    ("None as an operand", "LNG023", lambda x, m, n: x[m, n] + None, lambda x, m, n: x[m, n] + 1),
    ("text as an operand", "LNG023", lambda x, m, n: "a" + x[m, n], lambda x, m, n: 2 * x[m, n]),
    ("a shape at two axes", "LNG025", lambda x, m, n: x.shape[0, 1], lambda x, m, n: 0),
    ("a stream of two extents", "LNG021", lambda x, m, n: tw.stream((1, 2), 4), lambda x, m, n: 0),
    ("a stream over a shape", "LNG021", lambda x, m, n: tw.stream(x.shape, 4), lambda x, m, n: 0),
    ("parts at places", "LNG043", lambda x, m, n: x[m, n].split([3, 5])[0], lambda x, m, n: x[m, n].split(1)[0]),
    ("an axis of text", "LNG025", lambda x, m, n: x[m, n].sum("a"), lambda x, m, n: x[m, n].sum((0, 1))),
    ("an axis of a float", "LNG025", lambda x, m, n: x[m, n].sum(1.0), lambda x, m, n: x[m, n].sum()),
    (
        "axes of a transpose",
        "LNG025",
        lambda x, m, n: x[m, n].transpose(1.0, 0),
        lambda x, m, n: x[m, n].transpose(0, 1),
    ),
    ("a scan's axis", "LNG025", lambda x, m, n: x[m, n].cumsum("a"), lambda x, m, n: x[m, n].cumsum(-1)),
    ("a scan by None", "LNG038", lambda x, m, n: tw.scan(None, x[m, n], 1), lambda x, m, n: x[m, n].cumsum(1)),
    (
        "a scan by three",
        "LNG038",
        lambda x, m, n: tw.scan(lambda a, b, c: a, x[m, n], 1),
        lambda x, m, n: tw.scan(tw.maximum, x[m, n], 1),
    ),
    ("a Range indexed", "LNG019", lambda x, m, n: m[:, None] + x[m, n], lambda x, m, n: m.index[:, None] + x[m, n]),
    ("a fragment of a float's shape", "LNG021", lambda x, m, n: tw.zeros(3.0, tw.f32), lambda x, m, n: x[m, n]),
    ("an axis of nothing", "LNG021", lambda x, m, n: tw.axis(0), lambda x, m, n: x[m, n]),
    ("Python's round", "LNG007", lambda x, m, n: round(x[m, n]), lambda x, m, n: tw.round(x[m, n])),
    ("abs of a tensor", "LNG023", lambda x, m, n: abs(x), lambda x, m, n: abs(x[m, n])),
    ("if", "LNG006", lambda x, m, n: 1 if x[m, n] > 0 else 2, lambda x, m, n: tw.where(x[m, n] > 0, 1, 2)),
    ("and", "LNG006", lambda x, m, n: (x[m, n] > 0) and True, lambda x, m, n: (x[m, n] > 0) & True),
    ("or", "LNG006", lambda x, m, n: (x[m, n] > 0) or x[m, n], lambda x, m, n: (x[m, n] > 0) | False),
    ("not", "LNG006", lambda x, m, n: not x[m, n], lambda x, m, n: ~(x[m, n] > 0)),
    (
        "print",
        "LNG023",
        lambda x, m, n: tw.print(x[m, n]) or x[m, n],
        lambda x, m, n: tw.print("{}", x[m, n]) or x[m, n],
    ),
    ("builtin max", "LNG006", lambda x, m, n: max(x[m, n], 0), lambda x, m, n: tw.maximum(x[m, n], 0)),
    ("builtin min", "LNG006", lambda x, m, n: min(x[m, n], 0), lambda x, m, n: tw.minimum(x[m, n], 0)),
    ("chained", "LNG006", lambda x, m, n: 0 < x[m, n] < 1, lambda x, m, n: (x[m, n] > 0) & (x[m, n] < 1)),
    ("if on an extent", "LNG006", lambda x, m, n: 1 if x.shape[0] > 4 else 2, lambda x, m, n: x.shape[0]),
    ("in a list", "LNG006", lambda x, m, n: x[m, n] in [1, 2], lambda x, m, n: (x[m, n] == 1) | (x[m, n] == 2)),
    ("in", "LNG007", lambda x, m, n: 1 in x[m, n], lambda x, m, n: x[m, n] == 1),
    ("int", "LNG007", lambda x, m, n: int(x[m, n]), lambda x, m, n: x[m, n].to(tw.i32)),
    ("float", "LNG007", lambda x, m, n: float(x[m, n]), lambda x, m, n: x[m, n].to(tw.f32)),
    ("math.exp", "LNG007", lambda x, m, n: math.exp(x[m, n]), lambda x, m, n: tw.exp(x[m, n])),
    ("np.exp", "LNG007", lambda x, m, n: np.exp(x[m, n]), lambda x, m, n: tw.exp(x[m, n])),
    ("np.maximum", "LNG007", lambda x, m, n: np.maximum(x[m, n], 0), lambda x, m, n: tw.maximum(x[m, n], 0)),
    ("an array", "LNG007", lambda x, m, n: np.ones(4) * x[m, n], lambda x, m, n: np.float32(1) - x[m, n]),
    ("hash", "LNG007", lambda x, m, n: {x[m, n]: 1}, lambda x, m, n: {"v": x[m, n]}["v"]),
    ("range", "LNG007", lambda x, m, n: [0 for _ in range(x.shape[0])], lambda x, m, n: 0),
    ("iteration", "LNG007", lambda x, m, n: list(x[m, n]), lambda x, m, n: x[m, n]),
    ("len", "LNG007", lambda x, m, n: len(x[m, n]), lambda x, m, n: x[m, n].shape[0]),
    ("asarray", "LNG007", lambda x, m, n: np.asarray(x[m, n]), lambda x, m, n: np.float32(2) * x[m, n]),
    ("other ranges", "LNG017", lambda x, m, n: x[m, n] + x[n, m], lambda x, m, n: x[m, n] + x[m, n].T.T),
    ("a diagonal", "LNG017", lambda x, m, n: x[m, m] + x[m, n], lambda x, m, n: x[m, m.index][:, None] + x[m, n]),
    (
        "None beside an index tile",
        "LNG019",
        lambda x, m, n: x[m.index + 1, None, n][:, 0],
        lambda x, m, n: x[m, None, n][:, 0],
    ),
    ("row for column", "LNG017", lambda x, m, n: x[m, n] + x[m, 0], lambda x, m, n: x[m, n] + x[m, 0][:, None]),
    ("tile of floats as an index", "LNG019", lambda x, m, n: x[x[m, 0], n], lambda x, m, n: x[x[m, 0].to(tw.i32), n]),
    ("slice with bounds", "LNG019", lambda x, m, n: x[m, 0:4], lambda x, m, n: x[m, n]),
    ("index into a tile", "LNG019", lambda x, m, n: x[m, n][0], lambda x, m, n: x[m, n][...]),
    ("float as an index", "LNG019", lambda x, m, n: x[m, 1.5], lambda x, m, n: x[m, 0][:, None]),
    (
        "beyond the extent",
        "LNG020",
        lambda x, m, n: x[m, x.shape[1]][:, None],
        lambda x, m, n: x[m, x.shape[1] - 1][:, None],
    ),
    ("below zero", "LNG020", lambda x, m, n: x[m, -1][:, None], lambda x, m, n: x[m, 0][:, None]),
    ("shift of a float", "LNG023", lambda x, m, n: x[m, n] << 1, lambda x, m, n: x[m, n].to(tw.i32) << 1),
    ("no bound to clamp to", "LNG023", lambda x, m, n: tw.clamp(x[m, n]), lambda x, m, n: tw.clamp(x[m, n], 0)),
    (
        "fma of integers",
        "LNG023",
        lambda x, m, n: tw.fma(m.index, 3, 1)[:, None],
        lambda x, m, n: tw.fma(m.index, 3.0, 1)[:, None],
    ),
    (
        "fmod of integers",
        "LNG023",
        lambda x, m, n: tw.fmod(m.index, 3)[:, None],
        lambda x, m, n: tw.fmod(m.index, 3.0)[:, None],
    ),
    ("and of a float", "LNG023", lambda x, m, n: x[m, n] & 1, lambda x, m, n: (x[m, n] > 0) & (x[m, n] < 1)),
    ("sum of bools", "LNG023", lambda x, m, n: (x[m, n] > 0) + (x[m, n] > 1), lambda x, m, n: (x[m, n] > 0) + 1),
    (
        "fp8 arithmetic",
        "LNG023",
        lambda x, m, n: x[m, n].to(tw.e4m3) + 1,
        lambda x, m, n: x[m, n].to(tw.e4m3).to(tw.f32),
    ),
    ("exp of a bool", "LNG023", lambda x, m, n: tw.exp(x[m, n] > 0), lambda x, m, n: tw.exp(x[m, n])),
    ("not of a float", "LNG023", lambda x, m, n: ~x[m, n], lambda x, m, n: ~x[m, n].to(tw.i32)),
    (
        "an integer to a negative power",
        "LNG023",
        lambda x, m, n: (m.index + 1)[:, None] ** -1,
        lambda x, m, n: (m.index + 1)[:, None] ** 0,
    ),
    (
        "an integer to a power that is a tile",
        "LNG023",
        lambda x, m, n: 2 ** m.index[:, None],
        lambda x, m, n: 2.0 ** m.index[:, None],
    ),
    (
        "a power of a bool",
        "LNG023",
        lambda x, m, n: (x[m, n] > 0) ** 2,
        lambda x, m, n: (x[m, n] > 0).to(tw.i32) ** 2,
    ),
    (
        "a power of a tensor",
        "LNG023",
        lambda x, m, n: tw.pow(x, 2),
        lambda x, m, n: tw.pow(x[m, n], 2),
    ),
    ("places along two axes", "LNG025", lambda x, m, n: x[m, n].argmax((0, 1)), lambda x, m, n: x[m, n].argmax([0])),
    ("places along no axis", "LNG025", lambda x, m, n: x[m, n].argmax(()), lambda x, m, n: x[m, n].argmax(0)),
    ("matmul sign", "LNG023", lambda x, m, n: x[m, n] @ x[m, n], lambda x, m, n: x[m, n]),
    ("compared with None", "LNG023", lambda x, m, n: x[m, n] == None, lambda x, m, n: x[m, n] is None),  # noqa: E711
    (
        "a condition of floats",
        "LNG023",
        lambda x, m, n: tw.where(x[m, n], 1, 2),
        lambda x, m, n: tw.where(x[m, n] != 0, 1, 2),
    ),
    (
        "too large a number",
        "LNG023",
        lambda x, m, n: m.index[:, None] + 2**31,
        lambda x, m, n: m.index[:, None] + (2**31 - 1),
    ),
    (
        "absent at different places",
        "LNG035",
        lambda x, m, n: x[m - 1, n] + x[m + 1, n],
        lambda x, m, n: x[m - 1, n].fill(0.0) + x[m + 1, n],
    ),
    (
        "an element of a tile",
        "LNG019",
        lambda x, m, n: x[m, n][0, :][None, :],
        lambda x, m, n: x[m, n].max(0, keepdims=True)[0, :][None, :],
    ),
    (
        "an element behind the last of an axis",
        "LNG019",
        lambda x, m, n: x[m, n].max(0, keepdims=True)[1, :][None, :],
        lambda x, m, n: x[m, n].max(1, keepdims=True)[..., 0][:, None],
    ),
    (
        "more axes than there are",
        "LNG002",
        lambda x, m, n: x[m, n].max(0)[:, 0],
        lambda x, m, n: x[m, n].max(0)[:, None][:, 0],
    ),
    ("a tensor as a tile", "LNG023", lambda x, m, n: tw.exp(x), lambda x, m, n: tw.exp(x[m, n])),
    ("maybe a zero divisor", "LNG023", lambda x, m, n: 8 // m.start, lambda x, m, n: 8 // (m.start + 1)),
    ("zero divisor", "LNG023", lambda x, m, n: x.shape[0] % 0, lambda x, m, n: x.shape[0] % 1),
    (
        "dot of the same side",
        "LNG024",
        lambda x, m, n: tw.dot(x[m, n], x[m, n]),
        lambda x, m, n: tw.dot(x[m, n], x[m, n].T).sum(),
    ),
    (
        "dot of a vector",
        "LNG024",
        lambda x, m, n: tw.dot(x[m, n], x[0, n]),
        lambda x, m, n: tw.dot(x[m, n], x[0, n][:, None]),
    ),
    (
        "dot of mixed dtypes",
        "LNG024",
        lambda x, m, n: tw.dot(x[m, n], x[m, n].T.to(tw.bf16)).sum(),
        lambda x, m, n: tw.dot(x[m, n].to(tw.bf16), x[m, n].T.to(tw.bf16)).sum(),
    ),
    ("no such axis", "LNG025", lambda x, m, n: x[m, n].sum(2), lambda x, m, n: x[m, n].sum(1)[:, None]),
    ("an axis twice", "LNG025", lambda x, m, n: x[m, n].sum((0, -2)), lambda x, m, n: x[m, n].sum((0, -1))),
    ("argmax of two axes", "LNG025", lambda x, m, n: x[m, n].argmax(), lambda x, m, n: x[m, n].argmax(1)[:, None]),
    ("argmin of two axes", "LNG025", lambda x, m, n: x[m, n].argmin(), lambda x, m, n: x[m, n].argmin(1)[:, None]),
    ("any along no axis", "LNG025", lambda x, m, n: x[m, n].any(2), lambda x, m, n: x[m, n].any(-2)),
    ("scan of two axes", "LNG025", lambda x, m, n: x[m, n].cumsum(), lambda x, m, n: x[m, n].cumsum(0)),
    ("scan along no axis", "LNG025", lambda x, m, n: tw.cummax(x[m, n], 2), lambda x, m, n: tw.cummax(x[m, n], -2)),
    ("scan of a number", "LNG038", lambda x, m, n: tw.cumsum(1.0, 0), lambda x, m, n: tw.cumsum(x[m, n], 0)),
    (
        "a carry that is no fragment",
        "LNG038",
        lambda x, m, n: tw.cumsum(x[m, n], 1, carry=x[m, 0]),
        lambda x, m, n: tw.cumsum(x[m, n], 1, carry=tw.zeros((m,), tw.f32)),
    ),
    (
        "a carry of another dtype",
        "LNG038",
        lambda x, m, n: tw.cumsum(x[m, n], 1, carry=tw.zeros((m,), tw.bf16)),
        lambda x, m, n: tw.cumsum(x[m, n] > 0, 1, carry=tw.zeros((m,), tw.i32)),
    ),
    (
        "a carry over other axes",
        "LNG017",
        lambda x, m, n: tw.cumsum(x[m, n], 1, carry=tw.zeros((n,), tw.f32)),
        lambda x, m, n: tw.cumsum(x[m, n], 0, carry=tw.zeros((n,), tw.f32)),
    ),
    (
        "too few states",
        "LNG038",
        lambda x, m, n: tw.scan(lambda a, b: a[0] + b[0], (x[m, n], x[m, n]), 1)[0],
        lambda x, m, n: tw.scan(lambda a, b: (a[0] + b[0], a[1] + b[1]), (x[m, n], x[m, n]), 1)[0],
    ),
    (
        "another dtype of a state",
        "LNG038",
        lambda x, m, n: tw.scan(lambda a, b: (a + b).to(tw.bf16), x[m, n], 1),
        lambda x, m, n: tw.scan(lambda a, b: (a + b).to(tw.f32), x[m, n], 1),
    ),
    (
        "a tile from outside of a scan",
        "LNG038",
        lambda x, m, n: tw.scan(lambda a, b: a + b * x[m, n], x[m, n], 1),
        lambda x, m, n: tw.scan(lambda a, b: a + b * 1.0, x[m, n], 1),
    ),
    (
        "a load in a scan",
        "LNG038",
        lambda x, m, n: tw.scan(lambda a, b: a + b + x[0, 0], x[m, n], 1),
        lambda x, m, n: tw.scan(lambda a, b: a + b + 0.5, x[m, n], 1),
    ),
    (
        "exclusive from nowhere",
        "LNG038",
        lambda x, m, n: tw.scan(lambda a, b: a + b, x[m, n], 1, exclusive=True),
        lambda x, m, n: tw.scan(lambda a, b: a + b, x[m, n], 1, exclusive=True, init=0.0),
    ),
    (
        "two states before",
        "LNG038",
        lambda x, m, n: tw.scan(lambda a, b: a + b, x[m, n], 1, init=0.0, carry=tw.zeros((m,), tw.f32)),
        lambda x, m, n: tw.scan(lambda a, b: a + b, x[m, n], 1, carry=tw.zeros((m,), tw.f32)),
    ),
    (
        "one init of two",
        "LNG038",
        lambda x, m, n: tw.scan(lambda a, b: (a[0] + b[0], b[1]), (x[m, n], x[m, n]), 1, init=0.0)[0],
        lambda x, m, n: tw.scan(lambda a, b: (a[0] + b[0], b[1]), (x[m, n], x[m, n]), 1, init=(0.0, 1.0))[0],
    ),
    (
        "one carry of two",
        "LNG038",
        lambda x, m, n: tw.scan(lambda a, b: (a[0] + b[0], b[1]), (x[m, n], x[m, n]), 1, carry=tw.zeros((m,), tw.f32))[
            0
        ],
        lambda x, m, n: tw.scan(
            lambda a, b: (a[0] + b[0], b[1]),
            (x[m, n], x[m, n]),
            1,
            carry=(tw.zeros((m,), tw.f32), tw.full((m,), 1.0, tw.f32)),
        )[0],
    ),
    (
        "a difference",
        "LNG039",
        lambda x, m, n: tw.scan(lambda a, b: a - b, x[m, n], 1),
        lambda x, m, n: tw.scan(lambda a, b: a + b, x[m, n], 1),
    ),
    (
        "a decayed sum of one value",
        "LNG039",
        lambda x, m, n: tw.scan(lambda a, b: a * 0.9 + b, x[m, n], 1),
        lambda x, m, n: tw.scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x[m, n] * 0 + 0.9, x[m, n]), 1)[1],
    ),
    (
        "a mean of integers",
        "LNG039",
        lambda x, m, n: tw.scan(lambda a, b: (a + b) // 2, x[m, n].to(tw.i32), 1),
        lambda x, m, n: tw.scan(lambda a, b: a * b, x[m, n].to(tw.i8), 1),
    ),
    ("half a permutation", "LNG025", lambda x, m, n: x[m, n].transpose(0), lambda x, m, n: x[m, n].transpose(0, 1)),
    ("stored tensor", "LNG026", lambda x, m, n: x, lambda x, m, n: x[m, n]),
    ("stored string", "LNG026", lambda x, m, n: "1", lambda x, m, n: 1),
]


@pytest.mark.parametrize(("code", "illegal", "legal"), [c[1:] for c in ILLEGAL], ids=[c[0] for c in ILLEGAL])
def test_illegal_and_its_legal_twin(code: str, illegal: Callable[..., Any], legal: Callable[..., Any]) -> None:
    on(store(illegal), code)
    on(store(legal), code, legal=True)


def test_help_follows_what_was_written() -> None:
    @tw.kernel
    def branch(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        if x[m].max() > 0:  # <-
            y[m] = x[m]

    @tw.kernel
    def loop(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        while x[m].max() > 0:  # <-
            y[m] = x[m]

    @tw.kernel
    def greatest(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        y[m] = max(x[m], 0)  # <-

    @tw.kernel
    def both(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        y[m] = (x[m] > 0) and (x[m] < 1)  # <-

    @tw.kernel
    def extents(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        y[m] = x[m] if x.shape[0] > 5 else 0  # <-

    assert "of Scalars" in refused(extents, "LNG006").found
    assert "static" in refused(extents, "LNG006").help
    assert "whole tile" in refused(branch, "LNG006").found
    assert "tw.where" in refused(branch, "LNG006").help
    assert "tw.stream" in refused(loop, "LNG006").help
    assert "tw.maximum" in refused(greatest, "LNG006").help
    assert "&" in refused(both, "LNG006").help


@pytest.mark.parametrize(
    ("value", "help"),
    [
        (lambda x, m, n: x[m, n].T, "transpose the tile: x.T"),
        (lambda x, m, n: x[m, n] - x[m, n].max(1), "x[:, None]"),
        (lambda x, m, n: x[m, n] + tw.zeros((8, 8), tw.f32), "tw.zeros((m, n), tw.f32)"),
        (lambda x, m, n: x[m, tw.stream(x.shape[1], 8)], "tw.stream"),
    ],
)
def test_help_gives_operands_the_axes_they_lack(value: Callable[..., Any], help: str) -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(y, (8, 8))
        y[m, n] = value(x, m, n)

    with pytest.raises(tw.TilewrightError) as caught:
        traced(kernel)
    assert help in caught.value.diagnostics[0].help
    assert " object at " not in str(caught.value)


def test_help_drops_an_axis_of_blocks_of_one() -> None:
    @tw.kernel
    def batched(a: tw.Tensor["B", "M", "K"], c: tw.Tensor["B", "M", "M"]):
        i, m, n = tw.grid(c, (1, 16, 16))
        k = tw.axis(a.shape[2], upto=16)
        c[i, m, n] = tw.dot(a[i, m, k], a[i, n, k])  # <-

    assert "tw.grid(c, (None, bm, bn))" in refused(batched, "LNG024").help


def test_a_number_that_a_stream_makes_a_tile_should_be_a_fragment() -> None:
    @tw.kernel
    def total(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        acc = 0.0
        for n in tw.stream(x.shape[1], 8):
            acc += x[m, n].sum(1)  # <-
        y[m] = acc

    assert "tw.zeros" in refused(total, "LNG010").help


def test_a_sum_at_loaded_coordinates_is_reduce_add() -> None:
    @tw.kernel
    def scatter(ids: tw.Tensor["T"], x: tw.Tensor["T"], y: tw.Tensor["V"]):
        t = tw.grid(x, 8)
        y[ids[t]] += x[t]  # <-

    found = refused(scatter, "LNG014", dtypes={"ids": tw.i32})
    assert "tw.reduce_add" in found.help
    assert "$" not in found.found + found.labels[0].message


def test_a_compile_time_branch_is_fine() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"], *, double: bool = False):
        m = tw.grid(y, 8)
        y[m] = x[m] * 2 if double else x[m]

    assert "mul" not in str(traced(kernel))
    assert "mul" in str(traced(kernel, keywords={"double": True}))


def test_fragments_are_not_assigned_into() -> None:
    def body(x: Any, y: Any, m: Any, n: Any) -> None:
        acc = tw.zeros((m, n), tw.f32)
        acc[:, None] = x[m, n]

    on(body, "LNG019")


def test_fragment_of_integers_takes_no_floats() -> None:
    def count(x: Any, y: Any, m: Any, n: Any, dtype: Any) -> None:
        acc = tw.zeros((m, n), dtype)
        acc += x[m, n] * 0.5
        y[m, n] = acc

    on(lambda x, y, m, n: count(x, y, m, n, tw.i32), "LNG026")
    on(lambda x, y, m, n: count(x, y, m, n, tw.f32), "LNG026", legal=True)


# -- tensors read and written -----------------------------------------------------------------------------------------
def test_in_place_at_the_same_range_only() -> None:
    @tw.kernel
    def good(x: tw.Tensor["M", "N"], *, b=8):
        m, n = tw.grid(x, (b, b))
        x[m, n] += 1

    @tw.kernel
    def shifted(x: tw.Tensor["M", "N"], *, b=8):
        m, n = tw.grid(x, (b, b))
        first = x[0, n]
        x[m, n] = first + x[m, n]  # <-

    @tw.kernel
    def read_again(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, b=8):
        m, n = tw.grid(x, (b, b))
        x[m, n] = x[m, n] * 2
        y[m, n] = x[m, n]  # <-

    traced(good)
    assert refused(shifted, "LNG014").labels
    assert refused(read_again, "LNG014").labels


def test_elements_stored_more_than_once() -> None:
    @tw.kernel
    def by_programs(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m, n = tw.grid(x, (b, b))
        y[m] = x[m, n].sum(1)  # <-

    @tw.kernel
    def by_iterations(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        for n in tw.stream(x.shape[1], b):
            y[m] = x[m, n].sum(1)  # <-

    @tw.kernel
    def once_where_asked(x: tw.Tensor["M"], asked: tw.Tensor["Q"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        for _ in tw.stream(1, None, until=asked[m.start // b]):
            y[m] = x[m]

    @tw.kernel
    def twice_where_asked(x: tw.Tensor["M"], asked: tw.Tensor["Q"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        for _ in tw.stream(2, None, until=asked[m.start // b]):
            y[m] = x[m]  # <-

    @tw.kernel
    def twice(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        y[m] = x[m]
        y[m] = x[m] + 1  # <-

    @tw.kernel
    def added(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m, n = tw.grid(x, (b, b))
        tw.reduce_add(y, m, x[m, n].sum(1))

    assert "reduce_add" in refused(by_programs, "LNG015").help
    refused(by_iterations, "LNG015")
    refused(twice, "LNG015")
    traced(once_where_asked, dtypes={"asked": tw.i32})
    refused(twice_where_asked, "LNG015", dtypes={"asked": tw.i32})
    traced(added)
    traced(by_programs, static={"N": 8})  # one program along N


def test_targets_of_reduce_add_are_nothing_else() -> None:
    @tw.kernel
    def stored(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        y[m] = 0
        tw.reduce_add(y, m, x[m])  # <-

    @tw.kernel
    def loaded(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        tw.reduce_add(y, m, x[m])
        y[m] = 1  # <-

    @tw.kernel
    def no_tensor(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        tw.reduce_add(y[m], m, x[m])  # <-

    refused(stored, "LNG016")
    refused(loaded, "LNG016")
    refused(no_tensor, "LNG023")


def test_a_tensor_is_reduced_into_by_one_function() -> None:
    @tw.kernel
    def by_two(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        tw.reduce_max(y, m, x[m])
        tw.reduce_min(y, m, x[m])  # <-

    @tw.kernel
    def read(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        tw.reduce_max(y, m.index // 2, x[m] - y[m])  # <-

    @tw.kernel
    def twice(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        tw.reduce_max(y, m, x[m])
        tw.reduce_max(y, m.index // 2, x[m])

    refused(by_two, "LNG016")
    refused(read, "LNG016")
    traced(twice)


@pytest.mark.parametrize("fn", ["max", "min", "and", "or"])
def test_reductions_into_what_the_hardware_has_none_for(fn: str) -> None:
    def reduced(x: Any, y: Any, m: Any, n: Any) -> None:
        getattr(tw, f"reduce_{fn}")(y, (m, n), x[m, n])

    for dtype in (tw.i32, tw.i64, tw.u32):
        on(reduced, "LNG004", dtype=dtype, legal=True)
    for dtype in (tw.bf16, tw.f16, tw.e4m3, tw.i8, tw.u16):
        on(reduced, "LNG004", dtype=dtype)
    on(reduced, "LNG004", dtype=tw.f32, legal=fn in ("max", "min"))


def test_reduce_add_to_what_no_atomic_adds() -> None:
    def added(x: Any, y: Any, m: Any, n: Any) -> None:
        tw.reduce_add(y, (m, n), x[m, n])

    for dtype in (tw.e4m3, tw.e5m2, tw.i8):
        on(added, "LNG004", dtype=dtype)
    for dtype in (tw.i32, tw.i64, tw.bf16, tw.f16, tw.f32):
        on(added, "LNG004", dtype=dtype, legal=True)


# -- grids, axes, streams ---------------------------------------------------------------------------------------------
def test_grids() -> None:
    @tw.kernel
    def twice(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        n = tw.grid(x, 8)  # <-
        y[m] = x[n]

    @tw.kernel
    def too_many_blocks(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m, _ = tw.grid(y, (8, 8))  # <-
        y[m] = x[m]

    @tw.kernel
    def traced_block(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, x.shape[0])  # <-
        y[m] = x[m]

    @tw.kernel
    def loaded_extent(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(x[0], 8)  # <-
        y[m] = x[m]

    @tw.kernel
    def zero_block(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=0):
        m = tw.grid(y, b)  # <-
        y[m] = x[m]

    for kernel in (twice, too_many_blocks, traced_block, loaded_extent, zero_block):
        refused(kernel, "LNG021")


def test_axes() -> None:
    @tw.kernel
    def unbounded(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        n = tw.axis(x.shape[1])  # <-
        y[m] = x[m, n].sum(1)

    @tw.kernel
    def bounded(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        n = tw.axis(x.shape[1], upto=64)  # <-
        y[m] = x[m, n].sum(1)

    @tw.kernel
    def chosen(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bn=tw.auto):
        m = tw.grid(y, 8)
        n = tw.axis(bn)  # <-
        y[m] = x[m, n].sum(1)

    assert "upto=" in refused(chosen, "LNG021").help
    traced(chosen, keywords={"bn": 64}, static={"N": 64})
    refused(unbounded, "LNG021")
    traced(unbounded, static={"N": 100})
    traced(bounded)
    traced(bounded, static={"N": 64})
    refused(bounded, "LNG018", static={"N": 65})


def test_stream_bounds() -> None:
    @tw.kernel
    def by_data(x: tw.Tensor["M", "N"], lengths: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, None)
        total = tw.zeros((), tw.f32)
        for n in tw.stream(x.shape[1], 8, until=lengths[m]):
            total += x[m, n].sum(0)
        y[m] = total

    @tw.kernel
    def by_several(x: tw.Tensor["M", "N"], lengths: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        total = tw.zeros((m,), tw.f32)
        for n in tw.stream(x.shape[1], 8, until=lengths[m]):  # <-
            total += x[m, n].sum(1)
        y[m] = total

    @tw.kernel
    def behind_its_stream(x: tw.Tensor["M", "N"], lengths: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, None)
        total = tw.zeros((), tw.f32)
        for k in tw.stream(lengths, None):
            inner = tw.axis(x.shape[1], upto=64, until=lengths[k])
        total += x[m, inner].sum(0)  # <-
        y[m] = total

    @tw.kernel
    def two_axes(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        for n in tw.stream(x, 8):  # <-
            y[m] = x[m, n].sum(1)

    @tw.kernel
    def beyond(x: tw.Tensor["M"], y: tw.Tensor["M", 8]):
        m = tw.grid(x, 8)
        for n in tw.stream(16, 8):
            y[m, n] = x[m][:, None]  # <-

    traced(by_data, dtypes={"lengths": tw.i32})
    refused(by_data, "LNG022", marked=False)  # a length of f32
    refused(by_several, "LNG022", dtypes={"lengths": tw.i32})
    refused(behind_its_stream, "LNG012", dtypes={"lengths": tw.i32})
    refused(two_axes, "LNG021")
    refused(beyond, "LNG020")


def test_large_tiles() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, b=1024):
        m, n = tw.grid(x, (b, b))
        y[m, n] = x[m, n]  # <-

    traced(kernel)
    refused(kernel, "LNG005", keywords={"b": 1025})


# -- parameters and specialisation ------------------------------------------------------------------------------------
def test_parameters() -> None:
    def no_annotation(x, y: tw.Tensor["M"]): ...
    def no_tensor(*, b=8): ...
    def varargs(*x: tw.Tensor["M"]): ...
    def bad_dim(x: tw.Tensor["M N"]): ...  # noqa: F722
    def dim_not_ascii(x: tw.Tensor["π"]): ...
    def name_not_ascii(π: tw.Tensor["M"]): ...
    def kérnel(x: tw.Tensor["M"]): ...
    def zero_dim(x: tw.Tensor[0]): ...
    def two_meanings(x: tw.Tensor["M"], *, M: tw.i32): ...
    def unknown(x: tw.NoSuchThing["M"]): ...
    def keyword_first(x: tw.Tensor["M"], b=8): ...
    def narrow_scalar(x: tw.Tensor["M"], *, n: tw.i8): ...
    def no_number(x: tw.Tensor["M"], *, n: tw.i32 = 1.5): ...
    async def coroutine(x: tw.Tensor["M"]): ...
    def generator(x: tw.Tensor["M"]):
        yield

    async def both(x: tw.Tensor["M"]):
        yield

    bad: list[Any] = [
        no_annotation,
        no_tensor,
        varargs,
        bad_dim,
        dim_not_ascii,
        name_not_ascii,
        kérnel,
        zero_dim,
        two_meanings,
        unknown,
        keyword_first,
        narrow_scalar,
        no_number,
        coroutine,
        generator,
        both,
    ]
    for fn in bad:
        with pytest.raises(tw.TilewrightError) as caught:
            tw.kernel(fn)
        checked(caught.value, "LNG001", fn.__code__.co_firstlineno)

    def python_float(x: tw.Tensor["M"], p: float): ...
    def true_division(x: tw.Tensor["M"], y: tw.Tensor["M/2"]): ...
    def dtype_as_dimension(x: tw.Tensor["M"], index: tw.Tensor["M", tw.i32]): ...
    def dtype_by_name(x: tw.Tensor["M"], index: tw.Tensor["M", "int32"]): ...

    helped = (
        (python_float, "p: tw.f32"),
        (true_division, '"M//2"'),
        (dtype_as_dimension, 'dtypes={"index": "i32"}'),
        (dtype_by_name, 'dtypes={"index": "int32"}'),
    )
    for fn, help in helped:
        with pytest.raises(tw.TilewrightError) as caught:
            tw.kernel(fn)
        assert help in checked(caught.value, "LNG001", fn.__code__.co_firstlineno).help
    with pytest.raises(tw.TilewrightError) as caught:
        tw.kernel(numerics="sloppy")(lambda x: None)
    checked(caught.value, "LNG001", None)


@pytest.mark.parametrize("given", ["strict", 3, type("K", (), {})])
def test_what_is_no_function_is_no_kernel(given: Any) -> None:
    with pytest.raises(tw.TilewrightError) as caught:
        tw.kernel(given)
    assert 'numerics="strict"' in checked(caught.value, "LNG001", None).help
    assert __file__ in str(caught.value)


def test_string_annotations_know_the_definers_names_and_need_no_quotes() -> None:
    width = 128

    @tw.kernel
    def kernel(x: tw.Tensor[M, width], y: tw.Tensor["M", width]):
        m = tw.grid(x.shape[0], 8)
        y[m] = x[m]

    assert [t.dims for t in kernel.tensors] == [("M", 128), ("M", 128)]
    traced(kernel)


@tw.kernel
def plain(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, shift: tw.i32 = 0, scale: tw.f32, b=tw.auto, twice=False, need):
    m = tw.grid(y, b)
    y[m] = x[m, shift] * scale


def test_signatures() -> None:
    f32s = {"x": tw.f32, "y": tw.f32}
    trace(plain, Signature.of(f32s, keywords={"need": 1}))
    bad: list[dict[str, Any]] = [
        {"dtypes": {"x": tw.f32}, "keywords": {"need": 1}},
        {"dtypes": {**f32s, "z": tw.f32}, "keywords": {"need": 1}},
        {"dtypes": f32s},
        {"dtypes": f32s, "keywords": {"need": 1, "twise": True}},
        {"dtypes": f32s, "keywords": {"need": 1}, "static": {"Q": 4}},
        {"dtypes": f32s, "keywords": {"need": 1}, "static": {"M": 0}},
        {"dtypes": f32s, "keywords": {"need": 1}, "extents": {"twice": 4}},
    ]
    for options in bad:
        with pytest.raises(tw.TilewrightError) as caught:
            trace(plain, Signature.of(options.pop("dtypes"), **options))
        checked(caught.value, "LNG029", None)
    for dtype in (tw.tf32, DType("f64", DTypeKind.FLOAT, 64, 53)):
        with pytest.raises(tw.TilewrightError) as caught:
            trace(plain, Signature.of({"x": dtype, "y": tw.f32}, keywords={"need": 1}))
        checked(caught.value, "LNG004", None)


def test_outside_of_a_kernel() -> None:
    with pytest.raises(tw.TilewrightError) as caught:
        tw.zeros((8,), tw.f32)
    checked(caught.value, "LNG030", None)


def test_a_kernel_without_a_store() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(x, 8)
        y = x[m] + 1  # noqa: F841

    @tw.kernel
    def stored(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(x, 8)
        y[m] = x[m] + 1

    with pytest.raises(tw.TilewrightError) as caught:
        traced(kernel)
    checked(caught.value, "LNG032", None)
    traced(stored)


def test_returned_values() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        y[m] = x[m]
        return x[m]  # pyright: ignore

    with pytest.raises(tw.TilewrightError) as caught:
        traced(kernel)
    checked(caught.value, "LNG031", None)


def test_schedules() -> None:
    full = tw.Schedule(warps=8, stages=4, mode="pingpong", cluster=(2, 1), persistent=True, extents={"bm": 128})
    assert tw.Schedule.parse(str(full)) == full
    assert str(full) == "warps=8, stages=4, mode=pingpong, cluster=2x1, persistent=True, @bm=128"
    assert full.replace(warps=4).warps == 4
    assert full.threads == 256
    assert tw.Schedule.parse("") == tw.Schedule()
    with pytest.raises(tw.TilewrightError) as caught:
        tw.Schedule(stage=4)
    assert "stages" in checked(caught.value, "LNG027", None).help
    bad: list[dict[str, Any]] = [
        {"warps": 33},
        {"warps": 3},
        {"vector": 6},
        {"warps": True},
        {"mode": "fast"},
        {"cluster": (4, 8)},
        {"persistent": 1},
        {"extents": {"bm": 0}},
    ]
    for keys in bad:
        with pytest.raises(tw.TilewrightError) as caught:
            tw.Schedule(**keys)
        checked(caught.value, "LNG028", None)
    for text in ("warps", "warps=x", "cluster=2", "persistent=yes", "warps=4, warps=8"):
        with pytest.raises(tw.TilewrightError) as caught:
            tw.Schedule.parse(text)
        checked(caught.value, "LNG028", None)


def test_what_exceeds_pythons_stack() -> None:
    """A helper that never returns is named; an expression that no pass could walk is refused where it is asked for."""

    def power(v: Any, n: int) -> Any:
        return v if n == 1 else v * power(v, n - 1)

    @tw.kernel
    def powers(x: tw.Tensor["M"], y: tw.Tensor["M"], *, n: int):
        m = tw.grid(y, 8)
        y[m] = power(x[m], n)

    @tw.kernel
    def nested(x: tw.Tensor["M"], y: tw.Tensor["M"], *, n: int):
        m = tw.grid(y, 8)
        extent = x.shape[0]
        for _ in range(n):
            extent = (extent // 2) * x.shape[0] + 1
        y[m] = x[m] * extent

    x, y = np.full(3, 2, np.float32), np.zeros(3, np.float32)
    powers(x, y, n=5)
    assert (y == 32).all()
    with pytest.raises(tw.TilewrightError) as caught:
        powers(x, y, n=0)
    assert "calls of power at once" in checked(caught.value, "LNG033", None).found
    nested(x, y, n=3)
    assert (y == 2 * 10).all()
    for attempt in (lambda: nested(x, y, n=3000), lambda: nested.compile(n=3000)):
        with pytest.raises(tw.TilewrightError) as caught:
            attempt()
        assert "nested deeper" in checked(caught.value, "LNG033", None).found


def test_a_long_chain_is_no_deep_one() -> None:
    @tw.kernel
    def chain(x: tw.Tensor["M"], y: tw.Tensor["M"], *, n: int):
        m = tw.grid(y, 8)
        value = x[m]
        for i in range(n):
            value = value + float(i % 3)
        y[m] = value

    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    chain(x, y, n=1500)
    assert (y == 1500).all()


def test_every_code_has_a_test_here() -> None:
    from pathlib import Path  # noqa: PLC0415

    text = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    assert [c.id for c in CODES if f'"{c.id}"' not in text] == []


def test_loaded_coordinates_are_added_to_not_stored_to() -> None:
    @tw.kernel
    def stored(index: tw.Tensor["M"], x: tw.Tensor["M"], y: tw.Tensor["N"]):
        m = tw.grid(x, 8)
        y[index[m]] = x[m]  # <-

    @tw.kernel
    def added(index: tw.Tensor["M"], x: tw.Tensor["M"], y: tw.Tensor["N"]):
        m = tw.grid(x, 8)
        tw.reduce_add(y, index[m], x[m])

    @tw.kernel
    def promised(index: tw.Unique["M"], x: tw.Tensor["M"], y: tw.Tensor["N"]):
        m = tw.grid(x, 8)
        y[index[m]] = x[m]

    refused(stored, "LNG036", dtypes={"index": tw.i32})
    traced(added, dtypes={"index": tw.i32})
    traced(promised, dtypes={"index": tw.i32})


def test_what_is_stored_at_is_an_element_of_a_promised_tensor() -> None:
    @tw.kernel
    def clipped(index: tw.Unique["M"], x: tw.Tensor["M"], y: tw.Tensor["N"]):
        m = tw.grid(x, 8)
        y[tw.maximum(index[m], 0)] = x[m]  # <-

    @tw.kernel
    def moved(index: tw.Unique["M"], x: tw.Tensor["M"], y: tw.Tensor["N"]):
        m = tw.grid(x, 8)
        y[index[m] + m.index] = x[m]  # <-

    @tw.kernel
    def through_another(index: tw.Unique["M"], more: tw.Tensor["M"], x: tw.Tensor["M"], y: tw.Tensor["N", "N"]):
        m = tw.grid(x, 8)
        y[index[m], more[m]] = x[m]  # <-

    @tw.kernel
    def apart(index: tw.Unique["M"], x: tw.Tensor["M"], y: tw.Tensor["N", "N"]):
        m = tw.grid(x, 8)
        y[index[m], index[x.shape[0] - 1 - m.index]] = x[m]  # <-

    for kernel in (clipped, moved, apart):
        refused(kernel, "LNG036", dtypes={"index": tw.i32})
    refused(through_another, "LNG036", dtypes={"index": tw.i32, "more": tw.i32})


def test_what_is_computed_is_not_called_loaded() -> None:
    @tw.kernel
    def rolled(x: tw.Tensor["M"], y: tw.Tensor["M"], *, by: tw.i32):
        m = tw.grid(x, 8)
        y[(m + by) % x.shape[0]] = x[m]  # <-

    @tw.kernel
    def turned(x: tw.Tensor["M"], y: tw.Tensor["M"], *, by: tw.i32):
        m = tw.grid(y, 8)
        y[m] = x[(m.index - by) % x.shape[0]]

    found = refused(rolled, "LNG036")
    assert "loaded" not in found.found
    assert found.help is not None
    assert "load at computed coordinates" in found.help
    traced(turned)


def test_promised_integers_stay_as_they_are() -> None:
    @tw.kernel
    def raised(index: tw.Unique["M"], x: tw.Tensor["M"], y: tw.Tensor["N"]):
        m = tw.grid(x, 8)
        at = index[m]
        index[m] = at + 1  # <-
        y[at] = x[m]

    @tw.kernel
    def of_floats(index: tw.Unique["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        y[m] = index[m]

    refused(raised, "LNG040", dtypes={"index": tw.i32})
    refused(of_floats, "LNG040", marked=False)
    traced(of_floats, dtypes={"index": tw.i32})


def test_one_store_at_loaded_coordinates_and_no_load() -> None:
    @tw.kernel
    def two(a: tw.Unique["M"], b: tw.Unique["M"], x: tw.Tensor["M"], y: tw.Tensor["N"]):
        m = tw.grid(x, 8)
        y[a[m]] = x[m]
        y[b[m]] = x[m]  # <-

    @tw.kernel
    def read(a: tw.Unique["M"], y: tw.Tensor["N"]):
        m = tw.grid(a, 8)
        y[a[m]] = y[m] + 1.0  # <-

    @tw.kernel
    def columns(a: tw.Unique["M"], x: tw.Tensor["M", 64], y: tw.Tensor["N", 64]):
        m = tw.grid(x.shape[0], 8)
        y[a[m], :32] = x[m, 32:]
        y[a[m], 32:] = x[m, :32]

    refused(two, "LNG015", dtypes={"a": tw.i32, "b": tw.i32})
    refused(read, "LNG014", dtypes={"a": tw.i32})
    traced(columns, dtypes={"a": tw.i32})


def test_parts_of_a_tensor_that_never_meet_are_read_and_written() -> None:
    @tw.kernel
    def halves(x: tw.Tensor["M", 64]):
        m = tw.grid(x.shape[0], 8)
        second = x[m, 32:]
        x[m, :32] = second
        x[m, 32:] = second * 2.0

    @tw.kernel
    def meeting(x: tw.Tensor["M", 64]):
        m = tw.grid(x.shape[0], 8)
        second = x[m, 16:48]
        x[m, :32] = second  # <-

    @tw.kernel
    def shifted(x: tw.Tensor["M"]):
        m = tw.grid(x, 8)
        x[m] = x[m + 1]  # <-

    @tw.kernel
    def behind(x: tw.Tensor["M", 64]):
        m = tw.grid(x.shape[0], 8)
        x[m, :32] = x[m, :32] + 1.0
        x[m, 32:] = x[m, 31:63]  # <-

    @tw.kernel
    def alternate(x: tw.Tensor["M", 64]):
        m = tw.grid(x.shape[0], 8)
        n = tw.axis(15)
        x[m, 4 * n] = x[m, 4 * n + 2]

    @tw.kernel
    def next_one(x: tw.Tensor["M", 64]):
        m = tw.grid(x.shape[0], 8)
        n = tw.axis(15)
        x[m, 4 * n] = x[m, 4 * n + 4]  # <-

    traced(halves)
    traced(alternate)
    refused(next_one, "LNG014")
    refused(meeting, "LNG014")
    refused(shifted, "LNG014")
    refused(behind, "LNG014")


def test_tensors_are_indexed_before_they_are_used() -> None:
    on(lambda x, y, m, n: x[m, n] + y, "LNG023")
    on(lambda x, y, m, n: y * 2, "LNG023")
    on(lambda x, y, m, n: tw.where(x > 0, x[m, n], 0), "LNG023")


def test_a_call_that_does_not_fit() -> None:
    """The function's signature and what it does; a helper that is called like one of ours is the user's affair."""

    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(y, (8, 8))
        y[m, n] = x[m, n].sum(1, keepdim=True)  # pyright: ignore[reportCallIssue]

    @tw.kernel
    def helped(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(y, (8, 8))
        y[m, n] = dot(x[m, n])  # pyright: ignore[reportCallIssue]

    with pytest.raises(tw.TilewrightError) as caught:
        kernel.explain()
    (found,) = caught.value.diagnostics
    assert (found.required, found.help) == ("x.sum(axis=None, keepdims=False)", "here it is keepdims")
    with pytest.raises(TypeError, match="missing 1 required"):
        helped.explain()


def dot(a: Any, b: Any) -> Any:
    """A user's function, called like the language's."""
    return a * b


def test_a_bound_that_is_none() -> None:
    for start in (None, 0):

        @tw.kernel
        def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
            m = tw.grid(y, (8,))
            for n in tw.stream(x.shape[1], 8, start=start):  # noqa: B023 - traced at once
                y[m, n] = x[m, n]

        traced(kernel)


def test_axes_are_told_by_extent_and_place() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(y, (8, 16))
        y[m, n] = x[m, n] - x[m, n].max(1)

    with pytest.raises(tw.TilewrightError) as caught:
        kernel.explain()
    (found,) = caught.value.diagnostics
    assert found.found == "(8 of M from p0*8, 16 of N from p1*16) and (8 of M from p0*8,)"


def test_a_tensor_that_is_left_out() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], bias: tw.Tensor["N"] | None = None):
        m, n = tw.grid(y, (8, 8))
        y[m, n] = x[m, n] + bias[n]

    x = np.zeros((8, 8), np.float32)
    with pytest.raises(tw.TilewrightError) as caught:
        kernel(x, x.copy())
    (found,) = caught.value.diagnostics
    assert (found.code, found.found) == ("LNG037", "None, since bias is left out")
    kernel(x, x.copy(), np.zeros(8, np.float32))


def test_help_names_the_transposition() -> None:
    @tw.kernel
    def swapped(x: tw.Tensor["A", "B", "C"], y: tw.Tensor["B", "A", "C"]):
        a, b, c = tw.grid(x, (2, 4, 8))
        y[b, a, c] = x[a, b, c]

    with pytest.raises(tw.TilewrightError) as caught:
        traced(swapped, tw.f32)
    assert checked(caught.value, "LNG017", None).help == "transpose the tile: x.transpose(1, 0, 2)"


def test_help_names_the_diagonal() -> None:
    @tw.kernel
    def diagonal(x: tw.Tensor["N", "N"], y: tw.Tensor["N"]):
        n = tw.grid(y, 8)
        y[n] = x[n, n]

    with pytest.raises(tw.TilewrightError) as caught:
        traced(diagonal, tw.f32)
    assert "x[n, n.index]" in checked(caught.value, "LNG017", None).help
