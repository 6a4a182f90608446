"""The cases that wgmma_execute multiplies on a device, multiplied by the simulator's own decoder of descriptors."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.assemble import assemble
from tilewright.simulate.tensor_core import Descriptor, accumulator_places

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import wgmma_execute as execute
from wgmma_source import Program, programs

pytestmark = pytest.mark.sample(1)

PROGRAMS = {p.name: p for p in programs()}
BASE = 1024
SAMPLE = ["bf16_f32_n96", "f16_f16_n24", "tf32_f32_n80", "e4m3_f32_n160", "i8_i32_n208", "bf16_f32_n8"]


def read(case: execute.Case, part: execute.Operand, step: int, extent: int) -> np.ndarray:
    """The operand's bytes of one instruction, by address, as the simulator reads a descriptor."""
    size = case.program.dtype.bytes
    descriptor = Descriptor.of(int(execute.descriptors(part, BASE)[step]), 0)
    at = descriptor.addresses(extent, size, mn_major=part.plan.transpose == 1) - BASE
    return execute.image(case)[at[..., None] + np.arange(size)]


@pytest.mark.parametrize("name", SAMPLE)
def test_descriptors_read_the_operands(name: str) -> None:
    program = PROGRAMS[name]
    depth = 32 // program.dtype.bytes
    for case in execute.cases(program, 1):
        for step in range(case.a.shape[1] // depth):
            columns = slice(step * depth, (step + 1) * depth)
            b = case.b.values[case.b.first : case.b.first + program.n, columns]
            assert np.array_equal(read(case, case.b, step, program.n), execute.encode(b, program.dtype))
            if case.a_shared is not None:
                a = execute.encode(case.a[:, columns], program.dtype)
                assert np.array_equal(read(case, case.a_shared, step, 64), a)


def test_accumulators_are_read_where_the_document_puts_them() -> None:
    case = next(execute.cases(PROGRAMS["tf32_f32_n80"], 1))
    row, column = accumulator_places(80)
    words = execute.expected(case)[row, column].astype(np.float32).view(np.uint32)
    assert np.array_equal(execute.matrix(case, words), execute.expected(case))


def test_nothing_but_integers_passes() -> None:
    case = next(execute.cases(PROGRAMS["tf32_f32_n80"], 1))
    for poison in (0x7FC00000, 0xFFFFFFFF, 0x3F000000):
        words = np.full(128 * 40, poison, np.uint32)
        assert not (execute.matrix(case, words) == execute.expected(case)).any()


def test_every_type_major_swizzle_and_source_is_drawn() -> None:
    drawn = [execute.outcome(c, "") for p in SAMPLE for c in execute.cases(PROGRAMS[p], 1)]
    ways = {f"{major} {swizzle}" for major in ("K", "MN") for swizzle in ("NONE", "B32", "B64", "B128")}
    assert {o.b for o in drawn} == ways
    assert {o.a for o in drawn} == ways | {"registers"}
    assert {p.dtype.name for p in PROGRAMS.values()} == {"f16", "bf16", "tf32", "e4m3", "e5m2", "i8"}


def test_pairs_are_refused_or_multiplied() -> None:
    table = execute.admissibility()
    admitted = {(name, way) for name, row in table.items() for way, verdict in row.items() if verdict == "admissible"}
    drawn = {
        (p.dtype.name, execute.outcome(c, "").b) for p in PROGRAMS.values() if p.n == 8 for c in execute.cases(p, 1)
    }
    assert drawn == admitted
    assert table["e4m3"]["MN B128"] == "refused: WGM007"
    assert table["bf16"]["K B128_ATOM_32B"] == "refused: WGM013"


def test_a_program_compiles() -> None:
    program: Program = PROGRAMS["e5m2_f16_n8"]
    assert assemble(program.source, "sm_90a", program.name).cubin[:4] == b"\x7fELF"
