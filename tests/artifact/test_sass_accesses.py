"""Global accesses of machine code, counted from its disassembly."""

from __future__ import annotations

import pytest

from tilewright.artifact.sass_accesses import AccessWidth, SassAccesses, kernel_accesses

LOOPS = """
        .text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDS.128 R4, [R2] ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;
.L_x_0:
        /*0030*/                   LDG.E.128.CONSTANT R4, desc[UR8][R4.64] ;
        /*0040*/                   LDG.E.64 R8, desc[UR8][R6.64] ;
        /*0050*/               @P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0060*/              @!P2 LDG.E.U16 R9, desc[UR8][R6.64] ;
.L_x_2:
        /*0070*/               @P1 STG.E desc[UR8][R6.64], R9 ;
        /*0080*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR8][R2.64], R5 ;
.L_x_3:
        /*0090*/               @P5 BRA `(.L_x_3) ;
        /*00a0*/               @P3 BRA `(.L_x_2) ;
        /*00b0*/                   EXIT ;
.L_x_4:
        /*00c0*/                   BRA `(.L_x_4);
"""


def widths(*found: tuple[int, int, int]) -> SassAccesses:
    return SassAccesses(tuple(AccessWidth(*width) for width in found))


def test_accesses_are_counted_by_width_and_predicate() -> None:
    assert kernel_accesses(LOOPS).whole == widths((16, 1, 0), (8, 1, 0), (4, 2, 1), (2, 1, 1))


def test_loops_are_what_a_branch_goes_back_over() -> None:
    core, edge = kernel_accesses(LOOPS).loops
    assert core == widths((16, 1, 0), (8, 1, 0))
    assert edge == widths((4, 2, 1))  # the loop inside of it accesses nothing


def test_text() -> None:
    whole, instructions, first, second = kernel_accesses(LOOPS).lines()
    assert whole.startswith("5 global accesses, 2 predicated: 1 of 16 bytes (0 predicated), 1 of 8 bytes")
    assert first == "loop 1: 2 global accesses, 0 predicated: 1 of 16 bytes (0 predicated), 1 of 8 bytes (0 predicated)"
    assert second == "loop 2: 2 global accesses, 1 predicated: 2 of 4 bytes (1 predicated)"
    assert instructions == "7 instructions without branches, 2 predicated"
    assert next(kernel_accesses("").lines()) == "0 global accesses, 0 predicated: none"


@pytest.mark.parametrize("line", ["LDG.E.128 R4, desc[UR8][R4.64]", "@P0 LDG.E.128 R4, desc[UR8][R4.64]"])
def test_a_predicate_counts(line: str) -> None:
    assert kernel_accesses(f"        /*0000*/   {line} ;").whole.predicated == line.startswith("@")
