"""Parameters as type checkers accept them: ``Annotated[tw.Tensor, "M", 128]`` is ``tw.Tensor["M", 128]``."""

# ruff: noqa: F821, UP037 - dimension names

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Optional, Union

import numpy as np
import pytest

import tilewright as tw
from tilewright.diag import TilewrightError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
Matrix = Annotated[tw.Tensor, "M", 128]


def test_both_forms_are_the_same_parameters() -> None:
    @tw.kernel
    def short(
        o: tw.Offsets["G + 1"],
        i: tw.Unique["M"],
        x: tw.Tensor["M", 128],
        y: tw.Tensor["M", 128] | None,
        z: tw.Tensor["M", 128] = None,
        *,
        a: tw.f32,
        b: tw.i64 = 3,
        bm=tw.auto,
    ):
        pass

    @tw.kernel
    def annotated(
        o: Annotated[tw.Offsets, "G + 1"],
        i: Annotated[tw.Unique, "M"],
        x: Matrix,
        y: Matrix | None,
        z: Annotated[tw.Tensor, "M", 128] = None,
        *,
        a: Annotated[float, tw.f32],
        b: Annotated[int, tw.i64] = 3,
        bm: int = tw.auto,
    ):
        pass

    assert short.params == annotated.params


@pytest.mark.parametrize("absent", [Optional[Matrix], Union[None, Matrix], None | Matrix])  # noqa: UP007, UP045
def test_a_tensor_that_may_be_absent(absent: object) -> None:
    def scaled(x: Matrix, y: Matrix, s: Matrix | None):
        m = tw.grid(x.shape[0], 4)
        y[m, :] = x[m, :] if s is None else x[m, :] * s[m, :]

    scaled.__annotations__ = {"x": Matrix, "y": Matrix, "s": absent}
    x = np.arange(5 * 128, dtype=np.float32).reshape(5, 128)
    y = np.full_like(x, np.nan)
    kernel = tw.kernel(scaled)
    kernel(x, y, None)
    np.testing.assert_array_equal(y, x)
    kernel(x, y, x)
    np.testing.assert_array_equal(y, x * x)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[tw.Tensor, 2.5],
        Annotated[tw.Tensor, "2M"],
        Annotated[tw.Tensor, 0],
        Annotated[int, "M"],
        Annotated[float, tw.bf16],
        Annotated[float, tw.f32] | None,
    ],
)
def test_what_says_nothing_is_refused(annotation: object) -> None:
    def kernel(x: Matrix, y: object):
        pass

    kernel.__annotations__ = {"x": Matrix, "y": annotation}
    with pytest.raises(TilewrightError, match="LNG001"):
        tw.kernel(kernel)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_need_no_suppressed_rules(example: Path) -> None:
    assert not re.search(r"#\s*(pyright|type|ruff|noqa)\b", example.read_text())
