"""What a PTX module says before its instructions: target, limits of the launch, parameters, pragmas.

Registers that ``setmaxnreg`` hands on are those that a launch gives, by the number of threads and the CTAs on an SM
(PTX ISA 9.1, 9.7.19.5, 11.4), so that both limits are those of the IR and no other is there. A parameter has the bytes
that a launch copies to it; a tensor map is 128 bytes at a multiple of 64 (CUDA Driver API, CUtensorMap). A variable of
shared memory lies where its elements may. A kernel that waits for the one before does so in every thread, before it
touches memory (PTX ISA 9.1, 9.7.13.13).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.artifact.schema import FloatScalar, IntScalar, KernelArg, TensorMapArg
from tilewright.hw.tensormap import MAP_ALIGN_BYTES, MAP_BYTES
from tilewright.ptx.syntax import Entry, KernelParameter, Module, Pragma
from tilewright.transport import dialect as t

DYNAMIC = "dynamic_shared"
"""The name of dynamic shared memory; other variables have sizes of their own."""
_POINTER_BYTES = 8
_DYNAMIC_ALIGN_BYTES = 16
"""The least alignment of dynamic shared memory, which ``ldmatrix`` and vectors of four words need."""


def constants_of(module: Module) -> Mapping[str, bytes]:
    """The contents of variables in global memory that are never written; external ones are unknown."""
    return {
        v.name: v.initial.ljust(v.bytes, b"\0")
        for v in module.globals
        if v.space == "global" and not v.references and not v.external
    }


def otherwise_declared(
    kernel: t.Kernel,
    module: Module,
    entry: Entry,
    arguments: Sequence[KernelArg],
    scalar_bytes: Mapping[str, int],
    shared_bytes: Mapping[str, int],
) -> Iterator[str]:
    """What is declared otherwise than the kernel asks; ``scalar_bytes`` of its floating scalars, ``shared_bytes`` of an
    element of its variables in shared memory, by name."""
    if module.target != (kernel.target_name.data,) or module.address_size != 64:
        yield f"target {', '.join(module.target)}, addresses of {module.address_size} bits"
    given = {name.lstrip("."): values for name, values in entry.directives.items()}
    if "maxntid" in given:  # extents that are left out are 1: the limit is their product (PTX ISA 9.1, 11.4.2)
        given["maxntid"] = (*given["maxntid"], 1, 1)[:3]
    wanted = {"maxntid": (kernel.threads.data, 1, 1), "minnctapersm": (kernel.min_ctas.data,)}
    if given.get("maxntid", (0,))[0] != kernel.threads.data:
        yield "another number of threads"
    elif given != wanted:
        yield f"directives {', '.join(f'{name} {values}' for name, values in given.items())}"
    if _waits(entry) != (kernel.waits is not None):
        yield "a wait for the kernel before that is missing, late or not asked for"
    odd = [p.text for p in entry.pragmas if not _is_read(entry, p)]
    if odd:
        yield f"pragma {min(odd)}"
    for variable in entry.shared:
        if not (variable.name == DYNAMIC if variable.external else variable.name in shared_bytes):
            yield f"variable {variable.name} in shared memory"
        if variable.align % (_DYNAMIC_ALIGN_BYTES if variable.external else shared_bytes.get(variable.name, 1)):
            yield f"variable {variable.name} at multiples of {variable.align}"
    if len(arguments) != len(entry.parameters):
        yield f"{len(entry.parameters)} parameters, {len(arguments)} arguments"
    for declared, argument in zip(entry.parameters, arguments, strict=False):
        if not _holds(declared, argument, scalar_bytes):
            yield f"parameter {declared.name} of {declared.bytes} bytes at multiples of {declared.align}"


def _waits(entry: Entry) -> bool | None:
    """Whether threads wait for the kernel before; None unless all do so once, and touch no memory until then."""
    waits = [i for i in entry.body if i.opcode == "griddepcontrol" and i.modifiers == ("wait",)]
    if not waits:
        return False
    before = entry.body[: waits[0].index]
    plain = all(i.opcode in _BEFORE or (i.opcode == "ld" and "param" in i.modifiers) for i in before)
    return True if len(waits) == 1 and plain and waits[0].guard is None else None


_BEFORE = frozenset(("mov", "cvta", "cvt", "add", "sub", "mul", "mad", "and", "or", "shl", "shr", "griddepcontrol"))
"""Opcodes that touch no memory, nor lead elsewhere."""


def _is_read(entry: Entry, pragma: Pragma) -> bool:
    """Whether the pragma has no effect, or gives the used bytes of the load after it (PTX ISA 9.1, 11.5)."""
    if pragma.text == "nounroll":
        return True
    behind = entry.body[pragma.index : pragma.index + 1]
    masked = any(i.opcode == "ld" and "param" not in i.modifiers and i.used_bytes is not None for i in behind)
    return masked and pragma.text.startswith("used_bytes_mask ")


def _holds(declared: KernelParameter, argument: KernelArg, scalar_bytes: Mapping[str, int]) -> bool:
    match argument:
        case TensorMapArg():
            return declared.array and declared.bytes == MAP_BYTES and declared.align % MAP_ALIGN_BYTES == 0
        case IntScalar(_, bits):
            size = bits // 8
        case FloatScalar(name):
            size = scalar_bytes[name]
        case _:
            size = _POINTER_BYTES
    return declared.bytes == size and declared.align % size == 0
