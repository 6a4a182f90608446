"""Scoped name lookup: which register, label or variable a name refers to (PTX ISA 9.1, 5.4, 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.ptx.constants import literal
from tilewright.ptx.syntax import Identifier, Operand, Register, Special, Vector
from tilewright.ptx.tokens import NAME, Tokens

_SPECIAL = frozenset((
    "tid", "ntid", "laneid", "warpid", "nwarpid", "ctaid", "nctaid", "smid", "nsmid", "gridid",
    "is_explicit_cluster", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid", "cluster_ctarank",
    "cluster_nctarank", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt", "clock",
    "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi", "reserved_smem_offset_begin",
    "reserved_smem_offset_end", "reserved_smem_offset_cap", "reserved_smem_offset_0", "reserved_smem_offset_1",
    "total_smem_size", "aggr_smem_size", "dynamic_smem_size", "current_graph_exec",
))  # fmt: skip
_NUMBERED = ("envreg", "pm", "reserved_smem_offset_")
_COMPONENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}
MOST_REGISTERS = 1 << 24
"""Registers that one declaration ``%r<N>`` may name."""


@dataclass(slots=True)
class _BlockScope:
    number: int
    names: dict[str, Operand] = field(default_factory=dict[str, Operand])
    ranges: dict[str, tuple[int, str, int]] = field(default_factory=dict[str, tuple[int, str, int]])
    seen: dict[str, Operand] = field(default_factory=dict[str, Operand])


@dataclass(slots=True)
class Scopes:
    """The open scopes of one body, innermost last; ``registers`` collects the type of each register that occurs."""

    tokens: Tokens
    outside: Mapping[str, Operand]
    registers: dict[str, str] = field(default_factory=dict[str, str])
    opened: list[_BlockScope] = field(default_factory=list[_BlockScope])
    count: int = 0

    def open(self) -> None:
        """Enter a scope."""
        self.opened.append(_BlockScope(self.count))
        self.count += 1

    def close(self) -> None:
        """Leave the innermost scope."""
        self.opened.pop()

    @property
    def seen(self) -> dict[str, Operand]:
        """A cache of ``meaning`` for the names used in the innermost scope."""
        return self.opened[-1].seen

    def unique(self, name: str) -> str:
        """``name`` as the whole entry may call it."""
        number = self.opened[-1].number
        return f"{name}@{number}" if number else name

    def declare(self, at: int, name: str, operand: Operand) -> None:
        """Let ``name`` of the innermost scope mean ``operand``."""
        scope = self.opened[-1]
        if name in scope.names:
            self.tokens.refuse(at, "a name that is new in its scope", "PTX003", name)
        scope.names[name] = scope.seen[name] = operand

    def register(self, at: int, name: str, type: str, length: int) -> None:
        """Declare one register, or a vector of ``length`` of them."""
        self.declare(at, name, self._made(self.unique(name), type, length))

    def range(self, at: int, prefix: str, count: int, type: str, length: int) -> None:
        """Declare ``prefix<count>``: ``prefix0`` and so on; they are made when they occur."""
        if count > MOST_REGISTERS:
            self.tokens.refuse(at, f"at most {MOST_REGISTERS} registers in a declaration")
        scope = self.opened[-1]
        if prefix in scope.ranges:
            self.tokens.refuse(at, "a name that is new in its scope", "PTX003", f"{prefix}<{count}>")
        scope.ranges[prefix] = (count, type, length)
        scope.seen.clear()

    def meaning(self, at: int) -> Operand:
        """The operand that the single token ``at`` names."""
        token = self.tokens.text[at]
        found = self.seen.get(token)
        if found is None:
            found = self.seen[token] = self._resolve(at, token)
        return found

    def _resolve(self, at: int, token: str) -> Operand:
        operand = self._lookup(token)
        if operand is not None:
            return operand
        if token == "_":
            return Identifier("_")
        constant = literal(token)
        if constant is not None:
            return constant
        name, _, component = token.partition(".")
        if NAME.match(name) is None:
            self.tokens.refuse(at, "an operand")
        operand = self._lookup(name) if component else None
        if isinstance(operand, Vector) and component in _COMPONENTS and _COMPONENTS[component] < len(operand.items):
            return operand.items[_COMPONENTS[component]]
        if operand is None and (name[1:] in _SPECIAL or name[1:].startswith(_NUMBERED)) and name[0] == "%":
            return Special(token)
        self.tokens.refuse(at, "a declared register, label, variable or function", "PTX002")

    def _lookup(self, name: str) -> Operand | None:
        for scope in reversed(self.opened):
            operand = scope.names.get(name)
            if operand is None and scope.ranges:
                operand = self._of_range(scope, name)
            if operand is not None:
                return operand
        return self.outside.get(name)

    def _of_range(self, scope: _BlockScope, name: str) -> Operand | None:
        """The register of a declaration ``prefix<count>``; a prefix may itself end in digits."""
        cut = len(name.rstrip("0123456789"))
        for start in range(max(cut, len(name) - 8), len(name)):
            declared = scope.ranges.get(name[:start])
            if (
                declared is not None
                and (name[start] != "0" or start == len(name) - 1)
                and int(name[start:]) < declared[0]
            ):
                unique = f"{name}@{scope.number}" if scope.number else name
                scope.names[name] = operand = self._made(unique, declared[1], declared[2])
                return operand
        return None

    def _made(self, name: str, type: str, length: int) -> Operand:
        if length == 1:
            self.registers[name] = type
            return Register(name)
        names = [f"{name}.{'xyzw'[i]}" for i in range(length)]
        self.registers.update(dict.fromkeys(names, type))
        return Vector(tuple(map(Register, names)))
