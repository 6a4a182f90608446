"""Declarations of variables and parameters, with initialisers (PTX ISA 9.1, 5.4, 5.1.6)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tilewright.ptx.constants import constant
from tilewright.ptx.syntax import TYPE_BYTES, Immediate, KernelParameter, Reference, Variable
from tilewright.ptx.tokens import NAME, Tokens

SPACES = frozenset(("global", "const", "shared", "local", "tex"))
LINKAGE = frozenset((".visible", ".extern", ".weak", ".common"))
_DEEPEST = 8
_F32 = struct.Struct("<f")
_F64 = struct.Struct("<d")


@dataclass(slots=True)
class _Shape:
    """The type, vector length and alignment in front of a declared name."""

    type: str = ""
    length: int = 1
    align: int = 0


@dataclass(slots=True)
class _Initial:
    data: bytearray = field(default_factory=bytearray)
    references: list[Reference] = field(default_factory=list[Reference])


def variables(tokens: Tokens, at: int, external: bool) -> tuple[list[Variable], int]:
    """(the variables of the declaration whose state space is token ``at``, the token behind its ``;``)."""
    space = tokens.text[at][1:].partition("::")[0]
    shape, at = _shape(tokens, at + 1)
    found: list[Variable] = []
    while True:
        variable, at = _variable(tokens, at, space, shape, external)
        found.append(variable)
        if tokens.text[at] == ";":
            return found, at + 1
        if tokens.text[at] != ",":
            tokens.refuse(at, "',' or ';'")
        at += 1


def parameters(tokens: Tokens, at: int) -> tuple[tuple[KernelParameter, ...], int]:
    """(the parameters of the list that opens at token ``at``, the token behind its ``)``)."""
    if tokens.text[at] != "(":
        tokens.refuse(at, "'('")
    found: list[KernelParameter] = []
    at += 1
    while tokens.text[at] != ")":
        if found:
            if tokens.text[at] != ",":
                tokens.refuse(at, "',' or ')'")
            at += 1
        if tokens.text[at] not in (".param", ".reg"):
            tokens.refuse(at, "'.param' or '.reg'")
        shape, at = _shape(tokens, at + 1)
        variable, at = _variable(tokens, at, "param", shape, True)
        array = not variable.count or variable.count != shape.length
        found.append(KernelParameter(variable.name, variable.type, variable.bytes, variable.align, array))
    return tuple(found), at + 1


def _shape(tokens: Tokens, at: int) -> tuple[_Shape, int]:
    """The attributes of a declaration: ``.align 16 .v4 .f32``, ``.u64 .ptr .global .align 16``."""
    shape, pointer = _Shape(), False
    while (token := tokens.text[at]).startswith("."):
        at += 1
        if token == ".align":
            align, at = number(tokens, at)
            if align & (align - 1) or not align:
                tokens.refuse(at - 1, "an alignment that is a power of 2")
            shape.align = shape.align if pointer else align
        elif token == ".attribute":
            while tokens.text[at] not in (")", ""):
                at += 1
            at += 1
        elif token in (".v2", ".v4", ".v8"):
            shape.length = int(token[2:])
        elif token == ".ptr":
            pointer = True
        elif token[1:] in TYPE_BYTES and not shape.type:
            shape.type = token[1:]
        elif not (pointer and token[1:] in SPACES):
            tokens.refuse(at - 1, "a type")
    if not shape.type:
        tokens.refuse(at, "a type")
    return shape, at


def _variable(tokens: Tokens, at: int, space: str, shape: _Shape, external: bool) -> tuple[Variable, int]:
    name = tokens.text[at]
    if NAME.match(name) is None:
        tokens.refuse(at, "a name")
    at += 1
    count, open_ended = 1, False
    while tokens.text[at] == "[":
        if tokens.text[at + 1] == "]":
            open_ended, at = True, at + 2
            continue
        extent, at = number(tokens, at + 1)
        if tokens.text[at] != "]":
            tokens.refuse(at, "']'")
        count, at = count * extent, at + 1
    size = TYPE_BYTES[shape.type]
    initial = _Initial()
    if tokens.text[at] == "=":
        at = _initialiser(tokens, at + 1, shape.type, initial, 0)
        if open_ended:
            count, open_ended = -(-len(initial.data) // (size * shape.length)), False
    if open_ended and not external:
        tokens.refuse(at, "an extent: only what is declared .extern may leave it open")
    count = 0 if open_ended else count * shape.length
    if initial.data and len(initial.data) > count * size:
        tokens.refuse(at, f"an initialiser of at most {count * size} bytes", found=f"{len(initial.data)} bytes")
    align = shape.align or size * shape.length
    made = Variable(
        name, space, shape.type, count, count * size, align, external, bytes(initial.data), tuple(initial.references)
    )
    return made, at


def _initialiser(tokens: Tokens, at: int, type: str, initial: _Initial, depth: int) -> int:
    if tokens.text[at] != "{":
        return _element(tokens, at, type, initial)
    if depth > _DEEPEST:
        tokens.refuse(at, f"at most {_DEEPEST} nested braces")
    at += 1
    while tokens.text[at] != "}":
        at = _initialiser(tokens, at, type, initial, depth + 1)
        if tokens.text[at] == ",":
            at += 1
        elif tokens.text[at] != "}":
            tokens.refuse(at, "',' or '}'")
    return at + 1


def _element(tokens: Tokens, at: int, type: str, initial: _Initial) -> int:
    """One initialiser element: a constant, ``symbol + 4``, ``generic(symbol) + 4``, or a byte of one,
    ``0xFF00(symbol)``."""
    size, text = TYPE_BYTES[type], tokens.text
    if NAME.match(text[at]) is not None or text[at + 1] == "(":
        generic = text[at] == "generic"
        name = text[at] if text[at + 1] != "(" else text[at + 2] if text[at + 2] != "generic" else text[at + 4]
        while text[at] not in ("+", "-", ",", "}", ";", ""):
            at += 1
        addend = 0
        if text[at] in ("+", "-"):
            value, at = constant(tokens, at)
            addend = value.bits
        initial.references.append(Reference(len(initial.data), name, addend, generic))
        initial.data += bytes(size)
        return at
    value, behind = constant(tokens, at)
    initial.data += _bytes_of(tokens, at, value, type)
    return behind


def _bytes_of(tokens: Tokens, at: int, value: Immediate, type: str) -> bytes:
    size = TYPE_BYTES[type]
    if value.kind == "int":
        number = value.bits - (1 << 64 if value.bits >> 63 else 0)
        if type == "f32":
            return _F32.pack(number)
        return _F64.pack(number) if type == "f64" else (value.bits & (1 << 8 * size) - 1).to_bytes(size, "little")
    own = "f32" if value.kind == "f32" else "f64"
    raw = value.bits.to_bytes(4 if own == "f32" else 8, "little")
    if size == len(raw):
        return raw
    if (own, type) == ("f64", "f32"):
        return _F32.pack(_F64.unpack(raw)[0])
    if (own, type) == ("f32", "f64"):
        return _F64.pack(_F32.unpack(raw)[0])
    tokens.refuse(at, f"a constant of type {type}")


def number(tokens: Tokens, at: int) -> tuple[int, int]:
    """(the non-negative integer at token ``at``, the token behind it)."""
    value, behind = constant(tokens, at)
    if value.kind != "int" or value.bits >> 63:
        tokens.refuse(at, "a non-negative integer")
    return value.bits, behind
