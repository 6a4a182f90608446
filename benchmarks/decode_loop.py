"""A decode loop of Llama 3 8B by its shapes (random weights): 64 sequences of about 4,096 tokens, whose requests come
and go, over the page pool; one CUDA graph a step, one list of parts for all layers (or none: ``--whole``).

    python benchmarks/decode_loop.py build                  # compiles what the loop launches, by one layer
    python benchmarks/decode_loop.py run --json benchmarks/results/decode_loop.json

Of a step the host appends a token to each sequence, copies slots, table and lengths, and replays the graph, while the
step before runs; a request that ends gives its pages back behind an event, the next one's prompt counts as computed:
its pages hold random keys and values. Times are of the device, from one step's end to the next one's. The roofline is
the time that the bytes of weights and of keys and values take at the memory's bandwidth. The logits of the first step
are compared with float64 for two sequences.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from harness import document, relative_error, write

os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

PAGE = 64
BYTES_PER_SECOND = {"H200": 4.8e12, "H100": 3.35e12}
"""Of the memory, as NVIDIA states it."""
ENDS = 0.1
"""How likely it is that a request ends in a step."""


@dataclass(frozen=True)
class Shape:
    """Of a model and its batch; ``tokens`` of a sequence on average."""

    layers: int = 32
    model: int = 4096
    heads: int = 32
    groups: int = 8
    width: int = 128
    inner: int = 14336
    vocabulary: int = 128256
    batch: int = 64
    tokens: int = 4096

    @property
    def columns(self) -> int:
        """Of the table: a quarter more than the average."""
        return self.tokens * 5 // 4 // PAGE


class Model:
    """Weights, caches of random keys and values, and a step of all sequences."""

    def __init__(self, torch: Any, shape: Shape, pages: int, device: str, listed: bool) -> None:
        from tilewright import ops

        torch.manual_seed(0)
        self.torch, self.shape, self.ops, self.listed, s = torch, shape, ops, listed, shape

        def weight(*of: int) -> Any:
            return torch.empty(of, device=device, dtype=torch.bfloat16).normal_(0, of[-1] ** -0.5)

        def layer() -> dict[str, Any]:
            ones = torch.ones(s.model, device=device, dtype=torch.bfloat16)
            return {
                "norm": ones,
                "qkv": weight((s.heads + 2 * s.groups) * s.width, s.model),
                "o": weight(s.model, s.heads * s.width),
                "norm2": ones,
                "gate_up": weight(2 * s.inner, s.model),
                "down": weight(s.model, s.inner),
            }

        self.layers = [layer() for _ in range(s.layers)]
        self.embedding, self.head = weight(s.vocabulary, s.model), weight(s.vocabulary, s.model)
        self.norm = self.layers[0]["norm"]
        cache = (s.layers, 2, pages, PAGE, s.groups, s.width)
        self.cache = torch.empty(cache, device=device, dtype=torch.bfloat16).normal_()
        half = s.width // 2
        turns = torch.arange(2 * s.tokens, device=device)[:, None] * 5e5 ** (-torch.arange(half, device=device) / half)
        self.cos, self.sin = turns.cos().bfloat16(), turns.sin().bfloat16()

        def integers(*of: int, dtype: Any = torch.int32) -> Any:
            return torch.zeros(of, device=device, dtype=dtype)

        self.tokens, self.slots = (integers(s.batch, dtype=torch.int64) for _ in range(2))
        self.table, self.lengths = integers(s.batch, s.columns), integers(s.batch)

    def weight_bytes(self) -> int:
        """Of what a step multiplies with."""
        return sum(2 * w.numel() for layer in self.layers for w in layer.values()) + 2 * self.head.numel()

    def step(self) -> Any:
        """Logits of each sequence's next token, which becomes its last."""
        ops, s, linear = self.ops, self.shape, self.torch.nn.functional.linear
        at = self.lengths - 1
        cos, sin = self.cos[at], self.sin[at]
        x = self.embedding[self.tokens]
        query = x.new_empty(s.batch, s.heads, s.width)
        parts = {"balanced": False}
        if self.listed:
            parts = {"parts": ops.decode_parts(query, *self.cache[0], self.table, self.lengths)}
        for w, (k, v) in zip(self.layers, self.cache, strict=True):
            heads = linear(ops.rms_norm(x, w["norm"]), w["qkv"]).view(1, s.batch, -1, s.width)
            turned, value = heads.split((s.heads + s.groups, s.groups), 2)
            q, key = ops.rotary(turned, cos, sin)[0].split((s.heads, s.groups), 1)
            k.flatten(0, 1).index_copy_(0, self.slots, key)
            v.flatten(0, 1).index_copy_(0, self.slots, value[0])
            y = ops.paged_decode(q, k, v, self.table, self.lengths, **parts)
            y, x = ops.add_rms_norm(linear(y.flatten(1), w["o"]), x, w["norm2"])
            x = ops.linear(ops.swiglu(*linear(y, w["gate_up"]).chunk(2, -1)), w["down"], residual=x)
        logits = linear(ops.rms_norm(x, self.norm), self.head)
        self.tokens.copy_(logits.argmax(-1))
        return logits

    def exact(self, tokens: Any, some: range) -> Any:
        """Logits of some sequences in float64, from the keys and values that the cache holds of earlier tokens."""
        torch, s = self.torch, self.shape
        x = self.embedding[tokens[some.start : some.stop]].double()

        def normed(x: Any) -> Any:
            return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()

        def turned(x: Any, at: int) -> Any:
            (first, second), c, sn = x.chunk(2, -1), self.cos[at].double(), self.sin[at].double()
            return torch.cat((first * c - second * sn, second * c + first * sn), -1)

        for w, (k, v) in zip(self.layers, self.cache, strict=True):
            heads = (normed(x) @ w["qkv"].double().T).view(len(some), -1, s.width)
            attended = list[Any]()
            for row, b in zip(heads, some, strict=True):
                n = int(self.lengths[b])
                keys, values = (
                    c[self.table[b, : -(-n // PAGE)].long()].flatten(0, 1)[: n - 1].double() for c in (k, v)
                )
                q, key, value = row.split((s.heads, s.groups, s.groups), 0)
                keys = torch.cat((keys, turned(key, n - 1)[None]))
                values = torch.cat((values, value[None]))
                q = turned(q, n - 1).unflatten(0, (s.groups, -1))
                p = (torch.einsum("grd,tgd->grt", q, keys) * s.width**-0.5).softmax(-1)
                attended.append(torch.einsum("grt,tgd->grd", p, values).flatten())
            x = x + torch.stack(attended) @ w["o"].double().T
            gate, up = (normed(x) @ w["gate_up"].double().T).chunk(2, -1)
            x = x + (torch.nn.functional.silu(gate) * up) @ w["down"].double().T
        return normed(x) @ self.head.double().T


class Loop:
    """Requests that come and go, and the buffers that a graph reads."""

    def __init__(self, torch: Any, shape: Shape, device: str, *, listed: bool = True) -> None:
        from tilewright import pages

        self.torch, self.shape, self.pages, self.cuda = torch, shape, pages, device == "cuda"
        self.random = np.random.default_rng(0)
        self.pool = pages.PagePool((shape.batch + 4) * shape.columns, page_tokens=PAGE)
        self.model = Model(torch, shape, (shape.batch + 4) * shape.columns, device, listed)
        self.sequences = [self._arrived() for _ in range(shape.batch)]
        self.ended, self.tokens, self.wasted = 0, 0, list[float]()

    def _arrived(self) -> Any:
        """A request whose prompt is in its pages: a sixth more or fewer tokens than the average."""
        sequence, tokens = self.pages.PageSequence(self.pool), self.shape.tokens
        sequence.append(int(self.random.integers(tokens - tokens // 6, tokens + tokens // 6)))
        return sequence

    def prepare(self) -> None:
        """A token more of each sequence, and the buffers of the next step."""
        torch = self.torch
        for b, sequence in enumerate(self.sequences):
            full = sequence.length >= self.shape.columns * PAGE
            if full or self.random.random() < ENDS / len(self.sequences):
                event = torch.cuda.Event() if self.cuda else None
                if event is not None:
                    event.record()
                sequence.release(after=event)
                self.sequences[b] = self._arrived()
                self.ended += 1
        slots = self.pages.append(self.sequences, [1] * len(self.sequences)).slots.slots
        table = self.pages.block_table(self.sequences, width=self.shape.columns)
        for buffer, values in (
            (self.model.slots, slots.astype(np.int64)), (self.model.table, table.block_table),
            (self.model.lengths, table.seq_lens),
        ):  # fmt: skip
            host = torch.from_numpy(values)
            buffer.copy_(host.pin_memory() if self.cuda else host, non_blocking=True)
        held = int(table.seq_lens.sum())
        self.tokens = held
        self.wasted.append(1 - held / (PAGE * sum(len(s.row) for s in self.sequences)))


def captured(torch: Any, model: Model) -> Any:
    """(replay, logits): the step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = model.step()
    return graph.replay, logits


def run(args: argparse.Namespace, torch: Any) -> dict[str, Any]:
    """The loop, its times, and the error of the first step."""
    shape = Shape(layers=args.layers)
    with torch.no_grad():
        loop = Loop(torch, shape, "cuda", listed=not args.whole)
        loop.prepare()
        replay, logits = captured(torch, loop.model)
        loop.model.tokens.copy_(torch.arange(shape.batch))
        before = loop.model.tokens.clone()
        replay()
        error = relative_error(logits[:2], loop.model.exact(before, range(2)))
        events = [torch.cuda.Event(enable_timing=True) for _ in range(args.steps + 1)]
        moved = list[int]()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for i, event in enumerate(events):
            loop.prepare()
            replay()
            event.record()
            moved.append(loop.model.weight_bytes() + 4 * shape.layers * shape.groups * shape.width * loop.tokens)
            if i:
                events[i - 1].synchronize()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    steps = np.array([a.elapsed_time(b) for a, b in pairwise(events)])
    name = torch.cuda.get_device_name()
    rate = next(r for n, r in BYTES_PER_SECOND.items() if n in name)
    roofline = np.array(moved[1:]) / rate * 1e3
    return {
        "shape": vars(shape), "listed": loop.model.listed, "steps": args.steps, "ended": loop.ended, "error": error,
        "tokens_per_second": round(shape.batch * len(events) / seconds),
        "step_ms": {"p50": round(float(np.median(steps)), 3), "p99": round(float(np.percentile(steps, 99)), 3)},
        "bytes": {"weights": loop.model.weight_bytes(), "keys_and_values": moved[-1] - loop.model.weight_bytes()},
        "roofline_ms": round(float(np.median(roofline)), 3), "bytes_per_second": rate,
        "of_roofline": round(float(np.median(roofline / steps)), 3),
        "cache_waste": round(float(np.mean(loop.wasted)), 4),
    }  # fmt: skip


def main() -> None:
    """Print and write what the loop does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--whole", action="store_true", help="sequences as a whole, not in listed parts")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    if args.what == "build":
        args.layers, args.steps = 1, 2
    import torch

    found = run(args, torch)
    print({n: x for n, x in found.items() if n != "shape"}, flush=True)
    write(document(torch, **found), args.json)


if __name__ == "__main__":
    main()
