"""Cycles of shared-memory accesses on a GPU beside what the bank model says.

Sixteen warps of one CTA make the same access over and over, enough of them in flight that the banks are what they wait
for; an access then takes as many cycles as its phases need (CUDA Programming Guide: 32 banks of 4 bytes a cycle).

    python benchmarks/bank_conflicts.py build
    python benchmarks/bank_conflicts.py run --json benchmarks/results/bank_conflicts.json
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent
FOLDER = ROOT / "artifacts" / "bank_conflicts"
sys.path.insert(0, str(ROOT.parent / "src"))

WARPS, STEPS, UNROLLED = 16, 64, 8
SHARED_BYTES = 64 << 10
APART_BYTES = 4096
"""Distance of the accesses of one step: whole lines, so that they meet the same banks, and none can be left out."""
_WORDS = {4: ("b32", 1), 8: ("v2.b32", 2), 16: ("v4.b32", 4)}


# -- kernels ----------------------------------------------------------------------------------------------------------
def _instruction(op: str) -> tuple[str, int]:
    """The PTX instruction of a row of the bank model with its word operands, and how many words."""
    way, rest = op[:2], op[2:]
    if rest.startswith("matrix"):
        count = int(op[-1])
        return f"{way}matrix.sync.aligned.m8n8.x{count}.shared.b16", count
    kind, words = _WORDS[int(op.rsplit("b", 1)[1]) // 8]
    return f"{way}.volatile.shared.{kind}", words


def source_of(op: str) -> str:
    """CUDA C++ of the timing kernel of one instruction."""
    text, words = _instruction(op)
    load = op.startswith("ld")
    names = ", ".join(f"%{i + (0 if load else 1)}" for i in range(words))
    names = f"{{{names}}}" if words > 1 or "matrix" in op else names
    values = ", ".join(f'"{"=" if load else ""}r"(w[u][{i}])' for i in range(words))
    at = f'"r"(at + {APART_BYTES} * u)'
    if load:
        access = f'asm volatile("{text} {names}, [%{words}];" : {values} : {at} : "memory");'
    else:
        access = f'asm volatile("{text} [%0], {names};" :: {at}, {values} : "memory");'
    gather = " ".join(f"sum ^= w[u][{i}];" for i in range(words)) if load else ""
    return f"""extern "C" __global__ void access(const int* addresses, long long* cycles, unsigned* sink) {{
  extern __shared__ __align__(1024) unsigned tile[];
  for (int i = threadIdx.x; i < {SHARED_BYTES // 4}; i += blockDim.x) tile[i] = i;
  const unsigned at = (unsigned)__cvta_generic_to_shared(tile) + addresses[threadIdx.x & 31];
  unsigned w[{UNROLLED}][{words}], sum = threadIdx.x;
  for (int u = 0; u < {UNROLLED}; ++u) for (int i = 0; i < {words}; ++i) w[u][i] = threadIdx.x + i;
  for (int warm = 0; warm < 2; ++warm) {{
    __syncthreads();
    const long long begin = clock64();
    #pragma unroll 1
    for (int step = 0; step < {STEPS}; ++step) {{
      #pragma unroll
      for (int u = 0; u < {UNROLLED}; ++u) {access}
      #pragma unroll
      for (int u = 0; u < {UNROLLED}; ++u) {{ {gather} }}
    }}
    __syncthreads();
    if (threadIdx.x == 0) cycles[warm] = clock64() - begin;
  }}
  sink[threadIdx.x] = sum;
}}
"""


def patterns() -> dict[str, tuple[str, Callable[[int], int]]]:
    """Name to instruction and byte address of each lane."""
    found: dict[str, tuple[str, Callable[[int], int]]] = {}

    def both(name: str, op: str, address: Callable[[int], int]) -> None:
        for way in ("ld", "st"):
            found[f"{way}{op}: {name}"] = (way + op, address)

    for stride in (1, 2, 4, 8, 16, 32):
        both(f"stride of {stride} words", ".shared.b32", lambda t, s=stride: 4 * s * t)
    both("column of padded rows (33 words)", ".shared.b32", lambda t: 132 * t)
    both("column of 128 B rows, xor", ".shared.b32", lambda t: (128 * t) ^ (4 * t))
    found["ld.shared.b32: one word"] = ("ld.shared.b32", lambda _: 64)
    both("consecutive", ".shared.b64", lambda t: 8 * t)
    both("stride of 4 words", ".shared.b64", lambda t: 16 * t)
    both("column of 128 B rows", ".shared.b64", lambda t: 128 * t)
    both("column of padded rows (136 B)", ".shared.b64", lambda t: 136 * t)
    both("column of 128 B rows, xor", ".shared.b64", lambda t: (128 * t) ^ (8 * (t % 16)))
    both("halves in the same banks", ".shared.b64", lambda t: 8 * (t % 16) + 128 * (t // 16))
    both("consecutive", ".shared.b128", lambda t: 16 * t)
    both("column of 64 B rows", ".shared.b128", lambda t: 64 * t)
    both("column of 128 B rows", ".shared.b128", lambda t: 128 * t)
    both("column of padded rows (144 B)", ".shared.b128", lambda t: 144 * t)
    both("column of 128 B rows, swizzled 128 B", ".shared.b128", lambda t: (128 * t) ^ (16 * (t % 8)))
    both("column of 64 B rows, swizzled 64 B", ".shared.b128", lambda t: (64 * t) ^ (16 * (t // 2 % 4)))
    both("quarters in the same banks", ".shared.b128", lambda t: 16 * (t % 8) + 128 * (t // 8))
    for count in (1, 2, 4):
        both("rows of 128 B", f"matrix.x{count}", lambda t: 128 * t)
        both("rows of 128 B, swizzled 128 B", f"matrix.x{count}", lambda t: (128 * t) ^ (16 * (t % 8)))
    both("rows of 64 B", "matrix.x4", lambda t: 64 * t)
    both("rows of 64 B, swizzled 64 B", "matrix.x4", lambda t: (64 * t) ^ (16 * (t // 2 % 4)))
    both("padded rows (144 B)", "matrix.x4", lambda t: 144 * t)
    both("rows of 352 B, synthesised", "matrix.x4", lambda t: (352 * t) ^ ((352 * t >> 7 & 1) << 4))
    rng = random.Random(7)
    for op, size in ((".shared.b32", 4), (".shared.b64", 8), (".shared.b128", 16), ("matrix.x4", 16)):
        for number in range(4):
            table = [size * rng.randrange(4096 // size) for _ in range(32)]
            both(f"random {number}", op, lambda t, table=table: table[t])
    return found


def build() -> None:
    """One cubin an instruction; addresses and predictions as JSON."""
    from tilewright.codegen.assemble import assemble
    from tilewright.layout.banks import WaveAccess, instruction

    FOLDER.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name, (op, address) in patterns().items():
        cost = WaveAccess.of(instruction("sm_90a", op), address).cost
        addresses = [address(t) for t in range(32)]
        rows.append({"name": name, "op": op, "addresses": addresses, "cycles": cost.total, "degree": cost.degree})
    for op in dict.fromkeys(row["op"] for row in rows):
        (FOLDER / f"{op}.cubin").write_bytes(assemble(source_of(op), "sm_90a", op).cubin)
    (FOLDER / "accesses.json").write_text(json.dumps(rows, indent=1))
    print(f"{len(rows)} accesses")


# -- run --------------------------------------------------------------------------------------------------------------
def run(json_path: str | None) -> None:
    """Times every access five times; medians beside the model."""
    from gpu import Gpu

    gpu = Gpu()
    rows = json.loads((FOLDER / "accesses.json").read_text())
    functions = {
        op: gpu.kernel((FOLDER / f"{op}.cubin").read_bytes(), "access", SHARED_BYTES) for op in {r["op"] for r in rows}
    }
    cycles, sink = gpu.allocate(16), gpu.allocate(4 * 32 * WARPS)
    for row in rows:
        addresses = gpu.upload(np.array(row["addresses"], np.int32))
        args = [ctypes.c_void_p(addresses), ctypes.c_void_p(cycles), ctypes.c_void_p(sink)]
        launch = gpu.launcher(functions[row["op"]], 1, 32 * WARPS, SHARED_BYTES, args)
        seen: list[float] = []
        for _ in range(5):
            launch()
            gpu.synchronise()
            seen.append(float(gpu.download(cycles, np.zeros(2, np.int64))[1]) / (WARPS * STEPS * UNROLLED))
        row["measured"] = round(statistics.median(seen), 3)
        row["spread"] = round(max(seen) - min(seen), 3)
        row["agrees"] = abs(row["measured"] - row["cycles"]) <= 0.25 * row["cycles"]
        del row["addresses"]
    for row in rows:
        print(
            f"{row['name']:60} model {row['cycles']:3} measured {row['measured']:7.2f} {'' if row['agrees'] else '<--'}"
        )
    result = {
        "command": "python benchmarks/bank_conflicts.py run",
        "device": gpu.name(),
        "method": f"clock64 around {STEPS * UNROLLED} accesses of each of {WARPS} warps, median of 5, cycles each",
        "accesses": len(rows),
        "agree_within_25_percent": sum(row["agrees"] for row in rows),
        "rows": rows,
    }
    if json_path:
        Path(json_path).write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--json")
    args = parser.parse_args()
    build() if args.what == "build" else run(args.json)


if __name__ == "__main__":
    main()
