"""Dialect ``tile``: text round trips on every example, the user's line on every op, and what verifiers refuse."""

from __future__ import annotations

import inspect
from io import StringIO

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from support.example_cases import EXAMPLES_BY_NAME, Example
from support.timing import quickest
from tilewright.base.dtypes import bf16
from tilewright.base.expr import Sym
from tilewright.lang.signature import Signature
from tilewright.tile import dialect
from tilewright.tile.tracer import trace
from tilewright.transport import dialect as transport

pytestmark = pytest.mark.sample(1)


def parse(text: str) -> ModuleOp:
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(dialect.Tile)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def traced(example: Example) -> ModuleOp:
    return trace(example.kernel, Signature.of(example.tensor_dtypes(bf16), keywords=example.keywords))


def as_xdsl_prints(op: Operation) -> str:
    stream = StringIO()
    Printer(stream).print_op(op)
    return stream.getvalue()


@pytest.mark.parametrize("example", EXAMPLES_BY_NAME.values(), ids=lambda e: e.name)
def test_text_is_that_of_xdsl(example: Example) -> None:
    (kernel,) = traced(example).body.block.ops
    assert str(kernel) == as_xdsl_prints(kernel)


@pytest.mark.parametrize("text", ["plain", 'a "b" \\ c', "é", "two\nlines", ""])
def test_strings_are_escaped_as_xdsl_does(text: str) -> None:
    op = transport.Registers(text, bf16, 4)
    assert str(op) == as_xdsl_prints(op)


@pytest.mark.parametrize("example", EXAMPLES_BY_NAME.values(), ids=lambda e: e.name)
def test_text_round_trip(example: Example) -> None:
    module = traced(example)
    again = parse(str(module))
    assert module.is_structurally_equivalent(again)
    assert str(again) == str(module)


@pytest.mark.parametrize("example", EXAMPLES_BY_NAME.values(), ids=lambda e: e.name)
def test_every_op_has_the_users_line(example: Example) -> None:
    lines, first = inspect.getsourcelines(example.kernel.fn)
    for op in traced(example).walk():
        if isinstance(op, dialect.TileOp):
            location = dialect.location_of(op)
            assert location is not None
            assert location.file.endswith(f"examples/{example.module}.py")
            assert first <= location.line < first + len(lines)


def test_lines_are_those_of_the_operations() -> None:
    example = EXAMPLES_BY_NAME["softmax"]
    for op in traced(example).walk():
        location = dialect.location_of(op)
        if isinstance(op, dialect.Reduce):
            assert location is not None
            assert f".{op.fn.data}(1)" in location.text


def test_same_input_same_text() -> None:
    example = EXAMPLES_BY_NAME["attention"]
    assert str(traced(example)) == str(traced(example))


def test_tracing_softmax_is_quick() -> None:
    example = EXAMPLES_BY_NAME["softmax"]
    traced(example)
    assert quickest(lambda: traced(example), 0.010) < 0.010


T = '!tile.tile<f32 [("p0*8", 8, "M")]>'
U = '!tile.tile<f32 [("p0*8", 8, "M"), 1]>'
W = '!tile.tile<f32 [("p0*8", 8, "M"), ("0", 4, "4")]>'
I = '!tile.tile<i32 [("p0*8", 8, "M")]>'  # noqa: E741
B = '!tile.tile<bool [("p0*8", 8, "M")]>'
F = '!tile.fragment<f32 [("p0*8", 8, "M")]>'
X = '!tile.tensor<x, f32 ["M"]>'

WELL_FORMED = f"""
builtin.module {{
  tile.kernel @k("x" %x : {X}) attributes {{
    grid = [], bounds = [], requires = [], numerics = #tile.numerics<strict>
  }} {{
    %t = tile.load %x [#tile.range<"p0*8", 8, "M">] : {X} -> {T}
    BODY
  }}
}}
"""

