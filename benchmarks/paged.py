"""Decode over caches of keys and values, contiguous and in pages, bf16 and 8-bit, beside cuDNN and flash attention of
PyTorch; latent attention; a chunk of a prompt over pages; and appending.

Kernels are compiled when they are first launched: ``build`` launches each case once, so that a run finds them in the
store (several at once with ``--only``).

    python benchmarks/paged.py build
    python benchmarks/paged.py run --json benchmarks/results/paged.json

The peers read a contiguous cache of bf16. Pages are dealt to the sequences at random, and go through
``ops.paged_decode`` as it chooses (a list of parts, or whole sequences), or with the list of another layer;
``contiguous`` is ``kernels.paged_decode`` of
such parts as it would choose; ``any batch`` has parts of 1,024 keys, so that a sequence's bits do not depend on the
others. A chunk of a prompt is ``examples/paged_attention.py`` beside our attention over packed sequences. A time is
that of all launches. Every result is compared with float64, with NaN beyond
each length. Lengths are the greatest for all, or ``skewed``: times the fourth power of a uniform number.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import Timer, document, parser, relative_error, write

WIDTH = 128


@dataclass(frozen=True)
class Case:
    """B sequences with caches of T tokens, H heads of queries over G of keys."""

    B: int
    T: int
    H: int
    G: int
    dtype: str = "bf16"
    lengths: str = "full"
    layout: str = "NHD"

    def __str__(self) -> str:
        return f"{self.B}x{self.T} {self.H}/{self.G} {self.dtype} {self.layout} {self.lengths}"


_SMALL = ((1, 8192, 32, 8), (16, 2048, 32, 8), (64, 4096, 32, 8), (128, 4096, 32, 8))
_SHAPES = (*_SMALL, (64, 4096, 16, 16), (256, 512, 32, 8), (8, 32768, 64, 8))
CASES = (
    *(Case(*shape, layout=layout) for shape in _SHAPES for layout in ("NHD", "HND")),
    *(Case(*shape, dtype="e4m3") for shape in _SMALL),
    *(Case(64, 8192, 32, 8, dtype=dtype, lengths="skewed") for dtype in ("bf16", "e4m3")),
    Case(64, 1408, 32, 8),  # as many keys as the skewed ones, within half a percent
)
PAGES = (1, 8, 16, 32, 64, 128)
LATENT = ((64, 4096, 128), (128, 4096, 16), (1, 8192, 128))
"""Sequences, tokens and heads of queries over keys of 576 elements, of which 512 are the value."""
CHUNKS = ((512, 8192),)
"""New tokens of a prompt, and those that the cache holds before them; 32 heads over 8 of keys."""
APPENDED = (64, 1024, 8192)
"""Tokens, of 8 heads of 128."""

Timed = tuple[Callable[[], object], Any]
"""What is timed, and its result."""


class Problem:
    """The tensors of a case: caches of NaN beyond each length, contiguous and in pages."""

    def __init__(self, torch: Any, case: Case) -> None:
        self.torch, self.case = torch, case
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0)
        lengths = torch.full((case.B,), case.T, dtype=torch.int32)
        if case.lengths == "skewed":
            lengths = (torch.rand(case.B, generator=generator) ** 4 * case.T).int() + 1
        self.lengths = lengths.cuda()
        self.q = torch.randn(case.B, 1, case.H, WIDTH, device="cuda").bfloat16()
        beyond = torch.arange(case.T, device="cuda")[None] >= self.lengths[:, None]
        self.k, self.v = (self._cache(beyond) for _ in range(2))
        self.bytes = 2 * self.k.element_size() * int(lengths.sum()) * case.G * WIDTH

    def _cache(self, beyond: Any) -> Any:
        case, torch = self.case, self.torch
        made = torch.randn(case.B, case.T, case.G, WIDTH, device="cuda", dtype=torch.bfloat16)
        made[beyond] = float("nan")
        made = made.to(torch.float8_e4m3fn) if case.dtype == "e4m3" else made
        return made.transpose(1, 2).contiguous().transpose(1, 2) if case.layout == "HND" else made

    def exact(self) -> Any:
        """The answer in float64, sequence by sequence."""
        torch, found = self.torch, list[Any]()
        for b, n in enumerate(self.lengths.tolist()):
            k, v = (x[b, :n].double() for x in (self.k, self.v))
            p = torch.einsum("grd,tgd->grt", self.q[b, 0].double().unflatten(0, (self.case.G, -1)), k) * WIDTH**-0.5
            found.append(torch.einsum("grt,tgd->grd", p.softmax(-1), v).flatten(0, 1))
        return torch.stack(found)[:, None]

    def paged(self, page: int) -> tuple[Any, Any, Any]:
        """Pools of keys and values and a table of their pages, dealt at random."""
        torch, case = self.torch, self.case
        count = -(-case.T // page)
        order = torch.randperm(case.B * count, device="cuda")
        pools = list[Any]()
        for cache in (self.k, self.v):
            shape = (case.B * count, page, case.G, WIDTH)
            swapped = (shape[0], case.G, page, WIDTH) if case.layout == "HND" else shape
            pool = torch.empty(swapped, device="cuda", dtype=cache.dtype)
            pool = pool.transpose(1, 2) if case.layout == "HND" else pool
            integers = torch.uint8 if case.dtype == "e4m3" else torch.int16
            pool.view(integers)[order] = cache.view(integers).reshape(shape)
            pools.append(pool)
        held = torch.arange(count, device="cuda")[None] * page < self.lengths[:, None]
        return pools[0], pools[1], order.view(case.B, count).int().masked_fill(~held, -(2**31))

    def variants(self) -> dict[str, Timed]:
        """Ours by name, with their results."""
        made = {"contiguous": self._contiguous()}
        for page in PAGES if self.case.layout == "NHD" else (16,):
            given = self.paged(page)
            made[f"pages of {page}"] = self._operator(given)
            if page == 16 and self.case.layout == "NHD":
                made["balanced, 16"] = self._operator(given, balanced=True)
                made["not balanced, 16"] = self._operator(given, balanced=False)
                made["parts of another layer, 16"] = self._operator(given, parts=self._listed(given))
                made["any batch, 16"] = self._operator(given, split=1024)
        return made

    def _listed(self, given: tuple[Any, Any, Any]) -> Any:
        from tilewright import ops

        return ops.decode_parts(self.q, *given, self.lengths)

    def _operator(self, given: tuple[Any, Any, Any], **options: Any) -> Timed:
        from tilewright import ops

        y = self.torch.full_like(self.q, float("nan"))
        k, v, table = given
        return (lambda: ops.paged_decode(self.q, k, v, table, self.lengths, out=y, **options)), y

    def _contiguous(self) -> Timed:
        from tilewright.ops import kernels
        from tilewright.ops.kernels.paged import STEP
        from tilewright.ops.splitting import steps_of_a_part

        torch, case, empty = self.torch, self.case, self.q.new_empty
        steps = -(-case.T // STEP)
        at_once = torch.cuda.get_device_properties(0).multi_processor_count * (2 if case.dtype == "e4m3" else 1)
        chunk = steps_of_a_part(case.B * case.G, steps, at_once)
        count, decode = -(-steps // chunk), kernels.paged_decode(WIDTH)
        q = self.q.unflatten(2, (case.G, -1))
        y = torch.full_like(q, float("nan"))
        o = y[None] if count == 1 else empty((count, *q.shape), dtype=torch.float32)
        lse = empty(o.shape[:-1], dtype=torch.float32)
        options = {"scale": WIDTH**-0.5, "chunk": chunk}

        merged = (o.view(count, -1, WIDTH), lse.view(count, -1), y.view(-1, WIDTH))

        def launch() -> None:
            decode(self.lengths, None, q, self.k, self.v, o, lse, **options)
            if count > 1:
                kernels.merge_states(*merged, bm=1, bc=16)

        return launch, y.view(self.q.shape)

    def peers(self) -> dict[str, Callable[[], object]]:
        """cuDNN and flash attention over the contiguous cache, where these can be asked."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attend = self.torch.nn.functional.scaled_dot_product_attention
        if self.case.lengths != "full" or self.case.dtype != "bf16":
            return {}
        q, k, v = (x.transpose(1, 2) for x in (self.q, self.k, self.v))

        def of(backend: Any) -> Callable[[], object]:
            def launch() -> Any:
                with sdpa_kernel(backend):
                    return attend(q, k, v, enable_gqa=True)

            return launch

        return {"cudnn": of(SDPBackend.CUDNN_ATTENTION), "flash": of(SDPBackend.FLASH_ATTENTION)}


