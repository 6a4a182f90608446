"""What the text of an entry says of its registers."""

from __future__ import annotations

from tilewright.ptx.reader import read
from tilewright.validate.registers import EntryRegisters

HEAD = ".version 9.1\n.target sm_90a\n.address_size 64\n"


def registers(body: str) -> EntryRegisters:
    declared = ".reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<3>;\n"
    text = f"{HEAD}.visible .entry k(.param .u32 n, .param .u64 x)\n{{\n{declared}{body}\n}}\n"
    return EntryRegisters(read(text).entry("k"))


LOOP = """
 ld.param.u32 %r1, [n];
 mov.u32 %r2, 0;
 mov.u32 %r3, 0;
$L1:
 add.s32 %r4, %r2, %r1;
 add.s32 %r3, %r3, %r4;
 add.s32 %r2, %r2, 1;
 setp.lt.s32 %p1, %r2, %r1;
 @%p1 bra $L1;
 ld.param.u64 %rd1, [x];
 st.global.u32 [%rd1], %r3;
 ret;
"""


def test_live_registers_of_a_loop() -> None:
    found = registers(LOOP)
    start, body, behind = (found.live[b] for b in found.flow.order)
    assert start == frozenset()
    assert body == {"%r1", "%r2", "%r3"}
    assert behind == {"%r3"}
    assert found.live[found.flow.exit] == frozenset()
    assert found.several == {"%r2", "%r3"}


def test_a_predicated_write_leaves_what_was_there() -> None:
    """The register stays live above it, and its value depends on the way."""
    text = LOOP.replace(" add.s32 %r3, %r3, %r4;", " @%p1 mov.u32 %r4, 1;\n add.s32 %r3, %r3, %r4;")
    found = registers(text.replace(" add.s32 %r4, %r2, %r1;\n", ""))
    body = found.live[found.flow.order[1]]
    assert {"%r4", "%p1"} <= body
    assert "%r4" in found.several
    assert "%r4" not in registers(LOOP).live[registers(LOOP).flow.order[1]]


def test_an_address_and_a_guard_are_read() -> None:
    found = registers(LOOP)
    store = next(i for i in found.entry.body if i.opcode == "st")
    branch = next(i for i in found.entry.body if i.opcode == "bra")
    assert set(found.read[store.index]) == {"%rd1", "%r3"}
    assert found.written[store.index] == []
    assert found.read[branch.index] == ["%p1"]


def test_what_no_way_leads_to_writes_nothing() -> None:
    """A branch that is always taken leaves a block out: its write is before no read."""
    text = LOOP.replace(" mov.u32 %r3, 0;", " bra $L1;\n mov.u32 %r5, 0;").replace("%r4, %r2, %r1", "%r4, %r2, %r5")
    assert "%r5" in registers(text).several
