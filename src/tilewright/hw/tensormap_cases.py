"""The request from which the examples of tensor-map rules start, and its variants."""

from __future__ import annotations

from tilewright.hw.rules import Example
from tilewright.hw.tensormap import DataType, Direction, Interleave, OobFill, Swizzle

BASE_CASE: Example = (
    ("tensor_data_type", DataType.FLOAT16),
    ("tensor_rank", 2),
    ("global_address", 1 << 20),
    ("global_dim", (4096, 4096)),
    ("global_stride", (8192,)),
    ("box_dim", (64, 128)),
    ("element_stride", (1, 1)),
    ("interleave", Interleave.NONE),
    ("swizzle", Swizzle.B128),
    ("l2_promotion", 2),
    ("oob_fill", OobFill.NONE),
    ("descriptor_address", 4096),
    ("direction", Direction.LOAD),
    ("shared_address", 1024),
    ("start_coordinate", (0, 0)),
)
"""The request that ``good`` and ``bad`` of every row override: a 64 x 128 box of a 4096 x 4096 half matrix."""

RANK_3: Example = (
    ("tensor_rank", 3),
    ("global_dim", (64, 64, 64)),
    ("global_stride", (128, 8192)),
    ("box_dim", (16, 1, 8)),
    ("element_stride", (1, 1, 1)),
    ("start_coordinate", (0, 0, 0)),
)
INTERLEAVED: Example = (*RANK_3, ("interleave", Interleave.B32), ("swizzle", Swizzle.B32))
PACKED_4: Example = (
    ("tensor_data_type", DataType.U4X16_ALIGN16B),
    ("box_dim", (128, 8)),
    ("global_stride", (2048,)),
)
PACKED_DENSE: Example = (
    ("tensor_data_type", DataType.U4X16_ALIGN8B),
    ("box_dim", (128, 8)),
    ("global_stride", (2048,)),
)
PACKED_6: Example = (
    ("tensor_data_type", DataType.U6X16_ALIGN16B),
    ("box_dim", (128, 8)),
    ("global_stride", (3072,)),
)
UNSWIZZLED: Example = (("swizzle", Swizzle.NONE),)
