"""The schedule that is chosen for a product, beside others of our own and cuBLAS, on one GPU.

    python benchmarks/product_choices.py build --jobs 16
    python benchmarks/product_choices.py run --json benchmarks/results/product_choices.json

C = A B^T in bf16. Each way to schedule is an artifact of one variant that serves all shapes; the family's artifact
chooses by itself. For each shape those ways are timed that might be among the best by a rough estimate. The regret is
the time of what was chosen over that of the best. L2 flushed, order rotated, medians; errors against float64.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil, exp, log
from statistics import median
from typing import Any
from unittest.mock import patch

from harness import Timer, document, file_of, load, parser, relative_error, write

FAMILY = "product_choices"
FITTED = 20
SMS, CLUSTERED_SMS = 132, 120
TABLE = (
    (1, 8192, 8192), (16, 8192, 8192), (32, 8192, 8192), (64, 2048, 4096), (64, 4096, 4096), (64, 8192, 8192),
    (128, 128, 65536), (128, 1024, 8192), (128, 2048, 2048), (128, 4096, 4096), (128, 8192, 8192),
    (256, 256, 2048), (256, 1024, 4096), (256, 4096, 11008), (300, 5000, 5000), (384, 384, 4096),
    (512, 512, 2048), (512, 512, 4096), (512, 512, 16384), (512, 768, 4096), (512, 4096, 4096), (1000, 2880, 2880),
    (1024, 1024, 1024), (1024, 1024, 4096), (1536, 8960, 1536), (2048, 2048, 2048), (2048, 5120, 5120),
    (3000, 7000, 2504), (4096, 4096, 4096), (4096, 4096, 14336), (4096, 14336, 4096), (4864, 896, 896),
    (5000, 5000, 5000), (6144, 6144, 6144), (8000, 8000, 8000), (8192, 8192, 128), (8192, 8192, 8192),
    (12288, 4096, 4096), (16384, 16384, 1024),
)  # fmt: skip
"""M, N, K that are always timed."""


@dataclass(frozen=True)
class Way:
    """A tile of ``rows`` x ``columns`` and how it is computed: warpgroups in ``turns``, a ``cluster`` that shares what
    it reads, ``parts`` of K that a cluster adds or (``kernels``) a second kernel, operands ``swapped``."""

    rows: int
    columns: int
    turns: bool = False
    cluster: tuple[int, int] = (1, 1)
    parts: int = 1
    kernels: bool = False
    swapped: bool = False

    def __str__(self) -> str:
        text = f"{self.rows}x{self.columns}"
        text += " in turns" * self.turns + " swapped" * self.swapped + " in two kernels" * self.kernels
        text += f" in {self.parts} parts" if self.parts > 1 else ""
        return text + (f" by {self.cluster[0]}x{self.cluster[1]}" if self.cluster != (1, 1) else "")

    @property
    def artifact(self) -> str:
        """Its name."""
        return f"{FAMILY}_{self}".replace(" ", "_")

    def variant(self, trace: Any, target: Any) -> Any:
        """The only variant of an artifact."""
        from tilewright.base.expr import TRUE, maximum, minimum
        from tilewright.schedule.hopper.candidates import Candidate
        from tilewright.schedule.hopper.product_variant import ProductVariant
        from tilewright.schedule.hopper.split_extents import STEPS
        from tilewright.schedule.split_k import split

        extents = {"bm": self.rows, "bn": self.columns}
        if self.parts > 1:
            cluster = Candidate(self.warpgroups, matrix_stores=False, cluster=(1, self.parts))
            return ProductVariant(TRUE, (extents,), (cluster,), narrow={**extents, "bn": self.columns // self.parts})
        parts = None
        if self.kernels:
            found = split(trace(extents), many=True)
            each = target.sm_count // maximum(found.programs, 1)
            parts = minimum(maximum(each, 1), maximum(found.stream.trip.expr // STEPS, 1))
        candidate = Candidate(self.warpgroups, 2 if self.turns else 1, cluster=self.cluster, whole_stores=True)
        return ProductVariant(TRUE, (extents,), (candidate,), parts=parts, many=self.kernels, swapped=self.swapped)

    @property
    def warpgroups(self) -> int:
        """Those that share a tile."""
        height = self.columns if self.swapped else self.rows
        return 1 if self.turns else 3 if height == 192 else min(2, max(1, height // 64))

    def estimate(self, m: int, n: int, k: int) -> float | None:
        """Microseconds, to leave out what is far off; None where there are no parts, or no room for them."""
        rows, columns = (
            ceil(ceil(x / y) / c) * c
            for x, y, c in ((m, self.rows, self.cluster[0]), (n, self.columns, self.cluster[1]))
        )
        steps = ceil(k / 64)
        parts = self.parts
        if self.kernels:
            parts = min(SMS // (rows * columns), steps // 16)
            if parts < 2:
                return None
        waves = ceil(rows * columns * parts / (CLUSTERED_SMS if parts > 2 else SMS))
        if self.parts > 1 and waves > 1:
            return None
        sides = (self.rows + self.columns) * (1.0 if self.cluster == (1, 1) else 0.8)
        step = max(sides / 609, self.rows * self.columns / 53_000) + 0.013
        return waves * ceil(steps / parts) * step + 4 + 6 * self.kernels + 2 * (self.parts > 1)


WAYS = (
    *(Way(128, n) for n in (64, 128, 192, 256)),
    *(Way(64, n) for n in (64, 128, 256)),
    *(Way(128, n, turns=True) for n in (128, 160, 192, 208)),
    *(Way(128, n, turns=True, cluster=(2, 1)) for n in (160, 192, 208)),
    *(Way(128, n, cluster=(2, 1)) for n in (128, 160, 192, 224, 256)),
    *(Way(128, n, cluster=(1, 2)) for n in (128, 192)),
    *(Way(m, 128, cluster=(1, 4)) for m in (64, 128)),
    Way(128, 128, cluster=(2, 2)),
    Way(128, 128, cluster=(4, 1)),
    Way(256, 128),
    Way(192, 128),
    Way(192, 128, cluster=(1, 2)),
    Way(192, 160),
    Way(192, 192),
    Way(64, 128, cluster=(4, 1)),
    *(Way(m, n, swapped=True) for m, n in ((16, 64), (32, 64), (128, 64), (104, 128), (152, 128))),
    *(Way(m, 128, swapped=True, cluster=(2, 1)) for m in (112, 160)),
    *(Way(m, 128, swapped=True, cluster=(1, 2)) for m in (80, 112)),
    *(Way(64, n, parts=parts) for n in (64, 96, 128) for parts in (2, 4)),
    *(Way(128, 128, parts=parts) for parts in (2, 4)),
    Way(64, 64, kernels=True),
    Way(128, 128, kernels=True),
)
MOST, WITHIN = 16, 1.6
"""Ways that are timed for a shape, and how much longer than the best they may take by the estimate."""


MOST_EXACT, ROUNDING = 2**26, 4e-3
"""Elements of a result that is compared with float64; a larger one with cuBLAS's, from which it may differ by the
rounding of its elements."""


def shapes(count: int, seed: int) -> Iterator[tuple[int, int, int]]:
    """Those of the table, and as many drawn ones; with another seed than that of the shapes that prices were fitted to,
    drawn ones alone."""
    if seed == FITTED:
        yield from TABLE
    rng = random.Random(seed)
    for _ in range(count):
        m, n, k = (int(2 ** rng.uniform(*bounds)) for bounds in ((0, 12.5), (7, 13.3), (7, 13.5)))
        unit = 64 if rng.random() < 0.7 else 8
        yield max(m // unit * unit, 1 + m % 8), n // unit * unit, k // unit * unit


def likely(m: int, n: int, k: int) -> list[Way]:
    """Ways that may be the best."""
    times = {way: time for way in WAYS if (time := way.estimate(m, n, k)) is not None}
    best = min(times.values())
    return sorted((way for way, time in times.items() if time <= WITHIN * best), key=lambda way: times[way])[:MOST]


def compiled(way: Way | None) -> str:
    """Compiles one way, or the family, in a process of its own; what came of it."""
    import matmul

    import tilewright as tw
    from tilewright.artifact.bundle import to_bytes
    from tilewright.compiler import program
    from tilewright.compiler.build import build
    from tilewright.diag import TilewrightError

    choose = program.product_variants
    if way is not None:
        choose = lambda _, trace, target, __: [way.variant(trace, target)]  # noqa: E731
    kernel = tw.kernel(matmul.matmul.fn)  # one that has planned nothing yet
    try:
        with patch.object(program, "product_variants", choose):
            artifact = build(kernel.plan(dtypes=dict.fromkeys("abc", "bf16")))
    except TilewrightError as error:
        return f"{way}: refused: {error.diagnostics[0].found}"
    if way is not None and any("given up: bm" in line for line in artifact.plan):
        return f"{way}: another candidate was taken: {artifact.plan[0]}"
    file_of(FAMILY if way is None else way.artifact).write_bytes(to_bytes(artifact))
    return f"{way or 'family'}: {artifact.plan[0]}"


def run(args: argparse.Namespace) -> None:
    """Times every shape; prints and writes a row for each."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    programs = {way: load(way.artifact) for way in WAYS}
    family = load(FAMILY)
    for shape in shapes(args.drawn, args.seed):
        ways = {str(way): programs[way] for way in likely(*shape) if programs[way] is not None}
        rows.append(measured(timer, shape, {"chosen": family, **ways}))
        print(json.dumps(rows[-1]), flush=True)
        write(document(torch, **timer.conditions(), **summary(rows), rows=rows), args.json, row_lines=True)