def latent(torch: Any, shape: tuple[int, int, int]) -> tuple[dict[str, Timed], Any, int]:
    """Latent attention over pages of 64: what is timed, float64's answer for the first sequence, bytes to read."""
    from tilewright import ops

    batch, tokens, heads = shape
    torch.manual_seed(0)
    cache = torch.randn(batch * tokens // 64, 64, 1, 576, device="cuda", dtype=torch.bfloat16)
    q = torch.randn(batch, heads, 576, device="cuda").bfloat16()
    table = torch.randperm(len(cache), device="cuda").view(batch, -1).int()
    lengths = torch.full((batch,), tokens, device="cuda", dtype=torch.int32)
    y = torch.full((batch, heads, 512), float("nan"), device="cuda", dtype=torch.bfloat16)
    rows = cache[table[0].long()].view(-1, 576).double()
    exact = (q[0].double() @ rows.T * 192**-0.5).softmax(-1) @ rows[:, :512]
    launch = lambda: ops.paged_decode(q, cache, cache[..., :512], table, lengths, scale=192**-0.5, out=y)  # noqa: E731
    return {"ours": (launch, y[0])}, exact, cache.numel() * 2


def chunked(torch: Any, new: int, before: int) -> tuple[dict[str, Timed], Any, int]:
    """Causal attention of the last ``new`` tokens over pages and over a contiguous cache; float64's answer for one head
    and the bytes of keys and values."""
    from paged_attention import prefill

    from tilewright.ops import kernels

    torch.manual_seed(0)
    total, heads, groups, scale = new + before, 32, 8, WIDTH**-0.5
    q = torch.randn(new, heads, WIDTH, device="cuda").bfloat16()
    k, v = (torch.randn(total, groups, WIDTH, device="cuda").bfloat16() for _ in range(2))
    offsets, keys = (torch.tensor([0, n], device="cuda", dtype=torch.int32) for n in (new, total))
    made = dict[str, Timed]()
    y = torch.full_like(q, float("nan"))
    given = {"scale": scale, "group": heads // groups}
    dense, whole = kernels.varlen_attention(WIDTH), y
    made["contiguous"] = (
        (lambda: dense(offsets, keys, q, k, v, whole, None, None, None, None, causal=True, **given)),
        y[:, 0],
    )
    for page in PAGES[2:]:
        order = torch.randperm(total // page, device="cuda")
        pools = [torch.empty_like(x.view(-1, page, groups, WIDTH)) for x in (k, v)]
        for pool, x in zip(pools, (k, v), strict=True):
            pool[order] = x.view(pool.shape)
        y = torch.full_like(q, float("nan"))
        values = (offsets, keys[1:], order[None].int(), q, *pools, y)
        attend = prefill(WIDTH, page, "fast")
        made[f"pages of {page}"] = (lambda a=attend, x=values: a(*x, **given)), y[:, 0]
    x = (q[:, 0].double() @ k[:, 0].double().T) * scale
    x.masked_fill_(torch.arange(total, device="cuda") > torch.arange(before, total, device="cuda")[:, None], -torch.inf)
    return made, x.softmax(-1) @ v[:, 0].double(), 4 * k.numel()


def appended(torch: Any, count: int, dtype: Any) -> dict[str, Callable[[], object]]:
    """New tokens with their rotation to random slots, beside the same by PyTorch's operators, compiled."""
    from tilewright import ops

    torch.manual_seed(0)
    k, v = (torch.zeros(2048, 16, 8, WIDTH, device="cuda", dtype=dtype) for _ in range(2))
    key, value = (torch.randn(count, 8, WIDTH, device="cuda").bfloat16() for _ in range(2))
    slots = torch.randperm(2048 * 16, device="cuda")[:count].int()
    angles = torch.rand(count, WIDTH // 2, device="cuda")
    cos, sin = angles.cos(), angles.sin()
    scales = {} if dtype == torch.bfloat16 else {"k_scale": torch.full((8,), 0.02, device="cuda")}
    scales |= {} if dtype == torch.bfloat16 else {"v_scale": torch.full((8,), 0.02, device="cuda")}

    def theirs() -> None:
        first, second = key.float().chunk(2, 2)
        c, s = cos[:, None], sin[:, None]
        rows = torch.cat((first * c - second * s, second * c + first * s), 2)
        for cache, new, name in ((k, rows, "k_scale"), (v, value.float(), "v_scale")):
            stored = (new / scales[name][:, None]).clamp(-448, 448) if scales else new
            at, stored = slots.long(), stored.to(dtype)
            if scales:
                cache.view(torch.uint8)[at // 16, at % 16] = stored.view(torch.uint8)
            else:
                cache[at // 16, at % 16] = stored

    ours = lambda: ops.paged_append(key, value, k, v, slots, cos=cos, sin=sin, **scales)  # noqa: E731
    return {"ours": ours, "torch": theirs}


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON. ``build``: each launch once."""
    import torch

    timer, rows = Timer(torch, 1 if args.what == "build" else args.rounds), list[dict[str, Any]]()

    def note(name: str, variants: dict[str, Timed], peers: dict[str, Any], exact: Any, moved: int) -> None:
        errors = dict[str, float]()
        for ours, (launch, y) in variants.items():
            launch()
            torch.cuda.synchronize()
            errors[ours] = relative_error(y, exact)
        seconds = timer.medians({n: launch for n, (launch, _) in variants.items()} | peers)
        row = {"case": name, "bytes": moved, "microseconds": {k: round(s * 1e6, 1) for k, s in seconds.items()}}
        row["terabytes_per_second"] = {k: round(moved / s * 1e-12, 3) for k, s in seconds.items()}
        rows.append(row | {"error": errors})
        print(name, json.dumps(row["microseconds"]), json.dumps(row["terabytes_per_second"]),
              f"error {max(errors.values()):.1e}", flush=True)  # fmt: skip
        write(document(torch, **timer.conditions(), rows=rows), args.json)

    for case in CASES:
        if args.only in str(case):
            problem = Problem(torch, case)
            note(str(case), problem.variants(), problem.peers(), problem.exact(), problem.bytes)
            del problem
            torch.cuda.empty_cache()
    for shape in LATENT:
        name = "latent {}x{}, {} heads".format(*shape)
        if args.only in name:
            variants, exact, moved = latent(torch, shape)
            note(name, variants, {}, exact, moved)
    for new, before in CHUNKS:
        name = f"chunk of {new} tokens behind {before}"
        if args.only in name:
            variants, exact, moved = chunked(torch, new, before)
            note(name, variants, {}, exact, moved)
    for count in APPENDED:
        for dtype in (torch.bfloat16, torch.float8_e4m3fn):
            name = f"append {count} tokens, {str(dtype).removeprefix('torch.')}"
            if args.only in name:
                seconds = timer.medians(appended(torch, count, dtype))
                rows.append({"case": name, "microseconds": {k: round(s * 1e6, 1) for k, s in seconds.items()}})
                print(name, json.dumps(rows[-1]["microseconds"]), flush=True)
    write(document(torch, **timer.conditions(), rows=rows), args.json)


if __name__ == "__main__":
    run(parser(__doc__, "cases whose names contain this").parse_args())
