"""State spaces: resolving symbols and addresses, and plain loads and stores (PTX ISA 9.1, 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ptx.machine.clocks import Clocks
from tilewright.ptx.machine.lanes import Lanes
from tilewright.ptx.machine.launch import DeviceMemory, MachineLaunch, TensorRegion
from tilewright.ptx.machine.scratch import ArrayPool
from tilewright.ptx.machine.shared import RANK_SHIFT, RESERVED, Complain, SharedWindow
from tilewright.ptx.machine.tensormap import DecodedTensorMap
from tilewright.ptx.opcodes.bit_vectors import UNSIGNED, width
from tilewright.ptx.opcodes.rows import Bits
from tilewright.ptx.syntax import Entry, KernelParameter, Module

LOCAL, SHARED, PARAMETERS = 0x4000_0000_0000, 0x5000_0000_0000, 0x6000_0000_0000
"""Where the windows of generic addresses begin."""
_REACH = 1 << 40
"""Addresses this far behind a tensor count as overruns of it."""
_WINDOW = 44
"""Bits below which addresses of one window differ."""
_GENERIC = {
    SHARED >> _WINDOW: ("shared", SHARED),
    LOCAL >> _WINDOW: ("local", LOCAL),
    PARAMETERS >> _WINDOW: ("param", 0),
}


class Spaces:
    """Parameters, global, shared and local memory of one batch."""

    def __init__(
        self,
        module: Module,
        entry: Entry,
        launch: MachineLaunch,
        parameters: Sequence[Any],
        memory: DeviceMemory,
        lanes: Lanes,
        clocks: Clocks,
        complain: Complain,
        scratch: ArrayPool,
    ):
        self.memory, self.lanes, self.complain = memory, lanes, complain
        self.symbols: dict[str, int] = {}
        self.maps: dict[int, DecodedTensorMap] = {}
        self.local_symbols: dict[str, int] = {}
        self.parameters = self._lay_out_parameters(entry, parameters)
        self.shared = SharedWindow(
            lanes, clocks, self._lay_out_shared(entry, launch), narrowest(entry), complain, scratch
        )
        size = 0
        for v in entry.local:
            size = -(-size // v.align) * v.align
            self.local_symbols[v.name] = size
            size += v.bytes
        self.local = np.zeros((lanes.count, -(-size // 16) * 16), np.uint8)
        for v in module.globals:
            if v.space in ("global", "const"):
                self._place_global(v.name, v.bytes, v.initial, v.space == "global")

    def _place_global(self, name: str, size: int, initial: bytes, writable: bool) -> None:
        known = next((r for r in self.memory.regions if r.name == f".{name}"), None)
        if known is None:
            data = np.zeros(max(size, 1), np.uint8)
            data[: len(initial)] = np.frombuffer(initial, np.uint8)
            self.memory.add(f".{name}", data, writable)
            known = next(r for r in self.memory.regions if r.name == f".{name}")
            known.worlds = np.zeros((self.lanes.worlds, -(-max(size, 1) // 16) * 16), np.uint8)
            known.worlds[:, :size] = data[:size]
        self.symbols[name] = known.address

    def _lay_out_parameters(self, entry: Entry, given: Sequence[Any]) -> Bits:
        if len(given) != len(entry.parameters):
            raise ValueError(f"{entry.name} takes {len(entry.parameters)} parameters, not {len(given)}")
        data, size = bytearray(), 0
        for parameter, value in zip(entry.parameters, given, strict=True):
            size = -(-size // parameter.align) * parameter.align
            data += bytes(size - len(data))
            self.symbols[parameter.name] = PARAMETERS + size
            if isinstance(value, DecodedTensorMap):
                self.maps[PARAMETERS + size] = value
            data += parameter_bytes(parameter, value)
            size = len(data)
        return np.frombuffer(bytes(data) + bytes(-len(data) % 16 + 16), np.uint8)

    def _lay_out_shared(self, entry: Entry, launch: MachineLaunch) -> int:
        size = 0
        for v in entry.shared:
            if not v.external:
                size = -(-size // v.align) * v.align
                self.symbols[v.name] = RESERVED + size
                size += v.bytes
        align = max((v.align for v in entry.shared if v.external), default=16)
        start = -(-(RESERVED + size) // max(align, 16)) * max(align, 16) - RESERVED
        for v in entry.shared:
            if v.external:
                self.symbols[v.name] = RESERVED + start
        self.shared_names = {v.name for v in entry.shared}
        return start + launch.shared_bytes if launch.shared_bytes or any(v.external for v in entry.shared) else size

    def symbol(self, name: str, x: Bits | None) -> Bits:
        """The address of a variable in its own space."""
        if name in self.local_symbols:
            return np.asarray(np.uint64(self.local_symbols[name]))
        address = np.uint64(self.symbols[name])
        if name in self.shared_names and self.lanes.cluster_ctas > 1:
            rank = self.lanes.rank if x is None else self.lanes.rank[x]
            return rank.astype(np.uint64) << np.uint64(RANK_SHIFT) | address
        return np.asarray(address)

    def load(self, space: str, lanes: Bits, address: Bits, count: int, size: int) -> list[Bits]:
        """``count`` elements of ``size`` bytes for each lane."""
        address = np.asarray(address).astype(np.uint64)
        if (space == "param" or (not space and address.ndim == 0)) and _is_parameter(address):
            return self._load_parameter(lanes, address, count, size)
        address = np.broadcast_to(address, lanes.shape)
        if not space:
            return self._generic_load(lanes, address, count, size)
        if space == "shared":
            return self.shared.load(lanes, address & np.uint64(0xFFFFFFFF), count, size)
        if space in ("local", "param"):  # arguments of a call lie where local variables do
            return [self._local(lanes, address + np.uint64(n * size), size)[0] for n in range(count)]
        found = [np.zeros(lanes.shape, UNSIGNED[8 * size]) for _ in range(count)]
        for region, mine, at in self.located(lanes, address, count, size, False):
            view = region.worlds.reshape(-1).view(UNSIGNED[8 * size])
            if len(mine) == len(lanes):
                return [view[at + n] for n in range(count)]
            for n in range(count):
                found[n][mine] = view[at + n]
        return found

    def store(self, space: str, lanes: Bits, address: Bits, values: list[Bits], size: int) -> None:
        """Store the same."""
        address = np.broadcast_to(np.asarray(address).astype(np.uint64), lanes.shape)
        if not space:
            self._generic_store(lanes, address, values, size)
        elif space == "shared":
            self.shared.store(lanes, address & np.uint64(0xFFFFFFFF), values, size)
        elif space in ("local", "param"):
            for n, value in enumerate(values):
                _, view, at = self._local(lanes, address + np.uint64(n * size), size)
                view[at] = value
        else:
            for region, mine, at in self.located(lanes, address, len(values), size, True):
                view = region.worlds.reshape(-1).view(UNSIGNED[8 * size])
                for n, value in enumerate(values):
                    view[at + n] = np.broadcast_to(value, lanes.shape)[mine]

    def _load_parameter(self, lanes: Bits, address: Bits, count: int, size: int) -> list[Bits]:
        """Parameters are the same for all lanes: scalars, unless addresses differ."""
        at = (address & np.uint64((1 << _WINDOW) - 1)).astype(np.int64)
        view = self.parameters.view(UNSIGNED[8 * size])
        if (at + count * size > self.parameters.size).any() or (at % size).any():
            self.complain("PTX010", lanes, "a read beyond the parameters")
            return [np.zeros(lanes.shape, view.dtype)] * count
        return [np.asarray(view[at // size + n]) for n in range(count)]

    def _generic(self, address: Bits) -> list[tuple[str, Bits, int]]:
        """(space, which lanes, where the window begins) of generic addresses."""
        window = address >> np.uint64(_WINDOW)
        found: list[tuple[str, Bits, int]] = []
        for w in np.unique(window):
            space, base = _GENERIC.get(int(w), ("global", 0))
            found.append((space, window == w, base))
        return found

    def _generic_load(self, lanes: Bits, address: Bits, count: int, size: int) -> list[Bits]:
        found = [np.zeros(lanes.shape, UNSIGNED[8 * size]) for _ in range(count)]
        for space, mine, base in self._generic(address):
            for target, part in zip(
                found, self.load(space, lanes[mine], address[mine] - np.uint64(base), count, size), strict=True
            ):
                target[mine] = part
        return found

    def _generic_store(self, lanes: Bits, address: Bits, values: list[Bits], size: int) -> None:
        for space, mine, base in self._generic(address):
            parts = [np.broadcast_to(v, lanes.shape)[mine] for v in values]
            self.store(space, lanes[mine], address[mine] - np.uint64(base), parts, size)

    def _local(self, lanes: Bits, address: Bits, size: int) -> tuple[Bits, Bits, Bits]:
        at = address.astype(np.int64)
        if (at + size > self.local.shape[1]).any() or (at % size).any():
            self.complain("PTX010", lanes, "an access beyond local memory")
            at = np.zeros_like(at)
        view = self.local.reshape(-1).view(UNSIGNED[8 * size])
        place = lanes * (self.local.shape[1] // size) + at // size
        return view[place], view, place

    def located(
        self, lanes: Bits, address: Bits, count: int, size: int, writes: bool
    ) -> list[tuple[TensorRegion, Bits, Bits]]:
        """(region, places in ``lanes``, element of its bytes for each) of accesses to global memory that are right."""
        length, found = count * size, list[tuple[TensorRegion, Bits, Bits]]()
        aligned = address & np.uint64(length - 1) == 0
        if not aligned.all():
            self.complain("PTX011", lanes[~aligned], f"{length} bytes at {int(address[~aligned][0]):#x}")
        left = np.flatnonzero(aligned)
        while len(left):
            region = self._below(int(address[left[0]]))
            if region is None:
                self.complain(
                    "PTX010", lanes[left], f"{length} bytes at {int(address[left[0]]):#x}: no tensor is there"
                )
                return found
            offset = (address[left] - np.uint64(region.address)).astype(np.int64)
            near = np.abs(offset) < _REACH // 2
            inside = near & (offset >= 0) & (offset + length <= region.bytes.size)
            if (near & ~inside).any():
                bad = np.flatnonzero(near & ~inside)[0]
                place = int(offset[bad])
                text = f"{length} bytes at offset {place} of {region.name}, which has {region.bytes.size}"
                self.complain("PTX010", lanes[left[bad : bad + 1]], text)
            if writes and not region.writable and inside.any():
                self.complain("PTX010", lanes[left[inside]], f"write to {region.name}, which is an input")
                inside &= False
            mine = left[inside]
            at = offset[inside] // size
            if len(region.worlds) > 1:
                at = at + self.lanes.world[lanes[mine]] * (region.worlds.shape[1] // size)
            found.append((region, mine, at))
            left = left[~near] if not near.all() else left[:0]
        return found

    def _below(self, address: int) -> TensorRegion | None:
        """The region that an address is of: in it, behind it, or not far before it."""
        near = [r for r in self.memory.regions if r.address - _REACH // 2 <= address < r.address + _REACH // 2]
        return max(
            (r for r in near if r.address <= address), key=lambda r: r.address, default=near[0] if near else None
        )


def _is_parameter(address: Bits) -> bool:
    """Whether addresses are of the entry's own parameters, and not of what it gives a function."""
    return bool((address >> np.uint64(_WINDOW) == PARAMETERS >> _WINDOW).all())


def narrowest(entry: Entry) -> int:
    """The narrowest access to shared memory that the body may make, in bytes, at most 4: a granule of the shadow."""
    found = 4
    for i in entry.body:
        if i.opcode in ("ld", "st", "atom", "red") and not any(
            m in ("global", "param", "local", "const") for m in i.modifiers
        ):
            found = min(found, max(1, width(i.modifiers[-1]) // 8))
    return found


def parameter_bytes(parameter: KernelParameter, value: Any) -> bytes:
    """A parameter's value as the bytes that the kernel reads."""
    if isinstance(value, DecodedTensorMap):
        return bytes(parameter.bytes)
    if isinstance(value, bytes):
        return value.ljust(parameter.bytes, b"\0")
    if isinstance(value, np.generic):
        return value.tobytes().ljust(parameter.bytes, b"\0")
    if isinstance(value, float):
        return {"f32": np.float32, "f16": np.float16, "b32": np.float32}.get(parameter.type, np.float64)(
            value
        ).tobytes()
    return (int(value) & (1 << 8 * parameter.bytes) - 1).to_bytes(parameter.bytes, "little")
