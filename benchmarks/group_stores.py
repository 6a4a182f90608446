"""Four ways in which products of groups can store the last tile of a group, timed beside each other on one GPU.

    threads      every tile by rows, cut by the threads
    split        whole tiles by tensor copies, the last tile of a group by threads: what the compiler emits
    one map      every tile by tensor copies through one map for all groups, whose copies the hardware clips at the end
                 of their group (``legal.ragged``)
    patched map  every tile by tensor copies through a map in global memory, one for each warpgroup, whose extent its
                 leader replaces when its group changes (``tensormap.replace``, PTX ISA 9.7.9.27; fenced by
                 ``fence.proxy.tensormap``)

The ways differ from the compiler's text in the condition and the copies of the store, which ``build`` edits; nothing
else about the edited ones is proved. Every result is compared with the compiler's, bit for bit.

    python benchmarks/group_stores.py build
    python benchmarks/group_stores.py run --json benchmarks/results/group_stores.json
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from functools import partial
from typing import Any

import grouped
from harness import Timer, document, file_of, load, parser, store, write

WAYS = ("threads", "split", "one map", "patched map")
CASES = (
    *grouped.CASES,
    grouped.Case(8192, 64, 2048, 4096, skewed=True),
    grouped.Case(4096, 32, 2880, 2880, skewed=True),
    grouped.Case(8192, 61, 2048, 1024),
)

_WHOLE = re.compile(r"if \((\(\(\(int\).*) && \(\((b\d+) \+ \d+\) <= (min\(u_M, b\d+\))\)\)\) \{")
"""The test of an aligned tensor, and that of a tile which lies inside of its group."""
_COPY = re.compile(r"tma_store_2d\(&(v_c_map\d+), (.*), (\(.*?\)|\w+), (\(.*\)|b\d+)\);")
_MAP_4D = """
__device__ __forceinline__ void tma_store_4d(const TensorMap* map, unsigned from, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
    :: "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(from) : "memory");
}
"""
_PATCH = """
__device__ __align__(128) TensorMap patched_maps[2 * 264];

__device__ __forceinline__ const TensorMap* patched_map(const TensorMap* map, int slot, int rows, int& patched) {
  TensorMap* const mine = patched_maps + slot;
  if (rows != patched) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    if (patched < 0) for (int i = 0; i < 8; ++i) ((uint4*)mine)[i] = ((const uint4*)map)[i];
    asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 1, %1;" :: "l"(mine), "r"(rows) : "memory");
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(mine) : "memory");
    patched = rows;
  }
  return mine;
}
"""


# -- text -------------------------------------------------------------------------------------------------------------
def edited(source: str, way: str) -> str:
    """The kernel's text with its result stored in one of the ways; the same where it has no tensor copies."""
    found = _WHOLE.search(source)
    if found is None:
        return source
    end, inside = found.group(3), source.index('extern "C" __global__')
    if way == "threads":
        return _WHOLE.sub("if (false) {", source)
    if way == "split":
        return _WHOLE.sub(lambda m: f"if (({m.group(2)} + {_rows(m)}) <= {m.group(3)}) {{", source)
    text = _WHOLE.sub("if (true) {", source)
    if way == "one map":
        copy = rf"tma_store_4d(&\1, \2, \3, \4 + (1 << 30) - {end}, {end}, 1 << 30);"
        return text[:inside] + _MAP_4D + _COPY.sub(copy, text[inside:])
    slot = "blockIdx.x * 2 + warpgroup" if "warpgroup" in source[found.start() : found.start() + 2000] else "blockIdx.x"
    copy = rf"if (\4 < {end}) tma_store_2d(patched_map(&\1, {slot}, {end}, patched), \2, \3, \4);"
    text = text[:inside] + _PATCH + _COPY.sub(copy, text[inside:])
    return text.replace("  const int tid = threadIdx.x;", "  const int tid = threadIdx.x;\n  int patched = -1;", 1)


def _rows(whole: re.Match[str]) -> str:
    found = re.search(r" \+ (\d+)\) <= ", whole.group(0))
    assert found is not None
    return found.group(1)


