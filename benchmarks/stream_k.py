"""Products by stream-K, edited into the compiler's kernels, beside its own ways and cuBLAS.

    python benchmarks/stream_k.py build --jobs 16
    python benchmarks/stream_k.py run --json benchmarks/results/stream_k.json

C = A B^T in bf16. ``whole`` programs of a launch, a multiple of the SMs, are computed as they were; the steps of all
others are dealt out in equal shares to 132 CTAs, so that all end at one time. A CTA whose share ends inside of a tile
leaves its sums in global memory and sets a flag at gpu scope; the CTA that has the tile's last step waits for the flags
of those before, adds their sums in order, and stores the tile. It begins with what it leaves for others, so that it
waits for no one long. ``one``: of the last wave alone; ``two``: of the last two waves (CUTLASS's hybrid).

Flags reset themselves, which is right for one stream at a time; nothing about the edited kernels is proved. Outputs are
poisoned and compared with cuBLAS's in f32.
"""

from __future__ import annotations

import argparse
import random
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, exp, log
from typing import Any

import product_choices
from harness import Timer, document, file_of, load, parser, write
from product_choices import CLUSTERED_SMS, KINDS, SMS, Way

BF16 = KINDS["bf16"]
SIZES = (*((128, n) for n in (96, 128, 160, 192, 224, 256)), (192, 128), (192, 160), (192, 192))
WAVES = {"one": 1, "two": 2}
WAYS = (
    *(Way(128, n) for n in (96, 112, 128, 144, 160, 192, 208, 224, 240, 256)),
    *(Way(128, n, parts=2) for n in (96, 128, 160, 192, 224, 256)), *(Way(128, n, parts=4) for n in (128, 192, 256)),
    *(Way(192, n, parts=2) for n in (96, 128, 160)), Way(256, 128, parts=2), Way(192, 128), Way(192, 160),
    Way(192, 192), Way(256, 160),
)  # fmt: skip
NAMED = (
    (640, 2560, 10240), (512, 4096, 4096), (2048, 5120, 5120), (300, 5000, 5000), (3000, 7000, 2504), (4864, 896, 896),
    (5000, 5000, 5000), (1000, 2880, 2880), (4096, 4096, 4096),
)  # fmt: skip
NEAR = 1.3
"""How much longer than the best a way of the compiler may take by its estimate to be timed."""

_LOOP = re.compile(r"for \(int program = .*?; program < \(int\)\((.*)\); program \+= \(int\)gridDim\.x\) \{")
_STEPS = re.compile(r"for \(int k0 = 0; k0 < (.*); \+\+k0\) \{")
_WALK = """
struct Walk {
  int whole, steps, begin, end, next_whole, program, from, to;
  __device__ __forceinline__ static int first(int tiles, int steps, int whole, int cta) {
    return (int)((long long)cta * ((tiles - whole) * (long long)steps) / (int)gridDim.x);
  }
  __device__ __forceinline__ Walk(int tiles, int steps) : steps(steps) {
    whole = max(tiles / (int)gridDim.x - (LAST_WAVES - 1), 0) * (int)gridDim.x;
    if (tiles % (int)gridDim.x == 0) whole = tiles;
    begin = first(tiles, steps, whole, (int)blockIdx.x);
    end = first(tiles, steps, whole, (int)blockIdx.x + 1);
    next_whole = (int)blockIdx.x;
  }
  __device__ __forceinline__ bool next() {
    const bool left = begin < end && end % steps != 0;
    if (!left && next_whole < whole) {
      program = next_whole; from = 0; to = steps; next_whole += (int)gridDim.x;
      return true;
    }
    if (begin >= end) return false;
    const int tile = (end - 1) / steps;
    program = whole + tile; from = max(begin - tile * steps, 0); to = end - tile * steps;
    end = tile * steps + from;
    return true;
  }
};
__device__ float4 left_sums[132 * WARPGROUPS * (REGISTERS / 4) * 128];
__device__ int left_flags[132 * WARPGROUPS];
__device__ __forceinline__ void leave(const float* d, int cta, int warpgroup, int lane, bool leader) {
  float4* to = left_sums + (cta * WARPGROUPS + warpgroup) * (REGISTERS / 4) * 128 + lane;
  #pragma unroll
  for (int i = 0; i < REGISTERS / 4; ++i) {
    to[i * 128] = make_float4(d[i * 4], d[i * 4 + 1], d[i * 4 + 2], d[i * 4 + 3]);
  }
  named_barrier_sync(warpgroup + 1, 128);
  if (leader) {
    asm volatile("fence.acq_rel.gpu;\\nst.release.gpu.global.s32 [%0], 1;"
      :: "l"(left_flags + cta * WARPGROUPS + warpgroup) : "memory");
  }
}
__device__ __forceinline__ void take(float* d, int cta, int warpgroup, int lane, bool leader) {
  int* const flag = left_flags + cta * WARPGROUPS + warpgroup;
  if (leader) {
    int set = 0;
    while (set == 0) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
    *flag = 0;
  }
  named_barrier_sync(warpgroup + 1, 128);
  const float4* from = left_sums + (cta * WARPGROUPS + warpgroup) * (REGISTERS / 4) * 128 + lane;
  #pragma unroll
  for (int i = 0; i < REGISTERS / 4; ++i) {
    const float4 x = __ldcg(from + i * 128);
    d[i * 4] += x.x; d[i * 4 + 1] += x.y; d[i * 4 + 2] += x.z; d[i * 4 + 3] += x.w;
  }
}
"""
_MEET = """
      if (walk.to < walk.steps) {
        leave(v_fragment, (int)blockIdx.x, warpgroup, tid & 127, leader);
        continue;
      }
      if (walk.from > 0) {
        const int start = (walk.program - walk.whole) * walk.steps;
        for (int cta = (int)blockIdx.x - 1;; --cta) {
          const int begin = Walk::first(TILES, walk.steps, walk.whole, cta);
          if (begin == Walk::first(TILES, walk.steps, walk.whole, cta + 1)) continue;
          take(v_fragment, cta, warpgroup, tid & 127, leader);
          if (begin <= start) break;
        }
      }
"""


