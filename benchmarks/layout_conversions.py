"""Random pairs of register layouts converted on a GPU, every byte compared.

The kernels are emitted as the compiler emits them (layout.conversion, schedule.layout_conversions, codegen), assembled
where the compiler is, and run where the GPU is with numpy and cuda-bindings alone:

    python benchmarks/layout_conversions.py build [--pairs 200] [--seed 1]
    python benchmarks/layout_conversions.py run --json benchmarks/results/layout_conversions.json

Thread t loads register r of the source from x[t, r] and stores register r of the target to y[t, r]. Which element that
is comes from an enumeration of the layouts' digits in this file, not from the layout room; outputs are poisoned, and
elements are random bits.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parent
FOLDER = ROOT / "artifacts" / "layout_conversions"
sys.path.insert(0, str(ROOT.parent / "src"))

EXTENTS = (24, 80, 160, 176, 192, 208, 248, 16, 32, 64, 128, 256)
TYPES = {1: "i8", 2: "bf16", 4: "f32"}
STATIC_LIMIT = 48 << 10
"""Static shared memory of a CTA; larger buffers are dynamic."""


# -- build ------------------------------------------------------------------------------------------------------------
def enumerated(layout: Any) -> NDArray[np.int32]:
    """The element number (row-major in the tile) of every thread and register, digit by digit."""
    bases = [b for _, axis in layout.atom.bases for b in axis]
    register_bits = len(layout.atom.bases[0][1])
    table = np.zeros((layout.threads, layout.registers), np.int32)
    for thread in range(layout.threads):
        for register in range(layout.registers):
            word = register % (1 << register_bits) | thread << register_bits
            at = [0] * len(layout.shape)
            for bit, basis in enumerate(bases):
                if word >> bit & 1:
                    at = [x ^ b for x, b in zip(at, basis, strict=True)]
            rest = register >> register_bits
            for repeat in layout.repeats:
                at[repeat.dim] += rest % repeat.count * repeat.stride
                rest //= repeat.count
            table[thread, register] = np.ravel_multi_index(tuple(at), layout.shape)
    return table


def candidates(rng: random.Random) -> tuple[Any, Any, int] | None:
    """A random pair over one tile, and the bytes of an element."""
    from tilewright.layout.library import fragments
    from tilewright.layout.register import RegisterLayout

    size, n = rng.choice((1, 2, 4)), rng.choice(EXTENTS)
    warps = rng.choice((0, 2, 2, 2, 3))

    def deal(bits: int, rank: int) -> tuple[int, ...]:
        share = [0] * rank
        for _ in range(bits):
            share[rng.randrange(rank)] += 1
        return tuple(1 << b for b in share)

    def blocked(shape: tuple[int, ...]) -> Any:
        rank = len(shape)
        return RegisterLayout.blocked(
            shape,
            vector=deal(rng.randrange(5), rank),
            lanes=deal(5, rank),
            warps=deal(warps, rank),
            order=rng.sample(range(rank), rank),
        )

    def rows(shape: tuple[int, ...]) -> Any:
        """Whole rows in few lanes, as rows are loaded."""
        lanes = 1 << rng.randrange(6)
        vector = (*(1 for _ in shape[1:]), max(1, 16 // size))
        return RegisterLayout.blocked(
            shape,
            vector=vector,
            lanes=(32 // lanes, *(1 for _ in shape[2:]), lanes),
            warps=(1 << warps, *(1 for _ in shape[1:])),
            order=list(reversed(range(len(shape)))),
        )

    m = {0: 16 * rng.choice((1, 2, 4)), 2: 64 * rng.choice((1, 2)), 3: 128}[warps]
    groups = 2 if warps == 3 else 1
    wide: list[Callable[[], Any]] = {
        0: [
            lambda: fragments.mma_accumulator(m, n),
            lambda: fragments.mma_operand_a(m, n),
            lambda: fragments.mma_operand_b(m, n),
            lambda: fragments.ldmatrix(m, n),
            lambda: fragments.ldmatrix(m, n, trans=True),
        ],
        2: [lambda: fragments.wgmma_accumulator(m, n), lambda: fragments.wgmma_operand_a(m, n, 8 * size)],
        3: [
            lambda: fragments.wgmma_accumulator(m, n, warpgroups=groups),
            lambda: fragments.wgmma_operand_a(m, n, 8 * size, warpgroups=groups),
        ],
    }[warps]
    shape: tuple[int, ...] = (m, n)
    kind = rng.random()
    if kind < 0.1:
        shape = (m,)
        choices = [
            lambda: (
                fragments.wgmma_accumulator(m, 16, warpgroups=groups).slice(1)
                if warps >= 2
                else fragments.mma_accumulator(m, 16).slice(1)
            ),
            lambda: blocked(shape),
        ]
    elif kind < 0.2:
        shape = (4, m // 4, n)
        choices = [lambda: blocked(shape), lambda: rows(shape)]
    else:
        choices = [*wide, lambda: blocked(shape), lambda: blocked(shape), lambda: rows(shape)]
    made = [rng.choice(choices)() for _ in range(2)]
    source, target = made
    fits = source.shape == target.shape == shape and source.threads == target.threads
    if not fits or max(source.registers, target.registers) * size > 4 * 160:
        return None
    return source, target, size


def kernel_of(source: Any, target: Any, size: int, plan: Any, dynamic: bool) -> Any:
    """The transport kernel of one conversion."""
    from xdsl.ir import Operation, SSAValue

    from tilewright.base.dtypes import DTYPES
    from tilewright.base.expr import TRUE, Const, sym
    from tilewright.hw.target import SM90A
    from tilewright.schedule.layout_conversions import ConversionContext, convert
    from tilewright.tile.attributes import TensorType
    from tilewright.transport import dialect as t

    dtype = DTYPES[TYPES[size]]
    types = [
        TensorType.of(dtype, [Const(source.threads * layout.registers)], name)
        for name, layout in (("x", source), ("y", target))
    ]
    kernel = t.Kernel(
        "convert",
        ["x", "y"],
        types,
        target=SM90A,
        threads=source.threads,
        min_ctas=1,
        index_bits=32,
        numerics="strict",
        assumptions=[sym("x.stride0").eq(1), sym("y.stride0").eq(1)],
    )
    body: list[Operation] = []

    def registers(count: int) -> SSAValue:
        op = t.Registers("held", dtype, count)
        body.append(op)
        return op.buffer

    def shared(count: int) -> SSAValue:
        op = t.Shared("tile", dtype, count, 0 if dynamic else None)
        body.insert(0, op)
        return op.buffer

    x, y = kernel.body.block.args
    tid, r = sym(t.THREAD), sym(t.REGISTER)
    held = registers(source.registers)
    body.append(t.Load(x, held, [tid * source.registers + r], TRUE))
    moved = convert(plan, held, target.registers, dtype, ConversionContext(body.append, registers, shared))
    body.append(t.Store(y, moved, [tid * target.registers + r], TRUE))
    kernel.body.block.add_ops(body)
    if dynamic:
        from xdsl.dialects.builtin import IntAttr

        kernel.attributes["shared_bytes"] = IntAttr(plan.cost.shared_bytes + 1024)
    return kernel


def build(pairs: int, seed: int) -> None:
    """Plan, emit and assemble; tables of elements beside the cubins."""
    from tilewright.codegen.assemble import assemble
    from tilewright.codegen.cuda import emit_kernel
    from tilewright.diag import TilewrightError
    from tilewright.layout.conversion import conversion_plan
    from tilewright.layout.conversion_plan import PlanKind, SharedPlan

    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    least = {PlanKind.SHUFFLE: pairs // 4, PlanKind.MATRIX: pairs // 4, PlanKind.SHARED: pairs // 4}
    kinds: Counter[PlanKind] = Counter()
    rows: list[dict[str, Any]] = []
    tables: dict[str, NDArray[np.int32]] = {}
    while len(rows) < pairs:
        try:
            pair = candidates(rng)
            if pair is None:
                continue
            source, target, size = pair
            plan = conversion_plan(source, target, size, shared=rng.random() < 0.7)
        except TilewrightError:
            continue
        open_places = pairs - len(rows) - sum(max(0, n - kinds[k]) for k, n in least.items())
        if open_places <= 0 and kinds[plan.kind] >= least.get(plan.kind, 0):
            continue
        if plan.kind is PlanKind.NOTHING and kinds[plan.kind] >= pairs // 20:
            continue
        kinds[plan.kind] += 1
        dynamic = plan.cost.shared_bytes > STATIC_LIMIT or (plan.cost.shared_bytes > 0 and rng.random() < 0.5)
        emitted = emit_kernel(kernel_of(source, target, size, plan, dynamic))
        assembled = assemble(emitted.source, "sm_90a", emitted.entry)
        number = len(rows)
        (FOLDER / f"{number}.cubin").write_bytes(assembled.cubin)
        (FOLDER / f"{number}.cu").write_text(emitted.source)
        tables[f"{number}.source"], tables[f"{number}.target"] = enumerated(source), enumerated(target)
        degrees = [plan.steps.store.degree, plan.steps.load.degree] if isinstance(plan.steps, SharedPlan) else []
        row = {
            "shape": list(source.shape),
            "threads": source.threads,
            "element_bytes": size,
            "kind": plan.kind.value,
            "plan": str(plan),
            "entry": emitted.entry,
            "parameters": [p.symbol for p in emitted.parameters],
            "dynamic_bytes": plan.cost.shared_bytes + 1024 if dynamic else 0,
            "degrees": degrees,
            "registers": [source.registers, target.registers],
            "used": assembled.registers,
            "spilled": assembled.spill_bytes,
        }
        rows.append(row)
    np.savez_compressed(FOLDER / "tables.npz", **tables)
    (FOLDER / "pairs.json").write_text(json.dumps({"seed": seed, "pairs": rows}, indent=1))
    print(", ".join(f"{count} {kind.value}" for kind, count in kinds.items()))


# -- run --------------------------------------------------------------------------------------------------------------
def run(json_path: str | None) -> None:
    """Every pair twice, on different bits; the count of pairs with a wrong byte."""
    from gpu import Gpu

    gpu = Gpu()
    recorded = json.loads((FOLDER / "pairs.json").read_text())
    tables = np.load(FOLDER / "tables.npz")
    rng = np.random.default_rng(recorded["seed"])
    wrong: list[int] = []
    for number, row in enumerate(recorded["pairs"]):
        source, target = tables[f"{number}.source"], tables[f"{number}.target"]
        function = gpu.kernel((FOLDER / f"{number}.cubin").read_bytes(), row["entry"], row["dynamic_bytes"])
        kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[row["element_bytes"]]
        right = True
        for _ in range(2):
            bits = rng.integers(0, np.iinfo(kind).max, int(source.max()) + 1, dtype=kind, endpoint=True)
            x, y = gpu.upload(bits[source]), gpu.allocate(target.size * row["element_bytes"])
            gpu.fill(y, 0xA5, target.size * row["element_bytes"])
            args = [ctypes.c_void_p({"x": x, "y": y}[p]) for p in row["parameters"]]
            gpu.launcher(function, 1, row["threads"], row["dynamic_bytes"], args)()
            gpu.synchronise()
            right &= bool((gpu.download(y, np.empty(target.shape, kind)) == bits[target]).all())
            gpu.free(x, y)
        if not right:
            wrong.append(number)
            print(f"wrong: {number} {row['plan']}")
    kinds = Counter(row["kind"] for row in recorded["pairs"])
    extents = sorted({n for row in recorded["pairs"] for n in row["shape"]})
    result = {
        "command": "python benchmarks/layout_conversions.py run",
        "device": gpu.name(),
        "seed": recorded["seed"],
        "pairs": len(recorded["pairs"]),
        "wrong": wrong,
        "kinds": dict(kinds),
        "extents": extents,
        "element_bytes": dict(Counter(row["element_bytes"] for row in recorded["pairs"])),
        "not_powers_of_two": sum(any(n & (n - 1) for n in row["shape"]) for row in recorded["pairs"]),
    }
    print(json.dumps(result, indent=1))
    if json_path:
        Path(json_path).write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    build(args.pairs, args.seed) if args.what == "build" else run(args.json)


if __name__ == "__main__":
    main()
