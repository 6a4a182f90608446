"""Copies that the driver encodes and that the rules call unsettled, undefined or advisory: what they do is printed.

Each probe runs in a process of its own, since some of them fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from tilewright.base.dtypes import DTYPES
from tilewright.base.verdict import Legal
from tilewright.hw.tensormap import PATTERNS, DataType, Interleave, OobFill, Swizzle
from tilewright.legal.tma import TileAccess, plan
from tma_device import UNTOUCHED, Bytes, Copies, Device

Probe = Callable[[Device], None]


def base(device: Device, swizzle: Swizzle = Swizzle.NONE) -> tuple[Copies, Bytes]:
    """A box of 16 rows of 128 bytes of a 64 x 64 tensor of halves, and the tensor's bytes (none of them zero or
    UNTOUCHED)."""
    made = plan(TileAccess(DTYPES["f16"], (64, 64), (64, 1), 0, (16, 64), swizzles=(swizzle,)))
    assert isinstance(made, Legal)
    memory = np.random.default_rng(0).integers(1, UNTOUCHED, 64 * 128, dtype=np.uint8)
    device.write(device.tensor, memory)
    return Copies.of(made.fields, device.tensor, [0, 0]), memory


def expect(device: Device, copies: Copies, what: str, row_bytes: int = 128) -> Bytes:
    """Load and describe: whether the bytes completed, which places were written."""
    done, image = device.load(copies)
    touched = np.nonzero(image != UNTOUCHED)[0]
    last = int(touched.max(initial=-1))
    per_row = (image[: len(image) // row_bytes * row_bytes].reshape(-1, row_bytes) != UNTOUCHED).sum(axis=1)
    rows = int((per_row > 0).sum())
    print(
        f"{what}: {copies.tx_bytes} bytes {'completed' if done else 'did not complete'}; {len(touched)} written in "
        f"{rows} rows of {row_bytes}, the last at {last}"
    )
    return image


def stride_zero(device: Device) -> None:
    """TMA045: a dimension of stride 0."""
    copies, memory = base(device)
    image = expect(device, replace(copies, strides=[0]), "stride 0")
    rows = image[: 16 * 128].reshape(16, 128)
    print(f"every row is the first: {bool((rows == memory[:128]).all())}")


def overlapping_rows(device: Device) -> None:
    """A stride smaller than a row."""
    copies, memory = base(device)
    image = expect(device, replace(copies, strides=[16]), "stride 16")
    rows = np.stack([memory[16 * i : 16 * i + 128] for i in range(16)])
    print(f"every row begins 16 bytes on: {bool((image[: 16 * 128].reshape(16, 128) == rows).all())}")


def narrow_rows(device: Device) -> None:
    """TMA048: swizzled rows narrower than the span."""
    for swizzle, elements in ((Swizzle.B128, 56), (Swizzle.B128, 32), (Swizzle.B64, 16), (Swizzle.B32, 8)):
        copies, memory = base(device)
        span = PATTERNS[swizzle].span_bytes
        for tx in (elements * 2 * 16, span * 16):
            narrow = replace(copies, box=[elements, 16], flags=[0, swizzle, 0, 0], tx_bytes=tx)
            image = expect(device, narrow, f"{swizzle.name}, rows of {elements * 2} bytes", span)
            for pitch in (span, elements * 2):
                where = pitch * np.arange(16)[:, None] + np.arange(elements * 2)
                where = PATTERNS[swizzle].apply(where)
                same = bool((image[where] == memory.reshape(64, 128)[:16, : elements * 2]).all())
                print(f"  rows lie {pitch} bytes apart, swizzled: {same}")


def element_strides(device: Device) -> None:
    """Element strides above 1: rounding, and dimension 0."""
    for steps, box in (([1, 2], [64, 16]), ([1, 2], [64, 15]), ([1, 3], [64, 16]), ([2, 1], [64, 16])):
        copies, memory = base(device)
        up = [-(-b // s) for b, s in zip(box, steps, strict=True)]
        down = [b // s for b, s in zip(box, steps, strict=True)]
        for part in dict.fromkeys((box[0] * up[1], up[0] * up[1], box[0] * down[1])):
            strided = replace(copies, box=box, element_strides=steps, tx_bytes=part * 2)
            image = expect(device, strided, f"element strides {steps}, box {box}")
            rows = memory.reshape(64, 128)[: box[1] : steps[1]]
            print(f"  rows taken in steps: {bool((image[: len(rows) * 128].reshape(-1, 128) == rows).all())}")


def shared_alignment(device: Device) -> None:
    """TMA041: a destination that is not a multiple of 128."""
    copies, memory = base(device)
    image = expect(device, replace(copies, offsets=[64]), "64 bytes after a multiple of 128")
    at = bytes(image).find(bytes(memory[: 16 * 128]))
    print(f"the tile begins at {at}")


def shared_alignment_16(device: Device) -> None:
    """TMA041: a destination that is a multiple of 16 only."""
    copies, memory = base(device)
    image = expect(device, replace(copies, offsets=[16]), "16 bytes after a multiple of 128")
    at = bytes(image).find(bytes(memory[: 16 * 128]))
    print(f"the tile begins at {at}")


def negative_store(device: Device) -> None:
    """TMA042: a store that begins below the tensor."""
    copies, memory = base(device)
    offset = 64 * 128
    device.write(device.tensor, np.concatenate([memory, memory]))
    image = np.full(16 * 128, 0xF0, np.uint8)
    device.store(replace(copies, address=device.tensor + offset, coordinates=[[0, -4]]), image)
    after = device.read(device.tensor, 2 * len(memory))
    wrote = np.nonzero(after != np.concatenate([memory, memory]))[0]
    print(f"{len(wrote)} bytes written, from {int(wrote.min(initial=1 << 30)) - offset} of the tensor, "
          f"to {int(wrote.max(initial=0)) - offset}")  # fmt: skip


def store_edge(device: Device) -> None:
    """TMA053: what a store writes after rows that are not a multiple of 16 bytes."""
    for columns in (64, 61, 57, 56):
        copies, memory = base(device)
        image = np.full(16 * 128, 0xF0, np.uint8)
        device.store(replace(copies, dims=[columns, 64]), image)
        after = device.read(device.tensor, len(memory)).reshape(64, 128)
        wrote = (after != memory.reshape(64, 128)).sum(axis=1)
        beyond = after[0, columns * 2 : columns * 2 + 16]
        print(f"rows of {columns * 2} bytes: {sorted(set(wrote[:16].tolist()))} bytes of each row written, "
              f"{int(wrote[16:].sum())} elsewhere; after row 0: {bytes(beyond).hex()}")  # fmt: skip


def reduce_edge(device: Device) -> None:
    """TMA053: what an addition changes after rows that are not a multiple of 16 bytes."""
    for columns in (32, 31, 29, 28):
        copies, _ = base(device)
        device.write(device.tensor, np.zeros(64 * 32, np.uint32))
        add = replace(copies, data_type=DataType.UINT32, dims=[columns, 64], box=[32, 16])
        device.store(add, np.ones(16 * 32, np.uint32).view(np.uint8), add=True)
        after = device.read(device.tensor, 64 * 128).view(np.uint32).reshape(64, 32)
        print(
            f"rows of {columns * 4} bytes: {sorted(set(after[:16].sum(axis=1).tolist()))} elements of each row changed"
        )


def start(bytes_: int, store: bool) -> Probe:
    """A copy whose first inner coordinate is ``bytes_`` bytes."""

    def probe(device: Device) -> None:
        copies, memory = base(device)
        moved = replace(copies, data_type=DataType.UINT8, dims=[128, 64], box=[64, 16], coordinates=[[bytes_, 0]],
                        tx_bytes=1024)  # fmt: skip
        if store:
            device.store(moved, np.full(1024, 0xF0, np.uint8))
            print(f"{int((device.read(device.tensor, len(memory)) == 0xF0).sum())} bytes written")
        else:
            expect(device, moved, f"first inner coordinate {bytes_}", 64)

    probe.__doc__ = f"TMA052: a {'store' if store else 'load'} whose first inner coordinate is {bytes_} bytes."
    return probe


def fill(device: Device) -> None:
    """What elements outside the tensor read as with the NaN fill, by data type."""
    for kind, size in ((DataType.FLOAT16, 2), (DataType.BFLOAT16, 2), (DataType.FLOAT32, 4), (DataType.FLOAT64, 8),
                       (DataType.FLOAT32_FTZ, 4), (DataType.TFLOAT32, 4), (DataType.TFLOAT32_FTZ, 4)):  # fmt: skip
        copies, _ = base(device)
        nan = replace(copies, data_type=kind, dims=[128 // size, 64], box=[128 // size, 16],
                      flags=[0, 0, 0, OobFill.NAN_REQUEST_ZERO_FMA], coordinates=[[0, 64]])  # fmt: skip
        done, image = device.load(nan)
        print(f"{kind.name}: {done}, {bytes(image[:size][::-1]).hex()}")


def conversions(device: Device) -> None:
    """Data types that change the bits they load: denormals and low mantissa bits of singles."""
    words = np.array([0x00000001, 0x807FFFFF, 0x3F800001, 0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F803000, 0x3F801FFF,
                      0x7F800001, 0xFFC01234, 0xFF800000, 0x7F7FFFFF, 0x00400000, 0x00003000, 0x80401001, 0],
                     np.uint32)  # fmt: skip
    for kind in (DataType.FLOAT32, DataType.FLOAT32_FTZ, DataType.TFLOAT32, DataType.TFLOAT32_FTZ):
        copies, _ = base(device)
        device.write(device.tensor, words)
        load = replace(copies, data_type=kind, dims=[16, 1], strides=[64], box=[16, 1], tx_bytes=64)
        done, image = device.load(load)
        print(f"{kind.name} load {done}: {' '.join(f'{w:08x}' for w in image[:64].view(np.uint32))}")
        device.write(device.tensor, np.zeros(16, np.uint32))
        device.store(load, words.view(np.uint8))
        print(f"{kind.name} store: {' '.join(f'{w:08x}' for w in device.read(device.tensor, 64).view(np.uint32))}")


def interleaved(device: Device) -> None:
    """TMA049: which 16 bytes of memory arrive where, by box and first coordinates, with an interleave."""
    memory = np.random.default_rng(0).integers(1, UNTOUCHED, 1 << 18, dtype=np.uint8)
    sources = {bytes(memory[i : i + 16]): i for i in range(0, len(memory), 16)}
    for mode, swizzle in ((Interleave.B16, Swizzle.NONE), (Interleave.B32, Swizzle.B32)):
        for box, first in INTERLEAVED:
            copies, _ = base(device)
            device.write(device.tensor, memory)
            load = replace(
                copies, dims=[64, 16, 4], strides=[4096, 65536], box=box, element_strides=[1, 1, 1],
                flags=[mode, swizzle, 0, 0], coordinates=[first], shared_bytes=1 << 15, tx_bytes=16,
            )  # fmt: skip
            _, image = device.load(load)
            pieces = [bytes(image[i : i + 16]) for i in range(0, len(image), 16)]
            blank = bytes([UNTOUCHED] * 16)
            names = ["zero" if not any(p) else sources.get(p, "?") for p in pieces if p != blank]
            print(f"{mode.name} box {box} at {first}: {len(names)} units of 16 bytes from {names[:24]}", flush=True)
    for mode, rank in product((Interleave.B16, Interleave.B32), (3, 4, 5)):
        copies, _ = base(device)
        device.write(device.tensor, memory)
        unit = 16 * mode
        box = [8, *[2] * (rank - 1)]
        moved = unit * prod(box) // box[rank - 2]
        load = replace(
            copies, dims=[16, 3, 3, 3, 3][:rank], strides=[4096, 16384, 49152, 1 << 17][: rank - 1], box=box,
            element_strides=[1] * rank, flags=[mode, mode - 1, 0, 0], coordinates=[[0] * rank], shared_bytes=1 << 13,
            tx_bytes=moved,
        )  # fmt: skip
        done, image = device.load(load)
        pieces = [bytes(image[i : i + 16]) for i in range(0, len(image), 16)]
        names = [sources.get(p, "?") for p in pieces if p != bytes([UNTOUCHED] * 16)]
        print(f"{mode.name} rank {rank} box {box}: {moved} bytes {done}; {len(names)} units from {names[:: mode * 8]}")
        device.write(device.tensor, np.zeros(1 << 18, np.uint8))
        device.store(load, np.arange(1 << 13, dtype=np.int64).astype(np.uint8) | 1)
        wrote = np.flatnonzero(device.read(device.tensor, 1 << 18))
        print(f"  stored: {len(wrote)} bytes in runs from {wrote[np.diff(wrote, prepend=-2) > 1].tolist()}", flush=True)


INTERLEAVED = (
    ([8, 1, 1], [0, 0, 0]), ([16, 1, 1], [0, 0, 0]), ([8, 2, 1], [0, 0, 0]), ([8, 16, 1], [0, 0, 0]),
    ([8, 1, 2], [0, 0, 0]), ([8, 4, 2], [0, 0, 0]), ([8, 2, 2], [0, 1, 1]), ([8, 1, 1], [56, 0, 0]),
    ([8, 1, 1], [8, 0, 0]), ([8, 1, 1], [1, 0, 0]), ([8, 1, 1], [60, 15, 0]),
)  # fmt: skip
"""Boxes and first coordinates of the probe, the riskier ones last."""


PROBES: dict[str, Probe] = {
    "stride-zero": stride_zero,
    "overlapping-rows": overlapping_rows,
    "fill": fill,
    "conversions": conversions,
    "element-strides": element_strides,
    "interleaved": interleaved,
    "narrow-rows": narrow_rows,
    "store-edge": store_edge,
    "reduce-edge": reduce_edge,
    **{f"start-{n}-{'store' if s else 'load'}": start(n, s) for n in (16, 8, 15, 17, -8, -16) for s in (False, True)},
    "negative-store": negative_store,
    "shared-alignment": shared_alignment,
    "shared-alignment-16": shared_alignment_16,
}
"""Probes by name, the riskier ones last."""
