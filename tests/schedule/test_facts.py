"""The facts observed of a call hold for it, and vectors they allow are aligned."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Sym
from tilewright.schedule.facts import observe, predicates

AXES = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 7, 32]), st.sampled_from([-8, -1, 0, 1, 2, 3, 7, 8, 16, 100])), max_size=4
)


@given(AXES, st.integers(0, 64), st.sampled_from(["f32", "bf16", "i8", "i64"]))
def test_a_call_belongs_to_its_own_class(axes: list[tuple[int, int]], address: int, name: str) -> None:
    dtype = DTYPES[name]
    base = address * dtype.bytes
    shape, strides = tuple(n for n, _ in axes), tuple(s for _, s in axes)
    facts = observe(dtype, base, shape, strides)
    env = {"x.address": base}
    env |= {f"x.stride{d}": s for d, s in enumerate(strides)} | {f"D{d}": n for d, n in enumerate(shape)}
    dims = tuple(Sym(f"D{d}") for d in range(len(shape)))
    for fact in predicates("x", dtype, dims, facts):
        assert fact.evaluate(env), fact


@given(AXES, st.integers(0, 64), st.sampled_from(["f32", "bf16", "i8", "i64"]))
def test_every_vector_is_aligned(axes: list[tuple[int, int]], address: int, name: str) -> None:
    dtype = DTYPES[name]
    facts = observe(dtype, address * dtype.bytes, tuple(n for n, _ in axes), tuple(s for _, s in axes))
    width = facts.vector(dtype)
    if width == 1:
        return
    assert facts.unit_axis is not None
    assert axes[facts.unit_axis][1] == 1
    others = [(n, s) for d, (n, s) in enumerate(axes) if d != facts.unit_axis and n > 1]
    for coordinate in range(3):
        start = address + sum(min(coordinate, n - 1) * s for n, s in others)
        assert start % width == 0
