"""Tensor-map recipes: the arguments of ``cuTensorMapEncodeTiled``, with expressions where they depend on a launch.

Enumerators carry the driver's numbers (CUDA Driver API, tensor map object management; ``cuda.h``).
"""

# Annotations are evaluated here, not kept as text: the codec reads them, and a store hit has no time to parse them.

from dataclasses import dataclass
from enum import IntEnum

from tilewright.base.expr import Expr


class ElementType(IntEnum):
    """``CUtensorMapDataType``."""

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    INT32 = 3
    UINT64 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT32_FTZ = 10
    TFLOAT32 = 11
    TFLOAT32_FTZ = 12
    U4X16_ALIGN8B = 13
    U4X16_ALIGN16B = 14
    U6X16_ALIGN16B = 15


class Interleave(IntEnum):
    """``CUtensorMapInterleave``."""

    NONE = 0
    B16 = 1
    B32 = 2


class Swizzle(IntEnum):
    """``CUtensorMapSwizzle``."""

    NONE = 0
    B32 = 1
    B64 = 2
    B128 = 3
    B128_ATOM_32B = 4
    B128_ATOM_32B_FLIP_8B = 5
    B128_ATOM_64B = 6


class L2Promotion(IntEnum):
    """``CUtensorMapL2promotion``."""

    NONE = 0
    L2_64B = 1
    L2_128B = 2
    L2_256B = 3


class OobFill(IntEnum):
    """``CUtensorMapFloatOOBfill``: what elements outside the tensor read as."""

    ZERO = 0
    NAN_REQUEST_ZERO_FMA = 1


@dataclass(frozen=True)
class TensorMapRecipe:
    """A tiled descriptor, innermost dimension first, as the driver counts.

    ``address`` is in bytes; ``dims`` in elements, one per dimension; ``strides_bytes`` one less (the innermost stride
    is the element); ``box`` and ``element_strides`` in elements, one per dimension.
    """

    element: ElementType
    address: Expr
    dims: tuple[Expr, ...]
    strides_bytes: tuple[Expr, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = Interleave.NONE
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: L2Promotion = L2Promotion.NONE
    oob_fill: OobFill = OobFill.ZERO

    @property
    def rank(self) -> int:
        return len(self.dims)
