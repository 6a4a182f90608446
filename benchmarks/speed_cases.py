"""Products of the speed cases that `products.py` has not: other shapes, layouts, dtypes, scales, batches, epilogues.

    python benchmarks/speed_cases.py --json benchmarks/results/speed_cases.json

Needs the compiler on the machine with the GPU: each case is compiled by its first call. Peers are cuBLAS (through
PyTorch), `torch._scaled_mm`, and torch.compile for the epilogue. L2 flushed, order rotated, medians; errors against
float64. ``--rounds 0`` compiles alone.
"""

# Dimension names are strings in annotations, which type checkers take for forward references.
# ruff: noqa: F821, UP037

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import Timer, document, greatest_error, relative_error, write

import tilewright as tw

ROW_MAJOR_B = ((4096, 4096, 4096), (8192, 8192, 8192), (2048, 5120, 5120), (64, 8192, 8192))
"""M, N, K of A B with B of shape (K, N)."""
TRANSPOSED_B = (
    (2048, 2048, 2048), (16384, 16384, 1024), (4096, 4096, 14336), (8192, 28672, 8192), (3000, 7000, 2504),
    (8192, 8192, 128), (6144, 6144, 6144), (12288, 4096, 4096), (1536, 8960, 1536), (4864, 896, 896),
    (4095, 4097, 4099), (1023, 2049, 4097), (333, 5001, 777), (77, 8191, 8191),
)  # fmt: skip
"""M, N, K of A B^T with B of shape (N, K); the last four have rows that are not aligned to 16 bytes."""
EIGHT_BITS = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 14336, 4096), (64, 8192, 8192))
BATCHED = ((32, 1024, 1024, 1024), (64, 512, 512, 128), (16, 2048, 128, 2048))
EPILOGUES = ((4096, 14336, 4096), (512, 4096, 4096))


@tw.kernel
def product(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    c: tw.Tensor["M", "N"],
    *,
    bm=tw.auto,
    bn=tw.auto,
    bk=64,
    accumulate="fast",
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T, accumulate=accumulate)
    c[m, n] = acc


eight_bits = partial(product, bk=128)
promoted = partial(product, bk=128, accumulate="promoted")


@tw.kernel
def row_major(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[k, n])
    c[m, n] = acc


@tw.kernel
def row_scaled(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    sa: tw.Tensor["M"],
    sb: tw.Tensor["N"],
    c: tw.Tensor["M", "N"],
    *,
    bm=tw.auto,
    bn=tw.auto,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 128):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc * sa[m][:, None] * sb[n][None, :]