BODIES = [
    # name, legal, its illegal twin
    (
        "coordinates and axes agree",
        f'%a = tile.load %x [#tile.range<"0", 4, "M">] : {X} -> !tile.tile<f32 [("0", 4, "M")]>',
        f'%a = tile.load %x [#tile.range<"0", 4, "M">] : {X} -> {T}',
    ),
    (
        "one coordinate a dimension",
        f'%a = tile.load %x [#tile.expr<"0">] : {X} -> !tile.tile<f32 []>',
        f'%a = tile.load %x [#tile.expr<"0">, #tile.expr<"0">] : {X} -> !tile.tile<f32 []>',
    ),
    (
        "the tile is of the tensor's dtype",
        f'tile.store %t, %x [#tile.range<"p0*8", 8, "M">] : {T}, {X}',
        f'%a = tile.load %x [#tile.range<"p0*8", 8, "M">] : {X} -> {I}',
    ),
    (
        "expand inserts unit axes",
        f"%a = tile.expand %t at [1] : {T} -> {U}",
        f"%a = tile.expand %t at [1] : {T} -> {W}",
    ),
    (
        "broadcast changes unit axes only",
        f"%u = tile.expand %t at [1] : {T} -> {U}\n%a = tile.broadcast %u : {U} -> {W}",
        f'%a = tile.broadcast %t : {T} -> !tile.tile<f32 [("0", 4, "4")]>',
    ),
    (
        "a permutation",
        f"%u = tile.expand %t at [1] : {T} -> {U}\n"
        f'%a = tile.transpose %u by [1, 0] : {U} -> !tile.tile<f32 [1, ("p0*8", 8, "M")]>',
        f"%u = tile.expand %t at [1] : {T} -> {U}\n%a = tile.transpose %u by [0, 0] : {U} -> {U}",
    ),
    (
        "operands of one type",
        f"%a = tile.binary <add> %t, %t : {T}",
        f"%u = tile.expand %t at [1] : {T} -> {U}\n%a = tile.binary <add> %t, %u : {T}",
    ),
    (
        "comparisons give bool",
        f"%a = tile.compare <lt> %t, %t : {T} -> {B}",
        f"%a = tile.compare <lt> %t, %t : {T} -> {T}",
    ),
    (
        "a bool chooses",
        f"%c = tile.compare <lt> %t, %t : {T} -> {B}\n%a = tile.select %c, %t, %t : {B}, {T}",
        f"%a = tile.select %t, %t, %t : {T}, {T}",
    ),
    ("a cast keeps the axes", f"%a = tile.cast %t : {T} -> {I}", f"%a = tile.cast %t : {T} -> {U}"),
    (
        "a reduction drops its axis",
        f"%a = tile.reduce <sum> %t along 0 : {T} -> !tile.tile<f32 []>",
        f"%a = tile.reduce <sum> %t along 1 : {T} -> !tile.tile<f32 []>",
    ),
    (
        "argmax is i32",
        f"%a = tile.reduce <argmax> %t along 0 : {T} -> !tile.tile<i32 []>",
        f"%a = tile.reduce <argmax> %t along 0 : {T} -> !tile.tile<f32 []>",
    ),
    ("an index is i32", f'%a = tile.index <"p0*8", 8, "M"> : {I}', f'%a = tile.index <"p0*8", 8, "M"> : {T}'),
    (
        "an expression is an integer",
        '%a = tile.scalar <"M"> : !tile.tile<i64 []>',
        '%a = tile.scalar <"M"> : !tile.tile<f32 []>',
    ),
    (
        "a constant is of its dtype",
        '%a = tile.constant <"1"> : !tile.tile<i32 []>',
        '%a = tile.constant <"1.5"> : !tile.tile<i32 []>',
    ),
    (
        "dot contracts one range",
        f"%u = tile.expand %t at [1] : {T} -> {U}\n"
        f'%v = tile.transpose %u by [1, 0] : {U} -> !tile.tile<f32 [1, ("p0*8", 8, "M")]>\n'
        f'%a = tile.dot %v, %u : !tile.tile<f32 [1, ("p0*8", 8, "M")]>, {U} -> !tile.tile<f32 [1, 1]>',
        f"%u = tile.expand %t at [1] : {T} -> {U}\n%a = tile.dot %u, %u : {U}, {U} -> {U}",
    ),
    (
        "a fragment holds its type",
        f"%f = tile.fragment %t : {T} -> {F}\ntile.write %f, %t : {F}, {T}",
        f"%f = tile.fragment %t : {T} -> {F}\n%a = tile.read %f : {F} -> {I}",
    ),
    (
        "a body ends with a yield",
        'tile.stream "k0" over <"k0*8", 8, "M"> from <"0"> trip <"M // 8"> {\ntile.yield\n}',
        'tile.stream "k0" over <"k0*8", 8, "M"> from <"0"> trip <"M // 8"> {\n'
        '%c = tile.scalar <"k0"> : !tile.tile<i32 []>\n}',
    ),
]


@pytest.mark.parametrize(("legal", "illegal"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
def test_verifiers(legal: str, illegal: str) -> None:
    ints = {f" {word} [{n}]": f" {word} [#builtin.int<{n}>]" for word in ("at", "by") for n in range(2)}
    ints |= {f"by [{a}, {b}]": f"by [#builtin.int<{a}>, #builtin.int<{b}>]" for a in range(2) for b in range(2)}
    ints |= {f"along {n}": f"along #builtin.int<{n}>" for n in range(2)}
    for short, long in ints.items():
        legal, illegal = legal.replace(short, long), illegal.replace(short, long)
    parse(WELL_FORMED.replace("BODY", legal))
    with pytest.raises((VerifyException, ParseError)):  # operands of other types than printed are a parser's error
        parse(WELL_FORMED.replace("BODY", illegal))


@pytest.mark.parametrize(
    "text",
    [
        '%a = tile.scalar <"M +"> : !tile.tile<i64 []>',
        '%a = tile.constant <"one"> : !tile.tile<i32 []>',
        f"%a = tile.unary <cubed> %t : {T}",
        "%a = tile.cast %t : !tile.tile<f99 []> -> !tile.tile<f32 []>",
    ],
)
def test_text_that_is_not_read(text: str) -> None:
    with pytest.raises((ParseError, VerifyException)):
        parse(WELL_FORMED.replace("BODY", text))


def test_named_parts_of_ops() -> None:
    """``OpClass`` reads them itself."""
    one, other = transport.Registers("x", bf16, 4), transport.Registers("y", bf16, 4)
    pin, role = transport.Pin(one.buffer), transport.For("i", Sym("a"), Sym("b"), Sym("c"), Region(Block()))
    assert one.buffer is one.results[0] is pin.operands[0] is pin.buffer
    pin.operands[0] = other.buffer
    assert pin.buffer is other.buffer
    assert role.body is role.regions[0]


def test_no_attribute_has_a_default() -> None:
    """``Op`` does not look for them, nor for properties and successors."""
    for op in (*dialect.Tile.operations, *transport.Transport.operations):
        definition = op.get_irdl_definition()
        assert not definition.properties
        assert not definition.successors
        assert all(d.default_value is None for d in definition.attributes.values()), op.name
