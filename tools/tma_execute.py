"""Execute planned tensor copies on a GPU and compare every byte with the plan.

``python tools/tma_execute.py build KERNEL.cubin`` compiles the kernel (needs cuda-bindings and NVRTC, no GPU);
``python tools/tma_execute.py run KERNEL.cubin --cases 2000`` runs it (needs numpy, an NVIDIA driver, a Hopper GPU).

Each case draws a tensor and a tile, plans it, loads the tile, compares shared memory with the tensor element by
element, and stores the tile back into an empty tensor, of which every element is compared as well. ``--probes`` adds
copies the driver encodes and no document describes; their outcome is printed, not judged.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections import Counter
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tensormap_label import Driver
from tilewright.base.dtypes import DTYPES
from tilewright.base.verdict import Legal
from tilewright.hw.tensormap import ELEMENT_BITS, DataType, Swizzle
from tilewright.legal.tma import TensorMapPlan, TileAccess, candidates, plan

SHARED_LIMIT = 64 << 10
TENSOR_LIMIT = 8 << 20
UNTOUCHED = 0xEE
MAX_COPIES = 1024

SOURCE = r"""
struct alignas(64) Map { unsigned long long words[16]; };

template <int R> __device__ void load(unsigned dst, const Map* map, const int* c, unsigned bar);
template <int R> __device__ void store(unsigned src, const Map* map, const int* c);

#define COPY(R, COORDS, ...)                                                                                  \
  template <> __device__ void load<R>(unsigned dst, const Map* map, const int* c, unsigned bar) {             \
    asm volatile("cp.async.bulk.tensor." #R "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"      \
                 " [%0], [%1, " COORDS "], [%2];" ::"r"(dst), "l"(map), "r"(bar), __VA_ARGS__ : "memory");    \
  }                                                                                                           \
  template <> __device__ void store<R>(unsigned src, const Map* map, const int* c) {                          \
    asm volatile("cp.async.bulk.tensor." #R "d.global.shared::cta.tile.bulk_group"                            \
                 " [%1, " COORDS "], [%0];" ::"r"(src), "l"(map), "r"(0), __VA_ARGS__ : "memory");            \
  }