@tw.kernel
def block_scaled(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    sa: tw.Tensor["M", "KB"],
    sb: tw.Tensor["NB", "KB"],
    c: tw.Tensor["M", "N"],
    *,
    bm=tw.auto,
):
    m, n = tw.grid(c, (bm, 128))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 128):
        step = k.start // 128
        acc += tw.dot(a[m, k], b[n, k].T) * (sa[m, step] * sb[n.start // 128, step])[:, None]
    c[m, n] = acc


@tw.kernel
def batched(
    a: tw.Tensor["B", "M", "K"], b: tw.Tensor["B", "N", "K"], c: tw.Tensor["B", "M", "N"], *, bm=tw.auto, bn=tw.auto
):
    z, m, n = tw.grid(c, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[2], 64):
        acc += tw.dot(a[z, m, k], b[z, n, k].T)
    c[z, m, n] = acc


@tw.kernel
def epilogue(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    bias: tw.Tensor["N"] | None,
    rest: tw.Tensor["M", "N"] | None,
    c: tw.Tensor["M", "N"],
    *,
    gelu=True,
    bm=tw.auto,
    bn=tw.auto,
):
    m, n = tw.grid(c, (bm, bn))
    x = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        x += tw.dot(a[m, k], b[n, k].T)
    if bias is not None:
        x = x + bias[n][None, :].to(tw.f32)
    if gelu:
        x = x * (0.5 * (1 + tw.erf(x * 0.7071067811865476)))
    if rest is not None:
        x = x + rest[m, n].to(tw.f32)
    c[m, n] = x


@dataclass(frozen=True)
class Case:
    """One row: what is timed beside what, and what both should give."""

    name: str
    flops: float
    kernel: Any
    arguments: tuple[Any, ...]
    result: Any
    peer_name: str
    peer: Callable[[], Any]
    exact: Callable[[], Any]


def cases(torch: Any) -> Iterator[Case]:
    """The rows, their tensors made when asked for."""

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device="cuda").bfloat16()

    def empty(*shape: int) -> Any:
        return torch.full(shape, float("nan"), device="cuda", dtype=torch.bfloat16)

    for m, n, k in ROW_MAJOR_B:
        a, b, c = normal(m, k), normal(k, n), empty(m, n)
        yield Case(f"A B {m}x{n}x{k}", 2.0 * m * n * k, row_major, (a, b, c), c, "cublas",
                   lambda a=a, b=b: a @ b, lambda a=a, b=b: a.double() @ b.double())  # fmt: skip
    for m, n, k in TRANSPOSED_B:
        a, b, c = normal(m, k), normal(n, k), empty(m, n)
        yield Case(f"A B^T {m}x{n}x{k}", 2.0 * m * n * k, product, (a, b, c), c, "cublas",
                   lambda a=a, b=b: a @ b.t(), lambda a=a, b=b: a.double() @ b.double().t())  # fmt: skip
    yield from eight_bit_cases(torch, normal, empty)
    for z, m, n, k in BATCHED:
        a, b, c = normal(z, m, k), normal(z, n, k), empty(z, m, n)
        name = f"batched {z}x{m}x{n}x{k}"
        yield Case(name, 2.0 * z * m * n * k, batched, (a, b, c), c, "cublas",
                   lambda a=a, b=b: torch.bmm(a, b.mT),
                   lambda a=a, b=b: torch.bmm(a.double(), b.double().mT))  # fmt: skip

    def layer(a: Any, b: Any, bias: Any, rest: Any) -> Any:
        return torch.nn.functional.gelu(torch.nn.functional.linear(a, b, bias)) + rest

    fused = torch.compile(layer)
    for m, n, k in EPILOGUES:
        a, b, bias, rest, c = normal(m, k), normal(n, k) * k**-0.5, normal(n), normal(m, n), empty(m, n)
        name = f"bias, GELU, residual {m}x{n}x{k}"
        yield Case(name, 2.0 * m * n * k, epilogue, (a, b, bias, rest, c), c, "compile",
                   lambda v=(a, b, bias, rest): fused(*v),
                   lambda v=(a, b, bias, rest): layer(*(t.double() for t in v)))  # fmt: skip


def eight_bit_cases(torch: Any, normal: Any, empty: Any) -> Iterator[Case]:
    """e4m3: fast and promoted sums, scales of rows, scales of 1x128 and 128x128 blocks."""
    one = torch.ones((), device="cuda")
    for m, n, k in EIGHT_BITS:
        a, b, c = (normal(m, k)).to(torch.float8_e4m3fn), normal(n, k).to(torch.float8_e4m3fn), empty(m, n)
        sa, sb = torch.rand(m, device="cuda") + 0.5, torch.rand(n, device="cuda") + 0.5
        ba, bb = torch.rand(m, k // 128, device="cuda") + 0.5, torch.rand(n // 128, k // 128, device="cuda") + 0.5
        flops = 2.0 * m * n * k

        def plain(fast: bool, a: Any = a, b: Any = b) -> Any:
            return torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)

        def rows(a: Any = a, b: Any = b, sa: Any = sa, sb: Any = sb) -> Any:
            return torch._scaled_mm(a, b.t(), sa[:, None], sb[None, :], out_dtype=torch.bfloat16, use_fast_accum=True)

        def exact(a: Any = a, b: Any = b) -> Any:
            return a.double() @ b.double().t()

        def by_blocks(a: Any = a, b: Any = b, ba: Any = ba, bb: Any = bb) -> Any:
            wide = bb.repeat_interleave(128, 0).repeat_interleave(128, 1)
            return (a.double() * ba.repeat_interleave(128, 1)) @ (b.double() * wide).t()

        yield Case(f"e4m3 {m}x{n}x{k}", flops, eight_bits, (a, b, c), c, "scaled_mm, fast sums",
                   lambda f=plain: f(True), exact)  # fmt: skip
        yield Case(f"e4m3 promoted {m}x{n}x{k}", flops, promoted, (a, b, c), c, "scaled_mm, promoted",
                   lambda f=plain: f(False), exact)  # fmt: skip
        yield Case(f"e4m3 scales of rows {m}x{n}x{k}", flops, row_scaled, (a, b, sa, sb, c), c, "scaled_mm, rows",
                   rows, lambda e=exact, sa=sa, sb=sb: e() * sa[:, None] * sb)  # fmt: skip
        yield Case(f"e4m3 scales of blocks {m}x{n}x{k}", flops, block_scaled, (a, b, ba, bb, c), c,
                   "scaled_mm, promoted", lambda f=plain: f(False), by_blocks)  # fmt: skip


def measure(timer: Timer, case: Case) -> dict[str, Any]:
    """Times and errors of one case."""
    began = time.perf_counter()
    case.kernel(*case.arguments)
    timer.torch.cuda.synchronize()
    first_call = time.perf_counter() - began
    if not timer.rounds:
        case.peer()
        return {"case": case.name, "first_call_seconds": round(first_call, 2)}
    exact = case.exact()
    theirs = case.peer()
    errors = relative_error(case.result, exact), relative_error(theirs, exact)
    greatest = greatest_error(case.result, exact), greatest_error(theirs, exact)
    del exact, theirs
    seconds = timer.medians({"ours": lambda: case.kernel(*case.arguments), "peer": case.peer})
    return {
        "case": case.name,
        "peer": case.peer_name,
        "tflops": {name: round(case.flops / s * 1e-12, 1) for name, s in seconds.items()},
        "of_peer": round(seconds["peer"] / seconds["ours"], 3),
        "error": errors[0],
        "peer_error": errors[1],
        "greatest_errors": greatest,
        "first_call_seconds": round(first_call, 2),
    }


def run(args: argparse.Namespace) -> None:
    import torch

    timer, found = Timer(torch, args.rounds), list[dict[str, Any]]()
    torch.manual_seed(0)
    for case in cases(torch):
        if args.only not in case.name:
            continue
        try:
            row = measure(timer, case)
        except Exception as error:  # a peer that refuses, or a refusal of ours, is a row too
            row = {"case": case.name, "failed": f"{type(error).__name__}: {str(error)[:300]}"}
        found.append(row)
        print(json.dumps(row), flush=True)
        write(document(torch, **timer.conditions(), rows=found), args.json)
        torch.cuda.empty_cache()


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", default="", help="cases whose name contains this")
    made.add_argument("--json", default="", help="where the document of the run goes")
    made.add_argument("--rounds", type=int, default=15)
    run(made.parse_args())


if __name__ == "__main__":
    main()
