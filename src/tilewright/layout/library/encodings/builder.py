"""Builds the F2 layout of an encoding: one column for each bit of each hardware axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from tilewright.hw import fragments as facts
from tilewright.layout.checks import log2_size
from tilewright.layout.f2 import F2Layout

Shape: TypeAlias = Sequence[int]


class Encoding(Protocol):
    """Maps hardware axes to the elements of a tensor of a given shape."""

    def layout(self, shape: Shape) -> F2Layout:
        """The F2 layout onto dim0, dim1, ... of ``shape``."""
        ...


@dataclass(frozen=True)
class CtaSplit:
    """How CTAs of a cluster share a tensor: ``ctas`` per dimension, of which ``split`` hold different parts; ``order``
    lists the dimensions, fastest CTA bits first. Empty: one CTA."""

    ctas: tuple[int, ...] = ()
    split: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    def parts(self, shape: Shape) -> list[int]:
        """Into how many parts each dimension is cut."""
        return [min(self.split[d], shape[d]) if self.split else 1 for d in range(len(shape))]


ONE_CTA = CtaSplit()


@dataclass
class Builder:
    """The columns so far: the stride of the next bit of a dimension is the extent that the bits before it cover."""

    shape: Shape
    extents: list[int] = field(default_factory=list[int])
    bases: dict[str, list[tuple[int, ...]]] = field(default_factory=dict[str, list[tuple[int, ...]]])

    def __post_init__(self) -> None:
        for dim, size in enumerate(self.shape):
            log2_size(size, f"extent of dim{dim}")
        self.extents = [1] * len(self.shape)

    def axis(self, *names: str) -> None:
        """Declare input axes in order."""
        for name in names:
            self.bases.setdefault(name, [])

    def add(self, axis: str, dim: int, size: int) -> None:
        """``size`` coordinates of ``axis`` run along ``dim``, above what is there; cut at the shape."""
        for _ in range(log2_size(size, f"share of {axis}")):
            worth = self.extents[dim]
            basis = [0] * len(self.shape)
            basis[dim] = worth if worth < self.shape[dim] else 0
            self.bases[axis].append(tuple(basis))
            self.extents[dim] *= 2

    def copies(self, axis: str, size: int) -> None:
        """``size`` coordinates of ``axis`` hold the same."""
        self.bases[axis] += [(0,) * len(self.shape)] * log2_size(size, f"share of {axis}")

    def fragment(self, bases: dict[str, facts.Bases], dims: Sequence[int], extents: Sequence[int]) -> None:
        """An instruction's tile, its dimensions renamed to ``dims``."""
        for axis, rows in bases.items():
            for row in rows:
                basis = [0] * len(self.shape)
                for dim, worth in zip(dims, row, strict=True):
                    basis[dim] = worth if worth < self.shape[dim] else 0
                self.bases[axis].append(tuple(basis))
        for dim, size in zip(dims, extents, strict=True):
            self.extents[dim] *= size

    def fill(self, axis: str, dims: Sequence[int]) -> None:
        """``axis`` runs over what is left of each dimension, in order."""
        for dim in dims:
            if self.extents[dim] < self.shape[dim]:
                self.add(axis, dim, self.shape[dim] // self.extents[dim])

    def result(self, cluster: CtaSplit, shape: Shape) -> F2Layout:
        """The layout over the whole tensor of ``shape``, CTAs above what one CTA holds."""
        self.shape = shape
        self.extents = [s // p for s, p in zip(shape, cluster.parts(shape), strict=True)]
        self.axis("block")
        for dim in cluster.order:
            self.add("block", dim, cluster.split[dim])
            self.copies("block", cluster.ctas[dim] // cluster.split[dim])
        return F2Layout.of(self.bases, {f"dim{d}": s for d, s in enumerate(shape)})


def of_threads(shape: Shape, cluster: CtaSplit) -> Builder:
    """Columns of what the threads of one CTA hold."""
    builder = Builder([s // p for s, p in zip(shape, cluster.parts(shape), strict=True)])
    builder.axis("register", "lane", "warp")
    return builder


def fast_last(rank: int) -> list[int]:
    """Dimensions of a row-major tensor, fastest first."""
    return list(reversed(range(rank)))
