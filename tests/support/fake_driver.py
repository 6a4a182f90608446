"""A driver that records what it is asked to do, and tensors it can be given. No GPU, no torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.runtime.driver import LaunchShape, TensorMapFields


@dataclass
class Launched:
    """One kernel launch as the driver saw it: raw bytes of each parameter (128 for the first ``maps``)."""

    symbol: str
    shape: LaunchShape
    stream: int
    parameters: int
    context: int

    def words(self, count: int) -> list[int]:
        """The first ``count`` parameters as unsigned 64-bit words."""
        array = (ctypes.c_void_p * count).from_address(self.parameters)
        return [ctypes.c_uint64.from_address(p).value for p in array]

    def i32(self, position: int) -> int:
        return self._read(position, ctypes.c_int32)

    def f32(self, position: int) -> float:
        return self._read(position, ctypes.c_float)

    def raw(self, position: int, size: int) -> bytes:
        return ctypes.string_at(self._address(position), size)

    def aligned(self, position: int) -> bool:
        return self._address(position) % 64 == 0

    def _address(self, position: int) -> int:
        address = (ctypes.c_void_p * (position + 1)).from_address(self.parameters)[position]
        assert address is not None
        return address

    def _read(self, position: int, kind: type) -> int:
        return kind.from_address(self._address(position)).value


@dataclass
class FakeDriver:
    """Records events; ``locations`` maps an address to its device."""

    devices: int = 1
    arch: tuple[int, int] = (9, 0)
    locations: dict[int, int] = field(default_factory=dict)
    events: list[tuple[object, ...]] = field(default_factory=list)
    snapshots: list[tuple[Launched, list[int]]] = field(default_factory=list)
    contexts: list[int] = field(default_factory=lambda: [1000])
    on_launch: Callable[[Launched], None] | None = None
    words: int = 0
    kept: list[ctypes.Array[ctypes.c_uint8]] = field(default_factory=list)
    block: int = 0xA000_0000

    @property
    def launches(self) -> list[Launched]:
        return [launched for launched, _ in self.snapshots]

    def device_count(self) -> int:
        return self.devices

    def capability(self, device: int) -> tuple[int, int]:
        return self.arch

    def device_of(self, address: int) -> int | None:
        return self.locations.get(address)

    def context(self, device: int) -> int:
        return 1000 + device

    def current_context(self) -> int:
        return self.contexts[-1]

    def push_context(self, context: int) -> None:
        self.contexts.append(context)

    def pop_context(self) -> None:
        self.contexts.pop()

    def load_library(self, cubin: bytes) -> int:
        self.events.append(("load", cubin))
        return len(self.events)

    def unload_library(self, library: int) -> None:
        self.events.append(("unload", library))

    def kernel(self, library: int, symbol: str, device: int, shape: LaunchShape) -> int:
        self.events.append(("kernel", library, symbol, device))
        return len(self.events) - 1

    def prepare(self, kernel: int, shape: LaunchShape, parameters: int, context: int) -> Callable[[int], None]:
        symbol = str(self.events[kernel][2])

        def launch(stream: int) -> None:
            launched = Launched(symbol, shape, stream, parameters, self.contexts[-1])
            self.snapshots.append((launched, launched.words(self.words)))
            self.events.append(("launch", symbol, stream))
            if self.on_launch is not None:
                self.on_launch(launched)

        return launch

    def encode_tensor_map(self, fields: TensorMapFields) -> bytes:
        self.events.append(("encode", fields))
        return fields.address.to_bytes(8, "little") + bytes(120)

    def allocate(self, size_bytes: int, stream: int) -> int:
        self.events.append(("allocate", size_bytes, stream))
        return self.block

    def free(self, address: int, stream: int) -> None:
        self.events.append(("free", address, stream))

    def allocate_kept(self, size_bytes: int) -> tuple[int, int]:
        self.events.append(("keep", size_bytes))
        self.kept.append((ctypes.c_uint8 * size_bytes)())
        return self.block + 0x1000, ctypes.addressof(self.kept[-1])

    def synchronize(self, context: int) -> None:
        self.events.append(("synchronize", context))

    def copy(self, destination: int, source: int, size_bytes: int, stream: int) -> None:
        self.events.append(("copy", destination, source, size_bytes, stream))

    def fill(self, destination: int, pattern: int, width_bytes: int, count: int, stream: int) -> None:
        self.events.append(("fill", destination, pattern, width_bytes, count, stream))

    def wait_for(self, producer: int, stream: int) -> None:
        self.events.append(("wait", producer, stream))

    def kinds(self) -> list[str]:
        return [str(event[0]) for event in self.events]


@dataclass(frozen=True)
class Device:
    type: str = "cuda"
    index: int | None = 0


CUDA0 = Device()


def compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return tuple(strides)


class FakeTensor:
    """What PyTorch's tensor shows of itself."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        dtype: str = "torch.bfloat16",
        device: Device = CUDA0,
    ) -> None:
        self.address = address
        self.shape = shape
        self.strides = compact(shape) if strides is None else strides
        self.dtype = dtype
        self.device = device
        self.is_cuda = True

    def data_ptr(self) -> int:
        return self.address

    def is_neg(self) -> bool:
        return False

    def stride(self) -> tuple[int, ...]:
        return self.strides
