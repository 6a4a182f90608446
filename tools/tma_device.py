"""A GPU with the copy kernel of ``tma_copy.cu`` loaded: encode a map, run the copies of one tile, read the bytes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensormap_label import Driver
from tilewright.legal.tma import TensorMapPlan

Bytes = NDArray[np.uint8]

SHARED_LIMIT = 64 << 10
GUARD_BYTES = 1 << 10
"""Bytes after the tile in shared memory, and around the tensor in global memory, that a copy must leave alone."""
UNTOUCHED = 0xEE
MAX_COPIES = 1024
BUFFER_BYTES = 48 << 20
_MAX_DYNAMIC_SHARED = 8
_SOURCE = Path(__file__).with_name("tma_copy.cu")


def build(target: Path) -> None:
    """Compile the kernel for sm_90a."""
    from cuda.bindings import nvrtc  # noqa: PLC0415  the machine that runs it needs no compiler

    _, program = nvrtc.nvrtcCreateProgram(_SOURCE.read_bytes(), _SOURCE.name.encode(), 0, [], [])
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]
        nvrtc.nvrtcGetProgramLog(program, log)
        raise SystemExit(log.decode())
    cubin = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
    nvrtc.nvrtcGetCUBIN(program, cubin)
    target.write_bytes(cubin)
    print(f"{len(cubin)} bytes in {target}")


@dataclass(frozen=True)
class Copies:
    """What one launch does: a map over ``address`` and the copies through it.

    ``coordinates`` has one row of ``len(dims)`` numbers a copy, ``offsets`` its place in shared memory in bytes.
    """

    data_type: int
    address: int
    dims: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    element_strides: Sequence[int]
    flags: Sequence[int]
    coordinates: Sequence[Sequence[int]]
    offsets: Sequence[int]
    shared_bytes: int
    tx_bytes: int

    @staticmethod
    def of(plan: TensorMapPlan, address: int, origin: Sequence[int]) -> Copies:
        """The copies of a plan whose tile begins at ``origin``."""
        return Copies(
            plan.data_type,
            address,
            [int(d.evaluate({})) for d in plan.dims],
            [int(s.evaluate({})) for s in plan.strides],
            plan.box,
            plan.element_strides,
            [plan.interleave, plan.swizzle, plan.l2_promotion, plan.oob_fill],
            [[o + s for o, s in zip(origin, box.start, strict=True)] for box in plan.boxes],
            [b.shared_offset_bytes for b in plan.boxes],
            plan.shared.size_bytes,
            plan.tx_bytes,
        )


class Device:
    """The kernel loaded on a GPU, and its buffers. Every failing call ends the process with the call's name."""

    def __init__(self, cubin: Path) -> None:
        self.driver = Driver()
        self._module, self._function = c_void_p(), c_void_p()
        self._call("cuModuleLoadData", byref(self._module), cubin.read_bytes())
        self._call("cuModuleGetFunction", byref(self._function), self._module, b"copy")
        self._dynamic = SHARED_LIMIT + GUARD_BYTES + 1024
        self._call("cuFuncSetAttribute", self._function, c_int(_MAX_DYNAMIC_SHARED), c_int(self._dynamic))
        self.tensor = self._allocate(BUFFER_BYTES)
        self._image = self._allocate(SHARED_LIMIT + GUARD_BYTES)
        self._coordinates = self._allocate(MAX_COPIES * 20)
        self._offsets = self._allocate(MAX_COPIES * 4)
        self._status = self._allocate(256)

    def _call(self, name: str, *args: object) -> None:
        self.driver.call(name, *args)

    def _allocate(self, size: int) -> int:
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", byref(pointer), c_size_t(size))
        return pointer.value

    def write(self, address: int, data: np.ndarray) -> None:
        """Copy an array to the device."""
        held = np.ascontiguousarray(data)
        self._call("cuMemcpyHtoD_v2", c_uint64(address), c_void_p(held.ctypes.data), c_size_t(held.nbytes))

    def read(self, address: int, size: int) -> Bytes:
        """Copy bytes from the device."""
        held = np.empty(size, np.uint8)
        self._call("cuMemcpyDtoH_v2", c_void_p(held.ctypes.data), c_uint64(address), c_size_t(size))
        return held

    def load(self, copies: Copies) -> tuple[bool, Bytes]:
        """Whether every expected byte arrived, and shared memory with the guard bytes after the tile."""
        size = copies.shared_bytes + GUARD_BYTES
        done = self._launch(copies, size, 0)
        return done, self.read(self._image, size)

    def store(self, copies: Copies, image: Bytes, add: bool = False) -> None:
        """Store ``image``, the bytes of the tile in shared memory; or add it, as 32-bit integers of a matrix."""
        self.write(self._image, image)
        assert self._launch(copies, len(image), 2 if add else 1)

    def _launch(self, copies: Copies, size: int, store: int) -> bool:
        rank = len(copies.dims)
        status = self.driver.encode(
            copies.data_type, rank, copies.address, 0, copies.dims, copies.strides, copies.box, copies.element_strides,
            copies.flags,
        )  # fmt: skip
        if status:
            raise SystemExit(f"the driver refused the map ({status})")
        rows = np.zeros((len(copies.coordinates), 5), np.int32)
        rows[:, :rank] = copies.coordinates
        self.write(self._coordinates, rows)
        self.write(self._offsets, np.array(copies.offsets, np.int32))
        self.write(self._status, np.full(1, -1, np.int32))
        values = [c_int(rank), c_int(len(copies.coordinates)), c_uint64(self._coordinates), c_uint64(self._offsets)]
        values += [c_int(copies.tx_bytes), c_int(size), c_int(store)]
        values += [c_uint64(self._image), c_uint64(self._status)]
        pointers = (c_void_p * (1 + len(values)))(self.driver.map, *(ctypes.addressof(v) for v in values))
        shape = [c_int(n) for n in (1, 1, 1, 128, 1, 1)]
        self._call("cuLaunchKernel", self._function, *shape, c_int(self._dynamic), None, pointers, None)
        self._call("cuCtxSynchronize")
        return int(self.read(self._status, 4).view(np.int32)[0]) == 1


def kernel_driver() -> str:
    """The version of the kernel driver, as ``nvidia-smi`` prints it; empty without it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.split("\n", 1)[0].strip()
