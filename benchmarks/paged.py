"""Decode over a cache of keys and values, contiguous and in pages, beside cuDNN and flash attention of PyTorch.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/paged.py build
    python benchmarks/paged.py run --json benchmarks/results/paged.json

The peers read a contiguous cache. Pages are dealt to the sequences at random. ``parts`` chooses the steps of a part of
a sequence from the shapes; a time is that of both launches, the parts and their merge, or of the one that takes whole
sequences. Every result is compared with float64, with NaN beyond each length.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

from harness import Timer, contiguous_facts, document, load, parser, relative_error, store, write

WIDTH = 128
STEP = 64
"""Keys of one step (``bk``)."""


@dataclass(frozen=True)
class Case:
    """B sequences with caches of T tokens, H heads of queries over G of keys."""

    B: int
    T: int
    H: int
    G: int
    lengths: str = "full"

    def __str__(self) -> str:
        return f"{self.B}x{self.T} {self.H}/{self.G}" + ("" if self.lengths == "full" else f" {self.lengths}")


CASES = (
    Case(1, 8192, 32, 8),
    Case(16, 2048, 32, 8),
    Case(64, 4096, 32, 8),
    Case(128, 4096, 32, 8),
    Case(64, 4096, 16, 16),
    Case(256, 512, 32, 8),
    Case(8, 32768, 64, 8),
    Case(64, 8192, 32, 8, "skewed"),
)
PAGES = (None, 16, 32, 64, 128)


def parts(case: Case) -> int:
    """Steps of a part."""
    from tilewright.ops.splitting import steps_of_a_part

    return steps_of_a_part(case.B * case.G, -(-case.T // STEP))


def name_of(page: int | None, dtype: str) -> str:
    """The artifact for a page size and the results' dtype: f32 of parts, bf16 of whole sequences."""
    return f"decode_{page or 'contiguous'}_{dtype}"


def build(only: str) -> None:
    """Compile every kernel to an artifact."""
    import paged_attention

    for page in PAGES:
        for dtype in ("f32", "bf16"):
            shapes = {
                "lengths": ((64,), "i32"),
                "q": ((64, 1, 8, 3, WIDTH), "bf16"),
                "k": ((64, page or 4096, 8, WIDTH), "bf16"),
                "v": ((64, page or 4096, 8, WIDTH), "bf16"),
                "o": ((4, 64, 1, 8, 3, WIDTH), dtype),
                "lse": ((4, 64, 1, 8, 3), "f32"),
            }
            shapes |= {} if page is None else {"pages": ((64, 64), "i32")}
            keywords = {"pages": None} if page is None else {}
            if only in name_of(page, dtype):
                _build(name_of(page, dtype), paged_attention.decode(WIDTH, page=page), shapes, bk=STEP, **keywords)
    shapes = {"o": ((4, 64, WIDTH), "f32"), "lse": ((4, 64), "f32"), "y": ((64, WIDTH), "bf16")}
    if only in "merge":
        _build("merge", paged_attention.merge, shapes, whole=None, bm=1, bc=16)


def _build(name: str, kernel: Any, shapes: dict[str, tuple[tuple[int, ...], str]], **keywords: Any) -> None:
    dtypes = {n: d for n, (_, d) in shapes.items()}
    facts = contiguous_facts({n: shape for n, (shape, _) in shapes.items()}, dtypes)
    _, seconds = store(name, kernel.compile, dtypes=dtypes, facts=facts, **keywords)
    print(f"{name}: {seconds:.2f} s")


