"""Products whose rows are no multiple of 16 bytes, against cuBLAS on the same tensors, on one GPU.

    python benchmarks/unaligned.py build
    python benchmarks/unaligned.py run --json benchmarks/results/unaligned.json

Every output and input lies between guards of NaNs, at an address that is a multiple of its element only; outputs are
poisoned, the guards checked, errors compared with float64 beside cuBLAS's own. Times: order rotated every round, L2
flushed before every launch, medians; the aligned copies that our programs make are part of theirs.
"""

# Dimension names are strings in annotations, which type checkers take for forward references.
# ruff: noqa: F821, UP037

from __future__ import annotations

import argparse
import itertools
import json
from typing import Any

from harness import Timer, document, load, parser, relative_error, store, write

EXTENTS = (1, 7, 63, 65, 127, 1000, 2880, 4099, 4100)
SPEED = (
    (4100, 4100, 4100, 2.0),
    (4099, 4097, 4101, 2.0),
    (1000, 2881, 2883, 0.0),
    (8004, 8004, 8004, 0.0),
    (64, 4100, 4100, 0.0),
    (16, 8196, 8196, 0.0),
    (64, 8198, 8198, 0.0),
    (4100, 4100, 68, 0.0),
    (512, 516, 516, 0.0),
    (127, 127, 1001, 0.0),
    (4104, 4104, 4104, 0.0),
)
"""M, N, K and the goal as a share of cuBLAS; the last one is aligned."""
GUARD = 1024
SHAPES = {"nt": ("mk", "nk"), "nn": ("mk", "kn"), "tn": ("km", "kn"), "tt": ("km", "nk")}
HOW = {"": None, "_staged": True, "_direct": False}
CHECKED = (
    ("nt", "bf16", "_staged", 2, EXTENTS[::2]),
    ("nt", "bf16", "_direct", 2, EXTENTS[::2]),
    ("nt", "bf16", "", 2, EXTENTS),
    ("nt", "f16", "_staged", 2, EXTENTS[::2]),
    ("nn", "bf16", "_staged", 2, EXTENTS[::2]),
    ("tn", "bf16", "_staged", 2, EXTENTS[::2]),
    ("tt", "bf16", "_staged", 2, EXTENTS[::2]),
    ("nt", "bf16", "_direct", 8, EXTENTS[::2]),
    ("nt", "bf16", "", 8, EXTENTS[1::2]),
    ("nn", "bf16", "_direct", 8, EXTENTS[::2]),
    ("tn", "f16", "_direct", 4, EXTENTS[::2]),
    ("tt", "bf16", "_direct", 4, EXTENTS[1::2]),
)
"""Operand order, dtype, how, what rows are multiples of in bytes (and of no more), the extents of M, N and K."""


