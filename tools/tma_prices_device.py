"""A GPU that times the ways of ``tma_prices``: medians after flushes of the L2 cache, every sum checked."""

from __future__ import annotations

import ctypes
import json
import statistics
from ctypes import byref, c_float, c_int, c_longlong, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from tensormap_label import Driver
from tilewright.base.dtypes import DTYPES

BUFFER_BYTES = 400 << 20
FLUSH_BYTES = 256 << 20
REPEATS = 11
SMS = 132
_MAX_DYNAMIC_SHARED = 8
_WIDE_RING = 110 << 10


class Boxes(ctypes.Structure):
    """As in ``tma_prices.cu``."""

    _fields_ = [("factor", c_int * 6), ("shift", c_int * 16), ("start", c_int * 384), ("offset", c_int * 128)]


class Source(ctypes.Structure):
    """As in ``tma_prices.cu``."""

    _fields_ = [
        ("first", c_uint64),
        ("pitch", c_longlong),
        ("rows", c_int),
        ("row_bytes", c_int),
        ("step", c_int * 2),
        ("tiles", c_int * 2),
        ("reuse", c_int),
    ]


MAP_BYTES = 128


class Device:
    """The driver, random bytes for tensors, a place for staged copies. A failing call ends the process."""

    def __init__(self, folder: Path) -> None:
        self.driver = Driver()
        self._folder = folder
        self._modules: dict[str, c_void_p] = {}
        self.bytes = np.random.default_rng(0).integers(0, 256, BUFFER_BYTES, np.uint8)
        self._tensor, self._staged, self._flush, self._sum = (
            self._allocate(n) for n in (BUFFER_BYTES, BUFFER_BYTES, FLUSH_BYTES, 256)
        )
        self._call("cuMemcpyHtoD_v2", c_uint64(self._tensor), c_void_p(self.bytes.ctypes.data), c_size_t(BUFFER_BYTES))
        self._events = c_void_p(), c_void_p()
        for event in self._events:
            self._call("cuEventCreate", byref(event), c_int(0))

    def prepare(self, sample: dict[str, Any], way: dict[str, Any]) -> Launches:
        """The launches of one way."""
        macros, size = way["macros"], DTYPES[sample["dtype"]].bytes
        module = self._module(way["cubin"])
        tile = sample["tile"]
        tiles = [-(-n // t) for n, t in zip((sample["rows"], sample["columns"]), tile, strict=True)]
        source = Source(
            self._tensor, sample["pitch"] * size, sample["rows"], sample["columns"] * size, (c_int * 2)(*tile),
            (c_int * 2)(*tiles), sample["reuse"],
        )  # fmt: skip
        boxes, maps = Boxes(), (ctypes.c_ubyte * (MAP_BYTES * macros["CLASSES"]))()
        for i, map in enumerate(way["maps"]):
            fill_boxes(boxes, map, i)
            self._encode(map, self._staged if way["staged_pitch_bytes"] else self._tensor)
            ctypes.memmove(ctypes.addressof(maps) + MAP_BYTES * i, self.driver.map, MAP_BYTES)
        shared = macros["STAGES"] * macros["STAGE_BYTES"] + 1024
        reader = self._function(module, "reader", shared)
        grid = min(SMS * (1 if shared > _WIDE_RING else 2), tiles[0] * tiles[1] * sample["reuse"])
        launches = [(reader, grid, shared, [maps, boxes, source, c_uint64(self._sum)])]
        if way["staged_pitch_bytes"]:
            stage = self._function(module, "stage", 0)
            values = [c_uint64(self._tensor), c_longlong(sample["pitch"] * size), c_int(sample["columns"] * size)]
            values += [c_int(sample["rows"]), c_uint64(self._staged), c_int(way["staged_pitch_bytes"])]
            launches.insert(0, (stage, SMS * 8, 0, values))
        return launches

    def seconds(self, launches: Launches) -> float:
        """One timed run after a flush of the L2 cache."""
        self._call("cuMemsetD8_v2", c_uint64(self._flush), ctypes.c_ubyte(1), c_size_t(FLUSH_BYTES))
        self._call("cuMemsetD8_v2", c_uint64(self._sum), ctypes.c_ubyte(0), c_size_t(8))
        self._call("cuEventRecord", self._events[0], None)
        for function, grid, shared, values in launches:
            pointers = (c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
            shape = [c_int(n) for n in (grid, 1, 1, 256, 1, 1)]
            self._call("cuLaunchKernel", function, *shape, c_int(shared), None, pointers, None)
        self._call("cuEventRecord", self._events[1], None)
        self._call("cuEventSynchronize", self._events[1])
        elapsed = c_float()
        self._call("cuEventElapsedTime", byref(elapsed), *self._events)
        return elapsed.value * 1e-3

    def sum(self) -> int:
        """What the last run added up."""
        held = np.zeros(1, np.uint64)
        self._call("cuMemcpyDtoH_v2", c_void_p(held.ctypes.data), c_uint64(self._sum), c_size_t(8))
        return int(held[0])

    def _encode(self, map: dict[str, list[int]], address: int) -> None:
        ones = [1] * len(map["dims"])
        address += map["address"][0]
        status = self.driver.encode(
            map["data_type"][0],
            len(map["dims"]),
            address,
            0,
            map["dims"],
            map["strides"],
            map["box"],
            ones,
            map["flags"],
        )
        if status:
            raise SystemExit(f"the driver refused the map ({status}): {map}")

    def _module(self, name: str) -> c_void_p:
        if name not in self._modules:
            module = c_void_p()
            self._call("cuModuleLoadData", byref(module), (self._folder / f"{name}.cubin").read_bytes())
            self._modules[name] = module
        return self._modules[name]

    def _function(self, module: c_void_p, name: str, shared: int) -> c_void_p:
        function = c_void_p()
        self._call("cuModuleGetFunction", byref(function), module, name.encode())
        if shared:
            self._call("cuFuncSetAttribute", function, c_int(_MAX_DYNAMIC_SHARED), c_int(shared))
        return function

    def _call(self, name: str, *args: object) -> None:
        self.driver.call(name, *args)

    def _allocate(self, size: int) -> int:
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", byref(pointer), c_size_t(size))
        return pointer.value


Launches = list[tuple[c_void_p, int, int, list[Any]]]


def fill_boxes(boxes: Boxes, map: dict[str, list[int]], number: int) -> None:
    """The boxes of a tile as the kernel reads them, from map ``number`` of the tile."""
    rank = len(map["dims"])
    boxes.shift[number] = map["shift"][0]
    for i, factor in enumerate(map["factors"]):
        boxes.factor[i] = factor
    for b, offset in enumerate(map["offsets"]):
        boxes.offset[b] = offset
        for d in range(rank):
            boxes.start[3 * b + d] = map["starts"][rank * b + d]


def expected(device: Device, sample: dict[str, Any]) -> int:
    """The sum of every byte of the tensor, as often as its tiles are brought in."""
    size = DTYPES[sample["dtype"]].bytes
    pitch, width = sample["pitch"] * size, sample["columns"] * size
    rows = np.lib.stride_tricks.as_strided(device.bytes, (sample["rows"], width), (pitch, 1))
    return int(rows.sum(dtype=np.uint64)) * sample["reuse"]


def run(folder: Path, target: Path) -> None:
    """Time every way of every case; a wrong sum is written down with its time."""
    device = Device(folder)
    recorded = json.loads((folder / "cases.json").read_text())
    result: list[dict[str, Any]] = []
    for case in recorded["cases"]:
        sample = case["sample"]
        wanted = expected(device, sample)
        prepared = {w["name"]: device.prepare(sample, w) for w in case["ways"]}
        times: dict[str, list[float]] = {name: [] for name in prepared}
        wrong: dict[str, int] = {}
        names = list(prepared)
        for repeat in range(REPEATS + 1):
            for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
                spent = device.seconds(prepared[name])
                if repeat:
                    times[name].append(spent)
                elif device.sum() != wanted:
                    wrong[name] = device.sum() - wanted
        medians = {name: statistics.median(spent) for name, spent in times.items()}
        spread = {name: (max(spent) - min(spent)) / medians[name] for name, spent in times.items()}
        result.append({"kind": case["kind"], "sample": sample, "seconds": medians, "spread": spread, "wrong": wrong})
        shown = "  ".join(f"{name} {1e6 * spent:.1f}" for name, spent in medians.items())
        place = f"{sample['family']} {sample['rows']}x{sample['columns']} {sample['tile']} x{sample['reuse']}"
        print(f"{place}: {shown} {wrong or ''}", flush=True)
    header = {"device": device.driver.device, "driver_api": device.driver.version, "repeats": REPEATS}
    target.write_text(json.dumps({**header, "cases": result}))
