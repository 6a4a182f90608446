"""Tensors in workspaces: the layout of a staged copy, and the values of its kernels' symbols."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.artifact.schema import workspace_address
from tilewright.base.dtypes import DType
from tilewright.base.expr import OWN, Expr, Sym
from tilewright.legal.repairs import staged

COPY = f"{OWN}staged"
"""Suffix of the name of a tensor's copy."""


@dataclass(frozen=True)
class StagedTensor:
    """Tensor ``name`` in workspace ``index``: dense along ``unit_axis``, ``strides`` in elements.

    ``given`` are symbols of ``dims`` that no argument defines: a launch computes them and passes them to the kernels.
    """

    name: str
    element: DType
    dims: tuple[Expr, ...]
    unit_axis: int
    index: int
    given: tuple[tuple[str, Expr], ...] = ()

    @property
    def extents(self) -> tuple[Expr, ...]:
        """The dims as expressions over the arguments."""
        return tuple(dim.substitute(dict(self.given)) for dim in self.dims)

    @property
    def copy_name(self) -> str:
        """The name in the copying kernel."""
        return f"{self.name}{COPY}"

    @property
    def strides(self) -> tuple[Expr, ...]:
        """Elements from one index to the next, per axis."""
        return staged(self.extents, self.unit_axis, self.element.bytes, self.address).strides

    @property
    def size_bytes(self) -> Expr:
        """Bytes of workspace."""
        return staged(self.extents, self.unit_axis, self.element.bytes, self.address).size_bytes

    @property
    def address(self) -> Expr:
        """Where it begins."""
        return Sym(workspace_address(self.index))

    def binding(self, name: str) -> dict[str, Expr]:
        """Values for the symbols of a kernel's tensor ``name`` that lies in this workspace."""
        strides = {f"{name}.stride{i}": stride for i, stride in enumerate(self.strides)}
        return {**strides, f"{name}.address": self.address, **dict(self.given)}
