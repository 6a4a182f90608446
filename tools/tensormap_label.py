"""Label tensor-map requests with a real driver: ``python tools/tensormap_label.py IN.npz OUT.npz``.

Needs numpy, an NVIDIA driver and one GPU. Each row of IN is passed to ``cuTensorMapEncodeTiled``; OUT repeats the rows
with a column ``result``, the CUresult (0: accepted), and names the driver and device. The global address is that of a
device allocation plus ``addr_off``; the map is written at a 64-byte aligned host address plus ``desc_off``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Sequence
from ctypes import byref, c_int, c_uint32, c_uint64, c_void_p
from pathlib import Path

import numpy as np

ALLOCATION_BYTES = 1 << 20
ARRAY_ENTRIES = 32
"""Entries of every array passed, so that a driver that trusts a rank out of range stays inside."""


class Driver:
    """The driver's C interface, called directly so that values outside its enumerations reach it."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise SystemExit("no NVIDIA driver on this machine (libcuda.so.1)") from None
        self.call("cuInit", 0)
        device, context, version = c_int(), c_void_p(), c_int()
        self.call("cuDeviceGet", byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuDriverGetVersion", byref(version))
        name = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", name, 128, device)
        self.version, self.device = version.value, name.value.decode()
        pointer = c_uint64()
        self.call("cuMemAlloc_v2", byref(pointer), ctypes.c_size_t(ALLOCATION_BYTES))
        self.base = -(-pointer.value // 1024) * 1024
        self._store = ctypes.create_string_buffer(512)
        self.map = -(-ctypes.addressof(self._store) // 64) * 64
        self._encode = self._cuda.cuTensorMapEncodeTiled
        self._encode.argtypes = [
            c_void_p, c_int, c_uint32, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int,
        ]  # fmt: skip
        self._encode.restype = c_int

    def call(self, name: str, *args: object) -> None:
        """A driver call that must succeed; otherwise the process ends with its name and status."""
        status = getattr(self._cuda, name)(*args)
        if status:
            raise SystemExit(f"{name} returned {status}")

    def encode(
        self,
        kind: int,
        rank: int,
        address: int,
        map_offset: int,
        dims: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        steps: Sequence[int],
        flags: Sequence[int],
    ) -> int:
        """CUresult of one encode; ``flags`` are interleave, swizzle, L2 promotion and out-of-bounds fill."""
        return self._encode(
            self.map + map_offset,
            kind,
            rank,
            address,
            (c_uint64 * ARRAY_ENTRIES)(*dims),
            (c_uint64 * ARRAY_ENTRIES)(*strides),
            (c_uint32 * ARRAY_ENTRIES)(*box),
            (c_uint32 * ARRAY_ENTRIES)(*steps),
            *flags,
        )


def label(driver: Driver, names: list[str], rows: np.ndarray) -> np.ndarray:
    """The driver's answer for every row."""
    at = {name: i for i, name in enumerate(names)}
    groups = [
        [at[f"{stem}{i}"] for i in range(first, 5)]
        for stem, first in (("dim", 0), ("stride", 1), ("box", 0), ("es", 0))
    ]
    flags = [at[name] for name in ("interleave", "swizzle", "l2", "oob")]
    results = np.zeros(len(rows), dtype=np.uint64)
    for n, row in enumerate(rows.tolist()):
        dims, strides, box, steps = ([*(row[i] for i in group), 1] for group in groups)
        results[n] = driver.encode(
            row[at["dtype"]],
            row[at["rank"]],
            driver.base + row[at["addr_off"]],
            row[at["desc_off"]],
            dims,
            strides,
            box,
            steps,
            [row[i] for i in flags],
        )
    return results


def probes(driver: Driver) -> dict[str, int]:
    """Answers to single questions that the columns can't ask."""
    square, ones, flags = ([64, 64], [1, 1], [0, 0, 0, 0])

    def ask(address: int, rank: int = 2, dims: list[int] = square, strides: tuple[int, ...] = (128,)) -> int:
        return driver.encode(6, rank, address, 0, dims, strides, [64, 8], ones, flags)

    return {
        "null global address": ask(0),
        "address 16, unmapped": ask(16),
        "address 2^47": ask(1 << 47),
        "address 2^56": ask(1 << 56),
        "address 2^57": ask(1 << 57),
        "address 2^63": ask(1 << 63),
        "rank 1 with zero strides": ask(driver.base, rank=1, strides=(0,)),
        "extents that end beyond 2^57": ask(driver.base, dims=[64, 1 << 32], strides=((1 << 40) - 16,)),
        "address near the end of the address space": ask((1 << 56) - 16),
    }


def main() -> None:
    """Label IN into OUT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    with np.load(args.source, allow_pickle=False) as archive:
        names = [str(name) for name in archive["columns"] if str(name) != "result"]
        rows = archive["data"][:, : len(names)]
    driver = Driver()
    started = time.perf_counter()
    results = label(driver, names, rows)
    seconds = time.perf_counter() - started
    np.savez_compressed(
        args.target,
        columns=np.array([*names, "result"]),
        data=np.concatenate([rows, results[:, None]], axis=1),
        driver=np.array(str(driver.version)),
        device=np.array(driver.device),
    )
    print(
        f"{len(rows)} requests on {driver.device}, CUDA driver {driver.version}: {int((results == 0).sum())} accepted,"
    )
    print(f"codes {sorted({int(r) for r in results})}, {seconds:.1f} s")
    print(json.dumps(probes(driver), indent=1))


if __name__ == "__main__":
    main()
