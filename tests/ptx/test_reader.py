"""The reader: every form of operand and directive, PTX of other compilers, and texts that are no PTX."""

# ruff: noqa: E501 - tables, a case a line

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.timing import quickest
from tilewright.diag import TilewrightError
from tilewright.ptx.reader import read
from tilewright.ptx.syntax import (
    Address,
    CallArguments,
    Entry,
    Guard,
    Identifier,
    Immediate,
    KernelParameter,
    Loc,
    Negated,
    Operand,
    Pair,
    Reference,
    Register,
    Special,
    Vector,
)

DATA = Path(__file__).parents[1] / "data" / "ptx"
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .b16 %rs<9>; .reg .v4 .f32 %v<3>; "
)


def entry(body: str, before: str = "", parameters: str = "") -> Entry:
    return read(f"{HEAD}{before}.visible .entry k({parameters})\n{{\n{REGISTERS}\n{body}\n}}\n").entry()


def r(name: str) -> Register:
    return Register(f"%{name}")


@pytest.mark.parametrize(
    ("text", "opcode", "operands"),
    [
        ("add.s32 %r1, %r2, -7;", "add.s32", (r("r1"), r("r2"), Immediate((1 << 64) - 7))),
        ("mov.b32 %r1, 0x1FU;", "mov.b32", (r("r1"), Immediate(31))),
        ("mov.b32 %r1, 0b101;", "mov.b32", (r("r1"), Immediate(5))),
        ("mov.b32 %r1, 017;", "mov.b32", (r("r1"), Immediate(15))),
        ("mov.f32 %f1, 0fBF800000;", "mov.f32", (r("f1"), Immediate(0xBF800000, "f32"))),
        ("mov.f32 %f1, -0f3F800000;", "mov.f32", (r("f1"), Immediate(0xBF800000, "f32"))),
        ("mov.f64 %rd1, 0d3FF0000000000000;", "mov.f64", (r("rd1"), Immediate(0x3FF0000000000000, "f64"))),
        ("mov.f64 %rd1, 1.5;", "mov.f64", (r("rd1"), Immediate(0x3FF8000000000000, "f64"))),
        ("mov.b32 %r1, (1 << 4 | 3) - 2 * 4;", "mov.b32", (r("r1"), Immediate(11))),
        ("mov.b32 %r1, !(3 % 2) + ~0;", "mov.b32", (r("r1"), Immediate((1 << 64) - 1))),
        ("mov.b32 %r1, WARP_SZ;", "mov.b32", (r("r1"), Immediate(32))),
        ("mov.u32 %r1, %tid.x;", "mov.u32", (r("r1"), Special("%tid.x"))),
        ("mov.u64 %rd1, %clock64;", "mov.u64", (r("rd1"), Special("%clock64"))),
        ("mov.u32 %r1, %envreg3;", "mov.u32", (r("r1"), Special("%envreg3"))),
        ("ld.global.v2.b32 {%r1, _}, [%rd1+-16];", "ld.global.v2.b32", (Vector((r("r1"), Identifier("_"))), Address(r("rd1"), -16))),
        ("ld.shared.b32 %r1, [%r2 + 8 * 4];", "ld.shared.b32", (r("r1"), Address(r("r2"), 32))),
        ("ld.shared.b32 %r1, [64];", "ld.shared.b32", (r("r1"), Address(Immediate(64)))),
        ("ld.param.b64 %rd1, [k_param_0+8];", "ld.param.b64", (r("rd1"), Address(Identifier("k_param_0"), 8))),
        ("mov.b64 {%r1, %r2}, %rd1;", "mov.b64", (Vector((r("r1"), r("r2"))), r("rd1"))),
        ("mov.u64 %rd1, k_param_0+8;", "mov.u64", (r("rd1"), Address(Identifier("k_param_0"), 8))),
        ("mov.f32 %f1, %v1.y;", "mov.f32", (r("f1"), Register("%v1.y"))),
        ("st.global.v4.f32 [%rd1], %v2;", "st.global.v4.f32", (Address(r("rd1")), Vector(tuple(Register(f"%v2.{c}") for c in "xyzw")))),
        ("setp.lt.and.s32 %p1|%p2, %r1, %r2, !%p3;", "setp.lt.and.s32", (Pair(r("p1"), r("p2")), r("r1"), r("r2"), Negated(r("p3")))),
        ("shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1;", "shfl.sync.bfly.b32", (Pair(r("r1"), r("p1")), r("r2"), Immediate(16), Immediate(31), Immediate((1 << 64) - 1))),
        ("elect.sync _|%p1, %r1;", "elect.sync", (Pair(Identifier("_"), r("p1")), r("r1"))),
        ("bar.sync 0;", "bar.sync", (Immediate(0),)),
        ("ret;", "ret", ()),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, 0}], [%r3];",
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
            (Address(r("r1")), Address(r("rd1"), 0, (Vector((r("r2"), Immediate(0))),)), Address(r("r3"))),
        ),
        ("call.uni (%r1), f, (%r2, 3);", "call.uni", (CallArguments((r("r1"),)), Identifier("f"), CallArguments((r("r2"), Immediate(3))))),
        ("tcgen05.ld.sync.aligned.16x64b.x1.b32 {%r1}, [%r2];", "tcgen05.ld.sync.aligned.16x64b.x1.b32", (Vector((r("r1"),)), Address(r("r2")))),
        ("an.opcode.of::tomorrow %r1, %r2;", "an.opcode.of::tomorrow", (r("r1"), r("r2"))),
    ],
)  # fmt: skip
def test_operands(text: str, opcode: str, operands: tuple[Operand, ...]) -> None:
    (read_,) = entry(text, ".func (.reg .b32 y) f(.reg .b32 x, .reg .b32 z);\n", ".param .b64 k_param_0").body
    assert (read_.name, read_.operands, read_.guard) == (opcode, operands, None)