def products() -> dict[str, Any]:
    """Kernels for both orders of each operand, by name."""
    import tilewright as tw

    def body(a: Any, b: Any, c: Any, bm: int, bn: int, order: str) -> None:
        left, right = SHAPES[order]
        m, n = tw.grid(c, (bm, bn))
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(a.shape[left.index("k")], 64):
            x = a[m, k] if left == "mk" else a[k, m].T
            acc += tw.dot(x, b[n, k].T if right == "nk" else b[k, n])
        c[m, n] = acc

    @tw.kernel
    def nt(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
        body(a, b, c, bm, bn, "nt")

    @tw.kernel
    def nn(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
        body(a, b, c, bm, bn, "nn")

    @tw.kernel
    def tn(a: tw.Tensor["K", "M"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
        body(a, b, c, bm, bn, "tn")

    @tw.kernel
    def tt(a: tw.Tensor["K", "M"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
        body(a, b, c, bm, bn, "tt")

    return {"nt": nt, "nn": nn, "tn": tn, "tt": tt}


def build(only: str) -> None:
    """One artifact for each operand order, dtype and pin, for tensors aligned to so many bytes."""
    from tilewright.base.dtypes import dtype_named
    from tilewright.compiler.requests import Observed, observe_facts
    from tilewright.jit import Kernel
    from tilewright.lang.schedule import Schedule

    kernels = products()
    wanted = {f"{order}_{dtype}{how}_{align}" for order, dtype, how, align, _ in CHECKED}
    wanted |= {f"nt_bf16{how}_{align}" for how in HOW for align in (2, 4, 8)} | {"nt_bf16_16"}
    for name in sorted(w for w in wanted if only in w):
        order, dtype, *pin, align = name.split("_")
        extent = {"2": 4099, "4": 4098, "8": 4100, "16": 4104}[align]
        kind = dtype_named(dtype)
        assert kind is not None
        facts = observe_facts({n: Observed(kind, int(align), (extent,) * 2, (extent, 1)) for n in "abc"})
        schedule = Schedule(staged=HOW[f"_{pin[0]}"]) if pin else Schedule()
        compile_ = Kernel(kernels[order]).compile
        options = {"dtypes": dict.fromkeys("abc", dtype), "facts": facts, "schedule": schedule}
        artifact, seconds = store(f"unaligned_{name}", compile_, **options)
        print(f"{name}: {seconds:.2f} s", *(f"{v.name}: {len(v.steps)} steps" for v in artifact.variants), flush=True)


class Operands:
    """a, b and c between guards, ``shift`` elements after an aligned address, rows apart by a multiple of ``unit``
    elements and of no more; what lies between rows is NaN."""

    def __init__(self, torch: Any, order: str, dtype: Any, m: int, n: int, k: int, shift: int, unit: int = 1) -> None:
        extents = {"m": m, "n": n, "k": k}
        self.torch, self.unit = torch, unit
        self.buffers: list[Any] = []
        self.a, self.b = (self._tensor(dtype, [extents[x] for x in axes], shift) for axes in SHAPES[order])
        self.c = self._tensor(dtype, [m, n], shift)
        self.a.copy_(torch.randn(self.a.shape, device="cuda"))
        self.b.copy_(torch.randn(self.b.shape, device="cuda"))
        self.left = self.a if SHAPES[order][0] == "mk" else self.a.t()
        self.right = self.b.t() if SHAPES[order][1] == "nk" else self.b

    def _tensor(self, dtype: Any, shape: list[int], shift: int) -> Any:
        pitch = -(-shape[1] // self.unit) * self.unit
        pitch += self.unit if self.unit > 1 and pitch % (2 * self.unit) == 0 else 0
        size = shape[0] * pitch
        buffer = self.torch.full((2 * GUARD + shift + size,), float("nan"), device="cuda", dtype=dtype)
        self.buffers.append((buffer, GUARD + shift, shape[0], pitch, shape[1]))
        return buffer[GUARD + shift : GUARD + shift + size].view(shape[0], pitch)[:, : shape[1]]

    def guards_hold(self) -> bool:
        """Nothing was written outside of the output."""
        buffer, first, rows, pitch, columns = self.buffers[2]
        end = first + rows * pitch
        between = buffer[first:end].view(rows, pitch)[:, columns:]
        return all(bool(part.isnan().all()) for part in (buffer[:first], between, buffer[end:]))


def check(torch: Any, order: str, dtype: str, how: str, align: int, extents: tuple[int, ...]) -> dict[str, Any]:
    """All shapes of one artifact: how many are right, and the worst error beside cuBLAS's."""
    program = load(f"unaligned_{order}_{dtype}{how}_{align}")
    kind = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    wrong: list[str] = []
    worst = worst_peer = 0.0
    count = 0
    for m, n, k in itertools.product(extents, repeat=3):
        unit = align // kind.itemsize
        x = Operands(torch, order, kind, m, n, k, shift=(m + n + k) % 8 * unit, unit=unit)
        program.launch((x.a, x.b, x.c))
        exact = x.left.double() @ x.right.double()
        scale = float(exact.abs().max())
        error = float((x.c.double() - exact).abs().max()) / scale
        peer = float(((x.left @ x.right).double() - exact).abs().max()) / scale
        count += 1
        if not (error <= 1.05 * peer + 1e-7 and x.guards_hold()):
            wrong.append(f"{m}x{n}x{k}: {error:.2e} / {peer:.2e}{'' if x.guards_hold() else ', guards written'}")
        worst, worst_peer = max(worst, error), max(worst_peer, peer)
    row = {"case": f"{order} {dtype}{how} {align} bytes", "shapes": count, "right": count - len(wrong), "error": worst}
    print(json.dumps({**row, "peer_error": worst_peer}), *wrong[:12], sep="\n    ", flush=True)
    return {**row, "peer_error": worst_peer, "wrong": wrong}


def speed(torch: Any, timer: Timer, m: int, n: int, k: int, goal: float) -> dict[str, Any]:
    """One shape: our programs and cuBLAS in one rotation."""
    align = min(16, 2 * (n & -n), 2 * (k & -k))
    x = Operands(torch, "nt", torch.bfloat16, m, n, k, shift=0)
    variants: dict[str, Any] = {}
    for how in HOW:
        if align == 16 and how:
            continue
        program = load(f"unaligned_nt_bf16{how}_{align}")
        variants[f"ours{how}"] = lambda p=program: p.launch((x.a, x.b, x.c))
    variants["cublas"] = lambda: torch.matmul(x.a, x.b.t())
    exact = x.a.double() @ x.b.double().t()
    errors: dict[str, float] = {}
    for name, launch in variants.items():
        x.c.fill_(float("nan"))
        y = launch()
        errors[name] = relative_error(x.c if y is None else y, exact)
    seconds = timer.medians(variants)
    flops = 2.0 * m * n * k
    row = {
        "case": f"matmul {m}x{n}x{k}",
        "align_bytes": align,
        "microseconds": {name: round(s * 1e6, 1) for name, s in seconds.items()},
        "tflops": {name: round(flops / s * 1e-12, 1) for name, s in seconds.items()},
        "of_peer": round(seconds["cublas"] / seconds["ours"], 3),
        "goal_of_peer": goal,
        "errors": errors,
    }
    print(row["case"], json.dumps(row["microseconds"]), json.dumps(row["tflops"]), row["of_peer"], flush=True)
    return row


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    torch.manual_seed(0)
    timer = Timer(torch, args.rounds)
    rows = [speed(torch, timer, *case) for case in SPEED]
    checks = [check(torch, *case) for case in CHECKED] if not args.fast else []
    write(document(torch, **timer.conditions(), rows=rows, checks=checks), args.json)


def main() -> None:
    arguments = parser(__doc__, "artifacts whose name contains this")
    arguments.add_argument("--fast", action="store_true", help="times only")
    args = arguments.parse_args()
    build(args.only) if args.what == "build" else run(args)


if __name__ == "__main__":
    main()
