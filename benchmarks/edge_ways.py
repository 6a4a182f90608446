"""RMS norms and transpositions of rows at any address: ways that the compiler does not have, beside its own.

    python benchmarks/edge_ways.py build
    python benchmarks/edge_ways.py run --json benchmarks/results/edge_ways.json

Norms lay vectors from the 16-byte boundary before each row, as the compiler does where all large operands are rows; the
ways differ in how weights come beside them, and in who holds a row (``edge_ways.cu``):

    elements      a CTA a row, weights element by element, by hand
    skewed        the compiler's kernel, whose weights need not lie as its rows do: by elements
    funnel        two vectors of weights, shifted (``__funnelshift_r``); 128, 192 or 288 threads
    warps         a warp a row, weights in shared memory, CTAs that stay
    ring          rows by bulk copies into a ring of four, results by bulk copies from it; 192 or 288 threads

Transpositions read rows at odd addresses and write aligned ones:

    @bm=, @bn=    the compiler's, other tiles
    two vectors   the compiler's text for aligned rows, each vector of it made of two, shifted
    bulk, async, vectors   pieces from the boundary before each row of a tile into shared memory, by a bulk copy a
                  row, by cp.async or through registers; elements are picked from there. 128 or 64 columns a tile

Nothing about these ways is proved. All results are compared with float64, outputs poisoned first; vectors at a row's
ends read up to 14 bytes of its neighbours, or of what lies behind the tensor.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import gcd
from pathlib import Path
from typing import Any

import interior
import padding
from harness import ARTIFACTS, Timer, document, load, parser, store, write

from gpu import Gpu

WIDTHS = (4001, 4099, 4002, 4102, 4100, 4096, 4224)
TILES = ((64, 64), (64, 128), (128, 64), (256, 64), (64, 256), (256, 128))
"""bm and bn of the compiler's kernel: of x, rows and columns."""
TEXT = Path(__file__).with_suffix(".cu")
_ROW_BYTES, _RING = 2 * (4224 + 16), 4
_MOST_CTAS = 132
_LOAD = re.compile(r"(= u_x \+|= base8_x \+)(.*\n\s*const uint4 word = )\*reinterpret_cast<const uint4\*>\(at\)")
_ANY = """
__device__ __forceinline__ uint4 load_any(const unsigned short* at) {
  const unsigned long long place = (unsigned long long)at;
  const uint4* from = (const uint4*)(place & ~15ull);
  const int by = (int)(place & 15) / 2;
  const uint4 a = from[0];
  return funnel(a, by ? from[1] : a, by);
}
"""


@dataclass(frozen=True)
class Way:
    """An entry of the text, its threads and dynamic shared memory; CTAs for M rows and N columns."""

    entry: str
    threads: int
    ctas: Callable[[int, int], int]
    shared: int = 0