@dataclass(frozen=True)
class Streamed:
    """Tiles of ``rows`` x ``columns``, those of the last ``waves`` cut."""

    rows: int
    columns: int
    waves: str

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} stream-K {self.waves}"

    @property
    def artifact(self) -> str:
        """Its name."""
        return f"stream_k_{self}".replace(" ", "_")

    def microseconds(self, m: int, n: int, k: int) -> float:
        """A rough estimate."""
        tiles = ceil(m / self.rows) * ceil(n / self.columns)
        return tiles * ceil(k / 64) / SMS * step_of(self.rows, self.columns) + 8


STREAMED = tuple(Streamed(*size, waves) for size in SIZES for waves in WAVES)


def rough(way: Way, m: int, n: int, k: int) -> float:
    """Microseconds of one of the compiler's ways; parts that a cluster adds may take several rounds."""
    if way.parts == 1:
        return way.estimate(ceil(k / 64), m, n) or 0.0
    clusters = (CLUSTERED_SMS if way.parts > 2 else SMS) // way.parts
    rounds = ceil(ceil(m / way.rows) * ceil(n / way.columns) / clusters)
    return rounds * (ceil(ceil(k / 64) / way.parts) * step_of(way.rows, way.columns) + 2) + 4


def step_of(rows: int, columns: int) -> float:
    """Microseconds of a step, as of ``Way.estimate``."""
    return max((rows + columns) / 609, rows * columns / 53_000) + 0.013


def edited(source: str, way: Streamed) -> str:
    """The kernel's text with its programs dealt out by stream-K."""
    warpgroups, registers = way.rows // 64, way.columns // 2
    inside = source.index('extern "C" __global__')
    (tiles, _), (steps, *_) = _LOOP.findall(source), _STEPS.findall(source)
    loop = f"for (Walk walk((int)({tiles}), {steps}); walk.next();) {{\n    const int program = walk.program;"
    kernel = _LOOP.sub(loop, source[inside:])
    kernel = _STEPS.sub("for (int k0 = walk.from; k0 < walk.to; ++k0) {", kernel)
    kernel, released = kernel.replace("if ((0 < k0))", "if (walk.from < k0)"), f"if ((0 < {steps}))"
    before, behind = kernel.split(released)
    close = behind.index("\n      }\n") + len("\n      }\n")
    meet = _MEET.replace("TILES", f"(int)({tiles})")
    kernel = f"{before}if (walk.from < walk.to){behind[:close]}{meet}{behind[close:]}"
    names = {"LAST_WAVES": WAVES[way.waves], "WARPGROUPS": warpgroups, "REGISTERS": registers}
    walk = re.sub("|".join(names), lambda found: str(names[found.group()]), _WALK)
    return source[:inside] + walk + kernel


