"""mbarriers and asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ptx.syntax import (
    Address,
    Instruction,
    Operand,
    Vector,
)
from tilewright.validate.instructions.evaluate import Instructions
from tilewright.validate.polynomials import Poly
from tilewright.validate.regions import NOTHING
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Value


def _mbarrier(machine: Instructions, i: Instruction) -> None:
    match i.modifiers[0]:
        case "init":
            machine.event("mbarrier.init", shared_address(machine, i.operands[0]), machine.get(i.operands[1], 32))
        case "try_wait" | "test_wait" if i.index in machine.program.waits:
            machine.event("mbarrier.wait", shared_address(machine, i.operands[1]), machine.get(i.operands[2], 32))
            machine.synchronised()
        case "arrive":
            at = i.operands[1]
            if "expect_tx" in i.modifiers:
                machine.event("mbarrier.expect_tx", shared_address(machine, at), machine.get(i.operands[2], 32))
            else:
                address = shared_address(machine, at)
                remote = machine.terms.single(address) if isinstance(address, Poly) else None
                if remote is not None and remote.kind == "mapa":
                    machine.event("mbarrier.arrive.remote", *remote.args)  # pyright: ignore[reportArgumentType]
                else:
                    machine.event("mbarrier.arrive", address)
            machine.synchronised()
        case _:
            raise Undecided(f"{i.name} is not known", f"line {i.line}")


def _mapa(machine: Instructions, i: Instruction) -> None:
    address, rank = machine.get(i.operands[1], 32), machine.get(i.operands[2], 32)
    whole = machine.values.resize(address, 0)
    machine.result(
        i.operands[0], machine.terms.of(32, machine.terms.atom("mapa", whole, machine.values.resize(rank, 0), low=0))
    )


def _createpolicy(machine: Instructions, i: Instruction) -> None:
    """What L2 evicts first is no part of what a kernel computes; that copies are given a policy is."""
    machine.result(i.operands[0], machine.terms.of(64, machine.terms.atom("policy", low=0)))


def shared_address(machine: Instructions, operand: Operand) -> Value:
    value, _ = machine.address(operand)
    return machine.values.resize(value, 0)


def _cp(machine: Instructions, i: Instruction) -> None:
    m = i.modifiers
    if m[:2] == ("async", "bulk"):
        _bulk(machine, i)
    elif m[:2] == ("async", "mbarrier"):
        machine.event(f"cp.async.mbarrier.{'noinc' if 'noinc' in m else 'inc'}", shared_address(machine, i.operands[0]))
    elif m[:1] == ("async",) and m[1] in ("ca", "cg"):
        _copy(machine, i)
    else:
        raise Undecided(f"{i.name} is not known", f"line {i.line}")


def _copy(machine: Instructions, i: Instruction) -> None:
    """cp.async; what its source rests on matters where something is read."""
    to, used = shared_address(machine, i.operands[0]), machine.used
    machine.used = NOTHING
    source, _ = machine.address(i.operands[1])
    of_source = machine.used
    machine.used = used
    size = machine.values.number(machine.get(i.operands[2], 32))
    read = machine.get(i.operands[3], 32) if len(i.operands) > 3 else machine.terms.const(32, size or 0)
    nothing = machine.values.test(machine.cases.zero, machine.values.resize(read, 0))
    machine.used |= machine.when(of_source, machine.cases.negate(nothing))
    machine.event("cp.async", to, machine.values.resize(source, 0), size, read)


def _bulk(machine: Instructions, i: Instruction) -> None:
    m = i.modifiers
    if "commit_group" in m:
        machine.event("cp.async.bulk.commit_group")
    elif "wait_group" in m:
        machine.event(f"cp.async.bulk.wait_group{'.read' if 'read' in m else ''}", machine.get(i.operands[0], 32))
    elif "tensor" in m and m.index("global") > 4:
        to, source, bar = i.operands[:3]
        assert isinstance(source, Address)
        where, name = shared_address(machine, to), _map_name(machine, source)
        coords = [machine.get(c, 32) for c in _coords(source)]
        mask = machine.get(i.operands[3], 16) if "multicast::cluster" in m else None
        if "L2::cache_hint" in m:
            policy = machine.get(i.operands[3], 64)
            atom = machine.terms.single(policy) if isinstance(policy, Poly) else None
            if atom is None or atom.kind != "policy":
                raise Undecided("a cache hint that is no policy", f"line {i.line}")
        machine.event("tma.load", name, where, shared_address(machine, bar), mask, *coords)
    elif "tensor" in m and m[-1] == "bulk_group":
        target, source = i.operands
        assert isinstance(target, Address)
        coords = [machine.get(c, 32) for c in _coords(target)]
        machine.event("tma.store", _map_name(machine, target), shared_address(machine, source), *coords)
    else:
        raise Undecided(f"{i.name} is not known", f"line {i.line}")


def _coords(operand: Address) -> tuple[Operand, ...]:
    (vector,) = operand.rest
    return vector.items if isinstance(vector, Vector) else (vector,)


def _map_name(machine: Instructions, operand: Address) -> str:
    value, _ = machine.address(Address(operand.base, operand.offset))
    atom = machine.terms.single(value) if isinstance(value, Poly) else None
    if atom is None or atom.kind != "map":
        raise Undecided("a tensor map that varies", f"line {machine.instruction.line}")
    return str(atom.args[0])


OPCODES: dict[str, Callable[[Instructions, Instruction], None]] = {
    "mbarrier": _mbarrier,
    "mapa": _mapa,
    "createpolicy": _createpolicy,
    "cp": _cp,
}
