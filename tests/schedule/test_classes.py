"""Which axes are spread alike, and what is done where one value would need two ways."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import numpy as np

import tilewright as tw
from support.generality import CASES
from support.refusals import traced
from tilewright.lang.params import KernelFunction
from tilewright.schedule.classes import classify
from tilewright.schedule.relayout import Relayout, classified
from tilewright.tile import dialect as tile

DTYPES = {"float32": tw.f32, "float16": tw.f16, "bfloat16": tw.bf16, "int32": tw.i32, "int64": tw.i64, "bool": tw.bool}


def traced_kernel(function: KernelFunction) -> tile.Kernel:
    dtypes = (
        {n: DTYPES[np.dtype(d).name] for n, d in CASES[function.name].dtypes.items()} if function.name in CASES else {}
    )
    (kernel,) = traced(function, dtypes=dtypes, extents=dict.fromkeys(function.autos, 8)).body.block.ops
    return kernel


@tw.kernel
def row_sum(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bm=8, bn=16):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=16)
    y[m] = (x[m, n] * 2).sum(1)


@tw.kernel
def own_index_mask(x: tw.Tensor["N", "N"], y: tw.Tensor["N", "N"], *, upto=16):
    _ = tw.grid(1, None)
    n = tw.axis(x.shape[0], upto=upto)
    i = n.index
    y[n, n] = tw.where(i[:, None] >= i[None, :], x[n, n], 0.0)


@tw.kernel
def row_of_sums(x: tw.Tensor["N", "K"], y: tw.Tensor["N", "N"], *, upto=16):
    _ = tw.grid(1, None)
    n, k = tw.axis(x.shape[0], upto=upto), tw.axis(x.shape[1], upto=8)
    total = x[n, k].sum(1)
    y[n, n] = total[:, None] - total[None, :]


def test_elementwise_axes_and_kept_axes_share_a_class() -> None:
    kernel = traced_kernel(row_sum)
    classes = classify(kernel)
    load = next(op for op in kernel.walk() if isinstance(op, tile.Load))
    reduce = next(op for op in kernel.walk() if isinstance(op, tile.Reduce))
    assert classes.of(reduce.operands[0]) == classes.of(load.result)
    assert classes.of(reduce.results[0]) == classes.of(load.result)[:1]
    rows, columns = classes.of(load.result)
    assert rows != columns
    assert not classes.converts
    assert classified(kernel)[0] is kernel


def no_value_has_a_class_twice(kernel: tile.Kernel) -> bool:
    classes = classify(kernel)
    values = [r for op in kernel.walk() for r in op.results if isinstance(r.type, tile.TileType | tile.FragmentType)]
    held = [[c for c in classes.of(v) if c is not None] for v in values]
    return all(len(set(axes)) == len(axes) for axes in held) and not classes.converts


def relayouts(function: KernelFunction) -> int:
    kernel = traced_kernel(function)
    assert classify(kernel).converts
    apart, _ = classified(kernel)
    apart.verify()
    assert no_value_has_a_class_twice(apart)
    assert not any(isinstance(op, Relayout) for op in kernel.walk()), "the original is left alone"
    return sum(isinstance(op, Relayout) for op in apart.walk())


def test_an_outer_product_moves_the_row_once_before_it_is_repeated() -> None:
    assert relayouts(CASES["outer_product"].kernel) == 1
    apart, _ = classified(traced_kernel(CASES["outer_product"].kernel))
    moved = next(op for op in apart.walk() if isinstance(op, Relayout))
    assert tile.tile_type(moved.result).rank == 2


def test_a_tile_and_its_transpose() -> None:
    assert relayouts(CASES["symmetric"].kernel) == 1


def test_indices_are_made_again_instead_of_moved() -> None:
    assert relayouts(own_index_mask) == 0


def test_a_reduction_is_moved_after_it_is_reduced() -> None:
    assert relayouts(row_of_sums) == 1


def test_no_kernel_of_the_generality_tests_keeps_a_conflict() -> None:
    for case in CASES.values():
        assert no_value_has_a_class_twice(classified(traced_kernel(case.kernel))[0])