def test_guards_labels_and_lines() -> None:
    k = entry('again:\n@%p1 bra again;\n@!%p2 bra done;\n.pragma "nounroll";\nret; done: exit;\nend:')
    assert [i.guard for i in k.body] == [Guard("%p1", False), Guard("%p2", True), None, None]
    assert k.labels == {"again": 0, "done": 3, "end": 4}
    assert [i.line for i in k.body] == [8, 9, 11, 11]
    assert [(p.index, p.text) for p in k.pragmas] == [(2, "nounroll")]
    assert k.registers["%p1"] == "pred"


def test_bytes_of_a_load_that_are_used() -> None:
    load = "ld.global.v2.b32 {%r1, %r2}, [%rd1];"
    k = entry(f'.pragma "nounroll", "used_bytes_mask 0xf7";\n{load}\n.pragma "used_bytes_mask 15";\n{load}\n{load}')
    assert [p.text for p in k.pragmas] == ["nounroll", "used_bytes_mask 0xf7", "used_bytes_mask 15"]
    assert [i.used_bytes for i in k.body] == [0xF7, 15, None]
    assert [[i.defines(k, 4) for k in (0, 1)] for i in k.body] == [[False, True], [True, False], [True, True]]


def test_scopes_rename_what_they_declare() -> None:
    wait = "{ .reg .pred p; .reg .b32 %r1; WAIT: mov.b32 %r1, 1; @p bra WAIT; }\n"
    k = entry(f"mov.b32 %r1, 0; {wait}{wait} mov.b32 %r1, 0; /* comment ; */ // another ;")
    assert [i.operands[0] for i in k.body] == [
        r("r1"), Register("%r1@1"), Identifier("WAIT@1"), Register("%r1@2"), Identifier("WAIT@2"), r("r1")
    ]  # fmt: skip
    assert k.body[2].guard == Guard("p@1", False)
    assert k.labels == {"WAIT@1": 1, "WAIT@2": 3}
    assert k.registers["p@2"] == "pred"


