"""For each hardware rule a legal case and its off-by-one twin, which breaks this rule alone.

Cases are overrides of a base case of their topic, as (field, value) pairs.
"""

from __future__ import annotations

from typing import TypeAlias

from tilewright.hw.tensormap import DataType, Direction, Interleave, OobFill, Swizzle

Example: TypeAlias = tuple[tuple[str, int | tuple[int, ...]], ...]

BULK: Example = (
    ("size_bytes", 1024),
    ("source_address", 4096),
    ("shared_address", 1024),
    ("mbarrier_address", 64),
    ("direction", 0),
    ("completion", 0),
    ("outstanding_bytes", 32768),
    ("expected_bytes", 1024),
    ("completed_bytes", 1024),
    ("multicast_mask", 3),
    ("cp_async_bytes", 16),
    ("cp_async_source", 4096),
    ("cp_async_target", 1024),
)
"""A kibibyte from global to shared memory, multicast to two CTAs, and a 16-byte cp.async."""

LIMITS: Example = (
    ("shared_bytes", 200_000),
    ("threads", 384),
    ("registers_per_thread", 168),
    ("cluster_ctas", 2),
    ("setmaxnreg", 240),
    ("warpgroup_registers", 504),
    ("entry_registers", 168),
    ("warpgroups", 3),
)
"""A warp-specialised kernel: three warpgroups, 168 registers at entry, redistributed to 24 + 240 + 240."""

TCGEN05: Example = (
    ("compute_capability", 100),
    ("m", 128),
    ("n", 128),
    ("cta_group", 1),
    ("k", 16),
    ("element_bits", 16),
    ("is_integer", 0),
    ("mn_major", 0),
    ("is_b", 1),
    ("start_address", 1024),
    ("leading_bytes", 16),
    ("stride_bytes", 1024),
    ("swizzle", Swizzle.B128),
    ("swizzle_span_bytes", 128),
    ("row_bytes", 128),
    ("b_in_tmem", 0),
    ("tmem_columns", 128),
    ("tmem_column", 0),
    ("tmem_lane", 0),
    ("columns_of_resident_ctas", 512),
)
"""A 128 x 128 half product of one CTA, K-major with swizzle 128B, its accumulator in 128 columns."""

WGMMA: Example = (
    ("compute_capability", 90),
    ("m", 64),
    ("n", 128),
    ("k", 16),
    ("element_bits", 16),
    ("known_type", 1),
    ("is_16bit_float", 1),
    ("is_integer", 0),
    ("major", 0),
    ("a_in_registers", 0),
    ("b_in_registers", 0),
    ("start_address", 1024),
    ("leading_bytes", 16),
    ("stride_bytes", 1024),
    ("pattern_phase", 0),
    ("swizzle", Swizzle.B128),
    ("swizzle_span_bytes", 128),
    ("row_bytes", 128),
    ("instruction_mn", 128),
    ("tile_mn", 128),
    ("tile_k", 64),
    ("panel_mn", 64),
)
"""B of an m64n128k16 half product, K-major with swizzle 128B. ``pattern_phase`` is the start address modulo the
swizzle's period; ``row_bytes`` the width of a shared-memory panel; ``panel_mn`` its width in elements if MN-major;
``instruction_mn`` the rows of A, or columns of B, that one instruction reads."""

