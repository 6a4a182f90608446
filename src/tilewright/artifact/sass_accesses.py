"""Global accesses of a kernel's machine code: how wide they are, how many stand under a predicate, in which loops.

Read from what nvdisasm prints; beside them how many of all instructions stand under one. A predicated access moves an
element that may not be there, in a vector's place; a branch around unpredicated ones costs once. Loops are ranges that
a branch goes back over, of those with accesses the innermost: of a stream first the whole steps, then its tail, then
those of programs at an edge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?P<predicate>@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<rest>[^;]*);")
_LABEL = re.compile(r"^(\.L_\w+):", re.MULTILINE)
_TARGET = re.compile(r"`\((\.L_\w+)\)")
_GLOBAL = frozenset(("LDG", "LDGSTS", "STG", "RED", "REDG", "ATOMG"))
_CONTROL = frozenset(("BRA", "BRX", "EXIT", "RET", "CALL", "BSSY", "BSYNC", "NOP"))
_NARROW = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
"""Bytes of an access by its suffix; 4 without one (CUDA Binary Utilities, instruction set of Hopper)."""


@dataclass(frozen=True)
class AccessWidth:
    """Accesses that move so many bytes for each thread: in all, and under a predicate."""

    bytes: int
    total: int
    predicated: int

    def __str__(self) -> str:
        return f"{self.total} of {self.bytes} bytes ({self.predicated} predicated)"


@dataclass(frozen=True)
class SassAccesses:
    """Global accesses of a stretch of code, the widest first."""

    widths: tuple[AccessWidth, ...]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(w.total for w in self.widths)

    @property
    def predicated(self) -> int:
        """The predicated accesses."""
        return sum(w.predicated for w in self.widths)

    def __str__(self) -> str:
        return (
            f"{self.total} global accesses, {self.predicated} predicated: {', '.join(map(str, self.widths)) or 'none'}"
        )


@dataclass(frozen=True)
class KernelSassAccesses:
    """Those of a whole kernel, and of each innermost loop that has any, in order; all ``instructions`` of the kernel
    but branches, and those of them that are ``masked`` by a predicate."""

    whole: SassAccesses
    loops: tuple[SassAccesses, ...]
    instructions: int
    masked: int

    def lines(self) -> Iterator[str]:
        """As text: the kernel, then its loops."""
        yield str(self.whole)
        yield f"{self.instructions} instructions without branches, {self.masked} predicated"
        yield from (f"loop {number}: {loop}" for number, loop in enumerate(self.loops, 1))


@dataclass(frozen=True)
class _SassAccess:
    place: int
    bytes: int
    predicated: bool


def kernel_accesses(sass: str) -> KernelSassAccesses:
    """The global accesses in the disassembly of one kernel."""
    labels = {m[1]: m.start() for m in _LABEL.finditer(sass)}
    accesses: list[_SassAccess] = []
    back: list[tuple[int, int]] = []
    instructions = masked = 0
    for m in _LINE.finditer(sass):
        opcode, *suffixes = m["opcode"].split(".")
        if opcode not in _CONTROL:
            instructions += 1
            masked += m["predicate"] is not None
        if opcode in _GLOBAL:
            size = next((_NARROW[s] for s in suffixes if s in _NARROW), 4)
            accesses.append(_SassAccess(m.start(), size, m["predicate"] is not None))
        elif opcode == "BRA" and (target := _TARGET.search(m["rest"])) and labels[target[1]] < m.start():
            back.append((labels[target[1]], m.start()))
    inside = {(begin, end): [a for a in accesses if begin <= a.place <= end] for begin, end in back}
    loops = sorted(_innermost([ends for ends, found in inside.items() if found]))
    return KernelSassAccesses(_counted(accesses), tuple(_counted(inside[ends]) for ends in loops), instructions, masked)


def _innermost(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges that hold no other; of those that begin together the longest."""
    longest = {begin: max(e for b, e in ranges if b == begin) for begin, _ in ranges}
    for begin, end in longest.items():
        if not any(begin < b and e <= end for b, e in longest.items()):
            yield begin, end


def _counted(accesses: Sequence[_SassAccess]) -> SassAccesses:
    sizes = sorted({a.bytes for a in accesses}, reverse=True)
    flags = {size: [a.predicated for a in accesses if a.bytes == size] for size in sizes}
    return SassAccesses(tuple(AccessWidth(size, len(found), sum(found)) for size, found in flags.items()))
