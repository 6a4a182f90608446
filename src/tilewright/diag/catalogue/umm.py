"""UMM: operands of the Blackwell matrix instruction, and tensor memory."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_PTX = "PTX ISA 9.1, 9.7.16"


def _code(id: str, title: str, why: str, bad: str, good: str) -> Code:
    return Code(id, title, why, bad, good, _PTX)


CODES: tuple[Code, ...] = (
    _code(
        "UMM001",
        "tcgen05 m does not exist for the CTA group",
        "One CTA computes 64 or 128 rows, a pair 128 or 256.",
        "m256 with one CTA",
        "m256 with a pair",
    ),
    _code(
        "UMM002",
        "tcgen05 n does not exist for the shape",
        "Steps of 8 need m64 and one CTA; all others go by 16.",
        "m128n136",
        "m128n144",
    ),
    _code(
        "UMM003",
        "tcgen05 k is not 256 bits of the operand type",
        "Every instruction contracts 32 bytes of each row.",
        "k8 of halves",
        "k16 of halves",
    ),
    _code("UMM004", "integer tcgen05 n is neither 8 nor a multiple of 16", "Fewer shapes exist.", "n40", "n48"),
    _code(
        "UMM005",
        "MN-major operand of a type that must be K-major",
        "Only 8- and 16-bit types transpose freely; tf32 needs the swizzle with 32-byte atoms.",
        "tf32, MN-major, 128B",
        "tf32, MN-major, 128B_ATOM_32B",
    ),
    _code(
        "UMM006",
        "swizzle that tcgen05 does not read here",
        "The 32-byte-atom swizzle serves MN-major tf32 only; the others have no code.",
        "128B_ATOM_32B for halves",
        "128B",
    ),
    _code(
        "UMM007",
        "operand start address can't be written in the descriptor",
        "The field holds 14 bits of 16-byte units.",
        "start 262144",
        "start 261120",
    ),
    _code(
        "UMM008",
        "leading or stride byte offset can't be written in the descriptor",
        "Each field holds 14 bits of 16-byte units.",
        "stride 262144",
        "stride 262128",
    ),
    _code(
        "UMM009",
        "panel of an operand is not one span wide",
        "Canonical layouts have rows of one swizzle span, or 16 bytes without swizzle.",
        "112-byte rows with swizzle 128B",
        "128-byte rows",
    ),
    _code("UMM010", "B in tensor memory", "B is always read from shared memory.", "B in TMEM", "B in shared memory"),
    _code(
        "UMM011",
        "tensor-memory allocation is not a power of two from 32 to 512 columns",
        "Columns are allocated in buddies of 32.",
        "192 columns",
        "256 columns",
    ),
    _code(
        "UMM012",
        "tensor-memory address out of range",
        "There are 512 columns of 128 lanes.",
        "column 512",
        "column 511",
    ),
    _code(
        "UMM013",
        "CTAs on one SM want more than 512 columns",
        "The second allocation waits for the first CTA to free its columns.",
        "two CTAs of 512 columns",
        "one CTA an SM, or 256 columns each",
    ),
    _code("UMM014", "tcgen05 outside sm_100", "The instructions came with Blackwell.", "target sm_90a", "wgmma"),
    _code(
        "UMM015",
        "n of an 8-bit product with N-major B is not a multiple of 16 for each CTA",
        "Rows of an N-major 8-bit operand are read 16 at a time.",
        "n40, e4m3, B N-major",
        "n48",
    ),
)
