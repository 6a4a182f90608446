"""BLK: bulk and asynchronous copies without a tensor map."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_PTX = "PTX ISA 9.1, 9.7.9.25"


def _code(id: str, title: str, why: str, bad: str, good: str) -> Code:
    return Code(id, title, why, bad, good, _PTX)


CODES: tuple[Code, ...] = (
    _code("BLK001", "bulk copy of no multiple of 16 bytes", "Sizes are counted in 16-byte units.", "1032", "1040"),
    _code(
        "BLK002",
        "bulk copy from an address that is no multiple of 16",
        "The copy engine reads 16-byte units.",
        "a row at byte 4104",
        "a row at byte 4112, or cp.async with 8 bytes",
    ),
    _code(
        "BLK003",
        "bulk copy to a shared address that is no multiple of 16",
        "The copy engine writes 16-byte units.",
        "offset 1032",
        "offset 1040",
    ),
    _code("BLK004", "mbarrier at no multiple of 8 bytes", "It is one 64-bit object.", "offset 68", "offset 72"),
    _code(
        "BLK005",
        "completion mechanism that the direction does not have",
        "Copies into shared memory complete on an mbarrier, copies to global memory by bulk groups.",
        "a store with an mbarrier",
        "a store, commit_group, wait_group",
    ),
    _code(
        "BLK006",
        "more bytes outstanding than one phase can count",
        "The transaction count of an mbarrier holds 20 bits.",
        "1,048,576 bytes in one phase",
        "1,048,575 bytes, or two barriers",
    ),
    _code(
        "BLK007",
        "expected bytes differ from the bytes that complete",
        "A phase ends when both are equal; until then every waiter waits.",
        "expect 1040, copy 1024",
        "expect 1024, copy 1024",
    ),
    _code("BLK008", "multicast mask names no CTA of a cluster", "The mask has 16 bits.", "0x10000", "0x0003"),
    _code("BLK009", "cp.async of other than 4, 8 or 16 bytes", "No other form exists.", "2 bytes", "4 bytes"),
    _code(
        "BLK010",
        "cp.async at an address that is no multiple of its size",
        "Each vector is one aligned access.",
        "16 bytes from address 4104",
        "8 bytes from address 4104",
    ),
)
