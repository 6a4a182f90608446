"""SSA: phis where definitions meet and are live, guarded writes, undefined reads, and a replay of random code."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tilewright.ptx.flow import graph
from tilewright.ptx.reader import read
from tilewright.ptx.ssa import Ssa, ssa

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n.entry k() { .reg .pred %p<9>; .reg .b32 %r<9>;\n"
DATA = Path(__file__).parents[1] / "data" / "ptx"


def form(body: str) -> Ssa:
    return ssa(graph(read(HEAD + body + "}").entry()))


def test_a_loop_has_a_phi_for_what_it_changes() -> None:
    s = form(
        "mov.b32 %r1, 0; mov.b32 %r2, 5;\nloop: add.s32 %r1, %r1, %r2;\nsetp.lt.s32 %p1, %r1, 9;\n@%p1 bra loop;\nret;"
    )
    (phi,) = s.phis[1]
    assert s.definitions[phi.result].register == "%r1"
    assert phi.arguments == ((0, s.writes[0]["%r1"]), (1, s.writes[2]["%r1"]))
    assert s.reads[2] == {"%r1": phi.result, "%r2": s.writes[1]["%r2"]}
    assert s.live[1] == {"%r1", "%r2"}


def test_what_is_dead_gets_no_phi() -> None:
    s = form("@%p1 bra a;\nmov.b32 %r1, 0;\na: mov.b32 %r1, 1;\nmov.b32 %r2, %r1;")
    assert s.phis == {}


def test_a_guarded_write_keeps_what_was() -> None:
    s = form("mov.b32 %r1, 0;\n@%p1 mov.b32 %r1, 1;\nmov.b32 %r2, %r1;")
    assert s.before[1] == {"%r1": s.writes[0]["%r1"]}
    assert s.reads[2]["%r1"] == s.writes[1]["%r1"]
    assert s.definitions[s.reads[1]["%p1"]].undefined


def test_the_carry_flag_is_a_register() -> None:
    s = form("add.cc.u32 %r1, %r1, %r2;\naddc.u32 %r3, %r4, %r5;")
    assert s.reads[1]["%cc"] == s.writes[0]["%cc"]


@pytest.mark.parametrize("seed", range(20))
def test_replay_of_random_code(seed: int) -> None:
    """Along any path, the definition that SSA names for a read is the one that wrote last."""
    rng = random.Random(seed)
    n = rng.randint(2, 8)
    lines: list[str] = []
    for i in range(n):
        lines.append(f"L{i}: mov.b32 %r0, %r0;")
        lines += [
            f"{rng.choice(('', '', '@%p2 '))}add.s32 %r{rng.randrange(4)}, %r{rng.randrange(4)}, %r{rng.randrange(4)};"
            for _ in range(rng.randint(0, 3))
        ]
        if rng.random() < 0.7:
            lines.append(f"@%p1 bra L{rng.randrange(n)};")
    s = form("\n".join(lines))
    for _ in range(20):
        _walk(s, rng)


def _walk(s: Ssa, rng: random.Random) -> None:
    held: dict[str, int] = {}
    at, came = 0, -1
    for _ in range(30):
        if at == s.flow.exit:
            return
        taken = {s.definitions[p.result].register: dict(p.arguments)[came] for p in s.phis.get(at, ()) if came >= 0}
        for register, number in taken.items():
            assert held.get(register, number) == number
        held.update({s.definitions[p.result].register: p.result for p in s.phis.get(at, ())})
        for i in range(s.flow.blocks[at].first, s.flow.blocks[at].last):
            for register, number in (*s.reads[i].items(), *s.before[i].items()):
                assert held[register] == number if register in held else s.definitions[number].undefined
            held.update(s.writes[i])
        came, at = at, rng.choice(s.flow.blocks[at].out).target


@pytest.mark.parametrize("file", sorted(DATA.glob("*.ptx")), ids=lambda p: p.stem)
def test_nothing_undefined_is_read_in_ptx_of_triton(file: Path) -> None:
    s = ssa(graph(read(file.read_text()).entries[0]))
    undefined = {s.definitions[n].register for reads in s.reads for n in reads.values() if s.definitions[n].undefined}
    assert undefined == set()
