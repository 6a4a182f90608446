"""What other benchmarks have not: gradients of norms alone, a wide vocabulary, wide heads, shared heads, bytes read.

    python benchmarks/speed_rows.py --json benchmarks/results/speed_rows.json

Each operator is compiled by its first call. Peers are torch.compile, cuDNN (attention) and cuBLAS (few rows, beside
torch.amax and a sum of ours, which read as many bytes). L2 flushed, order rotated, medians; errors against float64.
``--rounds 0`` compiles alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import Timer, document, greatest_error, relative_error, write


@dataclass(frozen=True)
class Row:
    """What is timed beside what; ``bytes`` that must be moved, of all variants."""

    name: str
    variants: dict[str, Callable[[], Any]]
    exact: Callable[[], Any]
    bytes: int


def normal(torch: Any, *shape: int) -> Any:
    """Random bf16."""
    return torch.randn(shape, device="cuda").bfloat16()


def few_rows(torch: Any) -> Iterator[Row]:
    """A B^T with few rows, whose time is that of reading B."""
    from tilewright import ops

    b = normal(torch, 8192, 8192)
    for m in (1, 16, 64):
        a = normal(torch, m, 8192)
        variants = {"ours": partial(ops.linear, a, b), "cublas": lambda a=a: a @ b.t(), "amax": lambda: torch.amax(b)}
        yield Row(f"linear {m}x8192x8192", variants, lambda a=a: a.double() @ b.double().t(), b.numel() * 2)


def norms(torch: Any) -> Iterator[Row]:
    """Gradients alone; the forward has been computed."""
    from torch._functorch import config

    from tilewright import ops

    config.donated_buffer = False  # one forward serves many backwards
    f = torch.nn.functional
    x, w, bias, g = (normal(torch, *s) for s in ((8192, 8192), (8192,), (8192,), (8192, 8192)))
    for name, count, ours, theirs in (
        ("rms_norm", 2, ops.rms_norm, lambda x, w: f.rms_norm(x, x.shape[-1:], w, 1e-6)),
        ("layer_norm", 3, ops.layer_norm, lambda x, w, b: f.layer_norm(x, x.shape[-1:], w, b)),
    ):
        inputs = (x, w, bias)[:count]
        wide = tuple(t.double() for t in inputs)
        kinds = {"ours": ours, "compile": torch.compile(theirs), "eager": theirs}
        variants = {kind: Backward(torch, forward, inputs, g) for kind, forward in kinds.items()}
        yield Row(f"{name} backward 8192x8192", variants, Backward(torch, theirs, wide, g), 3 * x.numel() * 2)


def losses(torch: Any) -> Iterator[Row]:
    """Cross-entropy over a vocabulary of 128,256."""
    from tilewright import ops

    x, f = normal(torch, 4096, 128256), torch.nn.functional
    target = torch.arange(4096, device="cuda") * 7919 % 128256
    kinds = {"ours": ops.cross_entropy, "compile": torch.compile(f.cross_entropy)}
    variants = {**{kind: partial(loss, x, target) for kind, loss in kinds.items()}, "amax": lambda: torch.amax(x)}
    yield Row("cross_entropy 4096x128256 forward", variants, lambda: f.cross_entropy(x.double(), target), x.numel() * 2)
    leaf = x.requires_grad_()

    def both(loss: Any) -> Any:
        return torch.autograd.grad(loss(leaf, target), leaf)[0]

    variants = {kind: partial(both, loss) for kind, loss in kinds.items()}

    def exact() -> Any:
        wide = x.detach().double().requires_grad_()
        return torch.autograd.grad(f.cross_entropy(wide, target), wide)[0]

    yield Row("cross_entropy 4096x128256 forward and backward", variants, exact, 3 * x.numel() * 2)


def attentions(torch: Any) -> Iterator[Row]:
    """Heads of 256, and four queries' heads to a head of keys; of heads of 256 the gradients too."""
    from tilewright import ops

    f, kernels = torch.nn.functional, torch.nn.attention
    for batch, heads, shared, length, width, causal in (
        (4, 8, 8, 4096, 256, False),
        (4, 8, 8, 4096, 256, True),
        (16, 8, 8, 1024, 256, False),
        (16, 8, 8, 1024, 256, True),
        (4, 16, 4, 4096, 128, True),
    ):
        q = normal(torch, batch, heads, length, width)
        k, v = (normal(torch, batch, shared, length, width) for _ in range(2))

        def theirs(backend: Any, q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            with kernels.sdpa_kernel(backend):
                return f.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

        backends = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}
        forwards = {
            "ours": partial(ops.attention, causal=causal),
            **{n: partial(theirs, getattr(kernels.SDPBackend, b)) for n, b in backends.items()},
        }
        name = f"attention {'causal' if causal else 'full'} {batch}x{heads}/{shared}x{length}x{width}"
        wide, exact = (q.double(), k.double(), v.double()), partial(theirs, kernels.SDPBackend.MATH)
        yield Row(name, {n: partial(forward, q, k, v) for n, forward in forwards.items()}, partial(exact, *wide), 0)
        if width == 256:
            g = normal(torch, *q.shape)
            backwards = {n: Backward(torch, forward, (q, k, v), g) for n, forward in forwards.items()}
            yield Row(f"{name} backward", backwards, Backward(torch, exact, wide, g), 0)