def measured(timer: Timer, shape: tuple[int, int, int], programs: dict[str, Any]) -> dict[str, Any]:
    """The row of a shape: times of all programs and of cuBLAS, and whose errors are larger than cuBLAS's."""
    torch, (m, n, k) = timer.torch, shape
    torch.manual_seed(0)
    a, b = (torch.randn(x, k, device="cuda").bfloat16() for x in (m, n))
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)

    def cublas() -> Any:
        return torch.matmul(a, b.t())

    launches = {name: partial(program.launch, (a, b, c)) for name, program in programs.items()}
    exact = a.double() @ b.double().t() if m * n <= MOST_EXACT else cublas().float()
    theirs = relative_error(cublas(), exact)
    wrong: list[str] = []
    for name, launch in launches.items():
        c.fill_(float("nan"))
        launch()
        if not relative_error(c, exact) <= 1.02 * theirs + ROUNDING * (m * n > MOST_EXACT):
            wrong.append(name)
    del exact
    seconds = timer.medians({**launches, "cublas": cublas})
    best = min(launches, key=lambda name: seconds[name])
    return {
        "shape": shape,
        "microseconds": {name: round(s * 1e6, 2) for name, s in seconds.items()},
        "of_cublas": round(seconds["cublas"] / seconds["chosen"], 3),
        "best": best,
        "regret": round(seconds["chosen"] / seconds[best], 3),
        "wrong": wrong,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Regrets and ratios over all shapes."""
    regrets = sorted(row["regret"] for row in rows)
    return {
        "shapes": len(rows),
        "median_regret": round(median(regrets), 3),
        "p95_regret": regrets[int(0.95 * (len(rows) - 1))],
        "geomean_of_cublas": round(exp(sum(log(row["of_cublas"]) for row in rows) / len(rows)), 3),
    }


def main() -> None:
    made = parser(__doc__, "ways whose name contains this", rounds=7)
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--drawn", type=int, default=81, help="shapes beside those of the table")
    made.add_argument(
        "--seed",
        type=int,
        default=FITTED,
        help="of the drawn shapes; another one than that of the fit leaves out the table",
    )
    args = made.parse_args()
    if args.what == "run":
        run(args)
        return
    file_of(FAMILY).parent.mkdir(exist_ok=True)
    with ProcessPoolExecutor(args.jobs) as pool:
        for text in pool.map(compiled, (None, *(way for way in WAYS if args.only in str(way)))):
            print(text, flush=True)


if __name__ == "__main__":
    main()
