"""Random calls of the operators of ``tilewright.ops``, of products of groups, of packed attention and of attention
whose scores a function changes, beside float64.

    python tools/random_ops.py --op rms_norm --cases 0:20                      # kernels in the simulator
    python tools/random_ops.py --device cuda --jobs 16 --cases 0:1000 --json FILE   # all, each in a process of its own
    python tools/random_ops.py --kinds 5 --commonest 12 --cases 0:1200 --plan FILE   # lists cases by what they look up
    python tools/random_ops.py --build --kinds 5 --store DIR --plan FILE --jobs 16   # compiles what they need
    python tools/random_ops.py --device cuda --kinds 5 --jobs 16 --store DIR --plan FILE --json FILE   # and runs them

A case draws extents, dtypes and how tensors lie (row-major, in longer rows, transposed, from an odd element); what lies
around them is NaN. Results may have three times PyTorch's own error in the same dtype. Packed attention and products of
groups draw lengths, 0 and 1 more often than they should be, heads, masks and rows behind the last group; their results
lie among guards that must stay as they are.

Most of the time goes to compiling. Where that of the device is short, ``--kinds K`` draws the dtypes, layouts and
alignments of an operator from K choices, and ``--commonest N`` lists up to ``--most`` cases that
need none but the N artifacts that most cases of their operator need, without compiling; with ``--plan FILE`` these are
compiled or run.
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
from collections import Counter
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
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch_ops import ALLOWED, BF16, F16, FLOOR, OPERATORS, Operator  # noqa: E402

import tilewright as tw  # noqa: E402
from campaign.pool import in_processes  # noqa: E402
from tilewright import ops  # noqa: E402

PATIENCE_SECONDS = 24
GUARD = 1024
LENGTHS = (1, 2, 3, 7, 8, 9, 16, 31, 33, 64, 65, 100, 127, 128, 129, 200)
WIDTHS = (1, 2, 5, 8, 16, 31, 32, 40, 64, 72, 96, 100, 127, 128, 256, 264, 500, 1000, 1001, 1024, 2048, 4099)
LAYOUTS = ("row-major", "row-major", "padded", "aligned rows", "transposed", "odd")


def extents_of(operator: Operator, kind: Random, rng: Random) -> tuple[int, ...]:
    """Extents of a call; ``kind`` draws what artifacts depend on."""
    name = operator.name
    aligned = kind.random() < 0.6
    widths = [w for w in WIDTHS if (w % 8 == 0) == aligned]
    if name == "rotary":
        return rng.randint(1, 3), rng.choice(LENGTHS), rng.choice((1, 2, 3, 8)), kind.choice((2, 16, 32, 64, 128, 256))
    if name.startswith("attention"):
        heads, width, groups = kind.choice((1, 2, 4)), kind.choice((64, 128)), rng.choice((1, 1, 2, 3))
        return rng.randint(1, 2), groups * heads, groups, rng.choice(LENGTHS), width
    if name == "merge_states":
        rows = rng.randint(1, 4), rng.choice(LENGTHS)
        return rng.choice((1, 2, 3, 8, 9, 20)), *rows, rng.choice([w for w in widths if w <= 512])
    narrow = [w for w in widths if w <= 1024]
    if name.startswith("matmul"):
        return rng.choice(LENGTHS), rng.choice(narrow), rng.choice(narrow)
    if name.startswith("linear"):
        sizes = [rng.choice(LENGTHS), rng.choice(narrow), rng.choice(narrow)]
        return tuple(sizes if name == "linear_cross_entropy" or rng.random() < 0.7 else [rng.randint(1, 4), *sizes])
    if name == "grouped_matmul":
        return rng.randint(1, 8), rng.choice(LENGTHS), rng.choice(narrow), rng.choice(narrow)
    rows = (rng.choice(LENGTHS), rng.choice(widths))
    return (
        rows
        if name in ("cross_entropy", "embedding", "index_add") or rng.random() < 0.7
        else (rng.randint(1, 4), *rows)
    )


def laid(whole: Any, how: str, rng: Random) -> Any:
    """The elements of a tensor, lying another way amid NaN."""
    shape = tuple(whole.shape)
    if how == "transposed":
        held = torch.full((*shape[::-1][:-1], shape[0] + 2), torch.nan, dtype=whole.dtype, device=whole.device)
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
        rng = Random(f"{self.operator.name} {self.seed}")
        kind = Random(f"{self.operator.name} {self.seed % self.kinds if self.kinds else self.seed} kind")
        self.dtype, extents = kind.choice(self.operator.dtypes), extents_of(self.operator, kind, rng)
        self.generator = torch.Generator().manual_seed(self.seed)
        self.backward = self.operator.gradients and kind.random() < 0.3
        layouts = [kind.choice(LAYOUTS) for _ in self.operator.shapes(*extents)]
        self.inputs = [
            laid(self.random(s).to(self.dtype).to(self.device), how, rng)
            for s, how in zip(self.operator.shapes(*extents), layouts, strict=True)
        ]
        how = " backward" if self.backward else ""
        self.about = f"{'x'.join(map(str, extents))} {str(self.dtype)[6:]} {layouts}{how}"

    def random(self, shape: tuple[int, ...]) -> Any:
        return torch.randn(shape, generator=self.generator)


def build(operator: Operator, cases: Sequence[int], kinds: int, store: Path) -> None:
    """Compile what the cases of an operator look up."""
    building = torch_ops.Building(store)
    for seed in cases:
        called(operator, seed, kinds, building)
    print(f"{operator.name}: {len(building.made)} artifacts, {building.refused} refused", flush=True)


def called(operator: Operator, seed: int, kinds: int, building: torch_ops.Building) -> None:
    """A case with fake tensors, whose artifacts ``building`` makes or notes."""
    with FakeTensorMode(), building:
        call = Call(operator, seed, "cpu", kinds)
        if call.backward:
            torch_ops._forward_and_backward(operator.ours, call.inputs)
        else:
            operator.ours(*call.inputs)


class Noting(torch_ops.Building):
    """Instead of compiling, notes what is looked up."""

    def _compile(self, op: Any, values: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        self.made.add(f"{op.name} {op._execution.looked_up(values, results)[1]}")


def commonest(operator: Operator, cases: range, kinds: int, count: int, most: int) -> dict[str, list[int]]:
    """At most ``most`` cases that need none but the ``count`` artifacts that most cases need, as ``cases``; those whose
    artifacts are all of these, as ``builds``."""
    needs = dict[int, frozenset[str]]()
    for seed in cases:
        noting = Noting(Path())
        called(operator, seed, kinds, noting)
        needs[seed] = frozenset(noting.made)
    chosen = set[str]()
    for made, _ in Counter(needs.values()).most_common():
        if len(chosen | made) <= count:
            chosen |= made
    listed = [seed for seed, made in needs.items() if made <= chosen][:most]
    built, builds = set[str](), list[int]()
    for seed in sorted(listed, key=lambda seed: len(needs[seed])):
        if not needs[seed] <= built:
            built |= needs[seed]
            builds.append(seed)
    every = frozenset[str]().union(*needs.values())
    print(f"{operator.name}: {len(listed)} of {len(cases)} cases, {len(built)} of {len(every)} artifacts", flush=True)
    return {"cases": listed, "builds": builds}


def of_operator(operator: Operator, seed: int, device: str, kinds: int) -> str:
    """One call of an operator; what is wrong, or empty."""
    call = Call(operator, seed, device, kinds)
    inputs, dtype = call.inputs, call.dtype
    wide = [t.double() for t in inputs]
    if call.backward:
        with torch.no_grad():
            shapes = [e.shape for e in torch_ops._outputs(operator.theirs(*wide))]
        weights = tuple(call.random(s).to(device) for s in shapes)
        runs = [(operator.theirs, wide), (operator.ours, inputs), (operator.theirs, inputs)]
        exact, got, peer = (
            [*results, *grads]
            for results, grads in (torch_ops._forward_and_backward(run, given, weights) for run, given in runs)
        )
    else:
        exact, got, peer = (
            torch_ops._outputs(run(*given))
            for run, given in ((operator.theirs, wide), (operator.ours, inputs), (operator.theirs, inputs))
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


def changed(ring: Any) -> bool:
    return not bool((ring[:GUARD] == 7).all() and (ring[-GUARD:] == 7).all())


def grouped(seed: int, device: str) -> str:
    """C[g] = A[g] B[g]^T."""
    rng = Random(f"grouped {seed}")
    dtype = rng.choice((BF16, BF16, F16))
    groups = rng.choice((1, 2, 3, 8, 8, 40, 130))
    lengths = lengths_of(rng, groups, 300 if groups < 10 else 40)
    rest = rng.choice((0, 0, 1, 7, 200))
    rows = sum(lengths) + rest
    unit = rng.choice((8, 8, 1))
    n, k = (-(-rng.choice(WIDTHS[:-3]) // unit) * unit for _ in range(2))
    if rows == 0:
        return ""
    generator = torch.Generator().manual_seed(seed)
    a = laid(torch.randn((rows, k), generator=generator).to(dtype).to(device), rng.choice(LAYOUTS[:3]), rng)
    b = laid(torch.randn((groups, n, k), generator=generator).to(dtype).to(device), rng.choice(LAYOUTS[:3]), rng)
    offsets = torch.tensor([0, *accumulate(lengths)], dtype=rng.choice((torch.int32, torch.int64)), device=device)
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


def varlen(seed: int, device: str) -> str:
    """Attention over packed sequences."""
    rng = Random(f"varlen {seed}")
    dtype, width = rng.choice((BF16, BF16, F16)), rng.choice((64, 128, 128))
    groups = rng.choice((1, 2, 3))
    heads = groups * rng.choice((1, 2, 4))
    count = rng.choice((1, 2, 5, 5, 20))
    keys = lengths_of(rng, count, 300 if count < 10 else 60)
    queries = keys if rng.random() < 0.6 else lengths_of(rng, count, 200 if count < 10 else 60)
    packed = queries == keys and rng.random() < 0.2
    rest = 0 if packed else rng.choice((0, 0, 3, 130))
    if sum(queries) + rest == 0 or sum(keys) == 0:
        return ""
    generator = torch.Generator().manual_seed(seed)
    made = [
        laid(torch.randn((*s, width), generator=generator).to(dtype).to(device), rng.choice(LAYOUTS[:2]), rng)
        for s in ((sum(queries) + rest, heads), (sum(keys), groups), (sum(keys), groups))
    ]
    index = torch.int32 if rng.random() < 0.8 else torch.int64
    offsets = [torch.tensor([0, *accumulate(n)], dtype=index, device=device) for n in (queries, keys)]
    options: dict[str, Any] = rng.choice(({}, {"causal": True}, {"causal": True}, {"causal": True, "window": 20}))
    if rng.random() < 0.2:
        options = options | {"softcap": 3.0}
    sinks = torch.linspace(-2, 2, heads, device=device) if rng.random() < 0.2 else None
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
SCORE_MODS: tuple[Callable[..., Any], ...] = (
    lambda score, b, h, q, k: score + torch.exp2(-(h + 1) * 0.25) * (k - q),
    lambda score, b, h, q, k: 2.0 * torch.tanh(score / 2.0),
    lambda score, b, h, q, k: torch.where((q - k < 40) & ~(k > q), score, -torch.inf),
    lambda score, b, h, q, k: torch.where((q // 16 == k // 16) & (q % 8 != 3), score, -torch.inf),
    lambda score, b, h, q, k: torch.maximum(score - (q - k).abs() / 4, torch.sigmoid(-score)) + b * 0.5,
)
SCORED_KINDS = 16
"""Cases differ in so many ways by what artifacts depend on; a process has those of one."""


def scored(seed: int, device: str) -> str:
    """Dense attention with a score_mod."""
    rng, kind = Random(f"scored {seed}"), Random(f"scored kind {seed % SCORED_KINDS}")
    mod = seed % SCORED_KINDS % len(SCORE_MODS)
    dtype, width, causal = kind.choice((BF16, BF16, F16)), kind.choice((64, 128)), kind.random() < 0.4
    repeat, layouts = kind.choice((1, 1, 2, 4)), [kind.choice(LAYOUTS[:4]) for _ in range(3)]
    batch, groups, queries, keys = rng.randint(1, 3), rng.choice((1, 2, 3)), rng.choice(LENGTHS), rng.choice(LENGTHS)
    generator = torch.Generator().manual_seed(seed)
    shapes = ((batch, groups * repeat, queries, width), *[(batch, groups, keys, width)] * 2)
    q, k, v = (
        laid(torch.randn(s, generator=generator).to(dtype).to(device), how, rng)
        for s, how in zip(shapes, layouts, strict=True)
    )
    held, ring = guarded((batch, queries, groups * repeat, width), dtype, device)
    y = ops.attention(q, k, v, causal=causal, score_mod=SCORE_MODS[mod], out=held.transpose(1, 2))
    wide = (q.double(), *(x.double().repeat_interleave(repeat, 1) for x in (k, v)))
    scores = wide[0] @ wide[1].transpose(-1, -2) * width**-0.5
    b, h, s, t = torch.meshgrid(*(torch.arange(n, device=device) for n in scores.shape), indexing="ij")
    scores = SCORE_MODS[mod](scores, b, h, s, t)
    if causal:
        scores = scores.masked_fill(s < t, -torch.inf)
    exact = scores.softmax(-1).nan_to_num(0.0) @ wide[2]
    about = f"mod {mod}, {shapes}, {str(dtype)[6:]}, causal {causal}, {layouts}"
    if changed(ring):
        return f"{about}: wrote around the result"
    beyond = (y.double() - exact).abs() - 0.02 - 0.01 * exact.abs()
    return "" if bool((beyond <= 0).all()) else f"{about}: off by {float(beyond.max()):.3g}"


# -- the campaign -----------------------------------------------------------------------------------------------------
FAMILIES: dict[str, Callable[[int, str], str]] = {"grouped": grouped, "varlen": varlen, "scored": scored}
NAMES = (*(o.name for o in OPERATORS), *FAMILIES)
Cases = dict[str, Sequence[int]]
"""Of each operator by its name."""


def begin_to_plan(cases: range, kinds: int, count: int, most: int) -> Callable[[int], dict[str, list[int]]]:
    """What lists cases of an operator by number."""
    return lambda number: commonest(OPERATORS[number], cases, kinds, count, most)


def begin_to_build(store: Path, kinds: int, planned: Sequence[tuple[str, int]]) -> Callable[[int], None]:
    """What compiles the artifacts of an operator's case, by number."""
    return lambda number: build(operator_named(planned[number][0]), [planned[number][1]], kinds, store)


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