class Backward:
    """The gradient of a forward's first input, and with it all others, without the forward: that is computed once."""

    def __init__(self, torch: Any, forward: Callable[..., Any], inputs: tuple[Any, ...], g: Any) -> None:
        self._torch, self._forward, self._result = torch, forward, None
        self._leaves, self._g = [t.clone().requires_grad_() for t in inputs], g

    def __call__(self) -> Any:
        if self._result is None:
            self._result = self._forward(*self._leaves)
        g = self._g.to(self._result.dtype)
        return self._torch.autograd.grad(self._result, self._leaves, g, retain_graph=True)[0]


def measured(timer: Timer, row: Row) -> dict[str, Any]:
    """Errors of all variants and their times; what a variant raises instead, where it does."""
    if not timer.rounds:
        for run in row.variants.values():
            run()
        return {"case": row.name}
    exact, errors, greatest, failed = row.exact(), dict[str, float](), dict[str, float](), dict[str, str]()
    for name, run in row.variants.items():
        try:
            found = run()
        except Exception as error:  # a peer that refuses, or a refusal of ours, is a row too
            failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
            continue
        if found.shape == exact.shape and name != "amax":
            errors[name], greatest[name] = relative_error(found, exact), greatest_error(found, exact)
    del exact
    seconds = timer.medians({name: run for name, run in row.variants.items() if name not in failed})
    peer = min((s, n) for n, s in seconds.items() if n not in ("ours", "amax"))[1]
    return {
        "case": row.name,
        "microseconds": {name: round(s * 1e6, 2) for name, s in seconds.items()},
        "terabytes_per_second": {n: round(row.bytes / s * 1e-12, 2) for n, s in seconds.items()} if row.bytes else {},
        "peer": peer,
        "of_peer": round(seconds[peer] / seconds["ours"], 3) if "ours" in seconds else None,
        "errors": errors,
        "greatest_errors": greatest,
        **({"failed": failed} if failed else {}),
    }


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups = {group.__name__: group for group in (norms, losses, few_rows, attentions)}
    made.add_argument("--only", choices=groups, help="this group alone")
    made.add_argument("--json", default="", help="where the document of the run goes")
    made.add_argument("--rounds", type=int, default=15)
    args = made.parse_args()
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for name, group in groups.items():
        for row in group(torch) if args.only in (None, name) else ():
            rows.append(measured(timer, row))
            print(json.dumps(rows[-1]), flush=True)
            write(document(torch, **timer.conditions(), rows=rows), args.json)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