def build() -> None:
    """The compiler's artifact, and one for each way."""
    import grouped_matmul

    from tilewright.artifact.bundle import to_bytes
    from tilewright.artifact.disassemble import code_bytes
    from tilewright.codegen.assemble import assemble

    dtypes = {"offsets": "i32", "a": "bf16", "b": "bf16", "c": "bf16"}
    made, _ = store("group_stores", grouped_matmul.grouped_matmul.compile, dtypes=dtypes)
    for way in WAYS:
        kernels = []
        for kernel in made.kernels:
            text = edited(kernel.source, way)
            code = assemble(text, "sm_90a", kernel.symbol)
            assert not code.spill_bytes, (way, kernel.symbol, code.log)
            kernels.append(replace(kernel, source=text, ptx=code.ptx, cubin=code.cubin, registers=code.registers))
        ours = replace(made, kernels=tuple(kernels))
        if way == "one map":
            ours = replace(ours, variants=tuple(_clipped(v) for v in made.variants))
        file_of(f"group_stores_{way.replace(' ', '_')}").write_bytes(to_bytes(ours))
        print(way, {k.symbol: (k.registers, code_bytes(k.cubin)) for k in kernels}, flush=True)


def _clipped(variant: Any) -> Any:
    """The variant with the map of the result, the last of its kernel's, as ``legal.ragged`` makes it."""
    from tilewright.artifact.schema import EncodeTensorMap
    from tilewright.base.expr import Const
    from tilewright.legal.ragged import BOUND, LARGE, WRAP

    encodes = [s for s in variant.steps if isinstance(s, EncodeTensorMap)]
    if len(encodes) < 3:
        return variant
    last = encodes[-1]
    plain = last.recipe
    step = plain.strides_bytes[0]
    clipped = replace(
        plain,
        dims=(plain.dims[0], Const(BOUND), Const(LARGE), Const(LARGE)),
        strides_bytes=(step, step, Const(2 * WRAP) - step),
        box=(*plain.box, 1, 1),
        element_strides=(1, 1, 1, 1),
    )
    ours = replace(last, recipe=clipped)
    return replace(variant, steps=tuple(ours if s is last else s for s in variant.steps))


# -- times ------------------------------------------------------------------------------------------------------------
def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    from tilewright.artifact.disassemble import code_bytes

    ways = [way for way in WAYS if args.way in way]
    programs = {way: load(f"group_stores_{way.replace(' ', '_')}") for way in ways}
    compiled = load("group_stores")
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in (c for c in CASES if args.only in str(c)):
        torch.manual_seed(0)
        offsets = torch.tensor(case.offsets(), dtype=torch.int32, device="cuda")
        a = torch.randn(case.rows, case.k, device="cuda").bfloat16()
        b = torch.randn(case.groups, case.n, case.k, device="cuda").bfloat16()
        c = torch.full((case.rows, case.n), float("nan"), device="cuda", dtype=torch.bfloat16)
        given = (offsets, a, b, c)
        compiled.launch(given)
        expected, equal = c.clone(), {}
        for way, program in programs.items():
            c.fill_(float("nan"))
            program.launch(given)
            torch.cuda.synchronize()
            equal[way] = bool(torch.equal(c, expected))
        seconds = timer.medians({way: partial(program.launch, given) for way, program in programs.items()})
        row = {
            "case": str(case),
            "microseconds": {way: round(s * 1e6, 2) for way, s in seconds.items()},
            "equal_bits": equal,
        }
        rows.append(row)
        print(str(case), json.dumps(row["microseconds"]), equal, flush=True)
        del a, b, c, given, expected
        torch.cuda.empty_cache()
    code = {way: sum(code_bytes(k.cubin) for k in program.artifact.kernels) for way, program in programs.items()}
    write(document(torch, **timer.conditions(), code_bytes=code, rows=rows), args.json)


if __name__ == "__main__":
    options = parser(__doc__, "cases whose names contain this")
    options.add_argument("--way", default="", help="ways whose names contain this")
    given = options.parse_args()
    build() if given.what == "build" else run(given)
