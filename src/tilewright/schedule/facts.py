"""Specialisation facts: what a compiled kernel may assume of its arguments beyond their dtypes.

One class of facts is one artifact; the dispatcher checks them before each launch. They are few on purpose: per tensor
which axis has stride 1 and how many bytes every row start is aligned to, and for the whole call whether element offsets
fit 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.base.dtypes import DType
from tilewright.base.expr import Const, Expr, Sym, all_of, any_of, expr, maximum

MAX_VECTOR_BYTES = 16
"""Widest access of one thread on sm_70 to sm_100 (PTX ISA, vectors: 128 bits)."""


@dataclass(frozen=True)
class TensorFacts:
    """``unit_axis`` has stride 1 (None: no axis); ``align_bytes`` (a power of two, at most 16) divides the base address
    and the byte stride of every other axis that has more than one element."""

    unit_axis: int | None
    align_bytes: int

    def vector(self, dtype: DType) -> int:
        """Elements of the widest aligned access along the unit axis."""
        if self.unit_axis is None:
            return 1
        return max(1, self.align_bytes // dtype.bytes)


@dataclass(frozen=True)
class Facts:
    """Facts of one call: a ``TensorFacts`` per tensor name, and the width of element offsets in bits (32 or 64)."""

    tensors: tuple[tuple[str, TensorFacts], ...]
    index_bits: int = 32

    def of(self, name: str) -> TensorFacts:
        """Facts of tensor ``name``."""
        return dict(self.tensors)[name]


def observe(dtype: DType, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorFacts:
    """The facts that hold for one tensor; ``strides`` in elements, extents of 1 constrain nothing."""
    unit = next((d for d in reversed(range(len(shape))) if strides[d] == 1 and shape[d] > 1), None)
    if unit is None:  # an axis of one element may be called contiguous: it has no second element
        unit = next((d for d in reversed(range(len(shape))) if strides[d] == 1), None)
    align = gcd(address, MAX_VECTOR_BYTES)
    for d, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        if d != unit and extent > 1:
            align = gcd(align, stride * dtype.bytes)
    return TensorFacts(unit, max(align, dtype.bytes))


def contiguous(rank: int) -> TensorFacts:
    """Facts of a freshly allocated row-major tensor whose rows start 16-byte aligned."""
    return TensorFacts(rank - 1 if rank else None, MAX_VECTOR_BYTES)


def predicates(name: str, dtype: DType, dims: tuple[Expr, ...], facts: TensorFacts) -> tuple[Expr, ...]:
    """The facts of one tensor over ``x.address`` (bytes), ``x.stride0`` (elements) and its dims."""
    result: list[Expr] = []
    if facts.unit_axis is not None:
        result.append(Sym(f"{name}.stride{facts.unit_axis}").eq(1))
    if facts.align_bytes > 1:
        result.append((Sym(f"{name}.address") % facts.align_bytes).eq(0))
        for d, dim in enumerate(dims):
            if d != facts.unit_axis and facts.align_bytes > dtype.bytes:
                aligned = (Sym(f"{name}.stride{d}") * dtype.bytes % facts.align_bytes).eq(0)
                result.append(any_of([dim <= 1, aligned]))  # a single element is at the base, whatever the stride
    return tuple(result)


def offsets_fit(name: str, dims: tuple[Expr, ...], bits: int = 31) -> Expr:
    """Every element offset of the tensor is below ``2**bits`` in magnitude."""
    reach: Expr = Const(0)
    for d, dim in enumerate(dims):
        stride = Sym(f"{name}.stride{d}")
        reach = reach + maximum(dim - 1, 0) * maximum(stride, -stride)
    return reach < expr(1 << bits)


def conjunction(parts: tuple[Expr, ...]) -> Expr:
    """All facts at once."""
    return all_of(parts)