COPY(1, "{%3}", "r"(c[0]))
COPY(2, "{%3, %4}", "r"(c[0]), "r"(c[1]))
COPY(3, "{%3, %4, %5}", "r"(c[0]), "r"(c[1]), "r"(c[2]))
COPY(4, "{%3, %4, %5, %6}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]))
COPY(5, "{%3, %4, %5, %6, %7}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]))

extern "C" __global__ void copy(const __grid_constant__ Map from, const __grid_constant__ Map to, int rank, int copies,
                                const int* coords, const int* offsets, int tx, int bytes, int back,
                                unsigned char* dump, int* status) {
  extern __shared__ unsigned char raw[];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(raw));
  unsigned base = (start + 1023u) & ~1023u;
  unsigned char* tile = raw + (base - start);
  unsigned bar = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) tile[i] = 0xEE;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(tx) : "memory");
    for (int i = 0; i < copies; ++i) {
      const int* c = coords + 5 * i;
      unsigned dst = base + offsets[i];
      if (rank == 1) load<1>(dst, &from, c, bar);
      if (rank == 2) load<2>(dst, &from, c, bar);
      if (rank == 3) load<3>(dst, &from, c, bar);
      if (rank == 4) load<4>(dst, &from, c, bar);
      if (rank == 5) load<5>(dst, &from, c, bar);
    }
  }
  int done = 0;
  long long begin = clock64();
  while (!done && clock64() - begin < 200000000ll) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.s32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(bar) : "memory");
  }
  __syncthreads();
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) dump[i] = tile[i];
  if (threadIdx.x == 0) *status = done;
  __syncthreads();
  if (back && done && threadIdx.x == 0) {
    for (int i = 0; i < copies; ++i) {
      const int* c = coords + 5 * i;
      unsigned src = base + offsets[i];
      if (rank == 1) store<1>(src, &to, c);
      if (rank == 2) store<2>(src, &to, c);
      if (rank == 3) store<3>(src, &to, c);
      if (rank == 4) store<4>(src, &to, c);
      if (rank == 5) store<5>(src, &to, c);
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
"""


def build(target: Path) -> None:
    """Compile the kernel for sm_90a."""
    from cuda.bindings import nvrtc  # noqa: PLC0415  the machine that runs it needs no compiler

    status, program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"copy.cu", 0, [], [])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise SystemExit(log.decode())
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = b" " * size
    nvrtc.nvrtcGetCUBIN(program, cubin)
    target.write_bytes(cubin)
    print(f"{size} bytes in {target}")


@dataclass(frozen=True)
class Case:
    """One drawn access with its plan and the first index along each axis."""

    access: TileAccess
    plan: TensorMapPlan
    first: tuple[int, ...]


def draw(rng: np.random.Generator) -> Case:
    """A random legal tile: ranks 1 to 5, all dtypes and swizzles, tiles over the edges."""
    while True:
        dtype = list(DTYPES.values())[int(rng.integers(len(DTYPES)))]
        unit = 16 // dtype.bytes
        rank = int(rng.integers(1, 6))
        shape = [int(rng.integers(1, 12)) for _ in range(rank)]
        shape[-1] = int(rng.integers(1, 300))
        if rank > 1:
            shape[-2] = int(rng.integers(1, 100))
        strides = [1] * rank
        for axis in reversed(range(rank - 1)):
            strides[axis] = (-(-strides[axis + 1] * shape[axis + 1] // unit) + int(rng.integers(0, 2))) * unit
        tile: list[int | None] = [(None, 1, 2, 3)[int(rng.integers(4))] for _ in range(rank)]
        span = int(rng.choice([16, 32, 64, 128, 128])) // dtype.bytes
        tile[-1] = int(rng.integers(1, 4)) * span
        if rank > 1:
            tile[-2] = int(rng.choice([1, 8, 24, 64, 300]))
        if rng.random() < 0.25 and rank > 1:  # transposed: the dense axis is not the last
            for values in (shape, strides, tile):
                values[-1], values[-2] = values[-2], values[-1]
        access = TileAccess(dtype, tuple(shape), tuple(strides), 0, tuple(tile))
        plans = candidates(access).plans
        if plans:
            chosen = plans[int(rng.integers(len(plans)))]
            large = strides[0] * shape[0] * dtype.bytes > TENSOR_LIMIT or max(strides) * dtype.bytes > TENSOR_LIMIT
            if not large and chosen.shared.size_bytes <= SHARED_LIMIT and len(chosen.boxes) <= MAX_COPIES:
                return Case(access, chosen, tuple(int(rng.integers(0, n)) for n in shape))


class Device:
    """The kernel loaded on a GPU, and its buffers."""

    def __init__(self, cubin: Path) -> None:
        self.driver = Driver()
        self._module, self._function = c_void_p(), c_void_p()
        self.call("cuModuleLoadData", byref(self._module), cubin.read_bytes())
        self.call("cuModuleGetFunction", byref(self._function), self._module, b"copy")
        self.call("cuFuncSetAttribute", self._function, c_int(8), c_int(SHARED_LIMIT + 1024))
        sizes = {"source": 32 << 20, "target": 32 << 20, "dump": SHARED_LIMIT, "coords": 1 << 16, "offsets": 1 << 14}
        self.buffers = {name: self._allocate(size) for name, size in {**sizes, "status": 256}.items()}

    def call(self, name: str, *args: object) -> None:
        """A driver call that must succeed."""
        self.driver._call(name, *args)

    def _allocate(self, size: int) -> int:
        pointer = c_uint64()
        self.call("cuMemAlloc_v2", byref(pointer), c_size_t(size))
        return pointer.value

    def write(self, name: str, data: np.ndarray) -> None:
        """Copy an array to a buffer."""
        held = np.ascontiguousarray(data)
        self.call("cuMemcpyHtoD_v2", c_uint64(self.buffers[name]), c_void_p(held.ctypes.data), c_size_t(held.nbytes))

    def read(self, name: str, size: int) -> np.ndarray:
        """Copy bytes from a buffer."""
        held = np.empty(size, np.uint8)
        self.call("cuMemcpyDtoH_v2", c_void_p(held.ctypes.data), c_uint64(self.buffers[name]), c_size_t(size))
        return held

    def encode(self, chosen: TensorMapPlan, buffer: str) -> ctypes.Array:
        """The plan's map over a buffer; raises if the driver refuses it."""
        rank = chosen.rank
        strides = [int(s.evaluate({})) for s in chosen.strides]
        flags = [chosen.interleave, chosen.swizzle, chosen.l2_promotion, chosen.oob_fill]
        status = self.driver.encode(
            chosen.data_type,
            rank,
            self.buffers[buffer],
            0,
            [int(d.evaluate({})) for d in chosen.dims],
            strides,
            chosen.box,
            chosen.element_strides,
            flags,
        )
        if status:
            raise SystemExit(f"the driver refused a legal map ({status}): {chosen}")
        return (ctypes.c_char * 128).from_buffer_copy(ctypes.string_at(self.driver._map, 128))

    def launch(self, chosen: TensorMapPlan, origin: list[int], tx: int, back: bool) -> tuple[int, np.ndarray]:
        """Run the copies; returns whether they completed, and shared memory."""
        coords = np.zeros((len(chosen.boxes), 5), np.int32)
        for row, box in zip(coords, chosen.boxes, strict=True):
            row[: chosen.rank] = [o + s for o, s in zip(origin, box.start, strict=True)]
        self.write("coords", coords)
        self.write("offsets", np.array([b.shared_offset_bytes for b in chosen.boxes], np.int32))
        size = chosen.shared.size_bytes
        maps = [self.aligned(self.encode(chosen, name)) for name in ("source", "target")]
        values = [c_int(chosen.rank), c_int(len(chosen.boxes))]
        values += [c_uint64(self.buffers["coords"]), c_uint64(self.buffers["offsets"])]
        values += [c_int(tx), c_int(size), c_int(int(back))]
        values += [c_uint64(self.buffers["dump"]), c_uint64(self.buffers["status"])]
        pointers = (c_void_p * (2 + len(values)))(*maps, *(ctypes.addressof(v) for v in values))
        shape = [c_int(n) for n in (1, 1, 1, 128, 1, 1)]
        self.call("cuLaunchKernel", self._function, *shape, c_int(SHARED_LIMIT + 1024), None, pointers, None)
        self.call("cuCtxSynchronize")
        return int(self.read("status", 4).view(np.int32)[0]), self.read("dump", size)

    def aligned(self, blob: ctypes.Array) -> int:
        """Address of a 64-byte aligned copy of a map, kept until the next launch but one."""
        store = ctypes.create_string_buffer(256)
        address = -(-ctypes.addressof(store) // 64) * 64
        ctypes.memmove(address, blob, 128)
        self._held = [*getattr(self, "_held", [])[-3:], store]
        return address


def execute(device: Device, case: Case, rng: np.random.Generator) -> str:
    """Run one case; the empty string if every byte is right, else what is wrong."""
    access, chosen, size = case.access, case.plan, case.access.dtype.bytes
    shape = [int(n) for n in access.shape]
    strides = [int(s) for s in access.strides]
    extent = (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) * size
    memory = rng.integers(0, 256, -(-extent // 16) * 16, dtype=np.uint8)
    device.write("source", memory)
    device.write("target", np.zeros_like(memory))
    values = {f"index{i}": v for i, v in enumerate(case.first)}
    origin = [int(c.evaluate(values)) for c in chosen.coordinates]
    done, shared = device.launch(chosen, origin, chosen.tx_bytes, back=True)
    if not done:
        return f"{chosen.tx_bytes} bytes did not complete"
    place, at, within = where(case)
    lanes = np.arange(size)
    got = shared[place[:, None] + lanes]
    expected = np.where(within[:, None], memory[np.where(within, at, 0)[:, None] + lanes], 0)
    if not np.array_equal(got, expected):
        first = int(np.nonzero((got != expected).any(axis=1))[0][0])
        return f"element {first}: {got[first]} at byte {place[first]} of shared memory, expected {expected[first]}"
    stored = np.zeros_like(memory)
    stored[at[within][:, None] + lanes] = expected[within]
    if not np.array_equal(device.read("target", memory.nbytes), stored):
        return "the stored tile differs"
    return ""


def where(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every element of the tile: its byte in shared memory, its byte in the tensor, whether the tensor has it."""
    access, size = case.access, case.access.dtype.bytes
    axes = [i for i, t in enumerate(access.tile) if t is not None]
    local = np.indices([access.tile[i] or 1 for i in axes]).reshape(len(axes), -1)
    inside = dict(zip(axes, local, strict=True))
    place = case.plan.shared.offset(tuple(inside[a] for a in case.plan.tile_axes))
    at = np.zeros(local.shape[1], np.int64)
    within = np.ones(local.shape[1], np.bool_)
    for axis, (extent, stride) in enumerate(zip(access.shape, access.strides, strict=True)):
        index = case.first[axis] + inside.get(axis, 0)
        at += index * stride * size
        within &= index < extent
    return place, at, within


def probes(device: Device, rng: np.random.Generator) -> None:
    """Copies that encode and that no document describes: print what happens."""
    base = plan(TileAccess(DTYPES["bf16"], (64, 64), (64, 1), 0, (16, 64), swizzles=(Swizzle.B128,)))
    assert isinstance(base, Legal)
    device.write("source", rng.integers(1, 256, 64 * 64 * 2, dtype=np.uint8))
    wide = base.fields
    zero = replace(wide, strides=(wide.strides[0] * 0,))
    done, shared = device.launch(zero, [0, 0], wide.tx_bytes, back=False)
    rows = len(np.unique(shared.reshape(-1, 128), axis=0))
    print(f"stride 0, 16 rows of 128 bytes: completed {done}, distinct rows {rows}")
    for swizzle, box in ((Swizzle.B128, 56), (Swizzle.B128, 32), (Swizzle.B64, 16), (Swizzle.B32, 8)):
        narrow = replace(wide, swizzle=swizzle, box=(box, 16))
        for tx in (box * 2 * 16, {Swizzle.B128: 128, Swizzle.B64: 64, Swizzle.B32: 32}[swizzle] * 16):
            done, shared = device.launch(narrow, [0, 0], tx, back=False)
            touched = int((shared != UNTOUCHED).sum())
            last = int(np.nonzero(shared != UNTOUCHED)[0].max(initial=0))
            print(
                f"{swizzle.name} row of {box * 2} bytes, expect {tx}: completed {done}, {touched} bytes, last at {last}"
            )


def main() -> int:
    """Build the kernel, or run cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("build", "run"))
    parser.add_argument("cubin", type=Path)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--probes", action="store_true")
    args = parser.parse_args()
    if args.action == "build":
        build(args.cubin)
        return 0
    rng = np.random.default_rng(args.seed)
    device = Device(args.cubin)
    kinds: Counter[str] = Counter()
    wrong = 0
    for number in range(args.cases):
        case = draw(rng)
        trouble = execute(device, case, rng)
        kinds[f"rank {case.plan.rank} {case.plan.swizzle.name} {ELEMENT_BITS[DataType(case.plan.data_type)]} bit"] += 1
        if trouble:
            wrong += 1
            print(f"case {number}: {trouble}\n  {case.access}\n  {case.plan}")
    print(f"{args.cases} cases on {device.driver.device}, CUDA driver {device.driver.version}: {wrong} wrong")
    for kind, count in sorted(kinds.items()):
        print(f"  {kind}: {count}")
    if args.probes:
        probes(device, rng)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