TENSOR_MAP: Example = (
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
"""A 64 x 128 box of a 4096 x 4096 half matrix."""

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

BASES = {"BLK": BULK, "LIM": LIMITS, "UMM": TCGEN05, "WGM": WGMMA, "TMA": TENSOR_MAP}
"""The base case of each topic, by the prefix of its rules."""

CASES: dict[str, tuple[Example, Example]] = {
    "BLK001": ((("size_bytes", 1040),), (("size_bytes", 1032),)),
    "BLK002": ((("source_address", 4112),), (("source_address", 4104),)),
    "BLK003": ((("shared_address", 1040),), (("shared_address", 1032),)),
    "BLK004": ((("mbarrier_address", 72),), (("mbarrier_address", 68),)),
    "BLK005": ((("direction", 1), ("completion", 1)), (("direction", 1), ("completion", 0))),
    "BLK006": ((("outstanding_bytes", 1048575),), (("outstanding_bytes", 1048576),)),
    "BLK007": ((("expected_bytes", 1024),), (("expected_bytes", 1040),)),
    "BLK008": ((("multicast_mask", 65535),), (("multicast_mask", 65536),)),
    "BLK009": ((("cp_async_bytes", 8),), (("cp_async_bytes", 2),)),
    "BLK010": ((("cp_async_bytes", 8), ("cp_async_source", 4104)), (("cp_async_bytes", 16), ("cp_async_source", 4104))),
    "LIM001": ((("shared_bytes", 232_448),), (("shared_bytes", 232_449),)),
    "LIM002": ((("threads", 1024), ("registers_per_thread", 64)), (("threads", 1025), ("registers_per_thread", 32))),
    "LIM003": ((("registers_per_thread", 168),), (("registers_per_thread", 169),)),
    "LIM004": ((("registers_per_thread", 255), ("threads", 128)), (("registers_per_thread", 256), ("threads", 128))),
    "LIM005": ((("cluster_ctas", 8),), (("cluster_ctas", 9),)),
    "LIM006": ((("setmaxnreg", 232),), (("setmaxnreg", 236),)),
    "LIM007": ((("warpgroup_registers", 504),), (("warpgroup_registers", 505),)),
    "UMM001": ((("m", 64),), (("m", 256),)),
    "UMM002": ((("n", 144),), (("n", 136),)),
    "UMM003": ((("k", 16),), (("k", 8),)),
    "UMM004": (
        (("is_integer", 1), ("element_bits", 8), ("k", 32), ("m", 64), ("n", 32)),
        (("is_integer", 1), ("element_bits", 8), ("k", 32), ("m", 64), ("n", 40)),
    ),
    "UMM005": (
        (("mn_major", 1), ("element_bits", 32), ("k", 8), ("swizzle", 4)),
        (("mn_major", 1), ("element_bits", 32), ("k", 8)),
    ),
    "UMM006": ((("mn_major", 1), ("element_bits", 32), ("k", 8), ("swizzle", 4)), (("swizzle", 4),)),
    "UMM007": ((("start_address", 262144 - 1024),), (("start_address", 262144),)),
    "UMM008": ((("stride_bytes", 262144 - 16),), (("stride_bytes", 262144),)),
    "UMM009": ((("swizzle", 0), ("swizzle_span_bytes", 0), ("row_bytes", 16)), (("row_bytes", 112),)),
    "UMM010": ((("b_in_tmem", 0),), (("b_in_tmem", 1),)),
    "UMM011": ((("tmem_columns", 256),), (("tmem_columns", 192),)),
    "UMM012": ((("tmem_column", 511),), (("tmem_column", 512),)),
    "UMM014": ((("compute_capability", 103),), (("compute_capability", 90),)),
    "UMM013": ((("columns_of_resident_ctas", 512),), (("columns_of_resident_ctas", 544),)),
    "UMM015": (
        (("m", 64), ("mn_major", 1), ("element_bits", 8), ("k", 32), ("n", 48)),
        (("m", 64), ("mn_major", 1), ("element_bits", 8), ("k", 32), ("n", 40)),
    ),
    "WGM001": ((("compute_capability", 90),), (("compute_capability", 100),)),
    "WGM002": ((("m", 64),), (("m", 128),)),
    "WGM003": ((("k", 16),), (("k", 8),)),
    "WGM004": ((("n", 248),), (("n", 252),)),
    "WGM005": (
        (("is_integer", 1), ("is_16bit_float", 0), ("element_bits", 8), ("k", 32), ("n", 48)),
        (("is_integer", 1), ("is_16bit_float", 0), ("element_bits", 8), ("k", 32), ("n", 40)),
    ),
    "WGM006": ((("known_type", 1),), (("known_type", 0),)),
    "WGM007": ((("major", 1),), (("major", 1), ("is_16bit_float", 0), ("element_bits", 8), ("k", 32))),
    "WGM008": ((("a_in_registers", 1),), (("a_in_registers", 1), ("major", 1))),
    "WGM009": ((("b_in_registers", 0),), (("b_in_registers", 1),)),
    "WGM010": ((("start_address", 262144 - 1024),), (("start_address", 262144),)),
    "WGM011": ((("stride_bytes", 262144 - 16),), (("stride_bytes", 262144),)),
    "WGM012": ((("pattern_phase", 0),), (("pattern_phase", 128),)),
    "WGM013": ((("swizzle", 3),), (("swizzle", 4),)),
    "WGM014": ((("row_bytes", 128),), (("row_bytes", 112),)),
    "WGM015": (
        (("swizzle", 0), ("swizzle_span_bytes", 0), ("row_bytes", 16)),
        (("swizzle", 0), ("swizzle_span_bytes", 0), ("row_bytes", 32)),
    ),
    "WGM016": ((("tile_k", 48),), (("tile_k", 40),)),
    "WGM017": ((("tile_mn", 136),), (("tile_mn", 132),)),
    "WGM018": ((("major", 1), ("tile_mn", 192)), (("major", 1), ("tile_mn", 160))),
    "WGM019": ((("tile_mn", 192),), (("tile_mn", 120),)),
    "TMA001": (PACKED_DENSE, (("tensor_data_type", 16),)),
    "TMA002": ((("tensor_data_type", DataType.UINT8),), PACKED_DENSE),
    "TMA003": (
        (
            ("tensor_rank", 5),
            ("global_dim", (64,) * 5),
            ("global_stride", (128, 8192, 1 << 19, 1 << 25)),
            ("box_dim", (64, 1, 1, 1, 1)),
            ("element_stride", (1,) * 5),
            ("start_coordinate", (0,) * 5),
        ),
        (
            ("tensor_rank", 6),
            ("global_dim", (64,) * 6),
            ("global_stride", (128, 8192, 1 << 19, 1 << 25, 1 << 31)),
            ("box_dim", (64, 1, 1, 1, 1, 1)),
            ("element_stride", (1,) * 6),
            ("start_coordinate", (0,) * 6),
        ),
    ),
    "TMA004": ((*RANK_3, ("interleave", Interleave.B16)), (("interleave", Interleave.B16),)),
    "TMA005": (INTERLEAVED, (*RANK_3, ("interleave", 3))),
    "TMA006": ((("swizzle", Swizzle.B128_ATOM_64B),), (("swizzle", 7),)),
    "TMA007": ((("swizzle", Swizzle.B128),), (("swizzle", Swizzle.B128_ATOM_32B),)),
    "TMA008": ((("l2_promotion", 3),), (("l2_promotion", 4),)),
    "TMA009": ((("oob_fill", 1),), (("oob_fill", 2),)),
    "TMA021": ((("oob_fill", 1),), (("oob_fill", 1), ("tensor_data_type", DataType.UINT16))),
    "TMA010": ((("global_address", (1 << 20) + 16),), (("global_address", (1 << 20) + 8),)),
    "TMA011": ((*INTERLEAVED, ("global_address", (1 << 20) + 32)), (*INTERLEAVED, ("global_address", (1 << 20) + 16))),
    "TMA012": ((("global_stride", (8208,)),), (("global_stride", (8200,)),)),
    "TMA013": ((*INTERLEAVED, ("global_stride", (160, 8192))), (*INTERLEAVED, ("global_stride", (144, 8192)))),
    "TMA014": ((("global_stride", (2**40 - 16,)),), (("global_stride", (2**40,)),)),
    "TMA015": ((("global_dim", (4096, 2**32)),), (("global_dim", (4096, 2**32 + 1)),)),
    "TMA016": ((("box_dim", (64, 256)),), (("box_dim", (64, 257)),)),
    "TMA017": ((("element_stride", (1, 8)),), (("element_stride", (1, 9)),)),
    "TMA018": ((("box_dim", (56, 128)),), (("box_dim", (57, 128)),)),
    "TMA019": ((("box_dim", (64, 128)),), (("box_dim", (72, 128)),)),
    "TMA020": ((*RANK_3, ("box_dim", (64, 228, 8))), (*RANK_3, ("box_dim", (64, 229, 8)))),
    "TMA022": (
        (*RANK_3, ("interleave", Interleave.B16), ("box_dim", (8, 8, 8))),
        (*RANK_3, ("interleave", Interleave.B16), ("box_dim", (9, 8, 8))),
    ),
    "TMA023": (PACKED_4, (*PACKED_4, ("global_address", (1 << 20) + 16))),
    "TMA024": ((*PACKED_4, ("global_dim", (128, 4096))), (*PACKED_4, ("global_dim", (129, 4096)))),
    "TMA025": ((*PACKED_DENSE, ("global_dim", (130, 4096))), (*PACKED_DENSE, ("global_dim", (129, 4096)))),
    "TMA026": ((*PACKED_4, ("global_stride", (2080,))), (*PACKED_4, ("global_stride", (2064,)))),
    "TMA027": (PACKED_4, (*PACKED_4, ("box_dim", (96, 8)))),
    "TMA028": (
        PACKED_6,
        (
            *RANK_3,
            *PACKED_6,
            ("box_dim", (128, 8, 8)),
            ("global_dim", (128, 64, 64)),
            ("global_stride", (96, 6144)),
            ("interleave", Interleave.B16),
        ),
    ),
    "TMA029": ((*PACKED_4, ("swizzle", Swizzle.B128_ATOM_32B)), (*PACKED_4, ("swizzle", Swizzle.B64))),
    "TMA040": ((("descriptor_address", 4096 + 64),), (("descriptor_address", 4096 + 32),)),
    "TMA041": ((("shared_address", 1024 + 128),), (("shared_address", 1024 + 64),)),
    "TMA042": (
        (("direction", Direction.STORE), ("start_coordinate", (0, 0))),
        (("direction", Direction.STORE), ("start_coordinate", (0, -1))),
    ),
    "TMA043": (INTERLEAVED, (*RANK_3, ("interleave", Interleave.B32), ("swizzle", Swizzle.B64))),
    "TMA044": (
        (("direction", Direction.STORE), ("global_stride", (16,))),
        (("direction", Direction.STORE), ("global_stride", (0,))),
    ),
    "TMA045": ((("global_stride", (16,)),), (("global_stride", (0,)),)),
    "TMA046": (
        (*RANK_3, *UNSWIZZLED, ("box_dim", (64, 63, 227)), ("element_stride", (1, 8, 1))),
        (*RANK_3, *UNSWIZZLED, ("box_dim", (64, 63, 228)), ("element_stride", (1, 8, 1))),
    ),
    "TMA047": ((("element_stride", (1, 2)),), (("element_stride", (2, 1)),)),
    "TMA048": ((("box_dim", (64, 128)),), (("box_dim", (56, 128)),)),
    "TMA049": (INTERLEAVED, (*INTERLEAVED, ("tensor_data_type", DataType.FLOAT32))),
    "TMA050": ((("global_address", (1 << 20) + 128),), (("global_address", (1 << 20) + 64),)),
    "TMA051": ((("global_dim", (4096, 2**31)),), (("global_dim", (4096, 2**31 + 1)),)),
    "TMA052": ((("start_coordinate", (8, 0)),), (("start_coordinate", (9, 0)),)),
    "TMA053": (
        (("direction", Direction.STORE), ("global_dim", (4088, 4096))),
        (("direction", Direction.STORE), ("global_dim", (4089, 4096))),
    ),
    "TMA054": (
        (("tensor_data_type", DataType.FLOAT32), ("box_dim", (32, 128))),
        (("tensor_data_type", DataType.TFLOAT32), ("box_dim", (32, 128))),
    ),
    "TMA055": (INTERLEAVED, (*INTERLEAVED, ("box_dim", (16, 2, 8)))),
    "TMA056": ((*INTERLEAVED, ("box_dim", (32, 1, 227))), (*INTERLEAVED, ("box_dim", (32, 1, 228)))),
    "TMA057": (PACKED_4, (*PACKED_4, ("direction", Direction.STORE))),
    "TMA058": (
        (*PACKED_6, ("swizzle", Swizzle.B128_ATOM_64B), ("direction", Direction.STORE)),
        (*PACKED_6, ("swizzle", Swizzle.B128_ATOM_64B)),
    ),
    "TMA059": ((*PACKED_4, ("start_coordinate", (128, 0))), (*PACKED_4, ("start_coordinate", (64, 0)))),
}
"""By rule: what keeps it, and what breaks it alone."""


def case(id: str, overrides: Example) -> dict[str, int | tuple[int, ...]]:
    """The base case of a rule's topic with overrides."""
    return dict(BASES[id[:3]]) | dict(overrides)
