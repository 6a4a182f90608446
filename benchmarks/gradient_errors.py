"""Which rounding the errors of attention's gradients come from: every forward before every backward.

Build where the compiler is, as ``attention_backward.py`` too, and run where the GPU is (PyTorch, numpy, cuda-bindings):

    python benchmarks/gradient_errors.py build
    python benchmarks/gradient_errors.py run --json $OUT/gradient_errors.json

Forwards are ours, cuDNN's, FlashAttention-2's and float64's, whose results are rounded to bf16, as all backwards read
them, or not; backwards are ours and cuDNN's. Ours has delta, the sums of results times their gradients, from each of
the forwards or from probabilities. Errors are norms, of float64's gradients of the first batch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attention_backward as backward
from harness import Timer, document, load, parser, relative_error, store, write

import tilewright as tw

# Dimension names are strings in annotations, which type checkers take for forward references.
# ruff: noqa: F821, UP037
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportMissingParameterType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

CASES = ((16, 16, 1024, 128, True), (4, 16, 4096, 128, True), (16, 16, 1024, 128, False), (16, 16, 1024, 64, True))
"""Batch, heads, tokens, width, whether it is causal."""
FIRST_ROWS = 64
"""Rows of few keys under a causal mask."""


def rounded_sums(width: int) -> tw.Kernel:
    """``attention`` that adds up probabilities as they are multiplied, rounded."""

    @tw.kernel(numerics="fast")
    def rounded_sums(
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        o: tw.Tensor["B", "S", "H", width],
        lse: tw.Tensor["B", "H", "S"],
        *,
        scale: tw.f32,
        causal: bool = False,
        bq=tw.auto,
        bk=tw.auto,
    ):
        b, h, s = tw.grid(q, (None, None, bq))
        qt = q[b, h, s]
        acc = tw.zeros((s, width), tw.f32)
        top = tw.full((s,), -tw.inf, tw.f32)
        total, whole = tw.zeros((s,), tw.f32), tw.zeros((s,), tw.f32)
        for t in tw.stream(k.shape[2], bk, until=s.stop if causal else None):
            x = tw.dot(qt, k[b, h, t].T)
            if causal:
                x = tw.where(s.index[:, None] >= t.index[None, :], x, -tw.inf)
            new = tw.maximum(top, x.max(1))
            p, fix = tw.exp((x - new[:, None]) * scale), tw.exp((top - new) * scale)
            total.set(total * fix + p.to(q.dtype).to(tw.f32).sum(1))
            whole.set(whole * fix + p.sum(1))
            acc.set(acc * fix[:, None])
            top.set(new)
            acc += tw.dot(p.to(q.dtype), v[b, h, t])
        o[b, s, h] = acc / total[:, None]
        lse[b, h, s] = top * scale + tw.log(whole)

    return rounded_sums


def delta_of_products(width: int) -> tw.Kernel:
    """delta as the sum of probabilities times their gradients: two products a step, as many again as in two thirds of
    the gradient of queries."""

    @tw.kernel(numerics="fast")
    def delta_of_products(
        do: tw.Tensor["B", "H", "S", width],
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        lse: tw.Tensor["B", "H", "S"],
        delta: tw.Tensor["B", "H", "S"],
        *,
        scale: tw.f32,
        causal: bool = False,
        bq: int = 128,
        bk: int = 128,
    ):
        b, h, s = tw.grid(q, (None, None, bq))
        qt, dt, top = q[b, h, s], do[b, h, s], lse[b, h, s]
        mean = tw.zeros((s,), tw.f32)
        for t in tw.stream(k.shape[2], bk, until=s.stop if causal else None):
            p = tw.exp(tw.dot(qt, k[b, h, t].T) * scale - top[:, None])
            if causal:
                p = tw.where(s.index[:, None] >= t.index[None, :], p, 0.0)
            mean += (p * tw.dot(dt, v[b, h, t].T)).sum(1)
        delta[b, h, s] = mean

    return delta_of_products


# -- programs ---------------------------------------------------------------------------------------------------------
def name(what: str, width: int, *, causal: bool) -> str:
    """The artifact of one program."""
    return f"gradient_errors_{what}_{width}{'_causal' if causal else ''}"


def build(only: str) -> None:
    """Compile what ``attention_backward.py`` does not."""
    from tilewright.ops import kernels

    narrow, f32, sums = dict.fromkeys("qkvo", "bf16"), {"o": "f32", "lse": "f32"}, {"lse": "f32", "delta": "f32"}
    for width, causal in sorted({case[3:] for case in CASES}):
        made = {
            "f32": (kernels.attention(width), {**narrow, **f32}),
            "rounded_sums": (rounded_sums(width), {**narrow, "lse": "f32"}),
            "rounded_sums_f32": (rounded_sums(width), {**narrow, **f32}),
            "delta": (delta_of_products(width), {**dict.fromkeys(("do", *"qkv"), "bf16"), **sums}),
        }
        for what, (kernel, dtypes) in made.items():
            own = name(what, width, causal=causal)
            if only in own:
                _, seconds = store(own, kernel.compile, target="sm_90a", dtypes=dtypes, causal=causal)
                print(f"{own}: {seconds:.1f} s", flush=True)


# -- one case ---------------------------------------------------------------------------------------------------------
class Case(backward.Case):
    """Inputs, and every forward and backward of them."""

    def __init__(self, torch: Any, batch: int, heads: int, tokens: int, width: int, causal: bool) -> None:
        self.programs = [load(own) for own in backward.names(width, causal=causal)]
        super().__init__(torch, tuple(self.programs), (batch, heads, tokens, width), causal=causal)
        self.own = {
            "ours": load(backward.forward_name(width, causal=causal)),
            **{what: load(name(what, width, causal=causal)) for what in ("f32", "rounded_sums", "rounded_sums_f32")},
        }
        self.launches: list[Any] = []
        self.of_products = load(name("delta", width, causal=causal))
        q, k, v = self.inputs
        self.cudnn = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, causal, False, scale=self.scale
        )

    def forward(self, program: Any, dtype: Any) -> tuple[Any, Any]:
        """Results (heads before tokens) and sums of rows by one of our programs."""
        q, k, v = self.inputs
        o = self.torch.full_like(q.transpose(1, 2).contiguous(), float("nan"), dtype=dtype)
        lse = self.torch.full_like(self.lse, float("nan"))
        launch = partial(program.launch, {"q": q, "k": k, "v": v, "o": o, "lse": lse, "scale": self.scale})
        launch()
        self.launches.append(launch)
        return o.transpose(1, 2), lse

    def exactly(self) -> tuple[Any, Any]:
        """Results and sums of rows in float64, of the first batch; of the others what FlashAttention-2 says."""
        torch, (o, lse) = self.torch, (self.o.double(), self.lse.double())
        for h in range(o.shape[1]):
            q, k, v = (x[0, h].double() for x in self.inputs)
            x = q @ k.T * self.scale
            if self.causal:
                x = x.masked_fill(~torch.ones(x.shape, dtype=torch.bool, device="cuda").tril(), float("-inf"))
            o[0, h], lse[0, h] = x.softmax(-1) @ v, x.logsumexp(-1)
        return o, lse

    def ours_after(self, o: Any, lse: Any, delta: Any = None) -> tuple[Any, ...]:
        """Our gradients with the delta of results ``o`` as they are, or with a given one."""
        self.lse.copy_(lse)
        self.delta.copy_((self.do.double() * o).sum(-1) if delta is None else delta)
        for x in self.results:
            x.fill_(float("nan"))
        for program, given in self.calls[1:]:
            program.launch(given)
        return tuple(x[:1].transpose(1, 2).clone() for x in self.results)

    def cudnn_after(self, o: Any, lse: Any) -> tuple[Any, ...]:
        """cuDNN's gradients after results and sums of rows."""
        _, _, cum_q, cum_k, max_q, max_k, seed, offset, *_ = self.cudnn
        q, k, v = self.inputs
        # PyTorch wants results as its own forward lays them
        own, sums = self.torch.empty_like(self.cudnn[0]).copy_(o), lse.float().reshape(self.cudnn[1].shape).contiguous()
        found = self.torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            self.do, q, k, v, own, sums, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, self.causal,
            scale=self.scale,
        )  # fmt: skip
        return tuple(x[:1].clone() for x in found)