def compiled(way: Streamed) -> str:
    """Edits and assembles one way, whose tiles are built; what came of it."""
    from tilewright.artifact.bundle import from_bytes, to_bytes
    from tilewright.artifact.schema import Launch
    from tilewright.base.expr import Const
    from tilewright.codegen.assemble import compile_text, taken_of

    file = file_of(Way(way.rows, way.columns).artifact(BF16))
    made = from_bytes(file.read_bytes(), file.name)
    (kernel,), (variant,) = made.kernels, made.variants
    text = edited(kernel.source, way)
    ptx, cubin, report = compile_text(text, "sm_90a", kernel.symbol)
    steps = [replace(s, grid=(Const(SMS), *s.grid[1:])) if isinstance(s, Launch) else s for s in variant.steps]
    ours = replace(
        made,
        kernels=(replace(kernel, source=text, ptx=ptx, cubin=cubin, registers=taken_of(report)[0]),),
        variants=(replace(variant, steps=tuple(steps)),),
    )
    file_of(way.artifact).write_bytes(to_bytes(ours))
    return f"{way}: registers, bytes spilled, shared {taken_of(report)}"


def build(jobs: int, only: str) -> None:
    """All ways, and the family."""
    file_of("x").parent.mkdir(exist_ok=True)
    with ProcessPoolExecutor(jobs) as pool:
        plain = [w for w in (None, *WAYS) if only in str(w)]
        for said in pool.map(product_choices.compiled, [BF16.name] * len(plain), plain):
            print(said[:140], flush=True)
        for said in pool.map(compiled, [way for way in STREAMED if only in str(way)]):
            print(said, flush=True)


def shapes() -> list[tuple[int, int, int]]:
    """Named ones, and those drawn at random of docs/measured.md ("Widths of tiles")."""
    rng, found = random.Random(7), list(NAMED)
    while len(found) < len(NAMED) + 31:
        m, n = 64 * rng.randrange(2, 65), 64 * rng.randrange(2, 129)
        k = 512 * rng.randrange(2, 33)
        if 4e9 < 2 * m * n * k < 4e11:
            found.append((m, n, k))
    return found


def near(times: dict[Any, float]) -> list[Any]:
    """Those that may be the best."""
    return [way for way, time in times.items() if time <= NEAR * min(times.values())]


def run(args: argparse.Namespace) -> None:
    """Times every shape; prints and writes a row for each."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    family = load(BF16.family)
    own = {way: load(way.artifact(BF16)) for way in WAYS}
    streamed = {way: load(way.artifact) for way in STREAMED}
    for m, n, k in shapes():
        a, b = BF16.operands(torch, (m, n, k))
        c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        exact = torch.matmul(a, b.mT).float()
        ways = {str(w): own[w] for w in near({w: rough(w, m, n, k) for w in WAYS})}
        cut = [w for w in STREAMED if ceil(m / w.rows) * ceil(n / w.columns) % SMS]
        ways |= {str(w): streamed[w] for w in near({w: w.microseconds(m, n, k) for w in cut})}
        programs = {name: p for name, p in {"family": family, **ways}.items() if p is not None}
        launches = {name: partial(program.launch, (a, b, c)) for name, program in programs.items()}
        wrong: list[str] = []
        for name, launch in launches.items():
            for _ in range(3):
                c.fill_(float("nan"))
                launch()
                if not bool(((c.float() - exact).abs() <= 0.01 * exact.abs().max()).all()):
                    wrong.append(name)
        seconds = timer.medians({**launches, "cublas": lambda a=a, b=b: torch.matmul(a, b.mT)})
        us = {name: round(s * 1e6, 2) for name, s in seconds.items()}
        kinds = {"own": [x for x in launches if "stream" not in x], "stream": [x for x in launches if "stream" in x]}
        first = {kind: min(names, key=lambda x: us[x]) for kind, names in kinds.items() if names}
        row = {"shape": (m, n, k), "us": us, "best": first, "wrong": wrong}
        rows.append(row)
        said = {kind: (name, us[name], round(us["cublas"] / us[name], 3)) for kind, name in first.items()}
        print((m, n, k), "family", round(us["cublas"] / us["family"], 3), said, us["cublas"], wrong, flush=True)
        write(document(torch, **timer.conditions(), **summary(rows), rows=rows), args.json, row_lines=True)
    print(summary(rows))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of cuBLAS's time over that of the family, of the best own way, and of the best with stream-K."""

    def mean(of: list[float]) -> float:
        return round(exp(sum(map(log, of)) / len(of)), 3)

    times = [row["us"] for row in rows]
    bests = [[row["us"][name] for name in row["best"].values()] for row in rows]
    return {
        "family": mean([us["cublas"] / us["family"] for us in times]),
        "own": mean([row["us"]["cublas"] / row["us"][row["best"]["own"]] for row in rows]),
        "with_stream_k": mean([us["cublas"] / min(best) for us, best in zip(times, bests, strict=True)]),
    }


def main() -> None:
    made = parser(__doc__, "ways whose name contains this", rounds=7)
    made.add_argument("--jobs", type=int, default=2)
    args = made.parse_args()
    if args.what == "build":
        build(args.jobs, args.only)
    else:
        run(args)


if __name__ == "__main__":
    main()