def test_module() -> None:
    m = read(
        f'{HEAD}.file 1 "a.cu", 1, 2\n.pragma "x";\n'
        ".extern .shared .align 1024 .b8 dynamic[];\n.shared .align 4 .b8 a[6];\n.shared .align 16 .b32 b[2][3];\n"
        ".visible .global .align 4 .f32 t[4] = {0f3F800000, 2.0, 3};\n"
        ".const .u64 c[2] = {generic(t)+4, 7};\n.global .v2 .b32 w;\n"
        ".extern .func (.param .b32 func_retval0) vprintf(.param .b64 p0, .param .b64 p1);\n"
        ".visible .func (.param .b32 func_retval0) g(.param .b32 x)\n{.reg .b32 %r<2>; ld.param.b32 %r1, [x]; "
        "st.param.b32 [func_retval0], %r1; ret;}\n"
        ".visible .entry k(.param .u64 .ptr .global .align 16 k_0, .param .align 64 .b8 k_1[128], .param .f32 k_2)\n"
        ".maxntid 128, 1, 1 .minnctapersm 2\n.reqnctapercluster 2, 1, 1\n.explicitcluster\n"
        "{.shared .align 8 .b64 bar[3]; .local .align 4 .b8 depot[16]; .loc 1 3 5\n"
        ".loc 1 7 9, function_name $L__s, inlined_at 1 2 3\nret;}\n"
        ".section .debug_str { .b8 1,2,3 }\n"
    )
    assert (m.version, m.target, m.address_size, m.files) == ((9, 0), ("sm_90a",), 64, {1: "a.cu"})
    k = m.entry("k")
    assert k.parameters == (
        KernelParameter("k_0", "u64", 8, 8), KernelParameter("k_1", "b8", 128, 64, True), KernelParameter("k_2", "f32", 4, 4)
    )  # fmt: skip
    assert k.directives == {
        "maxntid": (128, 1, 1),
        "minnctapersm": (2,),
        "reqnctapercluster": (2, 1, 1),
        "explicitcluster": (),
    }
    assert [(v.name, v.count, v.bytes, v.align, v.external) for v in k.shared] == [
        ("dynamic", 0, 0, 1024, True), ("a", 6, 6, 4, False), ("b", 6, 24, 16, False), ("bar", 3, 24, 8, False)
    ]  # fmt: skip
    assert k.body[0].location == Loc(1, 7, 9, Loc(1, 2, 3))
    table = next(v for v in m.globals if v.name == "t")
    assert (table.count, table.initial.hex()) == (4, "0000803f" + "00000040" + "00004040")
    c = next(v for v in m.globals if v.name == "c")
    assert (c.references, c.initial[8:]) == ((Reference(0, "t", 4, True),), (7).to_bytes(8, "little"))
    assert next(v for v in m.globals if v.name == "w").count == 2
    assert [(f.name, f.external, len(f.body)) for f in m.functions] == [("vprintf", True, 0), ("g", False, 3)]


def test_branch_targets() -> None:
    k = entry("ts: .branchtargets a, b;\nbrx.idx %r1, ts;\na: ret;\nb: ret;")
    assert k.targets == {"ts": ("a", "b")}
    assert k.body[0].operands == (r("r1"), Identifier("ts"))


