"""Scans in Tile IR: an evaluator that goes element by element agrees with NumPy; text; what a function may be."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from support.indexed import SHORT
from support.scans import CASES, Arrays, Scanning
from support.tile_evaluator import evaluate
from tilewright.base.dtypes import DTYPES
from tilewright.lang.enums import BinaryFn
from tilewright.lang.signature import Signature
from tilewright.tile import dialect
from tilewright.tile.combining import counterexample
from tilewright.tile.tracer import trace

INDIRECT = {"shifted", "gathered_least", "compacted", "until_loaded"}
"""Whose coordinates or bounds the evaluator does not know."""
PLAIN = sorted(CASES.keys() - INDIRECT)


def traced(case: Scanning, arrays: Arrays) -> ModuleOp:
    dtypes = {n: DTYPES[SHORT[a.dtype.name]] for n, a in arrays.items()}
    return trace(case.kernel, Signature.of(dtypes, keywords=dict(case.keywords)))


def parsed(text: str) -> ModuleOp:
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(dialect.Tile)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


@pytest.mark.parametrize("name", PLAIN)
def test_evaluator_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays = case.draw(np.random.default_rng(3))
    expected = {n: np.asarray(a) for n, a in case.expected(arrays).items()}
    evaluate(traced(case, arrays), arrays)
    for output, want in expected.items():
        np.testing.assert_allclose(arrays[output].astype(want.dtype), want, case.within, case.within, err_msg=output)


@pytest.mark.parametrize("name", ["long_recurrence", "segmented_sums", "decayed_after", "gathered_least"])
def test_text_round_trip(name: str) -> None:
    module = traced(CASES[name], CASES[name].draw(np.random.default_rng(0)))
    again = parsed(str(module))
    assert module.is_structurally_equivalent(again)
    assert str(again) == str(module)


def scan_of(fn: Callable[..., Any], dtypes: Sequence[Any]) -> dialect.Scan:
    """The scan by ``fn`` over as many tiles of x as there are dtypes."""

    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):  # noqa: F821, UP037
        m = tw.grid(y.shape[0], 4)
        n = tw.axis(x.shape[1], upto=64)
        values = tuple(x[m, n].to(d) for d in dtypes)
        y[m, n] = (
            tw.scan(fn, values if len(dtypes) > 1 else values[0], 1) if len(dtypes) == 1 else tw.scan(fn, values, 1)[0]
        )

    module = trace(kernel, Signature.of({"x": tw.f32, "y": tw.f32}))
    return next(op for op in module.walk() if isinstance(op, dialect.Scan))


def logarithm_of_sum(before: Any, here: Any) -> Any:
    """States of a maximum and a sum of exponentials below it: an online softmax."""
    (m, s), (x, t) = before, here
    most = tw.maximum(m, x)
    return most, s * tw.exp(m - most) + t * tw.exp(x - most)


ASSOCIATIVE: list[tuple[Callable[..., Any], list[Any]]] = [
    (lambda a, b: a + b, [tw.f32]),
    (lambda a, b: a * b, [tw.i8]),
    (lambda a, b: a & b, [tw.i32]),
    (lambda a, b: a ^ b, [tw.bool]),
    (lambda a, b: tw.sqrt(a * a + b * b), [tw.f32]),
    (lambda a, b: a, [tw.f32]),
    (lambda a, b: a + b + a * b, [tw.f32]),
    (lambda a, b: tw.where((a == 0) | (b < a), b, a), [tw.i32]),
    (logarithm_of_sum, [tw.f32, tw.f32]),
    (lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), [tw.f32, tw.f32]),
]


@pytest.mark.parametrize(("fn", "dtypes"), ASSOCIATIVE)
def test_associative_functions_are_taken(fn: Callable[..., Any], dtypes: list[Any]) -> None:
    assert counterexample(scan_of(fn, dtypes)) is None


OTHERS: list[tuple[Callable[..., Any], list[Any]]] = [
    (lambda a, b: a - b, [tw.f32]),
    (lambda a, b: a / b, [tw.f32]),
    (lambda a, b: a * b + 1, [tw.i32]),
    (lambda a, b: a + 1.001 * b, [tw.f32]),
    (lambda a, b: tw.floor(tw.log1p(a * b)), [tw.f32]),
    (lambda a, b: tw.trunc(tw.sin(a)) - b, [tw.f32]),
    (lambda a, b: ~(a & b), [tw.bool]),
    (lambda a, b: (a[0] * b[0], a[1] * b[0] - b[1]), [tw.f32, tw.f32]),
]


@pytest.mark.parametrize(("fn", "dtypes"), OTHERS)
def test_other_functions_are_refused(fn: Callable[..., Any], dtypes: list[Any]) -> None:
    with pytest.raises(tw.TilewrightError) as caught:
        scan_of(fn, dtypes)
    assert [d.code for d in caught.value.diagnostics] == ["LNG039"]


@pytest.mark.parametrize(
    ("fn", "function"),
    [
        (lambda a, b: a + b, BinaryFn.ADD),
        (lambda a, b: b * a, BinaryFn.MUL),
        (tw.maximum, BinaryFn.MAX),
        (lambda a, b: a + b + 0.0, None),
        (lambda a, b: tw.minimum(a, b) * 1.0, None),
    ],
)
def test_a_function_is_recognised(fn: Callable[..., Any], function: BinaryFn | None) -> None:
    assert scan_of(fn, [tw.f32]).function is function


def without_yielded(text: str) -> str:
    before, after = text.split("tile.yield", 1)
    return before + "tile.yield " + after[after.index("{loc") :]


WRONG: list[tuple[Callable[[str], str], str]] = [
    (lambda text: text.replace("along #builtin.int<1>", "along #builtin.int<2>", 1), "axis 2 of rank 2"),
    (lambda text: text.replace("attributes {", "attributes {exclusive, ", 1), "before the first element is a state"),
    (without_yielded, "yields a state"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_verifier(change: Callable[[str], str], message: str) -> None:
    op = scan_of(lambda a, b: a + b, [tw.f32]).parent_op()
    assert op is not None
    text = str(op.parent_op())
    head, tail = text.split("tile.scan", 1)
    assert str(parsed(text)) == text
    with pytest.raises(VerifyException, match=message):
        parsed(head + "tile.scan" + change(tail))
