"""A program for each group of offsets: what it stores to the group's rows is proved by what offsets promise."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# ruff: noqa: F821

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from support.indexed_more import CASES
from support.lowered import lowered
from tilewright.base.expr import Sym
from tilewright.base.verdict import Proved
from tilewright.compiler.proofs.loaded import Ascending, offsets_of, tiles_of
from tilewright.compiler.proofs.stores import certified, prove_stores
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, tensor_name
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)

DTYPES = {"offsets": "i32", "x": "f32", "y": "f32"}


def error_of(run: Callable[[], object]) -> str:
    with pytest.raises(tw.TilewrightError) as caught:
        run()
    return str(caught.value)


def kernels() -> tuple[tile.Kernel, t.Kernel]:
    """Both IRs of a kernel, to be changed."""
    made, text = list(lowered(CASES["softmax_of_groups"].kernel, DTYPES).values())[-1]
    return made.clone(), text.clone()


def test_the_rows_of_a_group_are_those_of_its_program() -> None:
    kernel, text = kernels()
    assert offsets_of(kernel) == (Ascending("offsets", Sym("G") + 1, Sym("T")),)
    assert [(rows.program, rows.size) for rows in tiles_of(kernel).values()] == [("$p0", None)] * 2
    answer = prove_stores(kernel, text)
    assert isinstance(answer, Proved)
    (once,) = (o.method for o in certified(kernel, answer) if o.name == "once")
    assert once.endswith("by offsets(offsets)")


@pytest.mark.parametrize(("load", "change"), [(2, -1), (2, 1), (3, -1), (3, 1)])
def test_rows_of_other_groups_are_not_proved(load: int, change: int) -> None:
    """The stream that stores begins one group earlier or later, or ends so."""
    kernel, text = kernels()
    loads = [op for op in kernel.walk() if isinstance(op, tile.Load) and tensor_name(op) == "offsets"]
    (place,) = coords_of(loads[load])
    moved = tile.Load(loads[load].tensor, [place + change])
    loads[load].attributes["coords"] = moved.attributes["coords"]
    assert not isinstance(prove_stores(kernel, text), Proved)


def test_without_the_promise_nothing_is_proved() -> None:
    kernel, text = kernels()
    del kernel.attributes["ascending"]
    assert not isinstance(prove_stores(kernel, text), Proved)


def test_programs_that_share_rows_are_refused() -> None:
    @tw.kernel
    def of_pairs(offsets: tw.Offsets[G + 1], x: tw.Tensor[T], y: tw.Tensor[T]):
        g = tw.grid(offsets.shape[0] - 1)
        for m in tw.stream(x.shape[0], 8, start=offsets[g // 2], until=offsets[g // 2 + 1]):
            y[m] = x[m]

    @tw.kernel
    def to_the_end(offsets: tw.Offsets[G + 1], x: tw.Tensor[T], y: tw.Tensor[T]):
        g = tw.grid(offsets.shape[0] - 1)
        for m in tw.stream(x.shape[0], 8, start=offsets[g], until=x.shape[0]):
            y[m] = x[m]

    @tw.kernel
    def unchecked(offsets: tw.Tensor[G + 1], x: tw.Tensor[T], y: tw.Tensor[T]):
        g = tw.grid(offsets.shape[0] - 1)
        for m in tw.stream(x.shape[0], 8, start=offsets[g], until=offsets[g + 1]):
            y[m] = x[m]

    arguments = np.array([0, 2], np.int32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    for kernel, code in ((of_pairs, "LNG015"), (to_the_end, "ACC005"), (unchecked, "LNG015")):
        assert code in error_of(lambda kernel=kernel: kernel(*arguments))


@pytest.mark.parametrize("offsets", [[0, 3, 2, 10], [1, 3, 5, 9], [0, 3, 7, 99], [0, -5, 7, 9]])
def test_nothing_is_stored_unless_offsets_ascend(offsets: list[int]) -> None:
    x, y = np.ones((20, 4), np.float32), np.full((20, 4), 7, np.float32)
    kernel = CASES["recurrence_of_groups"].kernel
    assert "offsets(offsets)" in error_of(lambda: kernel(np.array(offsets, np.int64), x, y))
    assert (y == 7).all()
