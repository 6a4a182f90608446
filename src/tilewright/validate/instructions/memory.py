"""ld, st, red and atom: element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ptx.syntax import Address, Identifier, Instruction, Operand, Vector
from tilewright.validate.arithmetic import bits_of
from tilewright.validate.bounds import BoundRead
from tilewright.validate.cases import Condition
from tilewright.validate.instructions.copies import shared_address
from tilewright.validate.instructions.evaluate import Instructions
from tilewright.validate.memory import SHARED
from tilewright.validate.polynomials import Poly
from tilewright.validate.regions import NOTHING, VectorAccess
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Value


def _ld(machine: Instructions, i: Instruction) -> None:
    target, source = i.operands
    assert isinstance(source, Address)
    kind = i.modifiers[-1]
    if i.modifiers[0] == "param":
        assert isinstance(source.base, Identifier)
        machine.result(target, _in_register(machine, target, _parameter(machine, source, source.base.name, kind), kind))
        return
    targets = target.items if isinstance(target, Vector) else (target,)
    if "shared::cluster" in i.modifiers:
        _of_cluster(machine, source, targets)
        return
    address, _ = machine.address(source)
    size = bits_of(kind) // 8
    order = machine.next()
    words = [
        _loaded(machine, machine.values.add(address, machine.terms.const(address.width, k * size)), size, order)
        for k in range(len(targets))
    ]
    words = [
        word if i.defines(k, size) else machine.values.undefined(8 * size, f"line {i.line}, {k}")
        for k, word in enumerate(words)
    ]
    _vector(machine, address, len(targets) * size)
    machine.used = NOTHING  # what the address rests on is proved of the load
    machine.arithmetic.needs.clear()
    for item, value in zip(targets, words, strict=True):
        machine.result(item, _in_register(machine, item, value, kind))


def _parameter(machine: Instructions, source: Address, name: str, kind: str) -> Value:
    """The launch's value of a parameter, or its low bits; of a tensor map only the address."""
    found, size = machine.program.parameters[name], machine.program.parameter_bytes[name]
    if source.offset or bits_of(kind) > 8 * size or size > _LARGEST_BYTES:
        raise Undecided(f"{kind} of a parameter of {size} bytes", f"line {machine.instruction.line}")
    return machine.values.resize(found, bits_of(kind))


_LARGEST_BYTES = 8
"""The largest parameter that is a number or an address."""


def _of_cluster(machine: Instructions, source: Address, targets: Sequence[Operand]) -> None:
    """Words of the shared memory of another CTA, at an address that ``mapa`` has given."""
    address = shared_address(machine, source)
    mapped = machine.terms.single(address) if isinstance(address, Poly) else None
    if mapped is None or mapped.kind != "mapa":
        raise Undecided("an address in a cluster", f"line {machine.instruction.line}")
    at, rank = mapped.args
    state = machine.state(SHARED)
    machine.event("ld.shared::cluster", len(targets), at, rank, state)  # pyright: ignore[reportArgumentType]
    for k, word in enumerate(targets):
        machine.result(word, machine.terms.data(32, 32, "of cluster", len(targets), k, at, rank, state))


def _vector(machine: Instructions, address: Value, size: int) -> None:
    """Records an access whose address must be a multiple of its size: of several elements, or of one whose address does
    not imply it."""
    where = f"line {machine.instruction.line}"
    for _, here, tensor, offset in machine.places(address):
        several = size > machine.memory.element_bytes.get(tensor, size)
        if here != 0 and (several or not machine.terms.is_multiple(offset, size)):
            machine.region.vectors.append(VectorAccess(tensor, offset, size, here, where))


def _in_register(machine: Instructions, target: Operand, value: Value, kind: str) -> Value:
    """An element as a register that may be wider holds it: with its sign, or zeros above."""
    bits = bits_of(kind)
    width = machine.register_width(target, bits)
    if kind[0] == "s" and width > bits:
        return machine.values.lift(lambda x: machine.arithmetic.extended(x, bits, width), value)
    return machine.values.field(value, 0, bits, width)


def _loaded(machine: Instructions, address: Value, size: int, order: int) -> Value:
    """``size`` bytes at an address, which may lie in several tensors."""
    needs, where = machine.used | frozenset(machine.arithmetic.needs), f"line {machine.instruction.line}"
    parts: list[tuple[Condition, Value]] = []
    for condition, here, tensor, offset in machine.places(address):
        if tensor in machine.program.constants:
            parts.append((condition, _constant(machine, tensor, offset, size, here)))
            continue
        if "nc" in machine.instruction.modifiers and tensor in machine.program.changing:
            raise Undecided(f"a read of {tensor} as if nobody wrote it meanwhile", where)
        state = machine.state(tensor)
        word = machine.memory.load(machine.region, here, tensor, offset, size, state, where, order, needs)
        parts.append((condition, word if tensor != SHARED else _bound(machine, offset, size, word, state, here)))
    return parts[0][1] if len(parts) == 1 else machine.values.choose(parts)


