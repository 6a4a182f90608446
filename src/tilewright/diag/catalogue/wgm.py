"""WGM: operands of the Hopper warpgroup matrix instruction."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_PTX = "PTX ISA 9.1, 9.7.15"


def _code(id: str, title: str, why: str, bad: str = "", good: str = "") -> Code:
    return Code(id, title, why, bad, good, _PTX)


CODES: tuple[Code, ...] = (
    _code("WGM001", "wgmma outside sm_90a", "The instruction exists on sm_90a alone.", "target sm_100a", "tcgen05"),
    _code("WGM002", "wgmma with m other than 64", "One warpgroup computes 64 rows.", "m128", "two m64 instructions"),
    _code(
        "WGM003",
        "wgmma k is not 256 bits of the operand type",
        "Every instruction contracts 32 bytes of each row.",
        "k8 of halves",
        "k16 of halves, k8 of tf32, k32 of 8-bit types",
    ),
    _code(
        "WGM004",
        "wgmma n is not a multiple of 8 between 8 and 256",
        "The accumulator is built of 8-column groups.",
        "n252",
        "n248",
    ),
    _code(
        "WGM005",
        "integer wgmma n above 32 is not a multiple of 16",
        "The integer instruction has fewer shapes.",
        "n40 of i8",
        "n48 of i8",
    ),
    _code(
        "WGM006",
        "no wgmma for these operand and accumulator types",
        "The instruction has a fixed table of type combinations.",
        "bf16 with an f16 accumulator",
        "bf16 with an f32 accumulator",
    ),
    _code(
        "WGM007",
        "MN-major operand of a type that must be K-major",
        "Only f16 and bf16 operands can be transposed by the instruction.",
        "e4m3 with N contiguous",
        "e4m3 with K contiguous, or a transposing copy",
    ),
    _code(
        "WGM008",
        "MN-major A in registers",
        "The register fragment of A is K-major by definition.",
        "A from registers, transposed",
        "A from shared memory, transposed",
    ),
    _code(
        "WGM009",
        "B in registers",
        "B is always read from shared memory.",
        "B from registers",
        "store B to shared memory, fence, then use it",
    ),
    _code(
        "WGM010",
        "operand start address can't be written in the descriptor",
        "The field holds 14 bits of 16-byte units: the first 256 KiB of shared memory.",
        "start 262144",
        "start 261120",
    ),
    _code(
        "WGM011",
        "leading or stride byte offset can't be written in the descriptor",
        "Each field holds 14 bits of 16-byte units.",
        "stride 262144",
        "stride 262128",
    ),
    _code(
        "WGM012",
        "swizzled operand does not start at its pattern's period",
        "The hardware permutes absolute address bits; a tile off the period needs base_offset, which is not planned.",
        "a 128B-swizzled tile at 128 modulo 1024",
        "the tile at a multiple of 1024",
    ),
    _code(
        "WGM013",
        "swizzle with no wgmma counterpart",
        "The instruction reads 16-byte-atom swizzles only.",
        "128B_ATOM_32B",
        "128B",
    ),
    _code(
        "WGM014",
        "swizzled panel is not one span wide",
        "In the canonical layouts the rows of a swizzled panel are exactly one span apart.",
        "112-byte rows with swizzle 128B",
        "128-byte rows with swizzle 128B",
    ),
    _code(
        "WGM015",
        "unswizzled operand is not made of 16-byte columns",
        "Without swizzle a core matrix is 8 rows of 16 contiguous bytes.",
        "row-major rows of 32 bytes",
        "columns of 16 bytes, or a swizzle",
    ),
    _code(
        "WGM016",
        "tile depth is not a multiple of the instruction's k",
        "The last instruction would read beyond the tile.",
        "40 halves deep",
        "48 halves deep",
    ),
    _code(
        "WGM017",
        "operand rows are not a multiple of 8",
        "Operands are built of 8-row core matrices.",
        "132 rows",
        "136 rows",
    ),
    _code(
        "WGM018",
        "MN-major extent is not a multiple of the panel",
        "The last panel would be stored partly, and the next k group would overlap it.",
        "160 columns in panels of 64",
        "192 columns, or panels of 32 (swizzle 64B)",
    ),
    _code(
        "WGM019",
        "tile has fewer rows than the instruction reads",
        "One instruction reads 64 rows of A and n columns of B; what lies behind the tile would be multiplied too.",
        "120 columns of B read by an instruction of n = 128",
        "120 columns of B and n = 120",
    ),
)
