"""A driver whose device is the PTX machine: artifacts run through the real runtime, each launch on NumPy arrays."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy the narrow floats
import numpy as np

from support.fake_driver import FakeDriver, FakeTensor, Launched
from tilewright.artifact.schema import Artifact
from tilewright.hw.tensormap import ELEMENT_BITS, Interleave, OobFill, Swizzle
from tilewright.ptx.machine import DecodedTensorMap, DeviceMemory, MachineLaunch, MachineReport
from tilewright.ptx.machine.run import ExecutableEntry as PtxProgram
from tilewright.ptx.reader import read
from tilewright.runtime.driver import LaunchShape, TensorMapFields
from tilewright.runtime.program import Program

NAMES = {"bfloat16": "torch.bfloat16", "float16": "torch.float16", "float32": "torch.float32", "int32": "torch.int32",
         "int8": "torch.int8", "int16": "torch.int16", "uint8": "torch.uint8", "uint16": "torch.uint16", "uint32": "torch.uint32", "bool": "torch.bool", "int64": "torch.int64", "float8_e4m3fn": "torch.float8_e4m3fn", "float8_e5m2": "torch.float8_e5m2"}  # fmt: skip
SPANS = {Swizzle.NONE: 0, Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}


@lru_cache(maxsize=16)
def executable(ptx: str, symbol: str) -> PtxProgram:
    """An entry as the machine runs it, made once for all launches of its text."""
    return PtxProgram(read(ptx), symbol)


@dataclass
class MachineDriver(FakeDriver):
    """Launches on the PTX machine; ``texts`` by symbol, ``memory`` holds the tensors."""

    texts: dict[str, str] = field(default_factory=dict)
    memory: DeviceMemory = field(default_factory=DeviceMemory)
    maps: list[DecodedTensorMap] = field(default_factory=list)
    reports: list[tuple[str, MachineReport]] = field(default_factory=list)
    schedules: int = 1

    def prepare(self, kernel: int, shape: LaunchShape, parameters: int, context: int) -> Callable[[int], None]:
        symbol = str(self.events[kernel][2])

        def launch(stream: int) -> None:
            program = executable(self.texts[symbol], symbol)
            launched = Launched(symbol, shape, stream, parameters, context)
            values = [self._value(launched, i, p.bytes, p.array) for i, p in enumerate(program.entry.parameters)]
            where = MachineLaunch(shape.grid, (shape.threads, 1, 1), shape.cluster, shape.shared_bytes)
            self.reports.append((symbol, program.launch(where, values, self.memory, self.schedules)))

        return launch

    def _value(self, launched: Launched, position: int, size: int, array: bool) -> Any:
        raw = launched.raw(position, size)
        return self.maps[int.from_bytes(raw[:8], "little")] if array and size == 128 else raw

    def encode_tensor_map(self, fields: TensorMapFields) -> bytes:
        assert fields.interleave is Interleave.NONE
        size = ELEMENT_BITS[fields.element] // 8
        fill = b"" if fields.oob_fill is OobFill.NONE else {2: b"\xff\x7f", 4: b"\xff\xff\xff\x7f"}[size]
        steps = fields.element_strides
        self.maps.append(
            DecodedTensorMap(
                fields.address, size, fields.dims, fields.strides_bytes, fields.box, SPANS[fields.swizzle], steps, fill
            )
        )
        return (len(self.maps) - 1).to_bytes(8, "little") + bytes(120)

    def allocate(self, size_bytes: int, stream: int) -> int:
        block = np.zeros(size_bytes + 256, np.uint8)
        return self.memory.add(f"workspace {len(self.memory.regions)}", block)

    def allocate_kept(self, size_bytes: int) -> tuple[int, int]:
        block = np.zeros(size_bytes, np.uint8)
        return self.memory.add(f"kept {len(self.memory.regions)}", block), block.ctypes.data

    def copy(self, destination: int, source: int, size_bytes: int, stream: int) -> None:
        to, of = self._bytes(destination, size_bytes), self._bytes(source, size_bytes)
        to[:] = of

    def fill(self, destination: int, pattern: int, width_bytes: int, count: int, stream: int) -> None:
        self._bytes(destination, width_bytes * count)[:] = np.tile(
            np.frombuffer(pattern.to_bytes(width_bytes, "little"), np.uint8), count
        )

    def _bytes(self, address: int, size: int) -> np.ndarray:
        region = self.memory.find(address, size)
        assert region is not None
        return region.bytes[address - region.address : address - region.address + size]


def run_artifact(
    artifact: Artifact,
    arrays: Mapping[str, np.ndarray],
    scalars: Mapping[str, Any] | None = None,
    schedules: int = 1,
    edit: Callable[[str], str] = lambda ptx: ptx,
) -> MachineDriver:
    """Run an artifact on arrays, in place, on the PTX machine; ``edit`` changes the PTX before. Arrays are contiguous,
    in C's order or Fortran's."""
    driver = MachineDriver(schedules=schedules)
    for image in artifact.kernels:
        driver.texts[image.symbol] = edit(image.ptx)
    given: dict[str, Any] = dict(scalars or {})
    for parameter in artifact.tensors:
        array = arrays[parameter.name]
        strides = tuple(step // array.itemsize for step in array.strides)
        address = driver.memory.add(
            parameter.name, array if array.flags.c_contiguous else array.T, parameter.access.writes
        )
        driver.locations[address] = 0
        given[parameter.name] = FakeTensor(address, array.shape, strides, NAMES[array.dtype.name])
    Program(artifact, driver).launch(given)
    return driver
