"""The shipped specialisations of each operator: dtypes, compile-time keywords, and classes of rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from tilewright import Kernel
from tilewright.base.dtypes import DType, bf16, f16, f32, i32
from tilewright.jit import lazy
from tilewright.lang.params import TensorParam
from tilewright.ops.kernels import (
    add,
    attention,
    layer_norm,
    matmul,
    merge_states,
    paged_decode,
    rms_norm,
    softmax,
    swiglu,
)

if TYPE_CHECKING:
    from tilewright.compiler.specialisation import CallFacts

Shape = tuple[tuple[str, int], ...]
"""Extents by dimension, in order."""


@dataclass(frozen=True)
class Ready:
    """One artifact to ship: an operator for one dtype of all its tensors but the ``others``, with these keywords, for
    contiguous tensors whose rows are aligned as those of ``extents``, and without its ``absent`` tensors."""

    operator: str
    kernel: Kernel
    dtype: DType
    extents: Shape
    keywords: tuple[tuple[str, Hashable], ...] = ()
    absent: tuple[str, ...] = ()
    others: tuple[tuple[str, DType], ...] = ()

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={extent}" for name, extent in self.extents)
        return " ".join([self.operator, str(self.dtype), f"like {sizes}", *(f"{k}={v}" for k, v in self.keywords)])

    @property
    def tensors(self) -> tuple[TensorParam, ...]:
        """The tensors that are passed."""
        return tuple(t for t in self.kernel.tensors if t.name not in self.absent)

    @property
    def dtypes(self) -> dict[str, DType]:
        """The dtype of each tensor."""
        return {tensor.name: self.dtype for tensor in self.tensors} | dict(self.others)

    @property
    def facts(self) -> CallFacts:
        """The facts of a call with such tensors, each allocated separately."""
        observed = lazy.specialisation.Observed
        extents = dict(self.extents)
        shapes = {
            tensor.name: tuple(extents[d] if isinstance(d, str) else d for d in tensor.dims) for tensor in self.tensors
        }
        return lazy.specialisation.observe_facts(
            {name: observed(self.dtypes[name], 0, shape, _compact(shape)) for name, shape in shapes.items()}
        )


def listing() -> tuple[Ready, ...]:
    """Everything that is shipped, in the order in which it is built."""
    return tuple(_all())


def _all() -> Iterator[Ready]:
    rows = ((("M", 4096), ("N", 4096)), (("M", 4096), ("N", 4099)))
    for operator, dtype in product((softmax, rms_norm, layer_norm, swiglu), (bf16, f16, f32)):
        for extents in rows:
            yield Ready(operator.name, operator, dtype, extents)
    for dtype in (bf16, f16, f32):
        yield Ready(add.name, add, dtype, (("N", 1 << 20),))
    for dtype, extents in product((bf16, f16), _products()):
        yield Ready(matmul.name, matmul, dtype, extents)
    for width, dtype, causal, group in product((64, 128), (bf16, f16), (False, True), (1, 4, 8)):
        keywords = (*(("causal", True),) * causal, *(("group", group),) * (group > 1))  # as a call's, without defaults
        extents = (("B", 2), ("H", 16), ("S", 4096), ("G", 16 // group), ("T", 4096))
        yield Ready(f"attention_{width}", attention(width), dtype, extents, keywords, ("lse",))
    yield from _decoding()


def _decoding() -> Iterator[Ready]:
    """One new token of each sequence, whole sequences and parts of them, and the merge of these."""
    integers, sums = (("lengths", i32), ("pages", i32)), (("o", f32), ("lse", f32))
    extents = (("B", 64), ("P", 64), ("G", 8), ("R", 4), ("N", 4096))
    for width, page, dtype in product((64, 128), (16, 64), (bf16, f16)):
        kernel, name = paged_decode(width, page=page), f"paged_decode_{width}_pages_of_{page}"
        yield Ready(name, kernel, dtype, (*extents, ("C", 1)), others=(*integers, sums[1]))
        yield Ready(name, kernel, dtype, (*extents, ("C", 4)), others=(*integers, *sums))
    for width, dtype in product((64, 128), (bf16, f16)):
        rows, keywords = (("C", 4), ("M", 2048), ("D", width)), (("bm", 1), ("bc", 16))
        yield Ready(merge_states.name, merge_states, dtype, rows, keywords, others=(*sums, ("whole", f32)))


def _products() -> Iterator[Shape]:
    """All rows aligned; those of the operands in ones and twos of bytes; those of the result alone."""
    for n, k in ((4096, 4096), (4096, 4099), (4099, 4096)):
        yield (("M", 4096), ("N", n), ("K", k))


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
