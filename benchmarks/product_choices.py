"""The schedule that is chosen for a product, beside others of our own and PyTorch, on one GPU.

    python benchmarks/product_choices.py build --jobs 16
    python benchmarks/product_choices.py run --json benchmarks/results/product_choices.json
    python benchmarks/product_choices.py run --kind e4m3 --drawn 0 --json benchmarks/results/product_choices_e4m3.json

C = A B^T in bf16, or another ``--kind`` of product, also with an epilogue. Each way to schedule is an artifact of one
variant that serves all shapes; the family's artifact chooses by itself. For each shape those ways are timed that might
be among the best by a rough estimate, and the four that the prices of the schedule put first. The regret is the time of
what was chosen over that of the best, and that of the best of those four. L2 flushed, order rotated, medians; errors
against float64.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import ceil, exp, log, prod
from statistics import median
from typing import Any
from unittest.mock import patch

from cublaslt import CublasLt
from harness import Timer, document, file_of, greatest_error, load, parser, relative_error, write

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
    (8192, 28672, 8192), (12288, 4096, 4096), (16384, 16384, 1024),
)  # fmt: skip
"""M, N, K that are always timed."""
EPILOGUES = (
    (16, 4096, 4096), (64, 4096, 4096), (128, 8192, 2048), (256, 5120, 5120), (512, 4096, 4096), (640, 2560, 2560),
    (1024, 1024, 1024), (1024, 4096, 1024), (1536, 1536, 6144), (2048, 2048, 2048), (2048, 8192, 512),
    (3000, 3072, 768), (4096, 1024, 4096), (4096, 4096, 4096), (4096, 14336, 4096), (6144, 6144, 512),
    (8192, 1024, 1024), (8192, 3072, 768), (8192, 4096, 1024), (16384, 1024, 256),
)  # fmt: skip
"""Those of products with an epilogue."""


@dataclass(frozen=True)
class Kind:
    """Products of one kernel of ``speed_cases.py``, the shapes of its table ([batch,] M, N, K), and the peer that
    multiplies the same operands; ``transposed``: B lies as (N, K). An ``epilogue`` computes the result from the product
    and from what it ``reads``: a bias of (N,), a residual ``rest`` of (M, N). ``keywords`` are the kernel's."""

    name: str
    kernel: str
    table: tuple[tuple[int, ...], ...]
    peer: Callable[[Any, Any, Any], Any]
    dtype: str = "bf16"
    transposed: bool = True
    epilogue: Callable[..., Any] = lambda x: x
    reads: tuple[str, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def depth(self) -> int:
        """Elements of K in a step, 128 bytes."""
        return 128 if self.dtype == "e4m3" else 64

    @property
    def family(self) -> str:
        """The artifact that chooses by itself."""
        return f"product_choices_{self.name}"

    def plan(self) -> Any:
        """The plan of the kernel, of which nothing was planned before."""
        import speed_cases

        import tilewright as tw

        depth = {"bk": self.depth} if self.kernel == "product" else {}
        dtypes = {"a": self.dtype, "b": self.dtype} | dict.fromkeys(("c", *self.reads), "bf16")
        return tw.kernel(getattr(speed_cases, self.kernel).fn).plan(dtypes=dtypes, **depth, **self.keywords)

    def operands(self, torch: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Random ones."""
        *batch, m, n, k = shape
        own = torch.float8_e4m3fn if self.dtype == "e4m3" else torch.bfloat16
        sizes = (m, k), (n, k) if self.transposed else (k, n)
        return tuple(torch.randn(*batch, *size, device="cuda").to(own) for size in sizes)

    def beside(self, torch: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """Random tensors that the epilogue reads."""
        m, n, _ = shape[-3:]
        sizes = {"bias": (n,), "rest": (m, n)}
        return tuple(torch.randn(*sizes[name], device="cuda").bfloat16() for name in self.reads)


def _scaled(torch: Any, a: Any, b: Any) -> Any:
    one = torch.ones((), device="cuda")
    return torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _gelu(x: Any, bias: Any) -> Any:
    from torch.nn.functional import gelu

    return gelu(x + bias)


def _fused(epilogue: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile's product with an epilogue, for all shapes."""

    @cache
    def compiled(torch: Any) -> Any:
        return torch.compile(lambda a, b, *beside: epilogue(a @ b.t(), *beside), dynamic=True)

    return lambda torch, *tensors: compiled(torch)(*tensors)


def _with_epilogue(name: str, epilogue: Callable[..., Any], *reads: str, gelu: bool) -> Kind:
    keywords = {"gelu": gelu, **{other: None for other in ("bias", "rest") if other not in reads}}
    return Kind(name, "epilogue", EPILOGUES, _fused(epilogue), epilogue=epilogue, reads=reads, keywords=keywords)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("bf16", "product", TABLE, lambda torch, a, b: torch.matmul(a, b.mT)),
        Kind("row_major", "row_major", ((4096, 4096, 4096), (8192, 8192, 8192), (2048, 5120, 5120), (64, 8192, 8192)),
             lambda torch, a, b: torch.matmul(a, b), transposed=False),
        Kind("batched", "batched", ((32, 1024, 1024, 1024), (64, 512, 512, 128), (16, 2048, 128, 2048)),
             lambda torch, a, b: torch.bmm(a, b.mT)),
        Kind("e4m3", "product", ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 14336, 4096), (64, 8192, 8192)),
             _scaled, "e4m3"),
        _with_epilogue("bias", lambda x, bias: x + bias, "bias", gelu=False),
        _with_epilogue("gelu", _gelu, "bias", gelu=True),
        _with_epilogue("residual", lambda x, rest: x + rest, "rest", gelu=False),
        _with_epilogue("epilogue", lambda x, bias, rest: _gelu(x, bias) + rest, "bias", "rest", gelu=True),
    )
}  # fmt: skip


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

    def artifact(self, kind: Kind) -> str:
        """Its name."""
        return f"{kind.family}_{self}".replace(" ", "_")

    @classmethod
    def of(cls, variant: Any) -> Way:
        """That of a variant of the family."""
        rows, columns = (variant.choices[0][name] for name in ("bm", "bn"))
        first = variant.candidates[0] if variant.candidates else None
        cluster, turns = ((1, 1), False) if first is None else (first.cluster, first.ping_pong > 1)
        if variant.narrow is not None:
            return cls(rows, columns, parts=cluster[1])
        return cls(rows, columns, turns, cluster, kernels=variant.parts is not None, swapped=variant.swapped)

    def variant(self, trace: Any, target: Any) -> Any:
        """The only variant of an artifact, with the hints to L2 that the family's has."""
        from tilewright.base.expr import TRUE, maximum, minimum
        from tilewright.schedule.hopper.candidate import Candidate
        from tilewright.schedule.hopper.product_variant import ProductVariant
        from tilewright.schedule.hopper.tile_choice import PART_STEPS
        from tilewright.schedule.transforms.split_k import split

        extents = {"bm": self.rows, "bn": self.columns}
        if self.parts > 1:
            cluster = Candidate(self.warpgroups, matrix_stores=False, cluster=(1, self.parts))
            narrow = {**extents, "bn": self.columns // self.parts}
            return ProductVariant(TRUE, (extents,), (cluster,), narrow=narrow, one_wave=True)
        parts = None
        if self.kernels:
            found = split(trace(extents), many=True)
            each = target.sm_count // maximum(found.programs, 1)
            parts = minimum(maximum(each, 1), maximum(found.stream.trip.expr // PART_STEPS, 1))
        candidate = Candidate(self.warpgroups, 2 if self.turns else 1, cluster=self.cluster, whole_stores=True)
        return ProductVariant(
            TRUE, (extents,), (candidate,), parts=parts, many=self.kernels, swapped=self.swapped,
            one_row=self.columns == 64 and self.swapped,
            one_wave=self.kernels or (self.rows == 64 and self.cluster == (1, 1) and not self.swapped),
        )  # fmt: skip

    @property
    def warpgroups(self) -> int:
        """Those that share a tile."""
        height = self.columns if self.swapped else self.rows
        return 1 if self.turns else 3 if height == 192 else min(2, max(1, height // 64))

    def estimate(self, steps: int, m: int, n: int, batch: int = 1) -> float | None:
        """Microseconds, to leave out what is far off; None where there are no parts, or no room for them."""
        rows, columns = (
            ceil(ceil(x / y) / c) * c
            for x, y, c in ((m, self.rows, self.cluster[0]), (n, self.columns, self.cluster[1]))
        )
        parts = self.parts
        if self.kernels:
            parts = min(SMS // (batch * rows * columns), steps // 16)
            if parts < 2:
                return None
        waves = ceil(batch * rows * columns * parts / (CLUSTERED_SMS if parts > 2 else SMS))
        if self.parts > 1 and waves > 1:
            return None
        sides = (self.rows + self.columns) * (1.0 if self.cluster == (1, 1) else 0.8)
        step = max(sides / 609, self.rows * self.columns / 53_000) + 0.013
        return waves * ceil(steps / parts) * step + 4 + 6 * self.kernels + 2 * (self.parts > 1)


WAYS = (
    *(Way(128, n) for n in (64, 96, 112, 128, 160, 192, 224, 256)),
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
    Way(256, 160),
    Way(64, 32),
    Way(64, 128, cluster=(4, 1)),
    *(Way(m, n, swapped=True) for m, n in ((16, 64), (32, 64), (128, 64), (104, 128), (152, 128))),
    *(Way(m, 128, swapped=True, cluster=(2, 1)) for m in (112, 160)),
    *(Way(m, 128, swapped=True, cluster=(1, 2)) for m in (80, 112)),
    *(Way(64, n, parts=parts) for n in (64, 96, 128) for parts in (2, 4)),
    *(Way(128, 128, parts=parts) for parts in (2, 4)),
    *(Way(128, n, parts=2) for n in (64, 192)),
    Way(64, 64, kernels=True),
    Way(128, 128, kernels=True),
)
WITHIN, FIRST = 2.0, 4
"""How much longer than the best a way that is timed may take by the estimate, and how many of those that the prices put
first are timed in any case."""


SAME = 1.01
"""Times that differ by less are not told apart: what a choice and the same way alone take differs by as much."""

MOST_EXACT = 2**26
"""Elements of a result that are compared with float64: of a larger one those of the first rows."""


def shapes(kind: Kind, args: argparse.Namespace) -> Iterator[tuple[int, ...]]:
    """Those that are given; else those of the table, and as many drawn ones of at least so many GFLOP; with another
    seed than that of the shapes that prices were fitted to, drawn ones alone."""
    if args.shapes:
        yield from args.shapes
        return
    if args.seed == FITTED:
        yield from kind.table
    rng = random.Random(args.seed)
    whole, count = kind.depth // 8, args.drawn  # elements in 16 bytes
    while count > 0:
        m, n, k = (int(2 ** rng.uniform(*bounds)) for bounds in ((0, 12.5), (7, 13.3), (7, 13.5)))
        unit = 64 if rng.random() < 0.7 else whole
        shape = max(m // unit * unit, 1 + m % 8), n // unit * unit, k // unit * unit
        if 2 * prod(shape) >= args.least * 1e9:
            count -= 1
            yield shape


def likely(kind: Kind, shape: tuple[int, ...], most: int) -> list[Way]:
    """At most so many ways that may be the best."""
    *batch, m, n, k = shape
    estimates = {way: way.estimate(ceil(k / kind.depth), m, n, *batch) for way in WAYS}
    times = {way: time for way, time in estimates.items() if time is not None}
    best = min(times.values())
    return sorted((way for way, time in times.items() if time <= WITHIN * best), key=lambda way: times[way])[:most]


def offered(variants: Callable[..., list[Any]]) -> Any:
    """While this is entered, products are planned in these variants."""
    from tilewright.schedule.product_schedules import FOLDERS

    return patch.dict(FOLDERS, {"hopper": replace(FOLDERS["hopper"], variants=variants)})


class Prices:
    """The ways of a kind's family, as its schedule prices them."""

    def __init__(self, kind: Kind) -> None:
        from tilewright.schedule.hopper.extents import product_variants

        found: list[list[Any]] = []

        def recorded(*args: Any) -> list[Any]:
            found.append(product_variants(*args))
            return found[-1]

        with offered(recorded):
            kind.plan()
        self._variants, self._kind = found[0], kind

    def ways(self) -> set[Way]:
        """All of the family."""
        return {Way.of(variant) for variant in self._variants}

    def first(self, shape: tuple[int, ...]) -> list[Way]:
        """The way that is chosen, and those that take least time behind it by the prices, ``FIRST`` in all."""
        *batch, m, n, k = shape
        b = (n, k) if self._kind.transposed else (k, n)
        pitches = {"a": (m, k), "b": b, "c": (m, n), "rest": (m, n)}
        values = {"M": m, "N": n, "K": k, **({"B": batch[0]} if batch else {})}
        for name, (rows, columns) in pitches.items():
            own = [rows * columns, columns] if batch else [columns]
            values |= {f"{name}.stride{axis}": stride for axis, stride in enumerate(own)}
        times: dict[Way, int] = {}
        for variant in self._variants:
            way, applies = Way.of(variant), variant.applies.evaluate(values)
            tiles = ceil(m / way.rows) * ceil(n / way.columns) * (batch[0] if batch else 1)
            absent = (
                variant.time is None
                or (not applies and (way.swapped or (way.parts == 1 and way.cluster != (1, 1))))
                or (way.turns and tiles <= SMS)
                or way.estimate(ceil(k / self._kind.depth), m, n, *batch) is None
            )
            if not absent:
                time = variant.time.evaluate(values)
                one_row = max if m <= way.rows else min  # the price of one row of tiles is that of its bytes
                times[way] = one_row(times.get(way, time), time)
        chosen = Way.of(next(variant for variant in self._variants if variant.predicate.evaluate(values)))
        return [chosen, *(way for way in sorted(times, key=lambda way: times[way]) if way != chosen)][:FIRST]


def compiled(name: str, way: Way | None) -> str:
    """Compiles one way of a kind, or its family, in a process of its own; what came of it."""
    from tilewright.artifact.bundle import to_bytes
    from tilewright.compiler.build import build
    from tilewright.diag import TilewrightError

    kind = KINDS[name]
    alone = None if way is None else lambda _, trace, target, __: [way.variant(trace, target)]
    try:
        with nullcontext() if alone is None else offered(alone):
            artifact = build(kind.plan())
    except TilewrightError as error:
        return f"{kind.name} {way}: refused: {error.diagnostics[0].found}"
    if way is not None and any("given up: bm" in line for line in artifact.plan):
        return f"{kind.name} {way}: another candidate was taken: {artifact.plan[0]}"
    file_of(kind.family if way is None else way.artifact(kind)).write_bytes(to_bytes(artifact))
    return f"{kind.name} {way or 'family'}: {artifact.plan[0]}"


def run(kind: Kind, args: argparse.Namespace) -> None:
    """Times every shape; prints and writes a row for each."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    programs, prices = {way: load(way.artifact(kind)) for way in WAYS}, Prices(kind)
    family, library = load(kind.family), CublasLt(torch) if kind.name == "bf16" else None
    for shape in shapes(kind, args):
        first = prices.first(shape)
        ways = {way: programs.get(way) for way in dict.fromkeys((*likely(kind, shape, args.most), *first))}
        timed = {str(way): program for way, program in ways.items() if program is not None}
        rows.append(measured(timer, kind, shape, {"chosen": family, **timed}, list(map(str, first)), library))
        print(json.dumps(rows[-1]), flush=True)
        write(document(torch, **timer.conditions(), **summary(rows), rows=rows), args.json, row_lines=True)


def measured(
    timer: Timer,
    kind: Kind,
    shape: tuple[int, ...],
    programs: dict[str, Any],
    first: list[str],
    library: CublasLt | None,
) -> dict[str, Any]:
    """The row of a shape: times of all programs and of the peer, and whose errors are larger than the peer's."""
    torch, (*batch, m, n, _) = timer.torch, shape
    torch.manual_seed(0)
    (a, b), beside = kind.operands(torch, shape), kind.beside(torch, shape)
    c = torch.full((*batch, m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    columns = b.mT if kind.transposed else b
    peer = partial(kind.peer, torch, a, b, *beside)

    launches = {name: partial(program.launch, (a, b, *beside, c)) for name, program in programs.items()}
    rows = max(1, MOST_EXACT // (c.numel() // m))
    read = (x.double() if x.dim() == 1 else x[:rows].double() for x in beside)
    exact = kind.epilogue(a[..., :rows, :].double() @ columns.double(), *read)
    theirs, greatest = (error(peer()[..., :rows, :], exact) for error in (relative_error, greatest_error))
    wrong: list[str] = []
    of_errors: dict[str, float] = {}
    for name, launch in launches.items():
        c.fill_(float("nan"))
        launch()
        found = c[..., :rows, :]
        error, most = relative_error(found, exact), greatest_error(found, exact)
        if not (error <= 1.02 * theirs and bool(c.isfinite().all())):
            wrong.append(name)
        if name == "chosen":
            of_errors = {"rms": error / theirs, "greatest": most / greatest}
    del exact
    peers = {"cublas": peer, **({} if library is None else fastest(timer, library.launches(a, b, c)))}
    seconds = timer.medians({**launches, **peers})
    best = min(launches, key=lambda name: seconds[name])
    return {
        "shape": shape,
        "microseconds": {name: round(s * 1e6, 2) for name, s in seconds.items()},
        **{f"of_{name}": round(seconds[name] / seconds["chosen"], 3) for name in peers},
        "best": best,
        "regret": round(seconds["chosen"] / seconds[best], 3),
        "first": first,
        "regret_of_first": round(min(seconds[x] for x in ("chosen", *first) if x in seconds) / seconds[best], 3),
        "errors_of_cublas": {name: round(x, 4) for name, x in of_errors.items()},
        "wrong": wrong,
    }


def fastest(timer: Timer, launches: list[Callable[[], None]]) -> dict[str, Callable[[], None]]:
    """The algorithm of cublasLt that is fastest in a few rounds."""
    few = Timer(timer.torch, 3).medians({str(i): launch for i, launch in enumerate(launches)})
    return {"cublaslt": launches[int(min(few, key=lambda i: few[i]))]}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Regrets and ratios over all shapes."""
    regrets = sorted(row["regret"] for row in rows)
    return {
        "shapes": len(rows),
        "median_regret": round(median(regrets), 3),
        "p95_regret": regrets[int(0.95 * (len(rows) - 1))],
        "best_within_first": round(sum(row["regret_of_first"] <= SAME for row in rows) / len(rows), 3),
        "geomean_of_cublas": round(exp(sum(log(row["of_cublas"]) for row in rows) / len(rows)), 3),
    }


def _extents(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


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
    made.add_argument("--least", type=float, default=0, help="GFLOP of a drawn shape")
    made.add_argument("--kind", choices=KINDS, default="bf16")
    made.add_argument("--most", type=int, default=20, help="ways that are timed for a shape")
    made.add_argument("--shapes", type=_extents, nargs="*", help="these alone, as 4096x4096x1024")
    args = made.parse_args()
    kind = KINDS[args.kind]
    if args.what == "run":
        run(kind, args)
        return
    file_of(kind.family).parent.mkdir(exist_ok=True)
    with ProcessPoolExecutor(args.jobs) as pool:
        prices, drawn = Prices(kind), list(shapes(kind, args))
        asked = dict.fromkeys(way for shape in drawn for way in (*likely(kind, shape, args.most), *prices.first(shape)))
        ways = (None, *(way for way in asked if args.only in str(way)))
        for text in pool.map(compiled, [kind.name] * len(ways), ways):
            print(text, flush=True)


if __name__ == "__main__":
    main()
