"""Host time of calls from Python beside PyTorch's own: raw launches, operators that allocate, paged decode.

Build where the compiler is (PyTorch's CPU build suffices), run where the GPU is (PyTorch, numpy, cuda-bindings):

    python benchmarks/host.py build
    python benchmarks/host.py run --json benchmarks/results/host.json

A time is the median over rounds, in rotated order, of the mean of calls queued one behind the other on small tensors
whose kernels take less than a call does: the GPU is never waited for. ``torch.add`` with and without ``out=`` is in
every round. "Other tensors" gives each call tensors at other addresses than the one before.
"""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportUnknownVariableType=false
# ruff: noqa: F821

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from math import prod
from typing import Any

from harness import ARTIFACTS, document, load, parser, rotated, store, write

STORE = ARTIFACTS / "host"
os.environ["TILEWRIGHT_STORE"] = str(STORE)
os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")
CALLS = 300
ONLY = "cases whose name has this"
SHAPE = (64, 128)

try:
    import torch
    import torch.nn.functional as F
except ModuleNotFoundError:
    parser(__doc__, ONLY).parse_args()  # what it does is told without PyTorch
    raise SystemExit("PyTorch is not installed: pip install 'tilewright[torch]'") from None

import tilewright as tw  # noqa: E402
from tilewright import ops  # noqa: E402
from tilewright.ops import kernels  # noqa: E402

BF16 = torch.bfloat16


def five() -> tw.Kernel:
    """A kernel of five tensors."""

    @tw.kernel
    def five(
        a: tw.Tensor[M, N],
        b: tw.Tensor[M, N],
        c: tw.Tensor[M, N],
        d: tw.Tensor[M, N],
        y: tw.Tensor[M, N],
        *,
        bm: int = 4,
    ):
        m = tw.grid(a.shape[0], bm)
        n = tw.axis(a.shape[1], upto=SHAPE[1])
        y[m, n] = a[m, n] + b[m, n] + c[m, n] + d[m, n]

    return five


