"""PTX to machine code again, by the assembler that made it first: whether a cubin is what its PTX says.

NVRTC assembles CUDA C++ only. The text of the PTX goes through it as inline assembly that ends the function around it
and begins the kernel: what NVRTC then gives to ptxas is that text, behind a function that nobody calls and ptxas drops.
So the cubin is the same, byte for byte, as where NVRTC printed the PTX itself (all variants of add, softmax, matmul and
attention: ``tests/codegen/test_reassemble.py``). ptxas is not quite deterministic: of a few kernels with many registers
it makes one of two cubins, so that it is asked several times.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import version

from tilewright.artifact.schema import KernelImage
from tilewright.codegen.assemble import TooManyRegistersError, compile_text, taken_of
from tilewright.diag import TilewrightError

TRIES = 12
"""For the PTX of ``matmul`` with tiles of 256 columns, one try in four gives the rarer of two cubins."""

_HEADER = re.compile(r"^\.(?:version \d+\.\d+|target \w+|address_size \d+)[ \t]*$", re.MULTILINE)
"""Matches whole lines, so that only these directives are removed from the text."""
_LAST = re.compile(r"(?:\bret\s*;)?\s*\}\s*$")


def machine_code_differs(image: KernelImage, arch: str) -> str:
    """Why the machine code of ``image`` could not be reproduced from its PTX byte for byte, or why its registers,
    spills or static shared memory differ from those recorded; empty if it matches."""
    ptx = image.ptx
    headers = [line.strip() for line in _HEADER.findall(ptx)]
    source = ptx_wrapper_source(ptx)
    if not source:
        return "the PTX ends in no function"
    tool = f"nvidia-cuda-nvrtc {version('nvidia-cuda-nvrtc')}"
    for _ in range(TRIES):
        try:
            made, found, log = compile_text(source, arch, "reassembled")
        except TooManyRegistersError as error:
            return f"the assembler refuses the PTX: {error}"
        except TilewrightError as error:
            return f"the assembler refuses the PTX: {error.diagnostics[0].found[:300]}"
        if headers != [line.strip() for line in _HEADER.findall(made)]:
            return f"{tool} does not print {'; '.join(headers)}"
        if found == image.cubin:
            taken, said = taken_of(log), (image.registers, image.spill_bytes, image.static_shared_bytes)
            return "" if taken == said else f"registers, spilled and shared bytes are {taken}, not {said}"
    return f"{tool} makes other machine code of its PTX"


def ptx_wrapper_source(ptx: str) -> str:
    """CUDA C++ that NVRTC's assembler turns into the machine code of ``ptx``; empty if the text does not end in a
    function."""
    body = _HEADER.sub("", ptx)
    end = _LAST.search(body)
    if end is None or not ptx.isascii():
        return ""
    text = f"ret;\n}}\n{body[: end.start()]}"
    around = "static __attribute__((used)) __device__ __noinline__ void tilewright_around()"
    return f"{around} {{ asm volatile({json.dumps(text)}); }}\n"