def begin(cases: Cases, device: str, kinds: int, seconds: float, store: Path | None) -> Callable[[int], Found]:
    """The judge of a process, of operators by number."""
    os.environ["TILEWRIGHT_STORE"] = str(store or tempfile.mkdtemp())

    def judge(number: int) -> Found:
        name = NAMES[number % len(NAMES)]
        return of(name, cases[name][number // len(NAMES) :: parts_of(name)], device, kinds, seconds)

    return judge


def parts_of(name: str) -> int:
    """In how many processes the cases of an operator are run."""
    return {"varlen": 3, "grouped": 3, "scored": SCORED_KINDS}.get(name, 2)


def of(name: str, cases: Sequence[int], device: str, kinds: int, seconds: float) -> Found:
    """The cases of an operator."""
    operator = next((o for o in OPERATORS if o.name == name), None)
    begun, found = time.monotonic(), Found(name)
    for seed in cases:
        if seconds and time.monotonic() - begun > seconds:
            break
        try:
            with ops.simulated():
                if operator is not None:
                    told = of_operator(operator, seed, device, kinds)
                else:
                    told = FAMILIES[name](seed, device)
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
    parser.add_argument("--op", default="", help="operators of these names alone, with commas between")
    parser.add_argument("--cases", default="0:20")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="of each operator; 0: all cases")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--store", type=Path, help="where artifacts are kept; else each process has its own folder")
    parser.add_argument("--build", action="store_true", help="compile what the cases look up into --store, run nothing")
    parser.add_argument(
        "--kinds", type=int, default=0, help="draw dtypes, layouts and alignments of so many kinds alone"
    )
    parser.add_argument("--commonest", type=int, help="list cases into --plan, run nothing")
    parser.add_argument("--most", type=int, default=1000, help="cases that are listed of each operator")
    parser.add_argument("--plan", type=Path, help="the cases of each operator")
    args = parser.parse_args()
    if (args.build and not args.store) or (args.commonest and not args.plan):
        parser.error("--build takes --store, --commonest takes --plan")
    cases = range(*map(int, args.cases.split(":")))
    names = [n for n in NAMES if not args.op or n in args.op.split(",")]
    if args.commonest:
        found = {
            o.name: commonest(o, cases, args.kinds, args.commonest, args.most) for o in OPERATORS if o.name in names
        }
        args.plan.write_text(json.dumps(found) + "\n")
        return
    plan: dict[str, dict[str, list[int]]] = json.loads(args.plan.read_text()) if args.plan else {}
    planned: Cases = dict.fromkeys(names, cases) | {n: plan[n]["cases"] for n in names if n in plan}
    if args.build:
        built = [(o.name, seed) for o in reversed(OPERATORS) if o.name in names
                 for seed in (plan[o.name]["builds"] if o.name in plan else cases)]  # fmt: skip
        for _ in in_processes(begin_to_build, (args.store, args.kinds, built), range(len(built)), args.jobs, 1e9):
            pass
        return
    numbers = [NAMES.index(n) + i * len(NAMES) for n in names for i in range(parts_of(n) if args.jobs > 1 else 1)]
    if args.jobs > 1:
        patience = args.seconds + PATIENCE_SECONDS if args.seconds else 1e9
        answers = list[Found]()
        for i, a in in_processes(
            begin, (planned, args.device, args.kinds, args.seconds, args.store), numbers, args.jobs, patience
        ):
            answers.append(a if isinstance(a, Found) else Found(NAMES[i % len(NAMES)], wrong={-1: a}))
            print(f"{answers[-1].name}: {answers[-1].run} run, {len(answers[-1].wrong)} wrong", flush=True)
            write(args, answers)
    else:
        answers = [of(n, planned[n], args.device, args.kinds, args.seconds) for n in names]
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
