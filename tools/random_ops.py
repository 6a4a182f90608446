"""Random calls of the operators of ``tilewright.ops``, of products of groups, of packed attention and of attention
whose scores a function changes, beside float64.

    python tools/random_ops.py --op rms_norm --cases 0:20                      # kernels in the simulator
    python tools/random_ops.py --device cuda --jobs 14 --kinds 4 --cases 0:1000 --json FILE   # all, in processes

A case draws extents, dtypes and how tensors lie (row-major, in longer rows, transposed, from an odd element); what lies
around them is NaN. Results may have three times PyTorch's own error in the same dtype. Packed attention and products of
groups draw lengths, 0 and 1 more often than they should be, heads, masks and rows behind the last group; their results
lie among guards that must stay as they are.

Most of the time goes to compiling. ``--kinds K`` draws what artifacts depend on (dtypes, layouts, alignments) from K
choices an operator, so that a few kernels serve all cases; the cases of a kind are run in one process. ``--seconds``
limits each of these, ``--within`` the whole run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / p) for p in ("src", "tests", "examples", "benchmarks", "tools")]

import torch  # noqa: E402
import torch_ops  # noqa: E402
from grouped_matmul import grouped_matmul  # noqa: E402
from torch_ops import ALLOWED, BF16, F16, FLOOR, Operator  # noqa: E402

import tilewright as tw  # noqa: E402
from campaign.pool import in_processes  # noqa: E402
from tilewright import ops  # noqa: E402


def _moe(x: Any, router: Any, gate_up: Any, down: Any) -> Any:
    """A mixture of experts with two of each token, whose scores are of float32 or float64."""
    logits = x.to(torch_ops._wide(x)) @ router.to(torch_ops._wide(x)).t()
    best = logits.topk(2, 1)
    weights, y = best.values.softmax(1), torch.zeros_like(x)
    for e in range(down.shape[0]):
        gate, up = (x @ gate_up[e].t()).chunk(2, 1)
        chosen = ((best.indices == e) * weights).sum(1, keepdim=True)
        y = y + ((torch.nn.functional.silu(gate) * up) @ down[e].t() * chosen).to(x.dtype)
    return y


OPERATORS = (
    *torch_ops.OPERATORS,
    Operator(
        "moe",
        lambda x, router, both, last: ops.moe(x / 4, router, both / 4, last / 4, k=2),
        lambda x, router, both, last: _moe(x / 4, router, both / 4, last / 4),
        lambda m, e, n, k: [(m, n), (e, n), (e, 2 * k, n), (e, n, k)],
        (),
        (),
        (BF16, F16),
    ),
)
PATIENCE_SECONDS = 24
GUARD = 1024
LENGTHS = (1, 2, 3, 7, 8, 9, 16, 31, 33, 64, 65, 100, 127, 128, 129, 200)
WIDTHS = (1, 2, 5, 8, 16, 31, 32, 40, 64, 72, 96, 100, 127, 128, 256, 264, 500, 1000, 1001, 1024, 2048, 4099)
LAYOUTS = ("row-major", "row-major", "padded", "aligned rows", "transposed", "odd")


def extents_of(operator: Operator, kind: Random, rng: Random) -> tuple[int, ...]:
    """Extents of a call; ``kind`` draws what artifacts depend on: alignments, and which extents are 1."""
    name = operator.name
    aligned, batched = kind.random() < 0.6, kind.random() < 0.3
    widths = [w for w in WIDTHS if (w % 8 == 0 if aligned else w % 2 == 1)]
    lengths = [1] if kind.random() < 0.1 else LENGTHS[1:]
    if kind.random() < 0.9:
        widths = [w for w in widths if w > 1]
    if name in ("rotary", "rms_norm_rotary"):
        return rng.randint(2, 3), rng.choice(lengths), rng.choice((2, 3, 8)), kind.choice((2, 16, 32, 64, 128, 256))
    if name.startswith(("attention", "merge_states")):  # sums of exponentials are rows of lengths
        lengths = [n for n in lengths if n == 1 or (n % 8 == 0 if aligned else n % 2 == 1)]
    if name.startswith("attention"):
        heads, width, groups = kind.choice((1, 2, 4)), kind.choice((64, 128)), rng.choice((2, 2, 3, 5))
        return rng.randint(2, 3), groups * heads, groups, rng.choice(lengths), width
    if name == "merge_states":
        rows = rng.randint(2, 4), rng.choice(lengths)
        return rng.choice((2, 3, 8, 9, 20)), *rows, rng.choice([w for w in widths if w <= 512])
    narrow = [w for w in widths if w <= 1024]
    if name.startswith("matmul"):
        return rng.choice(lengths), rng.choice(narrow), rng.choice(narrow)
    if name.startswith("linear"):
        sizes = [rng.choice(lengths), rng.choice(narrow), rng.choice(narrow)]
        return tuple(sizes if name == "linear_cross_entropy" or not batched else [rng.randint(2, 4), *sizes])
    if name == "moe":
        even = [w for w in WIDTHS if w % 8 == 0 and w <= 264]
        experts = kind.choice(((2, 6), (3, 5, 7, 9), (4, 8)))  # rows of their logits are aligned alike
        return rng.choice(LENGTHS[1:]), rng.choice(experts), rng.choice(even), rng.choice(even)
    if name == "grouped_matmul":
        return rng.randint(2, 8), rng.choice(lengths), rng.choice(narrow), rng.choice(narrow)
    rows = (rng.choice(lengths), rng.choice(widths))
    flat = name in ("cross_entropy", "embedding", "index_add") or name.startswith("permute") or not batched
    return rows if flat else (rng.randint(2, 4), *rows)


def laid(whole: Any, how: str) -> Any:
    """The elements of a tensor, lying another way amid NaN."""
    shape = tuple(whole.shape)
    if how == "transposed":
        held = torch.full((*shape[::-1][:-1], shape[0] // 8 * 8 + 8), torch.nan, dtype=whole.dtype, device=whole.device)
        view = held[..., : shape[0]].permute(*reversed(range(len(shape))))
    elif how in ("padded", "aligned rows"):
        more = 3 if how == "padded" else 16 - shape[-1] % 8 + 8
        held = torch.full((*shape[:-1], shape[-1] + more), torch.nan, dtype=whole.dtype, device=whole.device)
        first = 1 if how == "padded" else 8
        view = held[..., first : first + shape[-1]] if how == "padded" else held[..., 8 : 8 + shape[-1]]
    else:
        first = 64 + (how == "odd")
        held = torch.full((whole.numel() + 2 * first,), torch.nan, dtype=whole.dtype, device=whole.device)
        view = held[first : first + whole.numel()].view(shape)
    view.copy_(whole)
    return view


def drawing(name: str, seed: int, kinds: int) -> tuple[Random, Random]:
    """What draws a case, and what draws what artifacts depend on, alike in all cases of a kind."""
    return Random(f"{name} {seed}"), Random(f"{name} kind {seed % kinds if kinds else seed}")


@dataclass
class Call:
    """A call of an operator: tensors of random elements, and whether its gradients are asked for."""

    operator: Operator
    seed: int
    device: str
    kinds: int = 0  # of how many kinds, by what artifacts depend on, cases are; 0: of any number
    inputs: list[Any] = field(init=False)
    backward: bool = field(init=False)
    about: str = field(init=False)

    def __post_init__(self) -> None:
        rng, kind = drawing(self.operator.name, self.seed, self.kinds)
        self.dtype, extents = kind.choice(self.operator.dtypes), extents_of(self.operator, kind, rng)
        self.generator = torch.Generator(self.device).manual_seed(self.seed)
        chosen = self.seed % self.kinds % 2 == 1 if self.kinds else kind.random() < 0.3
        self.backward = self.operator.gradients and chosen
        layouts = [kind.choice(LAYOUTS) for _ in self.operator.shapes(*extents)]
        self.inputs = [
            laid(self.random(s).to(self.dtype), how)
            for s, how in zip(self.operator.shapes(*extents), layouts, strict=True)
        ]
        how = " backward" if self.backward else ""
        self.about = f"{'x'.join(map(str, extents))} {str(self.dtype)[6:]} {layouts}{how}"

    def random(self, shape: tuple[int, ...]) -> Any:
        return torch.randn(shape, generator=self.generator, device=self.device)


def of_operator(operator: Operator, seed: int, device: str, kinds: int) -> str:
    """One call of an operator; what is wrong, or empty."""
    call = Call(operator, seed, device, kinds)
    inputs, dtype = call.inputs, call.dtype
    wide = [t.double() for t in inputs]
    apart = [t.clone(memory_format=torch.contiguous_format) for t in inputs]  # a kernel of PyTorch traps at odd rows
    if call.backward:
        with torch.no_grad():
            shapes = [e.shape for e in torch_ops._outputs(operator.theirs(*wide))]
        weights = tuple(call.random(s) for s in shapes)
        runs = [(operator.theirs, wide), (operator.ours, inputs), (operator.theirs, apart)]
        exact, got, peer = (
            [*results, *grads]
            for results, grads in (torch_ops._forward_and_backward(run, given, weights) for run, given in runs)
        )
    else:
        exact, got, peer = (
            torch_ops._outputs(run(*given))
            for run, given in ((operator.theirs, wide), (operator.ours, inputs), (operator.theirs, apart))
        )
    for i, (x, y, z) in enumerate(zip(got, exact, peer, strict=True)):
        ours, theirs = (off(found, y) for found in (x, z))
        if not ours <= max(FLOOR[dtype], ALLOWED * theirs):  # where PyTorch's is NaN, the floor
            return f"{call.about}: result {i} is off by {ours:.3g}, PyTorch's by {theirs:.3g}"
    return ""


def off(got: Any, exact: Any) -> float:
    """The error relative to the greatest element, which counts as 1/64 at least: what cancels is not rounded anew.
    Infinities must be the same."""
    if not exact.numel():
        return 0.0
    greatest = float(torch.where(exact.isinf(), 0.0, exact).abs().max())
    return float(torch.where(got.double() == exact, 0.0, got.double() - exact).abs().max()) / max(greatest, 1 / 64)


# -- groups -----------------------------------------------------------------------------------------------------------
def lengths_of(rng: Random, count: int, most: int) -> list[int]:
    """Lengths of groups or sequences."""
    kinds = (lambda: 0, lambda: 1, lambda: rng.randint(0, 9), lambda: rng.randint(0, most), lambda: rng.choice(LENGTHS))
    weights = rng.choice(((1, 1, 1, 1, 1), (3, 3, 1, 1, 1), (0, 0, 0, 1, 1), (5, 1, 0, 0, 0)))
    return [min(rng.choices(kinds, weights)[0](), most) for _ in range(count)]


def guarded(shape: tuple[int, ...], dtype: Any, device: str) -> tuple[Any, Any]:
    """A tensor of NaN for a result, and the memory that it lies in, which is full of 7."""
    size = 1
    for n in shape:
        size *= n
    ring = torch.full((size + 2 * GUARD,), 7, dtype=dtype, device=device)
    out = ring[GUARD : GUARD + size].view(shape)
    out.fill_(torch.nan)
    return out, ring


def normal(seed: int, device: str, dtype: Any, shapes: Sequence[tuple[int, ...]], layouts: Sequence[str]) -> list[Any]:
    """Tensors of random elements that lie so."""
    generator = torch.Generator(device).manual_seed(seed)
    drawn = (torch.randn(s, generator=generator, device=device).to(dtype) for s in shapes)
    return [laid(t, how) for t, how in zip(drawn, layouts, strict=True)]


def changed(ring: Any) -> bool:
    return not bool((ring[:GUARD] == 7).all() and (ring[-GUARD:] == 7).all())


def grouped(seed: int, device: str, kinds: int) -> str:
    """C[g] = A[g] B[g]^T."""
    rng, kind = drawing("grouped", seed, kinds)
    dtype, unit = kind.choice((BF16, BF16, F16)), kind.choice((8, 8, 1))
    index, layouts = kind.choice((torch.int32, torch.int64)), [kind.choice(LAYOUTS[:3]) for _ in range(2)]
    groups = rng.choice((1, 2, 3, 8, 8, 40, 130))
    lengths = lengths_of(rng, groups, 300 if groups < 10 else 40)
    rest = rng.choice((0, 0, 1, 7, 200))
    rows = sum(lengths) + rest
    n, k = (rng.choice([w for w in WIDTHS[:-3] if (w % 8 == 0 if unit == 8 else w % 2 == 1)]) for _ in range(2))
    if rows == 0:
        return ""
    a, b = normal(seed, device, dtype, [(rows, k), (groups, n, k)], layouts)
    offsets = torch.tensor([0, *accumulate(lengths)], dtype=index, device=device)
    c, ring = guarded((rows, n), dtype, device)
    grouped_matmul(offsets, a, b, c)
    tw.check()
    exact = torch.zeros((rows, n), dtype=torch.float64, device=device)
    for g, (first, last) in enumerate(pairwise(offsets.tolist())):
        exact[first:last] = a[first:last].double() @ b[g].double().T
    about = f"{groups} groups, {rows} rows, {rest} behind, {n} x {k} {str(dtype)[6:]}"
    if changed(ring):
        return f"{about}: wrote around the result"
    beyond = (c.double() - exact).abs() - 2.0**-8 * exact.abs() - 2.0**-8
    if bool((beyond <= 0).all()):
        return ""
    return f"{about}: off by {float(beyond.max()):.3g}, {int((~(beyond <= 0)).sum())} elements"


def varlen(seed: int, device: str, kinds: int) -> str:
    """Attention over packed sequences."""
    rng, kind = drawing("varlen", seed, kinds)
    dtype, width = kind.choice((BF16, BF16, F16)), kind.choice((64, 128, 128))
    index, layouts = kind.choice((torch.int32, torch.int32, torch.int64)), [kind.choice(LAYOUTS[:2]) for _ in range(3)]
    options: dict[str, Any] = kind.choice(({}, {"causal": True}, {"causal": True}, {"causal": True, "window": 20}))
    options = options | kind.choice(({}, {}, {}, {"softcap": 3.0}))
    groups = rng.choice((1, 2, 3))
    heads = groups * kind.choice((1, 2, 4))
    sinks = torch.linspace(-2, 2, heads, device=device) if kind.random() < 0.2 else None
    count = rng.choice((1, 2, 5, 5, 20))
    keys = lengths_of(rng, count, 300 if count < 10 else 60)
    queries = keys if rng.random() < 0.6 else lengths_of(rng, count, 200 if count < 10 else 60)
    packed = queries == keys and rng.random() < 0.2
    rest = 0 if packed else rng.choice((0, 0, 3, 130))
    if sum(queries) + rest == 0 or sum(keys) == 0:
        return ""
    shapes = ((sum(queries) + rest, heads, width), (sum(keys), groups, width), (sum(keys), groups, width))
    made = normal(seed, device, dtype, shapes, layouts)
    offsets = [torch.tensor([0, *accumulate(n)], dtype=index, device=device) for n in (queries, keys)]
    if packed:
        options = options | {"packed": True}
        offsets = [offsets[0], offsets[0]]
    out, ring = guarded(tuple(made[0].shape), dtype, device)
    y, lse = ops.varlen_attention_with_lse(*made, *offsets, **options, sinks=sinks)
    ops.varlen_attention(*made, *offsets, **options, sinks=sinks, out=out)
    exact, sums = attended((*made, *offsets), options, sinks)
    about = f"{queries} over {keys}, {rest} behind, {heads}/{groups} x {width} {str(dtype)[6:]} {options}"
    rows = sum(queries)
    if changed(ring):
        return f"{about}: wrote around the result"
    for name, found in (("result", y), ("out=", out)):
        off = (found.double() - exact).abs() - 0.02 - 0.01 * exact.abs()
        if not bool((off <= 0).all()):
            return f"{about}: {name} off by {float(off.max()):.3g} in {int((~(off <= 0)).sum())} elements"
    same = torch.isclose(lse[:, :rows].double(), sums[:, :rows], rtol=0, atol=1e-2)
    return "" if bool(same.all()) else f"{about}: other logarithms"


def attended(tensors: tuple[Any, ...], options: dict[str, Any], sinks: Any) -> tuple[Any, Any]:
    """(attention, logarithms) in float64, a sequence at a time; the last query of a sequence is at its last key."""
    q, k, v, cu_q, cu_k = tensors
    y = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.zeros((q.shape[1], q.shape[0]), dtype=torch.float64, device=q.device)
    repeat = q.shape[1] // k.shape[1]
    for (first, last), (begin, end) in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        if last == first:
            continue
        keys, values = (x[begin:end].double().repeat_interleave(repeat, 1) for x in (k, v))
        scores = torch.einsum("shd,thd->hst", q[first:last].double(), keys) * q.shape[-1] ** -0.5
        if (cap := options.get("softcap")) is not None:
            scores = cap * torch.tanh(scores / cap)
        s, t = last - first, end - begin
        behind = torch.arange(s, device=q.device)[:, None] + (t - s) - torch.arange(t, device=q.device)[None, :]
        if options.get("causal"):
            scores = scores.masked_fill(behind < 0, -torch.inf)
        if (window := options.get("window")) is not None:
            scores = scores.masked_fill(behind >= window, -torch.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, s, 1)], 2)
            values = torch.cat(
                [values, torch.zeros_like(values[:1]) if t else values.new_zeros((1, *values.shape[1:]))]
            )
        if scores.shape[2] == 0:
            lse[:, first:last] = -torch.inf
            continue
        lse[:, first:last] = scores.logsumexp(2)
        y[first:last] = torch.einsum("hst,thd->shd", scores.softmax(2).nan_to_num(0.0), values)
    return y, lse


# -- attention whose scores a function changes ------------------------------------------------------------------------
SLOPES, DOCUMENTS = torch.linspace(-1, 1, 12), torch.arange(200) // 37
SCORE_MODS: tuple[Callable[..., Any], ...] = (
    lambda score, b, h, q, k: score + torch.exp2(-(h + 1) * 0.25) * (k - q),
    lambda score, b, h, q, k: 2.0 * torch.tanh(score / 2.0),
    lambda score, b, h, q, k: torch.where((q - k < 40) & ~(k > q), score, -torch.inf),
    lambda score, b, h, q, k: torch.where((q // 16 == k // 16) & (q % 8 != 3), score, -torch.inf),
    lambda score, b, h, q, k: torch.maximum(score - (q - k).abs() / 4, torch.sigmoid(-score)) + b * 0.5,
    lambda score, b, h, q, k: torch.where(DOCUMENTS[q] == DOCUMENTS[k], score + SLOPES[h] * (k - q), -torch.inf),
)


def scored(seed: int, device: str, kinds: int) -> str:
    """Dense attention with a score_mod; gradients in every second kind."""
    global SLOPES, DOCUMENTS
    SLOPES, DOCUMENTS = SLOPES.to(device), DOCUMENTS.to(device)
    rng, kind = drawing("scored", seed, kinds)
    number = seed % kinds if kinds else seed
    mod, backward = SCORE_MODS[number % len(SCORE_MODS)], number // len(SCORE_MODS) % 2 == 1
    dtype, width, causal = kind.choice((BF16, BF16, F16)), kind.choice((64, 128)), kind.random() < 0.4
    repeat, layouts = kind.choice((1, 1, 2, 4)), [kind.choice(LAYOUTS[:4]) for _ in range(3)]
    batch, groups, queries, keys = rng.randint(2, 3), rng.choice((2, 3)), *(rng.choice(LENGTHS[1:]) for _ in range(2))
    if backward:  # logarithms lie in rows of queries, whose alignment artifacts depend on
        queries = -(-queries // 8) * 8
    shapes = ((batch, groups * repeat, queries, width), *[(batch, groups, keys, width)] * 2)
    given = normal(seed, device, dtype, shapes, layouts)
    wide = [x.double().requires_grad_(backward) for x in given]
    k, v = (x.repeat_interleave(repeat, 1) for x in wide[1:])
    scores = wide[0] @ k.transpose(-1, -2) * width**-0.5
    b, h, s, t = torch.meshgrid(*(torch.arange(n, device=device) for n in scores.shape), indexing="ij")
    scores = mod(scores, b, h, s, t)
    if causal:
        scores = scores.masked_fill(s < t, -torch.inf)
    seen = (scores > -torch.inf).any(-1, keepdim=True)
    exact = torch.where(seen, scores, 0.0).softmax(-1) * seen @ v
    about = f"mod {number % len(SCORE_MODS)}, {shapes}, {str(dtype)[6:]}, causal {causal}, {layouts}"
    if not backward:
        held, ring = guarded((batch, queries, groups * repeat, width), dtype, device)
        found = [ops.attention(*given, causal=causal, score_mod=mod, out=held.transpose(1, 2))]
        if changed(ring):
            return f"{about}: wrote around the result"
        return _beyond(about, found, [exact])
    leaves = [x.requires_grad_() for x in given]
    y = ops.attention(*leaves, causal=causal, score_mod=mod)
    dy = torch.randn(y.shape, generator=torch.Generator(device).manual_seed(seed), device=device).to(dtype)
    grads = torch.autograd.grad(y, leaves, dy), torch.autograd.grad(exact, wide, dy.double())
    return _beyond(f"{about} backward", [y, *grads[0]], [exact, *grads[1]])


def _beyond(about: str, found: Sequence[Any], exact: Sequence[Any]) -> str:
    for i, (got, wanted) in enumerate(zip(found, exact, strict=True)):
        got, wanted = got.detach(), wanted.detach()
        off = (got.double() - wanted).abs() - 0.02 * max(1.0, float(wanted.abs().max())) - 0.01 * wanted.abs()
        if not bool((off <= 0).all()):
            return f"{about}: result {i} is off by {float(off.max()):.3g}"
    return ""


# -- the campaign -----------------------------------------------------------------------------------------------------
FAMILIES: dict[str, Callable[[int, str, int], str]] = {"grouped": grouped, "varlen": varlen, "scored": scored}
NAMES = (*(o.name for o in OPERATORS), *FAMILIES)


def operator_named(name: str) -> Operator:
    return next(o for o in OPERATORS if o.name == name)


@dataclass
class Found:
    """Of one operator: cases that were run, those that are wrong, and what was refused."""

    name: str
    run: int = 0
    wrong: dict[int, str] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def begin(cases: range, parts: int, device: str, kinds: int, seconds: float) -> Callable[[int], Found]:
    """The judge of a process: every ``parts``-th case of an operator, by number."""
    os.environ.setdefault("TILEWRIGHT_STORE", tempfile.mkdtemp())
    return lambda number: of(NAMES[number // parts], cases[number % parts :: parts], device, kinds, seconds)


def of(name: str, cases: Sequence[int], device: str, kinds: int, seconds: float) -> Found:
    """The cases of an operator."""
    operator = None if name in FAMILIES else operator_named(name)
    begun, found = time.monotonic(), Found(name)
    for seed in cases:
        if seconds and time.monotonic() - begun > seconds:
            break
        try:
            with ops.simulated():
                if operator is not None:
                    told = of_operator(operator, seed, device, kinds)
                else:
                    told = FAMILIES[name](seed, device, kinds)
        except tw.TilewrightError as error:
            found.refused[error.code] = found.refused.get(error.code, 0) + 1
            told = "" if error.code in ("SIM001", "SIM002") else str(error)
        except Exception:
            told = traceback.format_exc()
        found.run += 1
        if told:
            found.wrong[seed] = told
            print(f"{name} {seed}: {told.strip()[-500:]}", flush=True)
            if "CUDA error" in told or "RUN" in told[:60]:
                break
    found.seconds = round(time.monotonic() - begun, 1)
    return found


def main() -> None:
    """Runs the cases, and prints those that are wrong and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="", help="operators of these names alone, in this order, with commas between")
    parser.add_argument("--cases", default="0:20")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="of each operator; 0: all cases")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kinds", type=int, default=0, help="draw what artifacts depend on from so many choices")
    parser.add_argument("--within", type=float, default=0, help="seconds after which no operator begins")
    args = parser.parse_args()
    cases = range(*map(int, args.cases.split(":")))
    names = args.op.split(",") if args.op else NAMES
    answers = list[Found]()
    if args.jobs > 1:
        parts = args.kinds or 2
        numbers = [NAMES.index(n) * parts + i for n in names for i in range(parts)]
        patience = args.seconds + PATIENCE_SECONDS if args.seconds else 1e9
        arguments = (cases, parts, args.device, args.kinds, args.seconds)
        for number, a in in_processes(begin, arguments, numbers, args.jobs, patience, args.within):
            answers.append(a if isinstance(a, Found) else Found(NAMES[number // parts], wrong={-1: a}))
            print(f"{answers[-1].name}: {answers[-1].run} run, {len(answers[-1].wrong)} wrong", flush=True)
            write(args, answers)
    else:
        answers = [of(n, cases, args.device, args.kinds, args.seconds) for n in names]
        write(args, answers)
    for name, row in rows_of(answers).items():
        print(f"{name:22} {row['run']:6} run {len(row['wrong']):4} wrong  refused {row['refused']} {row['seconds']} s")


def rows_of(answers: list[Found]) -> dict[str, dict[str, Any]]:
    """What is printed and written of each operator."""
    rows: dict[str, dict[str, Any]] = {}
    for a in answers:
        row = rows.setdefault(a.name, {"run": 0, "wrong": {}, "refused": {}, "seconds": 0.0})
        row["run"] += a.run
        row["wrong"] |= {str(k): v[-800:] for k, v in a.wrong.items()}
        row["refused"] |= a.refused
        row["seconds"] = max(row["seconds"], a.seconds)
    return rows


def write(args: argparse.Namespace, answers: list[Found]) -> None:
    """The document of what was found so far."""
    if args.json:
        found = {"command": f"python tools/random_ops.py --device {args.device} --cases {args.cases}",
                 "date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "torch": torch.__version__,
                 "device": torch.cuda.get_device_name() if args.device == "cuda" else "simulator"}  # fmt: skip
        args.json.write_text(json.dumps(found | {"operators": rows_of(answers)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
