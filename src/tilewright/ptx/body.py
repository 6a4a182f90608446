"""The body of a kernel or function: statements in nested scopes (PTX ISA 9.1, 4.3, 6, 11.5)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from tilewright.ptx.constants import constant, signed
from tilewright.ptx.declarations import number, variables
from tilewright.ptx.scopes import Scopes
from tilewright.ptx.syntax import (
    TYPE_BYTES,
    Address,
    CallArguments,
    Guard,
    Identifier,
    Immediate,
    Instruction,
    KernelParameter,
    Loc,
    Negated,
    Operand,
    Pair,
    Pragma,
    Register,
    Special,
    Variable,
    Vector,
)
from tilewright.ptx.tokens import NAME, NUMBER, Tokens

_DEEPEST = 64
_LISTS = (".branchtargets", ".calltargets")
_USED_BYTES = re.compile(r"used_bytes_mask (\d+|0x[0-9a-fA-F]+)")


class BodyReader:
    """Reads one ``{ ... }``; the fields are what ``Entry`` keeps of it."""

    def __init__(self, tokens: Tokens, outside: Mapping[str, Operand]):
        self.tokens = tokens
        self.scopes = Scopes(tokens, outside)
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.targets: dict[str, tuple[str, ...]] = {}
        self.pragmas: list[Pragma] = []
        self.shared: list[Variable] = []
        self.local: list[Variable] = []
        self._opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._location: Loc | None = None
        self._scope_labels: dict[int, list[int]] = {}

    def read(self, start: int, files: dict[int, str], parameters: Sequence[KernelParameter]) -> int:
        """Read from the ``{`` at token ``start``; the token behind its ``}``. Parameters in registers are declared."""
        end = self._find_labels(start)
        text, at = self.tokens.text, start
        while at < end:
            token = text[at]
            if token == "{":
                self._open(at)
                if at == start:
                    for p in parameters:
                        self.scopes.registers.setdefault(p.name, p.type)
                at += 1
            elif token == "}":
                self.scopes.close()
                at += 1
            elif token[0] == ".":
                at = self._directive(at)
            elif text[at + 1] == ":":
                at = self._label(at)
            elif token == ";":
                at += 1
            else:
                at = self._instruction(at)
        for p in parameters:
            self.scopes.registers.pop(p.name, None)
        return end

    def _find_labels(self, start: int) -> int:
        """Collect the labels of each scope, which instructions may name before their definition; returns the token
        behind the last ``}``."""
        text, marks, opened = self.tokens.text, self.tokens.marks, list[int]()
        for at in islice(marks, bisect_left(marks, start), None):
            token = text[at]
            if token == "{":
                opened.append(at)
                self._scope_labels[at] = []
                if len(opened) > _DEEPEST:
                    self.tokens.refuse(at, f"at most {_DEEPEST} nested scopes")
            elif token == ":":
                self._scope_labels[opened[-1]].append(at - 1)
            else:
                opened.pop()
                if not opened:
                    return at + 1
        self.tokens.refuse(len(text) - 1, "'}' at the end of the body")

    def _open(self, at: int) -> None:
        self.scopes.open()
        for label in self._scope_labels[at]:
            name = self.tokens.text[label]
            if NAME.match(name) is None:
                self.tokens.refuse(label, "a label")
            self.scopes.declare(label, name, Identifier(self.scopes.unique(name)))

    def _label(self, at: int) -> int:
        name, text = self.scopes.unique(self.tokens.text[at]), self.tokens.text
        behind = text[at + 2]
        if behind in _LISTS:
            end = self._end(at)
            self.targets[name] = tuple(self._target(i) for i in range(at + 3, end) if text[i] != ",")
            return end + 1
        if behind == ".callprototype":
            return self._end(at) + 1
        self.labels[name] = len(self.instructions)
        return at + 2

    def _target(self, at: int) -> str:
        meant = self.scopes.meaning(at)
        if not isinstance(meant, Identifier):
            self.tokens.refuse(at, "a label or function")
        return meant.name

    def _end(self, at: int) -> int:
        try:
            return self.tokens.text.index(";", at)
        except ValueError:
            self.tokens.refuse(len(self.tokens.text) - 1, "';'")

    def _directive(self, at: int) -> int:
        token = self.tokens.text[at]
        if token == ".reg":
            return self._registers(at + 1)
        if token == ".loc":
            return self._source_line(at)
        if token == ".pragma":
            end = self._end(at)
            texts = (text.strip('"') for text in self.tokens.text[at + 1 : end] if text != ",")
            self.pragmas += [Pragma(len(self.instructions), text) for text in texts]
            return end + 1
        if token.partition("::")[0] in (".shared", ".local", ".param", ".global", ".const"):
            return self._variables(at)
        self.tokens.refuse(at, "a directive of a body")

    def _variables(self, at: int) -> int:
        found, behind = variables(self.tokens, at, False)
        for variable in found:
            unique = self.scopes.unique(variable.name)
            self.scopes.declare(at, variable.name, Identifier(unique))
            kept = self.shared if variable.space == "shared" else self.local
            kept.append(replace(variable, name=unique))
        return behind

    def _registers(self, at: int) -> int:
        text, length, type = self.tokens.text, 1, ""
        while text[at].startswith("."):
            if text[at] in (".v2", ".v4"):
                length = int(text[at][2:])
            elif text[at][1:] in TYPE_BYTES:
                type = text[at][1:]
            else:
                self.tokens.refuse(at, "a type")
            at += 1
        if not type:
            self.tokens.refuse(at, "a type")
        while True:
            name = text[at]
            if NAME.match(name) is None:
                self.tokens.refuse(at, "the name of a register")
            if text[at + 1] == "<":
                count, behind = number(self.tokens, at + 2)
                if text[behind] != ">":
                    self.tokens.refuse(behind, "'>'")
                self.scopes.range(at, name, count, type, length)
                at = behind + 1
            else:
                self.scopes.register(at, name, type, length)
                at += 1
            if text[at] == ";":
                return at + 1
            if text[at] != ",":
                self.tokens.refuse(at, "',' or ';'")
            at += 1

    def _source_line(self, at: int) -> int:
        """``.loc file line column[, function_name label[+n], inlined_at file line column]``."""
        place, at = self._place(at + 1)
        text = self.tokens.text
        if text[at] == "," and text[at + 1] == "function_name":
            at += 3
            if text[at] in ("+", "-"):
                at += 2
            if text[at] != "," or text[at + 1] != "inlined_at":
                self.tokens.refuse(at, "', inlined_at'")
            outer, at = self._place(at + 2)
            place = replace(place, inlined_at=outer)
        self._location = place
        return at

    def _place(self, at: int) -> tuple[Loc, int]:
        values: list[int] = []
        for _ in range(3):
            if NUMBER.match(self.tokens.text[at]) is None:
                self.tokens.refuse(at, "file, line and column")
            value, at = number(self.tokens, at)
            values.append(value)
        return Loc(values[0], values[1], values[2]), at

    def _instruction(self, at: int) -> int:
        text, guard = self.tokens.text, None
        line = self.tokens.lines[at]
        if text[at] == "@":
            negated = text[at + 1] == "!"
            at += 2 if negated else 1
            meant = self.scopes.meaning(at)
            if not isinstance(meant, Register):
                self.tokens.refuse(at, "a predicate register")
            guard = Guard(meant.name, negated)
            at += 1
        opcode = self._opcodes.get(text[at])
        if opcode is None:
            opcode = self._opcode(at)
        operands, at = self._operands(at + 1, ";")
        self.instructions.append(
            Instruction(
                len(self.instructions), opcode[0], opcode[1], operands, guard, self._location, line, self._used_bytes()
            )
        )
        return at

    def _used_bytes(self) -> int | None:
        """The bytes that this load uses according to the pragmas before it."""
        used: int | None = None
        for pragma in reversed(self.pragmas):
            if pragma.index != len(self.instructions):
                break
            mask = _USED_BYTES.fullmatch(pragma.text)
            if mask is not None:
                used = int(mask.group(1), 0) & (-1 if used is None else used)
        return used

    def _opcode(self, at: int) -> tuple[str, tuple[str, ...]]:
        token = self.tokens.text[at]
        root, *modifiers = token.split(".")
        if NAME.match(root) is None or root[0] in "%$":
            self.tokens.refuse(at, "an instruction")
        self._opcodes[token] = made = (root, tuple(modifiers))
        return made

    def _operands(self, at: int, closing: str) -> tuple[tuple[Operand, ...], int]:
        """The operands up to the token ``closing``, and the token behind it."""
        text, found = self.tokens.text, list[Operand]()
        seen, meaning = self.scopes.seen, self.scopes.meaning
        if text[at] == closing:
            return (), at + 1
        while True:
            token, behind = text[at], text[at + 1]
            if behind in (",", closing):
                operand = seen.get(token)
                found.append(meaning(at) if operand is None else operand)
                at += 1
            else:
                operand, at = self._operand(at)
                found.append(operand)
                behind = text[at]
            if behind == closing:
                return tuple(found), at + 1
            if behind != ",":
                self.tokens.refuse(at, f"',' or '{closing}'")
            at += 1

    def _operand(self, at: int) -> tuple[Operand, int]:
        """An operand of several tokens."""
        text = self.tokens.text
        token = text[at]
        if token == "[":
            return self._address(at + 1)
        if token == "{":
            items, behind = self._items(at, "}")
            return Vector(items), behind
        if token == "(":
            if NAME.match(text[at + 1]) or text[at + 1] == ")":
                items, behind = self._items(at, ")")
                return CallArguments(items), behind
            return constant(self.tokens, at)
        if token == "!" and NAME.match(text[at + 1]):
            meant = self.scopes.meaning(at + 1)
            return (Negated(meant), at + 2) if isinstance(meant, Register) else constant(self.tokens, at)
        if NAME.match(token) or ("." in token and not NUMBER.match(token)):
            return self._named(at)
        return constant(self.tokens, at)

    def _items(self, at: int, closing: str) -> tuple[tuple[Operand, ...], int]:
        """Braces hold names and constants; a nested brace, as in ``mma`` with sparsity, one level more."""
        if self.tokens.text[at + 1] in ("{", "["):
            self.tokens.refuse(at + 1, "a name or constant")
        return self._operands(at + 1, closing)

    def _named(self, at: int) -> tuple[Operand, int]:
        """``a|b`` and ``symbol + 4``."""
        text, first = self.tokens.text, self.scopes.meaning(at)
        if text[at + 1] == "|":
            if text[at + 2] == "!":
                self.tokens.refuse(at + 2, "a register")
            return Pair(first, self.scopes.meaning(at + 2)), at + 3
        if text[at + 1] in ("+", "-") and isinstance(first, Identifier):
            offset, at = constant(self.tokens, at + 1)
            return Address(first, signed(offset.bits)), at
        return first, at + 1

    def _address(self, at: int) -> tuple[Address, int]:
        """``[base + offset]`` and ``[base, {c0, c1}]``, behind the opening bracket."""
        text = self.tokens.text
        if NUMBER.match(text[at]) or text[at] == "-":
            base, at = constant(self.tokens, at)
        else:
            base = self.scopes.meaning(at)
            at += 1
        if not isinstance(base, Register | Identifier | Immediate | Special):
            self.tokens.refuse(at - 1, "a register, variable or constant")
        offset = 0
        if text[at] == "+" or text[at] == "-":
            value, at = constant(self.tokens, at)
            if value.kind != "int":
                self.tokens.refuse(at - 1, "an offset in bytes")
            offset = signed(value.bits)
        rest: tuple[Operand, ...] = ()
        if text[at] == ",":
            rest, at = self._operands(at + 1, "]")
            return Address(base, offset, rest), at
        if text[at] != "]":
            self.tokens.refuse(at, "']'")
        return Address(base, offset, rest), at + 1
