"""A GPU that runs the kernels of ``wgmma_source``: one product a launch."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensormap_label import Driver
from wgmma_execute import Case, descriptors, fragments, image

_MAX_DYNAMIC_SHARED = 8
_SHARED_LIMIT = 232_448
_BUFFER_BYTES = 1 << 20
_WARM_UP = "ss_00"


class Device:
    """The driver, one module at a time, and buffers. Every failing call ends the process with the call's name."""

    def __init__(self) -> None:
        self.driver = Driver()
        print(f"device {self.driver.device}, CUDA driver API {self.driver.version}", flush=True)
        self._module = c_void_p()
        self._image, self._a, self._b, self._fragments, self._out, self._base = (
            self._allocate(_BUFFER_BYTES) for _ in range(6)
        )
        self.base = 0

    def load(self, cubin: Path) -> None:
        """Take the kernels of ``cubin`` and read where their shared memory begins."""
        if self._module:
            self._call("cuModuleUnload", self._module)
        self._call("cuModuleLoadData", byref(self._module), cubin.read_bytes())
        self._launch(self._function(_WARM_UP), 0, 0)
        self.base = int(self._read(self._base, 1)[0])
        assert self.base % 1024 == 0, self.base

    def multiply(self, case: Case) -> NDArray[np.uint32]:
        """The accumulator registers of every thread."""
        memory = image(case)
        self._write(self._image, memory)
        if case.a_shared is not None:
            self._write(self._a, descriptors(case.a_shared, self.base))
        else:
            self._write(self._fragments, fragments(case))
        b = descriptors(case.b, self.base)
        self._write(self._b, b)
        words = 128 * case.program.registers
        self._write(self._out, np.full(words, 0xFFFFFFFF, np.uint32))
        self._launch(self._function(case.variant.name), len(memory) // 16, len(b))
        return self._read(self._out, words)

    def _function(self, name: str) -> c_void_p:
        function = c_void_p()
        self._call("cuModuleGetFunction", byref(function), self._module, name.encode())
        self._call("cuFuncSetAttribute", function, c_int(_MAX_DYNAMIC_SHARED), c_int(_SHARED_LIMIT))
        return function

    def _launch(self, function: c_void_p, units: int, steps: int) -> None:
        values = [c_uint64(self._image), c_int(units), c_uint64(self._a), c_uint64(self._b)]
        values += [c_uint64(self._fragments), c_int(steps), c_uint64(self._out), c_uint64(self._base)]
        pointers = (c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        shape = [c_int(n) for n in (1, 1, 1, 128, 1, 1)]
        self._call("cuLaunchKernel", function, *shape, c_int(_SHARED_LIMIT), None, pointers, None)
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *args: object) -> None:
        self.driver.call(name, *args)

    def _allocate(self, size: int) -> int:
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", byref(pointer), c_size_t(size))
        return pointer.value

    def _write(self, address: int, data: NDArray[np.generic]) -> None:
        held = np.ascontiguousarray(data)
        assert held.nbytes <= _BUFFER_BYTES
        self._call("cuMemcpyHtoD_v2", c_uint64(address), c_void_p(held.ctypes.data), c_size_t(held.nbytes))

    def _read(self, address: int, words: int) -> NDArray[np.uint32]:
        held = np.empty(words, np.uint32)
        self._call("cuMemcpyDtoH_v2", c_void_p(held.ctypes.data), c_uint64(address), c_size_t(held.nbytes))
        return held
