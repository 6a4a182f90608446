"""Compiles CUDA C++ to PTX and a cubin through NVRTC, in process; only the NVRTC wheel is needed.

NVRTC generates the PTX and assembles that same PTX as a whole program. (nvJitLink assembles relocatable code, for which
ptxas ignores setmaxnreg, C7504.) Spills, serialised wgmma (C7510) and an ignored setmaxnreg (C7504, C7508) in the ptxas
log are errors here, not remarks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cuda.bindings import nvrtc as _bindings  # pyright: ignore - cuda-bindings has no types

from tilewright.diag import fail

nvrtc: Any = _bindings  # pyright: ignore - as above


@dataclass(frozen=True)
class Assembled:
    """Machine code of one kernel. ``registers`` per thread, ``spill_bytes`` stores plus loads, ptxas' ``log``."""

    ptx: str
    cubin: bytes
    registers: int
    spill_bytes: int
    shared_bytes: int
    log: str


def assemble(source: str, arch: str, name: str) -> Assembled:
    """Compile CUDA C++ for ``arch`` (``sm_90a``); CGN001 with NVRTC's log if it doesn't compile, JIT005 without NVRTC.

    If there are too few registers, only the log is returned and ``defects`` reports it.

    Contraction is off (``--fmad=false``): wherever fusion is allowed, the IR already contains an fma.
    """
    try:
        ptx, cubin, log = compile_text(source, arch, name)
    except TooManyRegistersError as lacking:
        return Assembled("", b"", registers=0, spill_bytes=0, shared_bytes=0, log=str(lacking))

    assert not (loose := unrounded(ptx)), f"{name}: {loose[0]} may still be fused"
    registers, spill_bytes, shared_bytes = taken_of(log)
    return Assembled(ptx, cubin, registers, spill_bytes, shared_bytes, log)


def taken_of(log: str) -> tuple[int, int, int]:
    """The resources that ptxas reports for one kernel: registers per thread, bytes spilled, bytes of static shared
    memory."""
    taken = _TAKEN.search(log)
    assert taken, "ptxas does not say what a kernel took, and what it spilled"

    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found.group(1)) if found else 0

    spilled = number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads")
    return int(taken.group(1)), spilled, number(r"(\d+) bytes smem")


def compile_text(source: str, arch: str, name: str) -> tuple[str, bytes, str]:
    """Compile CUDA C++ with NVRTC to PTX, a cubin and the ptxas log; CGN001 with the log if it doesn't compile.
    ``TooManyRegistersError`` if the registers of a thread don't suffice."""
    program = _program(source, name)
    try:
        options = [f"--gpu-architecture={arch}".encode(), *OPTIONS]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
        if int(status) != 0 and (lacking := _LACKING.search(log)):
            raise TooManyRegistersError(lacking.group())
        if int(status) != 0:
            fail("CGN001", found=log.strip(), required="code that NVRTC compiles")
        ptx = _read(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).decode()
        return ptx, _read(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, text=False), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


class TooManyRegistersError(Exception):
    """One instruction needs more registers than its thread may have; carries ptxas' message."""


OPTIONS = (b"--std=c++17", b"--ptxas-options=-v", b"--fmad=false", b"--no-cache")
"""From NVRTC's cache (CUDA 12.9 on, where a driver is) code comes without ptxas' log."""


def _program(source: str, name: str) -> Any:
    try:
        created = nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], [])
    except RuntimeError as error:  # the binding's loader: libnvrtc was not found
        found = f"compiling needs the package nvidia-cuda-nvrtc; {str(error).splitlines()[0]}"
        fail("JIT005", found=found, required="tilewright[compiler]")
    return _checked(created)


_LOOSE = re.compile(r"(?<![\w.])(?:add|sub|mul|mad|fma)(?:\.ftz|\.sat)*\.(?:f32|f16|bf16|f64)(?:x2)?\b")


def unrounded(ptx: str) -> list[str]:
    """Float sums and products without a rounding mode: ptxas may fuse them (PTX ISA 9.1, add, mul)."""
    return _LOOSE.findall(ptx)


_TAKEN = re.compile(r"Used (\d+) registers")

_LACKING = re.compile(r"\(C7602\).*")
"""ptxas' message if one instruction needs more registers than a thread of such a large CTA can have: wgmma with many
columns."""

_IGNORED = re.compile(r"\(C75\d\d\)|setmaxnreg.*ignored|wgmma.*serializ", re.IGNORECASE)
"""The advisories on wgmma and setmaxnreg: ignored (C7504, C7507, C7508), serialised (C7510), waits and fences that
ptxas put in (C7517, C7519)."""


SPILL_TOLERANCE_BYTES = 32
"""Spilled bytes, stores plus loads, that are none of a schedule's business: a register or two."""
ROLE_SPILL_TOLERANCE_BYTES = 128
"""The same for kernels with warp-specialised roles, whose next schedule has smaller tiles or no pipelining. Gradients
of keys and values, heads of 128 (H200, 4 x 16 heads, 4096 keys): steps of 64 queries with 112 bytes spilled take 2,049
us, steps of 48 without spills 2,292 us."""
STREAM_SPILL_TOLERANCE_BYTES = 320
"""The same where streams are software-pipelined, of which the next schedule has none: what lives through a program, not
a step, goes to memory. 512 queries over 8,704 keys in pages of 64 (H200, 32 heads of 128): with 216 bytes spilled 128
us, without pipelining 141; in pages of 16 with 288 130 and 143."""
PING_PONG_SPILL_TOLERANCE_BYTES = 1024
"""The same for ping-pong kernels: spills in one warpgroup's epilogue overlap with the other warpgroup's MMAs (e4m3 with
row scales, 4096 x 14336 x 4096, H200: 313 us with 912 bytes spilled, 334 us with one shared tile)."""


def defects(assembled: Assembled, few: int = SPILL_TOLERANCE_BYTES) -> tuple[str, ...]:
    """What ptxas reports that violates the schedule: too few registers, more than ``few`` bytes spilled, serialised
    wgmma, ignored setmaxnreg. Empty if there is nothing."""
    if not assembled.cubin:
        return (assembled.log,)
    found = [f"{assembled.spill_bytes} bytes spilled"] if assembled.spill_bytes > few else []
    found += [line.strip() for line in assembled.log.splitlines() if _IGNORED.search(line)]
    return tuple(found)


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    assert int(status) == 0, f"NVRTC call failed: {status}"
    return values[0]


def _read(program: Any, size: Any, get: Any, *, text: bool = True) -> bytes:
    """One of NVRTC's outputs. The buffer is a bytearray, not ``bytes * n``: NVRTC writes into it, and CPython shares
    short bytes objects."""
    buffer = bytearray(_checked(size(program)))
    (status,) = get(program, buffer)
    assert int(status) == 0, f"NVRTC call failed: {status}"
    return bytes(buffer).rstrip(b"\0") if text else bytes(buffer)