def cases(device: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each call by its name; ``device`` holds its tensors."""

    def made(*shape: int) -> Any:
        return torch.ones(shape, device=device, dtype=BF16)

    x, w, sets = made(*SHAPE), made(SHAPE[1]), [[made(*SHAPE) for _ in range(5)] for _ in range(8)]
    first, others, outs, more = sets[0], cycle(sets), made(*SHAPE), cycle([made(*SHAPE) for _ in range(8)])
    wanted, batch = x.clone().requires_grad_(), x.view(4, 16, 128)
    yield "torch.add", lambda: torch.add(x, x)
    yield "torch.add, out=", lambda: torch.add(x, x, out=outs)
    yield "F.rms_norm", lambda: F.rms_norm(x, SHAPE[1:], w, 1e-6)
    program = load("host_five")
    if program is not None:
        yield "program.launch, 5 tensors", lambda: program.launch(first)
        yield "program.launch, 5 other tensors", lambda: program.launch(next(others))
    yield "kernel, 3 tensors", lambda: kernels.swiglu(*first[:3])
    yield "kernel, 5 tensors, one optional", lambda: kernels.add_rms_norm(*first[:2], w, *first[2:4], eps=1e-6)
    yield "ops.rms_norm", lambda: ops.rms_norm(x, w)
    yield "ops.rms_norm, other tensors", lambda: ops.rms_norm(next(more), w)
    yield "ops.rms_norm, 3 axes", lambda: ops.rms_norm(batch, w)
    yield "ops.rms_norm, out=", lambda: ops.rms_norm(x, w, out=outs)
    yield "ops.softmax", lambda: ops.softmax(x)
    yield "ops.swiglu", lambda: ops.swiglu(x, first[0])
    yield "ops.add_rms_norm", lambda: ops.add_rms_norm(x, first[0], w)
    yield "ops.linear", lambda: ops.linear(x, first[0])
    decode = paged(made, device)
    yield "ops.paged_decode", lambda: ops.paged_decode(*decode, split=1024)
    yield "ops.paged_decode, split", lambda: ops.paged_decode(*decode, split=64)
    q, k = made(4, 8, 1, 128), made(4, 8, 128, 128)
    yield "SDPA, one query", lambda: F.scaled_dot_product_attention(q, k, k)
    yield "ops.rms_norm, gradient wanted", lambda: ops.rms_norm(wanted, w)
    yield "F.rms_norm, gradient wanted", lambda: F.rms_norm(wanted, SHAPE[1:], w, 1e-6)


def paged(made: Callable[..., Any], device: str) -> tuple[Any, ...]:
    """Queries, caches, table and lengths of 4 sequences of 128 keys."""
    table = torch.arange(32, dtype=torch.int32, device=device).view(4, 8)
    lengths = torch.full((4,), 128, dtype=torch.int32, device=device)
    return made(4, 8, 128), made(32, 16, 2, 128), made(32, 16, 2, 128), table, lengths


def build() -> None:
    """Compile into the store what the calls of ``run`` look up."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    from tilewright.base.dtypes import bf16, f32, i32
    from tilewright.compiler.requests import Observed, observe_facts
    from tilewright.ops import registration

    assert all(getattr(ops, name) for name in ops.__all__)  # all are registered
    known = {op.overload: op for op in registration.operators()}

    class Building(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            results: Any = func(*args, **(kwargs or {}))
            if func in known:
                found: Any = results if isinstance(results, tuple) else (results,)
                print(known[func].name, known[func].compile_for(args, found, STORE), flush=True)
            return results

    with FakeTensorMode(), Building():
        for name, call in cases("cpu"):
            if name.startswith("ops."):
                call()
    _ship(kernels.swiglu, dict.fromkeys(("gate", "up", "y"), Observed(bf16, 0, SHAPE, (SHAPE[1], 1))))
    rows = Observed(bf16, 0, SHAPE, (SHAPE[1], 1))
    dtypes, facts = dict.fromkeys("abcdy", "bf16"), observe_facts(dict.fromkeys("abcdy", rows))
    store("host_five", five().compiled.compile, dtypes=dtypes, facts=facts)
    n, h, g, width, page = 4, 8, 2, 128, 16
    q = ((n, 1, g, h // g, width), "bf16")
    for dtype, count in ((f32, 2), (bf16, 1)):
        made = {
            "lengths": ((n,), i32), "pages": ((n, 8), i32), "q": (q[0], bf16), "k": ((32, page, g, width), bf16),
            "v": ((32, page, g, width), bf16), "o": ((count, *q[0]), dtype), "lse": ((count, *q[0][:-1]), f32),
        }  # fmt: skip
        kernel = kernels.paged_decode(width, 1, page)
        seen = {name: Observed(d, 0, s, _row_major(s)) for name, (s, d) in made.items()}
        _ship(kernel, seen, k_scale=None, v_scale=None)
    states = {
        "o": ((2, n * h, width), f32),
        "lse": ((2, n * h), f32),
        "y": ((n * h, width), bf16),
        "whole": ((n * h,), f32),
    }
    merged = {name: Observed(d, 0, s, _row_major(s)) for name, (s, d) in states.items()}
    _ship(kernels.merge_states, merged, bm=1, bc=16)


def _ship(kernel: Any, seen: dict[str, Any], **keywords: int | None) -> None:
    """Compile into the store what a call with such tensors looks up."""
    from tilewright.artifact.store import ArtifactStore
    from tilewright.compiler.requests import observe_facts

    dtypes = {name: o.dtype for name, o in seen.items()}
    print(
        kernel.__name__,
        *kernel.compiled.ship(ArtifactStore(STORE), dtypes=dtypes, facts=observe_facts(seen), **keywords),
        flush=True,
    )


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def measured(only: str, rounds: int) -> dict[str, float]:
    """Median microseconds of each call."""
    calls = {name: call for name, call in cases("cuda") if only in name or name.startswith("torch.add")}
    for call in calls.values():
        for _ in range(20):
            call()
    torch.cuda.synchronize()

    def seconds(call: Callable[[], object]) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        return (time.perf_counter() - begin) / CALLS

    return {name: statistics.median(times) * 1e6 for name, times in rotated(calls, seconds, rounds).items()}


def run(only: str, rounds: int, path: str) -> None:
    """Print and write the times, each also as a multiple of the ``torch.add`` that it is compared with."""
    found = measured(only, rounds)
    add, into = found["torch.add"], found["torch.add, out="]
    for name, microseconds in found.items():
        print(f"{name:36} {microseconds:7.2f} us  {microseconds / add:5.2f} of add  {microseconds / into:5.2f} of out=")
    write(document(torch, calls=CALLS, rounds=rounds, host_us=found), path)


def main() -> None:
    options = parser(__doc__, ONLY).parse_args()
    if options.what == "build":
        build()
    else:
        run(options.only, options.rounds, options.json)


if __name__ == "__main__":
    main()
