"""The parts of a PTX module as values (PTX ISA 9.1, sections 4 to 6 and 11).

Names are unique in an entry: what a nested ``{ }`` declares is renamed ``name@3``, 3 being the number of the scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register. ``%r7``, or ``p@2`` where a nested scope declares it."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. ``bits`` is the two's complement pattern of 64 bits for ``kind`` int, else of an f32 or f64."""

    bits: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Identifier:
    """A label, variable, parameter or function; ``_`` is the sink for results that are not used."""

    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as ``%tid.x``, with its component."""

    name: str


@dataclass(frozen=True, slots=True)
class Negated:
    """``!p``: a predicate operand, inverted."""

    register: Register


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, c}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class CallArguments:
    """``(a, b)`` of a call."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``p|q``: two destinations, or a value and its predicate."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset, rest...]``; ``rest`` has coordinates of tensors and textures, ``offset`` is signed, in bytes.

    Without brackets, as in ``mov.u64 %rd1, symbol + 4``, it is the address itself.
    """

    base: Register | Identifier | Immediate | Special
    offset: int = 0
    rest: tuple[Operand, ...] = ()


Operand = Register | Immediate | Identifier | Special | Negated | Vector | CallArguments | Pair | Address


@dataclass(frozen=True, slots=True)
class Guard:
    """``@p`` or ``@!p`` before an instruction."""

    register: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Loc:
    """A ``.loc``: the source line that the following instructions come from. ``file`` is a key of ``Module.files``."""

    file: int
    line: int
    column: int
    inlined_at: Loc | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: ``opcode`` is the root (``ld``), ``modifiers`` the rest (``global``, ``v4``, ``b32``).

    ``index`` counts from 0 in the body, ``line`` from 1 in the text. ``used_bytes``: of a load behind the pragma
    ``used_bytes_mask``, a bit for each byte whose value is used; others may be anything (PTX ISA 9.1, 11.5).
    """

    index: int
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    location: Loc | None
    line: int
    used_bytes: int | None = None

    def defines(self, element: int, size: int) -> bool:
        """Whether a load gives every byte of an element of ``size`` bytes."""
        wanted = (1 << size) - 1
        return self.used_bytes is None or self.used_bytes >> (element * size) & wanted == wanted

    @property
    def name(self) -> str:
        """The full opcode, such as ``ld.global.v4.b32``."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Reference:
    """``symbol + addend`` in an initialiser, at a byte ``offset``."""

    offset: int
    symbol: str
    addend: int
    generic: bool


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of ``count`` elements of ``type``, those of vectors counted one by one; 0 where its extent is open."""

    name: str
    space: str
    type: str
    count: int
    bytes: int
    align: int
    external: bool = False
    initial: bytes = b""
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter: a scalar of ``type``, or an array of ``bytes`` bytes where ``array``."""

    name: str
    type: str
    bytes: int
    align: int
    array: bool = False


@dataclass(frozen=True, slots=True)
class Pragma:
    """``.pragma "text";`` before the instruction ``index``."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel (``.entry``) or a function (``.func``).

    ``shared`` are the shared variables that it can name: its own and those of the module. ``registers`` has the type of
    each register that occurs. ``labels`` gives the index of the instruction behind a label, which is ``len(body)`` at
    the end. ``targets`` are the lists ``.branchtargets`` and ``.calltargets``. ``external``: declared without a body.
    """

    name: str
    parameters: tuple[KernelParameter, ...]
    directives: Mapping[str, tuple[int, ...]]
    shared: tuple[Variable, ...] = ()
    local: tuple[Variable, ...] = ()
    registers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: tuple[Instruction, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict[str, int])
    targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    pragmas: tuple[Pragma, ...] = ()
    results: tuple[KernelParameter, ...] = ()
    external: bool = False


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX text: ``version`` such as (9, 0), ``target`` with its options, what module scope declares."""

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int
    globals: tuple[Variable, ...]
    functions: tuple[Entry, ...]
    entries: tuple[Entry, ...]
    files: Mapping[int, str]

    def entry(self, name: str = "") -> Entry:
        """The kernel of that name, or the only one; ``KeyError`` where there is no such kernel."""
        found = [e for e in self.entries if e.name == name or not name]
        if len(found) != 1:
            raise KeyError(name)
        return found[0]


TYPE_BYTES: Mapping[str, int] = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 2,
    "f16x2": 4,
    "bf16": 2,
    "bf16x2": 4,
    "tf32": 4,
    "f32": 4,
    "f32x2": 8,
    "f64": 8,
    "b128": 16,
    "e4m3": 1,
    "e5m2": 1,
    "pred": 1,
    "texref": 8,
    "samplerref": 8,
    "surfref": 8,
}
"""Bytes of a fundamental type; a predicate has one here, in memory it has none."""
