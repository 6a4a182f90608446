"""Tensor-map recipes: the arguments of ``cuTensorMapEncodeTiled``, with expressions where they depend on a launch.

The enumerators are those of ``hw.tensormap``, which carry the driver's numbers.
"""

# Annotations are evaluated here, not kept as text: the codec reads them, and a store hit has no time to parse them.

from dataclasses import dataclass

from tilewright.base.expr import Expr
from tilewright.hw.tensormap import DataType, Interleave, L2Promotion, OobFill, Swizzle


@dataclass(frozen=True)
class TensorMapRecipe:
    """A tiled descriptor, innermost dimension first, as the driver counts.

    ``address`` is in bytes; ``dims`` in elements, one per dimension; ``strides_bytes`` one less (the innermost stride
    is the element); ``box`` and ``element_strides`` in elements, one per dimension.
    """

    element: DataType
    address: Expr
    dims: tuple[Expr, ...]
    strides_bytes: tuple[Expr, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = Interleave.NONE
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: L2Promotion = L2Promotion.NONE
    oob_fill: OobFill = OobFill.NONE

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols of its address, extents and strides."""
        return frozenset[str]().union(*(e.symbols for e in (self.address, *self.dims, *self.strides_bytes)))