def run(args: Any) -> None:
    """Errors and times of every case."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for batch, heads, tokens, width, causal in CASES:
        text = f"{batch}x{heads}x{tokens}x{width}{' causal' if causal else ''}"
        if args.only not in text:
            continue
        case = Case(torch, batch, heads, tokens, width, causal)
        exact, (o, lse) = case.exact(), case.exactly()
        forwards: dict[str, tuple[Any, Any]] = {
            "float64": (o, lse),
            "float64, bf16": (o.bfloat16(), lse),
            "ours": case.forward(case.own["ours"], torch.bfloat16),
            "ours, f32": case.forward(case.own["f32"], torch.float32),
            "rounded sums": case.forward(case.own["rounded_sums"], torch.bfloat16),
            "rounded sums, f32": case.forward(case.own["rounded_sums_f32"], torch.float32),
            "cudnn": (case.cudnn[0], case.cudnn[1].reshape(lse.shape)),
            "flash": case.forwards()["flash"],
        }
        rounded = {who: how for who, how in forwards.items() if how[0].dtype is torch.bfloat16}
        found = {f"ours after {who}": case.ours_after(*how) for who, how in forwards.items()}
        found |= {f"cudnn after {who}": case.cudnn_after(*how) for who, how in rounded.items()}
        found["cudnn after zeros"] = case.cudnn_after(torch.zeros_like(o).bfloat16(), lse)
        delta, (q, k, v) = torch.full_like(case.delta, float("nan")), case.inputs
        given = {"do": case.do, "q": q, "k": k, "v": v, "lse": forwards["ours"][1], "delta": delta, "scale": case.scale}
        case.of_products.launch(given)
        found["ours, delta of products"] = case.ours_after(*forwards["ours"], delta)
        case.lse.copy_(forwards["ours"][1])
        variants = {
            "backward": case.ours,
            "delta": partial(case.programs[0].launch, case.calls[0][1]),
            "delta of products": partial(case.of_products.launch, given),
            **{f"forward {what}": launch for what, launch in zip(case.own, case.launches, strict=True)},
        }
        norm, few = exact[0].norm(), (slice(None), slice(None), slice(FIRST_ROWS))
        dq_of_few = {who: of[0][few].double() - exact[0][few] for who, of in found.items()}
        rows.append({
            "case": text,
            "errors": {w: [relative_error(x, e) for x, e in zip(of, exact, strict=True)] for w, of in found.items()},
            f"dq's error in the first {FIRST_ROWS} rows": {w: float(x.norm() / norm) for w, x in dq_of_few.items()},
            "errors of results": {w: relative_error(how[0][:1], o[:1]) for w, how in forwards.items()},
            "errors of sums": {w: float((how[1][:1].double() - lse[:1]).abs().max()) for w, how in forwards.items()},
            "microseconds": {w: round(s * 1e6, 1) for w, s in timer.medians(variants).items()},
        })  # fmt: skip
        base = rows[-1]["errors"]["cudnn after cudnn"]
        for who, of in rows[-1]["errors"].items():
            print(f"{text:26s} {who:28s}", *(f"{x / y:.4f}" for x, y in zip(of, base, strict=True)), flush=True)
        print(text, base, rows[-1]["microseconds"], flush=True)
        write(document(torch, conditions=timer.conditions(), rows=rows), args.json)
        del case, exact, forwards, found
        torch.cuda.empty_cache()


if __name__ == "__main__":
    given = parser(__doc__, "cases whose name has this", rounds=9).parse_args()
    build(given.only) if given.what == "build" else run(given)
