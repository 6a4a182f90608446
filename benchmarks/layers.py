"""A layer of a language model beside torch.compile: Llama 3 8B and Qwen3 30B A3B by their shapes, random weights, bf16.

    python benchmarks/layers.py run --json benchmarks/results/layers.json

One text for all: ``Layer`` is written over functions of PyTorch (attention of cuDNN, experts by ``torch._grouped_mm``)
or of ``tilewright.ops``. PyTorch's is compiled, ours is taken as it is and compiled too. Timed as
``memory_bound.py`` says; decoding is a CUDA graph in all. Keys and values of decoding lie in a contiguous cache for
PyTorch, in pages of 64 dealt at random for ours; both write the new token's first. Kernels are compiled by their first
call; ``build`` makes that and compiles, no more. Results and gradients of torch.compile's layer and of ours are
compared with float64, in which each token has the experts that the compared layer chose.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import Timer, document, parser, relative_error, write

os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

PAGE = 64


def captured(torch: Any, run: Callable[[], Any]) -> tuple[Any, Any]:
    """A graph of ``run``, and the result that each replay writes."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # which may still be writing what ``run`` reads
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run()
    return graph, result


@dataclass(frozen=True)
class Shape:
    """Width of the model, heads of queries, heads of keys, width of a head, inner width, experts, experts of a token;
    whether heads are normalised."""

    name: str
    model: int
    heads: int
    groups: int
    width: int
    inner: int
    experts: int = 0
    chosen: int = 0
    head_norms: bool = False


LLAMA = Shape("Llama 3 8B", 4096, 32, 8, 128, 14336)
QWEN = Shape("Qwen3 30B A3B", 2048, 32, 4, 128, 768, 128, 8, head_norms=True)
PREFILL, TRAINING, DECODING = "prefill", "training", "decoding"
CASES = (
    (LLAMA, PREFILL, 1, 4096, 0.0),
    (LLAMA, TRAINING, 2, 4096, 1.0),
    (LLAMA, DECODING, 64, 4096, 1.05),
    (QWEN, PREFILL, 1, 4096, 1.5),
    (QWEN, TRAINING, 2, 4096, 1.15),
    (QWEN, DECODING, 64, 4096, 1.15),
)
"""Shape, what is done, batch, tokens (of decoding: of each sequence's cache), and the goal as a share of the peer."""