@pytest.mark.parametrize(
    ("code", "line", "text"),
    [
        ("PTX001", 1, "hello"),
        ("PTX001", 1, ""),
        ("PTX001", 4, f"{HEAD}.entry k(.param .b32)"),
        ("PTX001", 4, f"{HEAD}.entry k() {{ ret"),
        ("PTX001", 5, f"{HEAD}.entry k() {{\n add.s32 1, ; }}"),
        ("PTX001", 4, f"{HEAD}.entry k() {{ mov.b32 _, 1 2; }}"),
        ("PTX001", 4, f"{HEAD}.entry k() {{ mov.b32 _, [%tid.x; }}"),
        ("PTX001", 4, f"{HEAD}.entry k() {{ mov.b32 _, 1 / 0; }}"),
        ("PTX001", 4, f"{HEAD}.entry k() {{ mov.b32 _, {'(' * 500}1{')' * 500}; }}"),
        ("PTX001", 4, f"{HEAD}.entry k() {{ mov.b32 _, {'-' * 5000}1; }}"),
        ("PTX001", 4, f"{HEAD}.entry k() {'{' * 500}"),
        ("PTX001", 4, f"{HEAD}.entry k() {{ .reg .b32 %r<99999999999>; }}"),
        ("PTX001", 4, f"{HEAD}.global .b8 x[2] = {{1, 2, 3}};"),
        ("PTX001", 4, f"{HEAD}.global .b8 x = {'{' * 500}"),
        ("PTX001", 4, f"{HEAD}.global .b8 x[];"),
        ("PTX001", 4, f"{HEAD}.global .align 3 .b8 x;"),
        ("PTX001", 4, f"{HEAD}.entry k() {{ mov.b32 _, {'9' * 5000}; }}"),
        ("PTX001", 4, f"{HEAD}.section .debug {{ {{"),
        ("PTX002", 4, f"{HEAD}.entry k() {{ mov.b32 _, %r1; }}"),
        ("PTX002", 4, f"{HEAD}.entry k() {{ .reg .b32 %r<1>; mov.b32 _, %r1; }}"),
        ("PTX002", 4, f"{HEAD}.entry k() {{ .reg .b32 %r<2>; mov.b32 _, %r01; }}"),
        ("PTX002", 4, f"{HEAD}.entry k() {{ .reg .b32 %r<2>; mov.b32 _, %r{'1' * 5000}; }}"),
        ("PTX002", 4, f"{HEAD}.entry k() {{ bra nowhere; }}"),
        ("PTX002", 4, f"{HEAD}.entry k() {{ {{ .reg .b32 x; }} mov.b32 _, x; }}"),
        ("PTX003", 4, f"{HEAD}.entry k() {{ a: ret; a: ret; }}"),
        ("PTX003", 4, f"{HEAD}.entry k() {{ .reg .b32 x; .reg .b64 x; }}"),
        ("PTX003", 4, f"{HEAD}.entry k() {{ }} .entry k() {{ }}"),
    ],
)
def test_refusals_name_the_line(code: str, line: int, text: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        read(text)
    (found,) = caught.value.diagnostics
    assert found.where is not None
    assert (found.code, found.where.line) == (code, line)


@pytest.mark.parametrize("file", sorted(DATA.glob("*.ptx")), ids=lambda p: p.stem)
def test_ptx_of_triton(file: Path) -> None:
    m = read(file.read_text(), file.name)
    assert len(m.entries[0].body) > 150
    assert any(i.location for i in m.entries[0].body)


def test_mutated_text_is_read_or_refused() -> None:
    """No mutation of a text ends in anything but a module or a diagnostic."""
    rng = random.Random(7)
    lines = (DATA / "triton_softmax_90.ptx").read_text().split("\n")[:160]
    pieces = ["{", "}", "[", "]", ";", ",", "@", "!", ":", "|", ".reg", ".loc", ".v4", "%r1", "0x", "1.5", "-", "\"", "$", "(", ")", "<", "_", ".b8 x[4] = {"]  # fmt: skip
    refused = 0
    for _ in range(400):
        text = list("\n".join([*lines, "}"]))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.choice((0, 1, 1, 8))] = rng.choice(pieces)
        try:
            read("".join(text))
        except TilewrightError:
            refused += 1
    assert refused > 100


def test_reading_takes_microseconds_an_instruction() -> None:
    text = (DATA / "triton_matmul_80.ptx").read_text()
    bound = 100e-6 * len(read(text).entries[0].body)  # 10 on an idle core
    assert quickest(lambda: read(text), bound) < bound