def _tiles(bn: int, m: int, n: int) -> int:
    return -(-m // 128) * -(-n // bn)


NORMS = {
    "elements": Way("norm_elements", 128, lambda m, n: m),
    "funnel": Way("norm_funnel", 128, lambda m, n: m),
    "funnel 192": Way("norm_funnel_192", 192, lambda m, n: m),
    "funnel 288": Way("norm_funnel_288", 288, lambda m, n: m),
    "warps": Way("norm_warps", 256, lambda m, n: 2 * _MOST_CTAS),
    "ring 192": Way("norm_ring_192", 192, lambda m, n: 4 * _MOST_CTAS, _RING * _ROW_BYTES),
    "ring 288": Way("norm_ring_288", 288, lambda m, n: 4 * _MOST_CTAS, _RING * _ROW_BYTES),
}
TURNED = {
    f"{how} {bn}": Way(
        f"turned_{how}" + ("" if bn == 128 else f"_{bn}"), 256, lambda m, n, bn=bn: _tiles(bn, m, n),
        128 * (bn // 8 + 1) * 16 + 256,
    )
    for how in ("bulk", "async", "vectors") for bn in (128, 64)
}  # fmt: skip


def build(only: str) -> None:
    """The text, the edited one, and the compiler's kernels with other tiles."""
    from tilewright.codegen.assemble import compile_text
    from tilewright.lang.schedule import Schedule

    text = TEXT.read_text()
    ARTIFACTS.mkdir(exist_ok=True)
    _, cubin, log = compile_text(text, "sm_90a", "edge_ways")
    (ARTIFACTS / "edge_ways.cubin").write_bytes(cubin)
    print(*(x.strip() for x in log.splitlines() if "entry" in x or "spill" in x or "Used" in x), sep="\n")
    turned = next(case for case in padding.CASES if case.name == "transpose")
    kernel, options = padding.compilation(turned, 16)
    source = kernel.compile(**options).kernels[0].source
    edited, count = _LOAD.subn(r"\1\2load_any(at)", source)
    assert count == 2
    begin = text.index("// Eight elements")
    edited = text[begin : text.index("__device__", begin + 80) - 0].rstrip() + "\n" + _ANY + edited
    (ARTIFACTS / "edge_ways_two_vectors.cubin").write_bytes(compile_text(edited, "sm_90a", "two_vectors")[1])
    if only in "edge_ways_skewed":
        build_skewed()
    for align in padding.ALIGNMENTS:
        for bm, bn in TILES:
            name = f"edge_ways_{align}_{bm}x{bn}"
            if only in name:
                kernel, options = padding.compilation(turned, align)
                try:
                    schedule = Schedule(extents={"bm": bm, "bn": bn})
                    _, seconds = store(name, kernel.compile, schedule=schedule, **options)
                    print(f"{name}: {seconds:.1f} s", flush=True)
                except Exception as error:
                    print(f"{name}: {str(error)[:200]}", flush=True)


def build_skewed() -> None:
    """The compiler's norms where only accesses that move with the program have to lie alike from boundaries."""
    from tilewright.lang.axes import Span
    from tilewright.schedule import placement
    from tilewright.tile.queries import coords_of

    def moves(op: Any) -> bool:
        origins = (c.origin if isinstance(c, Span) else c for c in coords_of(op))
        return any(name.startswith("$p") for origin in origins for name in origin.symbols)

    norm, chosen = next(case for case in padding.CASES if case.name == "rms_norm"), placement._skew
    placement._skew = lambda accesses, *given: chosen([a for a in accesses if moves(a.op)], *given)  # type: ignore
    for align in padding.ALIGNMENTS[1:]:
        kernel, options = padding.compilation(norm, align)
        _, seconds = store(f"edge_ways_skewed_{align}", partial(interior.anew, kernel), **options)
        print(f"edge_ways_skewed_{align}: {seconds:.1f} s", flush=True)
    placement._skew = chosen


def variants_of(gpu: Gpu, case: padding.Case, tensors: dict[str, Any], n: int) -> dict[str, Callable[[], object]]:
    """Every way of one case at one width."""
    align, m = gcd(16, 2 * n), padding.ROWS
    values = {**tensors, **dict(case.scalars)}
    found: dict[str, Callable[[], object]] = {}
    turned = case.name == "transpose"
    names = {"compiler": f"padding_{case.name}_{align}"}
    names |= {"skewed": f"edge_ways_skewed_{align}"} if not turned else {}
    names |= {f"@bm={bm}, @bn={bn}": f"edge_ways_{align}_{bm}x{bn}" for bm, bn in TILES if turned}
    for name, label in names.items():
        program = load(label)
        if program is not None:
            given = tuple(values[p.name] for p in program.artifact.parameters)
            found[name] = lambda p=program, g=given: p.launch(g)
    cubin = (ARTIFACTS / "edge_ways.cubin").read_bytes()
    places = [ctypes.c_uint64(t.data_ptr()) for t in tensors.values()]
    extents = [ctypes.c_int(m), ctypes.c_int(n)]
    scalars = [ctypes.c_float(v) for _, v in case.scalars]
    for name, way in (TURNED if turned else NORMS).items():
        function = gpu.kernel(cubin, way.entry, way.shared)
        grid = way.ctas(m, n)
        found[name] = gpu.launcher(function, grid, way.threads, way.shared, [*places, *scalars, *extents])
    if turned:
        function = gpu.kernel((ARTIFACTS / "edge_ways_two_vectors.cubin").read_bytes(), "kernel_transpose")
        strides = [ctypes.c_int(n), ctypes.c_int(m)]
        found["two vectors"] = gpu.launcher(function, _tiles(128, m, n), 256, 0, [*places, *extents, *strides])
    return found


def run(args: argparse.Namespace) -> None:
    """Check and time every way at every width; write JSON."""
    import torch

    torch.zeros(1, device="cuda")
    gpu, timer, rows = Gpu(), Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in padding.CASES:
        if case.name not in ("rms_norm", "transpose") or args.only not in case.name:
            continue
        x = padding.Operands(torch, case)
        for n in WIDTHS:
            tensors, wrong = x.at(n), dict[str, str]()
            variants = variants_of(gpu, case, tensors, n)
            for name in list(variants):
                error = x.check(torch, n, variants[name])
                if not error <= padding.WORST_ERROR:
                    wrong[name] = f"{error:.1e}"
                    del variants[name]
            size = sum(t.numel() * t.element_size() for t in tensors.values())
            a, b = x.source[: size // 2], x.copied[: size // 2]
            seconds = timer.medians({**variants, "copy": lambda a=a, b=b: b.copy_(a)})
            row: dict[str, Any] = {"kernel": case.name, "n": n, "align_bytes": gcd(16, 2 * n), "bytes": size}
            row["microseconds"] = {name: round(s * 1e6, 2) for name, s in seconds.items()}
            rows.append({**row, **({"wrong": wrong} if wrong else {})})
            print(case.name, n, json.dumps(row["microseconds"]), f"wrong: {wrong}" if wrong else "", flush=True)
        del x
        torch.cuda.empty_cache()
        write(document(torch, **timer.conditions(), matrix_rows=padding.ROWS, rows=rows), args.json, row_lines=True)


if __name__ == "__main__":
    given = parser(__doc__, "kernels whose names contain this").parse_args()
    build(given.only) if given.what == "build" else run(given)