def _bound(machine: Instructions, offset: Poly, size: int, word: Value, state: Value | None, holds: Condition) -> Value:
    """The word that is read, or the integer that the IR names there."""
    found = machine.program.bounds.at(machine.region.name, holds, offset, size)
    if found is None or state is None:
        return word
    bound, said = found
    machine.region.bounds.append(BoundRead(bound, state, holds, f"line {machine.instruction.line}"))
    return said


def _constant(machine: Instructions, name: str, offset: Poly, size: int, holds: Condition) -> Poly:
    """Bytes of a constant of the module."""
    content, at = machine.program.constants[name], machine.terms.number(offset)
    if at is None or not 0 <= at <= len(content) - size:  # elsewhere: shown to be unreachable, or refused
        machine.event(f"a read outside of {name}", holds=holds)
        return machine.values.undefined(8 * size, f"outside of {name}")
    return machine.terms.const(8 * size, int.from_bytes(content[at : at + size], "little"))


def _st(machine: Instructions, i: Instruction) -> None:
    target, source = i.operands
    address, _ = machine.address(target)
    kind = i.modifiers[-1]
    size = bits_of(kind) // 8
    sources = source.items if isinstance(source, Vector) else (source,)
    _vector(machine, address, len(sources) * size)
    order = machine.next()
    tensors = {machine.located(base)[0]: None for _, base in machine.values.parts(address)}
    element = max(machine.memory.element_bytes.get(tensor, size) for tensor in tensors)
    per = max(1, element // size)
    if per > 1 and len(sources) % per == 0:  # words that are parts of elements
        size = element
        words = [machine.get(Vector(sources[k : k + per]), 8 * element) for k in range(0, len(sources), per)]
    else:
        words = [machine.get(item, machine.register_width(item, bits_of(kind))) for item in sources]
    for k, word in enumerate(words):
        place = machine.values.add(address, machine.terms.const(address.width, k * size))
        _store_pieces(machine, place, size, word, order)
    for tensor in tensors:
        machine.stored(tensor)


def _store_pieces(machine: Instructions, address: Value, size: int, word: Value, order: int, kind: str = "st") -> None:
    needs, where = machine.used | frozenset(machine.arithmetic.needs), f"line {machine.instruction.line}"
    for _, here, tensor, offset in machine.places(address):
        if tensor in machine.program.constants:
            raise Undecided(f"a store to {tensor}", where)
        machine.memory.store(machine.region, here, tensor, offset, size, word, where, order, needs, kind)


def _red(machine: Instructions, i: Instruction) -> None:
    """An addition for each element of a vector, or of a pair in a word."""
    kind, source = i.modifiers[-1].removesuffix("x2"), i.operands[1]
    address, _ = machine.address(i.operands[0])
    size, packed = bits_of(kind) // 8, i.modifiers[-1] != kind
    words = [
        machine.get(item, bits_of(i.modifiers[-1]))
        for item in (source.items if isinstance(source, Vector) else [source])
    ]
    if packed:
        words = [_half(machine, word, first) for word in words for first in (0, 16)]
    form = ".".join([*(m for m in i.modifiers[:-1] if m not in _ANY_FORM), kind])
    _vector(machine, address, len(words) * size)
    order = machine.next()
    for k, word in enumerate(words):
        place = machine.values.add(address, machine.terms.const(address.width, k * size))
        _store_pieces(machine, place, size, word, order, f"red.{form}")
    for tensor in {machine.located(base)[0]: None for _, base in machine.values.parts(address)}:
        machine.stored(tensor)


_ANY_FORM = ("relaxed", "gpu", "global", "shared", "v2", "v4", "v8")
"""Modifiers of an addition that say nothing of what is added: state space and vector are compared as addresses, and the
order is relaxed where none is given."""


def _half(machine: Instructions, word: Value, first: int) -> Value:
    """16 bits of a word, as a word of its own."""
    return machine.values.lift(lambda x: machine.terms.field(x, first, 16, 16), word)


def _atom(machine: Instructions, i: Instruction) -> None:
    target = i.operands[0]
    _red(machine, Instruction(i.index, "red", i.modifiers, i.operands[1:], i.guard, i.location, i.line))
    width = machine.width(i)
    machine.marks[i.index] = machine.region.events[-1]
    machine.result(target, machine.terms.data(width, width, "old", "ptx", i.index))


OPCODES: dict[str, Callable[[Instructions, Instruction], None]] = {
    "ld": _ld,
    "st": _st,
    "red": _red,
    "atom": _atom,
}
