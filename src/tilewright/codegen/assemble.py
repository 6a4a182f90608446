"""CUDA C++ to PTX (NVRTC) and PTX to a cubin (nvJitLink), in process, from the wheels alone.

The PTX that is judged is the PTX that is assembled. What ptxas says about spills, serialised wgmma (C7510) or an ignored
setmaxnreg (C7508) is an error of ours, not a remark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cuda.bindings import nvjitlink, nvrtc

from tilewright.diag import fail


@dataclass(frozen=True)
class Assembled:
    """Machine code of one kernel. ``registers`` per thread, ``spill_bytes`` stores plus loads, ``log`` as ptxas wrote it."""

    ptx: str
    cubin: bytes
    registers: int
    spill_bytes: int
    shared_bytes: int
    log: str


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    assert int(status) == 0, f"NVRTC call failed: {status}"
    return values[0] if len(values) == 1 else values


def compile_ptx(source: str, arch: str, name: str) -> str:
    """PTX of ``source`` for ``arch`` (``sm_90a``); raises CGN001 with NVRTC's log if it doesn't compile."""
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    options = [f"--gpu-architecture={arch.replace('sm_', 'compute_')}".encode(), b"--std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status) != 0:
        log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        fail(
            "CGN001", found=log.rstrip(b"\0").decode(errors="replace"), help="report this kernel: emitted code compiles"
        )
    # bytearray, not bytes * n: NVRTC writes into the buffer, and CPython shares one-byte strings
    text = bytearray(_checked(nvrtc.nvrtcGetPTXSize(program)))
    _checked(nvrtc.nvrtcGetPTX(program, text))
    nvrtc.nvrtcDestroyProgram(program)
    return text.rstrip(b"\0").decode()


def assemble(ptx: str, arch: str) -> Assembled:
    """The cubin of ``ptx``; raises CGN002 for PTX that ptxas refuses, CGN003 for spills and ignored directives."""
    linker = nvjitlink.create(2, [f"-arch={arch}", "-verbose"])
    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, ptx.encode(), len(ptx), "kernel")
        nvjitlink.complete(linker)
    except nvjitlink.nvJitLinkError as error:
        log = _log(linker, nvjitlink.get_error_log_size, nvjitlink.get_error_log)
        fail("CGN002", found=log or str(error), help="report this kernel: emitted PTX assembles")
    log = _log(linker, nvjitlink.get_info_log_size, nvjitlink.get_info_log)
    cubin = bytearray(nvjitlink.get_linked_cubin_size(linker))
    nvjitlink.get_linked_cubin(linker, cubin)
    nvjitlink.destroy(linker)

    def number(pattern: str) -> int:  # the log says everything twice: ptxas, then the linker
        found = re.search(pattern, log)
        return int(found.group(1)) if found else 0

    return Assembled(
        ptx=ptx,
        cubin=bytes(cubin),
        registers=number(r"Used (\d+) registers"),
        spill_bytes=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        shared_bytes=number(r"(\d+) bytes smem"),
        log=log,
    )


_IGNORED = re.compile(r"C7508|C7510|setmaxnreg.*ignored|wgmma.*serializ", re.IGNORECASE)


def defects(assembled: Assembled) -> tuple[str, ...]:
    """What ptxas did against the schedule: spilled, serialised wgmma, ignored setmaxnreg. Empty when all is well."""
    found = [f"{assembled.spill_bytes} bytes spilled"] if assembled.spill_bytes else []
    found += [line.strip() for line in assembled.log.splitlines() if _IGNORED.search(line)]
    return tuple(found)


def _log(linker: int, size: Any, get: Any) -> str:
    text = bytearray(max(1, size(linker)))
    get(linker, text)
    return text.rstrip(b"\0").decode(errors="replace").strip()
