"""A GPU through cuda-bindings alone: cubins, buffers, launches, events. For the scripts beside it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLUSH_BYTES = 256 << 20
"""More than the L2 cache holds."""


class Gpu:
    """The first device, with its primary context current."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.cuda: Any = driver
        self.call(driver.cuInit(0))
        self.device = self.call(driver.cuDeviceGet(0))
        self.call(driver.cuCtxSetCurrent(self.call(driver.cuDevicePrimaryCtxRetain(self.device))))
        self.flushed = 0

    @staticmethod
    def call(result: tuple[Any, ...]) -> Any:
        """The value of a driver call that must succeed."""
        status, *values = result
        if int(status) != 0:
            raise RuntimeError(f"driver: {status}")
        return values[0] if values else None

    def name(self) -> str:
        """Device, clock and driver."""
        query = "--query-gpu=name,clocks.current.sm,clocks.max.sm,driver_version"
        return subprocess.check_output(["nvidia-smi", query, "--format=csv,noheader"], text=True).strip()

    # -- memory ---------------------------------------------------------------------------------------------------
    def allocate(self, size: int) -> int:
        """Device memory."""
        return int(self.call(self.cuda.cuMemAlloc(max(size, 1))))

    def free(self, *addresses: int) -> None:
        """Gives it back."""
        for address in addresses:
            self.call(self.cuda.cuMemFree(address))

    def upload(self, data: NDArray[Any]) -> int:
        """A copy of ``data`` on the device."""
        address = self.allocate(data.nbytes)
        self.call(self.cuda.cuMemcpyHtoD(address, np.ascontiguousarray(data).ctypes.data, data.nbytes))
        return address

    def download(self, address: int, data: NDArray[Any]) -> NDArray[Any]:
        """Fills ``data`` from the device."""
        self.call(self.cuda.cuMemcpyDtoH(data.ctypes.data, address, data.nbytes))
        return data

    def fill(self, address: int, byte: int, size: int) -> None:
        """Sets bytes."""
        self.call(self.cuda.cuMemsetD8(address, byte, size))

    # -- kernels --------------------------------------------------------------------------------------------------
    def kernel(self, cubin: bytes, entry: str, shared_bytes: int = 0) -> Any:
        """A function of a cubin, allowed ``shared_bytes`` of dynamic shared memory."""
        module = self.call(self.cuda.cuModuleLoadData(cubin))
        function = self.call(self.cuda.cuModuleGetFunction(module, entry.encode()))
        if shared_bytes:
            attribute = self.cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call(self.cuda.cuFuncSetAttribute(function, attribute, shared_bytes))
        return function

    def launcher(
        self, function: Any, grid: int, threads: int, shared_bytes: int, args: Sequence[Any]
    ) -> Callable[[], None]:
        """Launches with fixed ctypes arguments on the default stream."""
        held = list(args)
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.cast(ctypes.pointer(a), ctypes.c_void_p) for a in held))

        def launch(keep: object = held) -> None:
            self.call(
                self.cuda.cuLaunchKernel(
                    function, grid, 1, 1, threads, 1, 1, shared_bytes, 0, ctypes.addressof(pointers), 0
                )
            )

        return launch

    def synchronise(self) -> None:
        """Waits; raises what a kernel did wrong."""
        self.call(self.cuda.cuCtxSynchronize())

    def microseconds(self, launch: Callable[[], None]) -> float:
        """One launch by events, the L2 cache flushed before."""
        if not self.flushed:
            self.flushed = self.allocate(FLUSH_BYTES)
        flags = 0
        begin, end = (self.call(self.cuda.cuEventCreate(flags)) for _ in range(2))
        self.call(self.cuda.cuMemsetD8Async(self.flushed, 1, FLUSH_BYTES, 0))
        self.call(self.cuda.cuEventRecord(begin, 0))
        launch()
        self.call(self.cuda.cuEventRecord(end, 0))
        self.synchronise()
        return 1000.0 * float(self.call(self.cuda.cuEventElapsedTime(begin, end)))
