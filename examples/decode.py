"""A small transformer serves requests that come and go, from a cache in pages: its kernels, the pool, one loop.

    python examples/decode.py

Runs on a GPU where PyTorch finds one, else in the simulator on NumPy. Prompts that begin alike share the pages of what
they have in common; a request that ends gives its pages back. tests/examples/test_decode.py compares the tokens with
those of a dense float64 model without a cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

import numpy as np
from paged_attention import append, decode, merge, prefill

from tilewright import pages
from tilewright.ops import kernels
from tilewright.ops.splitting import steps_of_a_part

torch: Any = resolve_name("torch") if find_spec("torch") is not None else None  # which has no types that checkers read
GPU: bool = torch is not None and torch.cuda.is_available()
LAYERS, HEADS, GROUPS, WIDTH, INNER, VOCABULARY = 2, 2, 1, 64, 128, 64
PAGE, PAGES, BATCH = 16, 32, 3
GROUP, MODEL, SCALE = HEADS // GROUPS, HEADS * WIDTH, WIDTH**-0.5
append_rotated, prefill_pages, decode_pages = append(WIDTH, PAGE), prefill(WIDTH, PAGE), decode(WIDTH, page=PAGE)


def on_device(array: Any) -> Any:
    """For kernels: a tensor of the GPU, or the array itself."""
    return torch.from_numpy(array).cuda() if torch is not None and GPU else array


def on_host(array: Any) -> Any:
    return array.cpu().numpy() if GPU else array


def angles(positions: Any) -> tuple[Any, Any]:
    """cos and sin of rotary embedding, (tokens, WIDTH / 2)."""
    turns = positions[:, None] * 1e4 ** (-np.arange(WIDTH // 2) / (WIDTH // 2))
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


class Transformer:
    """Random weights in float16, and a cache for each layer: (pages, tokens, groups, width)."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        shapes = {"out": (MODEL, MODEL), "gate": (INNER, MODEL), "up": (INNER, MODEL), "down": (MODEL, INNER)}
        shapes["qkv"] = ((HEADS + 2 * GROUPS) * WIDTH, MODEL)

        def weight(rows: int, columns: int) -> Any:
            return (random.standard_normal((rows, columns)) * columns**-0.5).astype(np.float16)

        self.layers = [{name: weight(*shape) for name, shape in shapes.items()} for _ in range(LAYERS)]
        self.embedding, self.head = weight(VOCABULARY, MODEL), weight(VOCABULARY, MODEL)
        self.on_device = [{name: on_device(w) for name, w in layer.items()} for layer in self.layers]
        self.ends = on_device(self.embedding), on_device(self.head)
        # nobody may read what nobody wrote
        self.cache = on_device(np.full((LAYERS, 2, PAGES, PAGE, GROUPS, WIDTH), np.nan, np.float16))

    def forward(self, tokens: Any, positions: Any, slots: Any, attend: Callable[[Any, Any, Any], Any]) -> Any:
        """Logits of packed tokens, whose keys and values go to ``slots``; ``attend(q, k, v)`` is their attention."""
        count = len(tokens)
        cos, sin = map(on_device, angles(positions))
        (rows, head), slots = self.ends, on_device(slots)
        x = rows[on_device(tokens)]
        for weights, (k, v) in zip(self.on_device, self.cache, strict=True):
            heads = kernels.linear(a=kernels.rms_norm(x=x), b=weights["qkv"]).reshape(count, -1, WIDTH)
            q, key, value = heads[:, :HEADS], heads[:, HEADS:-GROUPS], heads[:, -GROUPS:]
            append_rotated(slots, key, value, k, v, cos, sin)
            q = kernels.rotary(q.reshape(1, count, HEADS, 2, WIDTH // 2), cos, sin).reshape(count, HEADS, WIDTH)
            x = kernels.linear(a=attend(q, k, v).reshape(count, -1), b=weights["out"], residual=x)
            h = kernels.rms_norm(x=x)
            gated = kernels.swiglu(*(kernels.linear(a=h, b=weights[name]) for name in ("gate", "up")))
            x = kernels.linear(a=gated, b=weights["down"], residual=x)
        return on_host(kernels.linear(a=kernels.rms_norm(x=x), b=head))


@dataclass
class Request:
    """Wants ``wanted`` tokens behind its prompt, from step ``arrival`` on."""

    prompt: list[int]
    wanted: int
    arrival: int = 0
    tokens: list[int] = field(default_factory=list[int])
    sequence: pages.PageSequence = field(init=False)


def step(model: Transformer, requests: Sequence[Request], prompts: bool) -> None:
    """One token more for each: behind what is cached of ``prompts``, or behind the last token."""
    sequences = [r.sequence for r in requests]
    texts = [r.prompt[r.sequence.length :] if prompts else r.tokens[-1:] for r in requests]
    begins, counts = [s.length for s in sequences], [len(t) for t in texts]
    slots = pages.append(sequences, counts).slots.slots  # forks would have pages to copy first
    table = pages.block_table(sequences)
    places, lengths = on_device(table.block_table), on_device(table.seq_lens)
    ends = np.cumsum(counts)

    def attend_prompts(q: Any, k: Any, v: Any) -> Any:
        offsets = on_device(np.array([0, *ends], np.int32))
        return prefill_pages(offsets, lengths, places, q, k, v, scale=SCALE, group=GROUP)

    def attend_last(q: Any, k: Any, v: Any) -> Any:
        steps = -(-table.block_table.shape[1] * PAGE // 64)
        chunk = steps_of_a_part(len(sequences) * GROUPS, steps)
        rows = (len(sequences), 1, GROUPS, GROUP)
        o, lse = (on_device(np.empty((-(-steps // chunk), *rows, *d), np.float32)) for d in ((WIDTH,), ()))
        decode_pages(lengths, places, q.reshape(*rows, WIDTH), k, v, o, lse, scale=SCALE, chunk=chunk)
        y = on_device(np.empty((len(q) * HEADS, WIDTH), np.float16))
        merge(o.reshape(len(o), -1, WIDTH), lse.reshape(len(o), -1), y)
        return y

    positions = np.concatenate([np.arange(b, b + n) for b, n in zip(begins, counts, strict=True)])
    packed = np.concatenate([np.array(t, np.int64) for t in texts])
    logits = model.forward(packed, positions, slots, attend_prompts if prompts else attend_last)
    for request, end in zip(requests, ends, strict=True):
        request.tokens.append(int(logits[end - 1].argmax()))


def serve(model: Transformer, requests: Sequence[Request]) -> tuple[pages.PagePool, list[int]]:
    """Until each request has its tokens; at most BATCH at a time. Returns the pool and how many ran at each step."""
    pool = pages.PagePool(PAGES, page_tokens=PAGE)
    waiting, running, sizes = list(requests), list[Request](), list[int]()
    while waiting or running:
        arrived = [r for r in waiting if r.arrival <= len(sizes)][: BATCH - len(running)]
        for request in arrived:
            request.sequence = pages.PageSequence.matched(pool, request.prompt[:-1])  # at least one token is computed
            waiting.remove(request)
        if running:
            step(model, running, prompts=False)
        if arrived:
            step(model, arrived, prompts=True)
        for request in arrived:
            request.sequence.publish(request.prompt)
        running += arrived
        sizes.append(len(running))
        for request in [r for r in running if len(r.tokens) >= r.wanted]:
            request.sequence.release()
            running.remove(request)
    return pool, sizes


def workload(seed: int = 12) -> list[Request]:
    """Prompts of several lengths that come at several steps; some begin alike."""
    random = np.random.default_rng(seed)
    common = random.integers(0, VOCABULARY, 36).tolist()
    plan = ((True, 5, 4, 0), (False, 17, 3, 0), (True, 1, 3, 2), (True, 20, 2, 2), (False, 1, 5, 3), (True, 2, 2, 4))
    return [
        Request(common * alike + random.integers(0, VOCABULARY, own).tolist(), wanted, arrival)
        for alike, own, wanted, arrival in plan
    ]


if __name__ == "__main__":
    requests = workload()
    pool, sizes = serve(Transformer(), requests)
    for request in requests:
        print(f"{len(request.prompt)} tokens, arrived at step {request.arrival}, then {request.tokens}")
    print(f"{len(sizes)} steps of {sizes} requests on {'the GPU' if GPU else 'the simulator'}; {pool.stats()}")
