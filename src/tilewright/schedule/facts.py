"""Specialisation facts: what a compiled kernel may assume of its arguments beyond their dtypes.

One class of facts is one artifact; the dispatcher checks them before each launch. They are few on purpose: per tensor
the axis of stride 1 and the alignment of row starts in bytes, and for the whole call whether element offsets fit 32
bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd

from tilewright.base.dtypes import DType
from tilewright.base.expr import Const, Expr, Sym, any_of, expr, maximum
from tilewright.hw.target import MAX_VECTOR_BYTES


@dataclass(frozen=True)
class TensorFacts:
    """``unit_axis`` has stride 1 (None: no axis); ``align_bytes`` (a power of two, at most 16) divides the base address
    and the byte stride of every other axis that has more than one element.

    ``forward``: these strides are positive (broadcast and flipped axes have others, which tensor maps can't express).
    ``peer`` names another tensor of the same shape and element size whose every row starts as far from a multiple of
    16 bytes as this one's; only where rows are not aligned."""

    unit_axis: int | None
    align_bytes: int
    peer: str = ""
    forward: bool = True

    def vector(self, dtype: DType) -> int:
        """Elements of the widest aligned access along the unit axis."""
        if self.unit_axis is None:
            return 1
        return max(1, self.align_bytes // dtype.bytes)


@dataclass(frozen=True)
class CallFacts:
    """CallFacts of one call: a ``TensorFacts`` per tensor name, and the width of element offsets in bits (32 or 64)."""

    tensors: tuple[tuple[str, TensorFacts], ...]
    index_bits: int = 32

    def of(self, name: str) -> TensorFacts:
        """CallFacts of tensor ``name``."""
        return dict(self.tensors)[name]


def observe(dtype: DType, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorFacts:
    """The facts that hold for one tensor; ``strides`` in elements, extents of 1 constrain nothing."""
    unit = next((d for d in reversed(range(len(shape))) if strides[d] == 1 and shape[d] > 1), None)
    if unit is None:  # an axis of one element may be called contiguous: it has no second element
        unit = next((d for d in reversed(range(len(shape))) if strides[d] == 1), None)
    others = [s for d, (extent, s) in enumerate(zip(shape, strides, strict=True)) if d != unit and extent > 1]
    align = gcd(address, MAX_VECTOR_BYTES, *(stride * dtype.bytes for stride in others))
    return TensorFacts(unit, max(align, dtype.bytes), forward=min(others, default=1) > 0)


@dataclass(frozen=True)
class Observed:
    """One tensor argument: ``address`` in bytes, ``strides`` in elements."""

    dtype: DType
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def reach(self) -> int:
        """Greatest element offset in magnitude."""
        return sum(max(0, n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True))

    def starts_like(self, other: Observed) -> bool:
        """Every row starts as far from a multiple of 16 bytes as the same row of ``other``."""
        if (self.dtype.bytes, self.shape) != (other.dtype.bytes, other.shape):
            return False
        steps = [(a - b) * self.dtype.bytes for a, b in zip(self.strides, other.strides, strict=True)]
        moved = [step for step, extent in zip(steps, self.shape, strict=True) if extent > 1]
        return not any(d % MAX_VECTOR_BYTES for d in (self.address - other.address, *moved))


def observe_facts(tensors: Mapping[str, Observed]) -> CallFacts:
    """The specialisation class that arguments belong to."""
    found: dict[str, TensorFacts] = {}
    for name, tensor in tensors.items():
        own = observe(tensor.dtype, tensor.address, tensor.shape, tensor.strides)
        alike = (
            n
            for n, other in found.items()
            if not other.peer and other.unit_axis == own.unit_axis and tensor.starts_like(tensors[n])
        )
        found[name] = own if own.align_bytes == MAX_VECTOR_BYTES else replace(own, peer=next(alike, ""))
    wide = any(t.reach >= 2**31 for t in tensors.values())
    return CallFacts(tuple(found.items()), 64 if wide else 32)


def contiguous(rank: int) -> TensorFacts:
    """CallFacts of a freshly allocated row-major tensor whose rows start 16-byte aligned."""
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
    if facts.forward:
        others = (d for d in range(len(dims)) if d != facts.unit_axis)
        result += [any_of([dims[d] <= 1, Const(0) < Sym(f"{name}.stride{d}")]) for d in others]
    if facts.peer:
        result.append(((Sym(f"{name}.address") - Sym(f"{facts.peer}.address")) % MAX_VECTOR_BYTES).eq(0))
        for d, dim in enumerate(dims):
            apart = (Sym(f"{name}.stride{d}") - Sym(f"{facts.peer}.stride{d}")) * dtype.bytes
            if d != facts.unit_axis:
                result.append(any_of([dim <= 1, (apart % MAX_VECTOR_BYTES).eq(0)]))
    return tuple(result)


def offsets_fit(name: str, dims: tuple[Expr, ...]) -> Expr:
    """Every element offset of the tensor is below ``2**31`` in magnitude."""
    reach: Expr = Const(0)
    for d, dim in enumerate(dims):
        stride = Sym(f"{name}.stride{d}")
        reach = reach + maximum(dim - 1, 0) * maximum(stride, -stride)
    return reach < expr(1 << 31)


def without_peers(facts: CallFacts) -> CallFacts:
    """The facts without peers, for kernels that do not compare the alignment of tensors."""
    return replace(facts, tensors=tuple((name, replace(own, peer="")) for name, own in facts.tensors))