# -- what a layer is made of ------------------------------------------------------------------------------------------
class OfPyTorch:
    """Functions of PyTorch."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.f = torch, torch.nn.functional

    def norm(self, x: Any, w: Any) -> Any:
        return self.f.rms_norm(x, (x.shape[-1],), w, 1e-6)

    def add_norm(self, x: Any, residual: Any, w: Any) -> Any:
        total = x + residual
        return self.norm(total, w), total

    def rotary(self, x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.chunk(2, -1)
        c, s = cos[:, None], sin[:, None]
        return self.torch.cat((first * c - second * s, second * c + first * s), -1)

    def norm_rotary(self, x: Any, w: Any, cos: Any, sin: Any) -> Any:
        return self.rotary(self.norm(x, w), cos, sin)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        with self.torch.nn.attention.sdpa_kernel(self.torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            return self.f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def decode(self, q: Any, cache: Cache) -> Any:
        with self.torch.nn.attention.sdpa_kernel(self.torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            return self.f.scaled_dot_product_attention(q[:, :, None], cache.k, cache.v, enable_gqa=True)[:, :, 0]

    def turned(self, q: Any, k: Any, v: Any, cos: Any, sin: Any, cache: Cache) -> Any:
        """Turned queries; turned keys and values go into the cache."""
        cache.k[:, :, -1], cache.v[:, :, -1] = self.rotary(k, cos, sin)[0], v[0]
        return self.rotary(q, cos, sin)

    def gated(self, gate: Any, up: Any) -> Any:
        return self.f.silu(gate) * up

    def add_linear(self, x: Any, w: Any, residual: Any) -> Any:
        return residual + self.f.linear(x, w)

    def route(self, flat: Any, router: Any, k: int) -> tuple[Any, Any]:
        """Weights and ids of the experts that each token has."""
        return self.torch.softmax((flat @ router.t()).float(), -1).topk(k, -1)

    def moe(self, x: Any, router: Any, gate_up: Any, down: Any, k: int) -> Any:
        torch, flat = self.torch, x.view(-1, x.shape[-1])
        weights, ids = self.route(flat, router, k)
        weights = weights / weights.sum(-1, keepdim=True)
        pairs = ids.view(-1)
        order = pairs.argsort(stable=True)
        experts = torch.arange(1, router.shape[0] + 1, device=pairs.device)
        ends = torch.searchsorted(pairs[order], experts).to(torch.int32)  # bincount waits for the device
        gate, up = torch._grouped_mm(flat[order // k], gate_up.transpose(1, 2), offs=ends).chunk(2, 1)
        out = torch._grouped_mm(self.f.silu(gate) * up, down.transpose(1, 2), offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel(), device=order.device)
        return (out[back].view(-1, k, out.shape[1]) * weights.to(out.dtype)[..., None]).sum(1).view(x.shape)


class OfTilewright:
    """The same by ``tilewright.ops``; aligned products stay those of cuBLAS, as ``tw.patch`` leaves them."""

    def __init__(self, torch: Any, **decode: Any) -> None:
        from tilewright import ops

        self.torch, self.options = torch, decode
        self.ops, self.norm, self.add_norm = ops, ops.rms_norm, ops.add_rms_norm
        self.rotary, self.norm_rotary, self.gated = ops.rotary, ops.rms_norm_rotary, ops.swiglu
        self.attention = partial(ops.attention, causal=True)

    def turned(self, q: Any, k: Any, v: Any, cos: Any, sin: Any, cache: Cache) -> Any:
        k_cache, v_cache = cache.k_rows.view(cache.paged), cache.v_rows.view(cache.paged)
        turns = {"cos": cos, "sin": sin, "query": q[0]}
        return self.ops.paged_append(k[0], v[0], k_cache, v_cache, cache.slots, **turns)[None]

    def decode(self, q: Any, cache: Cache) -> Any:
        k, v = cache.k_rows.view(cache.paged), cache.v_rows.view(cache.paged)
        return self.ops.paged_decode(q, k, v, cache.table, cache.lengths, **self.options)

    def add_linear(self, x: Any, w: Any, residual: Any) -> Any:
        return self.ops.linear(x, w, residual=residual)

    def route(self, flat: Any, router: Any, k: int) -> tuple[Any, Any]:
        """Weights and ids of the experts that each token has in ``moe``: the same kernels, and bits."""
        return self.torch.ops.tilewright.route(flat, router, k, True, False)

    def moe(self, x: Any, router: Any, gate_up: Any, down: Any, k: int) -> Any:
        return self.ops.moe(x, router, gate_up, down, k=k)


class InFloat64(OfPyTorch):
    """Those of PyTorch a head, and an expert, at a time, so that float64 fits. Tokens have the experts ``ids``, which
    the layer that is compared has chosen: of two experts with close scores either is right."""

    def __init__(self, torch: Any, ids: Any) -> None:
        super().__init__(torch)
        self.ids = ids

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        group = q.shape[1] // k.shape[1]
        heads = [one_head(self.torch, q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
        return self.torch.stack(heads, 1)

    def moe(self, x: Any, router: Any, gate_up: Any, down: Any, k: int) -> Any:
        torch, flat = self.torch, x.view(-1, x.shape[-1])
        weights = torch.softmax(flat @ router.t(), -1).gather(1, self.ids.long())
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(flat)
        for expert, (both, last) in enumerate(zip(gate_up, down, strict=True)):
            token, choice = torch.where(self.ids == expert)
            gate, up = (flat[token] @ both.t()).chunk(2, 1)
            y = y.index_add(0, token, weights[token, choice, None] * (self.gated(gate, up) @ last.t()))
        return y.view(x.shape)


def one_head(torch: Any, q: Any, k: Any, v: Any) -> Any:
    """Causal attention of a head, computed again in the backward."""

    def head(q: Any, k: Any, v: Any) -> Any:
        x = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
        mask = torch.ones(x.shape[-2:], dtype=torch.bool, device=q.device).tril()
        return x.masked_fill(~mask, float("-inf")).softmax(-1) @ v

    return torch.utils.checkpoint.checkpoint(head, q, k, v, use_reentrant=False)


class Cache:
    """Keys and values of ``batch`` sequences, contiguous (batch, groups, tokens, width) and in pages."""

    def __init__(self, torch: Any, shape: Shape, batch: int, tokens: int) -> None:
        def made(*of: int) -> Any:
            return torch.randn(of, device="cuda", dtype=torch.bfloat16)

        self.k, self.v = (made(batch, shape.groups, tokens, shape.width) for _ in range(2))
        pages = batch * tokens // PAGE
        order = torch.randperm(pages, device="cuda").to(torch.int32)
        self.table = order.view(batch, tokens // PAGE)
        self.paged = (pages, PAGE, shape.groups, shape.width)
        self.k_rows, self.v_rows = (made(pages * PAGE, shape.groups, shape.width) for _ in range(2))
        for rows, of in ((self.k_rows, self.k), (self.v_rows, self.v)):
            rows.view(self.paged)[order.long()] = of.transpose(1, 2).reshape(self.paged)
        self.lengths = torch.full((batch,), tokens, device="cuda", dtype=torch.int32)
        self.slots = self.table[:, -1] * PAGE + PAGE - 1  # of the last token


class Layer:
    """Weights of a layer, and what it computes by some pieces."""

    def __init__(self, torch: Any, shape: Shape) -> None:
        def weight(*of: int) -> Any:
            return (torch.randn(of, device="cuda") * of[-1] ** -0.5).bfloat16()

        s, self.torch, self.shape = shape, torch, shape
        self.weights = {
            "norm": torch.ones(s.model, device="cuda", dtype=torch.bfloat16),
            "norm2": torch.ones(s.model, device="cuda", dtype=torch.bfloat16),
            "q": weight(s.heads * s.width, s.model),
            "k": weight(s.groups * s.width, s.model),
            "v": weight(s.groups * s.width, s.model),
            "o": weight(s.model, s.heads * s.width),
        }
        if s.head_norms:
            self.weights |= {n: torch.ones(s.width, device="cuda", dtype=torch.bfloat16) for n in ("q_norm", "k_norm")}
        if s.experts:
            self.weights["router"] = weight(s.experts, s.model)
            self.weights["gate_up"] = weight(s.experts, 2 * s.inner, s.model)
            self.weights["down"] = weight(s.experts, s.model, s.inner)
        else:
            self.weights |= {"gate_up": weight(2 * s.inner, s.model), "down": weight(s.model, s.inner)}

    def joined(self) -> dict[str, Any]:
        """The weights, of queries, keys and values in one tensor."""
        w = self.weights
        return {"qkv": self.torch.cat([w[n] for n in "qkv"])} | {n: t for n, t in w.items() if n not in "qkv"}

    def angles(self, tokens: int) -> tuple[Any, Any]:
        """Cosines and sines of rotary embedding, (tokens, width / 2)."""
        torch, half = self.torch, self.shape.width // 2
        rate = 5e5 ** (-torch.arange(half, device="cuda") / half)
        turns = torch.arange(tokens, device="cuda")[:, None] * rate
        return turns.cos().bfloat16(), turns.sin().bfloat16()

    def forward(self, pieces: Any, x: Any, cos: Any, sin: Any, w: dict[str, Any], cache: Cache | None = None) -> Any:
        """x of (batch, tokens, model); with a cache each token is the next one of a sequence."""
        s, linear = self.shape, self.torch.nn.functional.linear
        batch, tokens, _ = x.shape
        y = pieces.norm(x, w["norm"])
        if "qkv" in w:
            heads = linear(y, w["qkv"]).view(batch, tokens, -1, s.width)
            q, k, v = heads.split((s.heads, s.groups, s.groups), 2)
        else:
            q, k, v = (linear(y, w[name]).view(batch, tokens, -1, s.width) for name in "qkv")
        if s.head_norms and cache is None:
            q, k = pieces.norm_rotary(q, w["q_norm"], cos, sin), pieces.norm_rotary(k, w["k_norm"], cos, sin)
        elif s.head_norms:
            q, k = pieces.norm(q, w["q_norm"]), pieces.norm(k, w["k_norm"])
        elif cache is None:
            q, k = pieces.rotary(q, cos, sin), pieces.rotary(k, cos, sin)
        if cache is None:
            y = pieces.attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)
        else:
            y = pieces.decode(pieces.turned(q, k, v, cos, sin, cache)[0], cache)
        y, x = pieces.add_norm(linear(y.reshape(batch, tokens, -1), w["o"]), x, w["norm2"])
        if s.experts:
            return x + pieces.moe(y, w["router"], w["gate_up"], w["down"], s.chosen)
        gate, up = linear(y, w["gate_up"]).chunk(2, -1)
        return pieces.add_linear(pieces.gated(gate, up), w["down"], x)


# -- cases ------------------------------------------------------------------------------------------------------------
class Case:
    """A layer, its input, and what is timed."""

    def __init__(self, torch: Any, shape: Shape, kind: str, batch: int, tokens: int) -> None:
        torch.manual_seed(0)
        self.torch, self.kind, self.layer = torch, kind, Layer(torch, shape)
        self.cache = Cache(torch, shape, batch, tokens) if kind == DECODING else None
        rows = (1, batch) if kind == DECODING else (batch, tokens)
        self.x = torch.randn(*rows, shape.model, device="cuda", dtype=torch.bfloat16)
        self.dy = torch.randn_like(self.x)
        self.angles = self.layer.angles(rows[1])

    def call(self, pieces: Any, compiled: bool, *, joined: bool = False) -> Callable[[], Any]:
        """The result, or of training the gradients of the input and of every weight; ``joined``: with one product for
        queries, keys and values."""
        torch = self.torch
        forward = partial(self.layer.forward, pieces)
        forward = torch.compile(forward) if compiled else forward
        if self.kind != TRAINING:
            given = (self.x, *self.angles, self.layer.joined() if joined else self.layer.weights)
            run = torch.no_grad()(lambda: forward(*given, cache=self.cache))
            return self._captured(run) if self.kind == DECODING else run
        x = self.x.clone().requires_grad_()
        weights = {n: w.clone().requires_grad_() for n, w in self.layer.weights.items()}
        leaves = [x, *weights.values()]
        return lambda: torch.autograd.grad(forward(x, *self.angles, weights), leaves, self.dy)

    def parts(self) -> Any:
        """Those of the cache's sequences, which all layers of a step share."""
        from tilewright import ops

        cache, shape = self.cache, self.layer.shape
        assert cache is not None
        q = self.x.new_empty(self.x.shape[1], shape.heads, shape.width)
        k, v = cache.k_rows.view(cache.paged), cache.v_rows.view(cache.paged)
        return ops.decode_parts(q, k, v, cache.table, cache.lengths)

    def _captured(self, run: Callable[[], Any]) -> Callable[[], Any]:
        graph, result = captured(self.torch, run)

        def replay(_: Any = run) -> Any:  # what ``run`` holds on to is read by each replay
            graph.replay()
            return result

        return replay

    def errors(self, pieces: Any, compiled: bool) -> dict[str, float]:
        """Relative errors of the result, or of each gradient, against float64."""
        ids, moe = list[Any](), pieces.moe

        def noted(x: Any, router: Any, gate_up: Any, down: Any, k: int) -> Any:
            ids.append(pieces.route(x.detach().view(-1, x.shape[-1]), router.detach(), k)[1])
            return moe(x, router, gate_up, down, k)

        pieces.moe = noted
        found = self.call(pieces, compiled)()
        pieces.moe = moe
        exact = self._exact(InFloat64(self.torch, ids[0] if ids else None))
        if self.kind != TRAINING:
            return {"result": relative_error(found, exact)}
        named = zip(("x", *self.layer.weights), found, exact, strict=True)
        return {name: relative_error(a, b) for name, a, b in named}

    def _exact(self, pieces: Any) -> Any:
        torch, trains = self.torch, self.kind == TRAINING
        x, *leaves = (t.double().requires_grad_(trains) for t in (self.x, *self.layer.weights.values()))
        weights = dict(zip(self.layer.weights, leaves, strict=True))
        y = self.layer.forward(pieces, x, *(a.double() for a in self.angles), weights)
        return torch.autograd.grad(y, [x, *leaves], self.dy.double()) if trains else y