class Problem:
    """The tensors of a case: caches of NaN beyond each length, contiguous and in pages."""

    def __init__(self, torch: Any, case: Case, *, hnd: bool = False) -> None:
        self.torch, self.case, self.hnd = torch, case, hnd
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0)
        if case.lengths == "skewed":
            lengths = (torch.rand(case.B, generator=generator) ** 4 * case.T).int() + 1
        else:
            lengths = torch.full((case.B,), case.T, dtype=torch.int32)
        self.lengths = lengths.cuda()
        self.tokens = int(lengths.sum())
        self.q = torch.randn(case.B, 1, case.G, case.H // case.G, WIDTH, device="cuda").bfloat16()
        beyond = torch.arange(case.T, device="cuda")[None] >= self.lengths[:, None]
        self.k, self.v = (self._cache(beyond) for _ in range(2))

    def _cache(self, beyond: Any) -> Any:
        case = self.case
        made = self.torch.randn(case.B, case.T, case.G, WIDTH, device="cuda", dtype=self.torch.bfloat16)
        made[beyond] = float("nan")
        return made.transpose(1, 2).contiguous().transpose(1, 2) if self.hnd else made

    @property
    def bytes(self) -> int:
        """What has to be read of keys and values."""
        return 2 * 2 * self.tokens * self.case.G * WIDTH

    def exact(self) -> Any:
        """The answer in float64, sequence by sequence."""
        found = []
        for b, n in enumerate(self.lengths.tolist()):
            k, v = (x[b, :n].double() for x in (self.k, self.v))
            p = self.torch.einsum("grd,tgd->grt", self.q[b, 0].double(), k) * WIDTH**-0.5
            found.append(self.torch.einsum("grt,tgd->grd", p.softmax(-1), v))
        return self.torch.stack(found)[:, None]

    def paged(self, page: int) -> tuple[Any, Any, Any]:
        """A table of pages, dealt at random, with the pools of keys and values."""
        torch, case = self.torch, self.case
        count = -(-case.T // page)
        order = torch.randperm(case.B * count, device="cuda")
        table = order.view(case.B, count).int()
        pools = []
        for cache in (self.k, self.v):
            shape = (case.B * count, case.G, page, WIDTH) if self.hnd else (case.B * count, page, case.G, WIDTH)
            pool = torch.empty(shape, device="cuda", dtype=torch.bfloat16)
            pool = pool.transpose(1, 2) if self.hnd else pool
            pool[order] = cache.reshape(case.B * count, page, case.G, WIDTH)
            pools.append(pool)
        held = torch.arange(count, device="cuda")[None] * page < self.lengths[:, None]
        return table.masked_fill(~held, -(2**31)), *pools

    def launch(self, page: int | None) -> tuple[Any, Any]:
        """Our launches, and where their result goes; None where a kernel was not built."""
        torch, case, chunk = self.torch, self.case, parts(self.case)
        count = -(-case.T // (chunk * STEP))
        decode, merge = load(name_of(page, "bf16" if count == 1 else "f32")), load("merge")
        if decode is None or merge is None:
            return None, None
        y = torch.full(self.q.shape, float("nan"), device="cuda", dtype=torch.bfloat16)
        o = y[None] if count == 1 else torch.full((count, *self.q.shape), float("nan"), device="cuda")
        lse = torch.full(o.shape[:-1], float("nan"), device="cuda")
        given = {"lengths": self.lengths, "q": self.q, "k": self.k, "v": self.v, "o": o, "lse": lse}
        if page is not None:
            given["pages"], given["k"], given["v"] = self.paged(page)
        given |= {"scale": WIDTH**-0.5, "chunk": chunk}
        values = tuple(given[p.name] for p in decode.artifact.parameters)
        states = {"o": o.view(count, -1, WIDTH), "lse": lse.view(count, -1), "y": y.view(-1, WIDTH)}
        joined = tuple(states[p.name] for p in merge.artifact.parameters)

        def both() -> None:
            decode.launch(values)
            if count > 1:
                merge.launch(joined)

        return both, y


def peers(torch: Any, problem: Problem) -> dict[str, Any]:
    """cuDNN and flash attention over the contiguous cache."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    case = problem.case
    q = problem.q.reshape(case.B, 1, case.H, WIDTH).transpose(1, 2)
    k, v = (x.transpose(1, 2) for x in (problem.k, problem.v))

    def of(backend: Any) -> Any:
        def launch() -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        return launch

    return {"cudnn": of(SDPBackend.CUDNN_ATTENTION), "flash": of(SDPBackend.FLASH_ATTENTION)}


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in CASES:
        for hnd in (False, True):
            if args.only not in str(case):
                continue
            problem = Problem(torch, case, hnd=hnd)
            variants = {} if case.lengths != "full" else peers(torch, problem)
            exact, errors = problem.exact(), dict[str, float]()
            for page in PAGES if not hnd else (None, 16):
                launch, y = problem.launch(page)
                if launch is None:
                    continue
                name = "contiguous" if page is None else f"pages of {page}"
                launch()
                torch.cuda.synchronize()
                errors[name] = relative_error(y, exact)
                variants[name] = launch
            seconds = timer.medians(variants)
            row = {
                "case": str(case),
                "layout": "HND" if hnd else "NHD",
                "steps_of_a_part": parts(case),
                "bytes": problem.bytes,
                "microseconds": {k: round(s * 1e6, 2) for k, s in seconds.items()},
                "terabytes_per_second": {k: round(problem.bytes / s * 1e-12, 3) for k, s in seconds.items()},
                "error": errors,
            }
            rows.append(row)
            print(case, row["layout"], json.dumps(row["microseconds"]), json.dumps(row["terabytes_per_second"]),
                  json.dumps({k: f"{e:.1e}" for k, e in errors.items()}), flush=True)  # fmt: skip
            del problem, variants, exact
    write(document(torch, **timer.conditions(), rows=rows), args.json)


if __name__ == "__main__":
    given = parser(__doc__, "cases whose names contain this").parse_args()
    build(given.only) if given.what == "build" else run(given)