def _apart(found: Any, exact: Any) -> float:
    """The greatest relative error of the results."""
    both = zip(found, exact, strict=True) if isinstance(found, tuple) else ((found, exact),)
    return max(relative_error(a, b) for a, b in both)


def run(args: argparse.Namespace, torch: Any) -> None:
    """Check and time every case; print a table and write JSON."""
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    pieces = {"pytorch": OfPyTorch(torch), "ours": OfTilewright(torch)}
    for shape, kind, batch, tokens, goal in CASES:
        name = f"{shape.name} {kind} {batch}x{tokens}"
        if args.only not in name:
            continue
        torch._dynamo.reset()
        case = Case(torch, shape, kind, batch, tokens)
        calls = {
            "pytorch, compiled": case.call(pieces["pytorch"], True),
            "ours": case.call(pieces["ours"], False),
            "ours, compiled": case.call(pieces["ours"], True),
        }
        if kind == DECODING:
            calls["ours, not balanced"] = case.call(OfTilewright(torch, balanced=False), False)
            calls["pytorch, compiled, joined"] = case.call(pieces["pytorch"], True, joined=True)
            calls["ours, not balanced, joined"] = case.call(OfTilewright(torch, balanced=False), False, joined=True)
            calls["ours, parts of another layer"] = case.call(OfTilewright(torch, parts=case.parts()), False)
        results = {n: call() for n, call in calls.items()}
        apart = {n: _apart(r, _double(results["pytorch, compiled"])) for n, r in results.items()}
        del results
        torch.cuda.empty_cache()
        seconds = {} if args.what == "build" else timer.medians(calls)
        errors = {} if kind == DECODING else {n: case.errors(p, n == "pytorch") for n, p in pieces.items()}
        if args.what == "build":
            continue
        rows.append({
            "case": name,
            "microseconds": {n: round(s * 1e6, 1) for n, s in seconds.items()},
            "of_peer": {n: round(seconds["pytorch, compiled"] / s, 3) for n, s in seconds.items()},
            "goal": goal,
            "apart": apart,
            "errors": errors,
        })  # fmt: skip
        print(rows[-1], flush=True)
        write(document(torch, **timer.conditions(), rows=rows), args.json)
        del case, calls
        torch.cuda.empty_cache()


def _double(found: Any) -> Any:
    return tuple(t.double() for t in found) if isinstance(found, tuple) else found.double()


if __name__ == "__main__":
    given = parser(__doc__, "cases whose name contains this").parse_args()
    import torch

    run(given, torch)
