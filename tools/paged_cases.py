"""Random decodes over paged caches beside float64: what a pool serves, forked and appended to, and hostile tables.

    python tools/paged_cases.py --cases 0:200                 # in the simulator
    python tools/paged_cases.py --cases 0:2000 --device cuda  # compiled as they are asked for
    python tools/paged_cases.py --cases 0:6000 --commonest 6 --jobs 15 --device cuda --json FILE

Every byte of the cache that no token has is NaN, and so is the memory around the cache. Lengths are 0 and 1 more often
than they should be. A hostile table has entries outside of the cache, pages twice and lengths below 0; what it should
give is read from the table, an entry outside as a page of zeros. The result lies among guards that must stay as they
are, and so must the cache. A case names its seed: ``--cases 17:18`` is that one again.

Most of the time goes to compiling. ``--commonest N`` runs the cases that need none but the N artifacts that most cases
of their kind need; with ``--jobs`` each kind has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / p) for p in ("src", "tools")]

import tilewright as tw  # noqa: E402
from campaign.pool import in_processes  # noqa: E402
from tilewright import ops, pages  # noqa: E402
from tilewright.jit import Kernel, rooms  # noqa: E402

GUARD = 4096
"""Elements around the result and around the cache."""
TOLERANCE = {torch.bfloat16: 2.5e-2, torch.float16: 4e-3}
BF16, F16, E4M3, E5M2 = torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2
BITS = {BF16: torch.int16, F16: torch.int16, E4M3: torch.uint8, E5M2: torch.uint8}
KINDS = (
    (64, 16, 1, BF16), (128, 16, 1, BF16), (128, 64, 1, F16), (128, 1, 1, BF16), (64, 8, 2, F16), (128, 32, 3, BF16),
    (64, 128, 4, BF16), (128, 256, 1, BF16), (128, 16, 8, BF16), (64, 2, 1, BF16), (256, 16, 1, BF16), (64, 4, 5, F16),
    (128, 16, 1, E4M3), (128, 1, 1, E4M3), (64, 64, 2, E5M2),
)  # fmt: skip
"""Widths, tokens of a page, query tokens, dtypes of the cache: few, since each is compiled."""


@dataclass
class Case:
    """A cache in the memory of the pool; ``held``: keys and values of each sequence, (2, length, groups, width). Both
    are integers of the bits of ``dtype``."""

    memory: Any
    table: np.ndarray[Any, np.dtype[Any]]
    lengths: np.ndarray[Any, np.dtype[Any]]
    held: list[Any]
    q: Any
    hostile: bool
    dtype: Any


class Sequences:
    """Requests of a pool, with what their tokens should be."""

    def __init__(self, random: np.random.Generator, page: int, groups: int, width: int, dtype: Any) -> None:
        self.random, self.shape, self.dtype = random, (groups, width), dtype
        self.pool = pages.PagePool(int(max(40, 640 // page)), page_tokens=page)
        self.memory = nans(dtype, 2, self.pool.pages(), page, *self.shape)
        self.requests: list[tuple[pages.PageSequence, Any]] = []

    def begin(self) -> None:
        """A request without tokens."""
        self.requests.append((pages.PageSequence(self.pool), self.memory.new_empty((2, 0, *self.shape))))

    def fork(self, number: int) -> None:
        """Another request with the same tokens, in the same pages."""
        sequence, held = self.requests[number]
        self.requests.append((sequence.fork(), held))

    def append(self, number: int, tokens: int) -> None:
        """New tokens, whose keys and values are written where the pool says."""
        sequence, held = self.requests[number]
        values = torch.from_numpy(self.random.standard_normal((2, tokens, *self.shape))).to(self.dtype)
        appended = sequence.append(tokens)
        self.memory[:, appended.targets] = self.memory[:, appended.sources]
        appended.copied()
        self.memory.flatten(1, 2)[:, appended.slots.slots] = values.view(self.memory.dtype)
        self.requests[number] = sequence, torch.cat((held, values.view(self.memory.dtype)), 1)


def nans(dtype: Any, *shape: int, device: str = "cpu") -> Any:
    """The bits of NaN."""
    return torch.full(shape, torch.nan, device=device).to(dtype).view(BITS[dtype])


def drawn(seed: int) -> tuple[Case, dict[str, Any]]:
    """A case, and what the operator is told besides."""
    random = np.random.default_rng(seed)
    width, page, tokens, dtype = KINDS[seed % len(KINDS)]
    groups, group = int(random.integers(1, 4)), int(random.choice([1, 2, 4, 4, 8, 8]))
    made = Sequences(random, page, groups, width, dtype)
    for _ in range(int(random.integers(1, 5))):
        if made.requests and random.random() < 0.4:
            made.fork(int(random.integers(len(made.requests))))
        else:
            made.begin()
        for _ in range(int(random.integers(0, 3))):
            made.append(int(random.integers(len(made.requests))), int(random.choice([1, 1, 2, page, page + 1, 37])))
    table = pages.block_table([s for s, _ in made.requests], pad=int(random.choice([-1, 0])))
    held = [h for _, h in made.requests]
    q = torch.from_numpy(random.standard_normal((len(held), tokens, groups * group, width)))
    q = q.to(dtype if dtype in TOLERANCE else BF16)
    memory = nans(dtype, made.memory.numel() + 2 * GUARD)
    memory[GUARD:-GUARD] = made.memory.flatten()
    memory = memory[GUARD:-GUARD].view(made.memory.shape)
    case = Case(memory, table.block_table.copy(), table.seq_lens.copy(), held, q, bool(random.random() < 0.3), dtype)
    if case.hostile:
        corrupt(random, case, page)
    options: dict[str, Any] = {"split": int(random.choice([64, 128]))} if random.random() < 0.5 else {}
    options |= {"window": 24} if random.random() < 0.2 else {}
    options |= {"balanced": True} if "split" not in options and random.random() < 0.3 else {}
    if random.random() < 0.3:
        case.memory, options = case.memory.transpose(2, 3).contiguous(), options | {"layout": "HND"}
    if dtype not in TOLERANCE:
        options |= {"k_scale": 0.5, "v_scale": float(random.choice([0.25, 2.0]))}
    return case, options


def corrupt(random: np.random.Generator, case: Case, page: int) -> None:
    """Entries outside, full pages twice, lengths below 0; ``held`` is what the table says then."""
    for b, length in enumerate(case.lengths.tolist()):
        if random.random() < 0.2:
            case.lengths[b] = int(random.choice([-1, -(2**31), -page]))
            case.held[b] = case.held[b][:, :0]
            continue
        held = case.held[b].clone()
        for i in range(length // page):
            at = slice(i * page, (i + 1) * page)
            match random.integers(4):
                case 0:
                    case.table[b, i] = int(random.choice([-1, case.memory.shape[1], 2**31 - 1, -(2**31)]))
                    held[:, at] = 0
                case 1:
                    case.table[b, i], held[:, at] = case.table[b, 0], held[:, :page].clone()
                case _:
                    pass
        case.held[b] = held


def exact(case: Case, options: dict[str, Any]) -> tuple[Any, Any]:
    """(attention, logarithms) in float64."""
    window, scales = options.get("window"), torch.tensor([options.get(n, 1.0) for n in ("k_scale", "v_scale")])
    y, lse = torch.zeros(case.q.shape, dtype=torch.float64), torch.full(case.q.shape[:-1], -torch.inf).double()
    (_, tokens, heads, width), groups = case.q.shape, case.held[0].shape[2]
    every = (h.view(case.dtype).double() * scales.view(2, 1, 1, 1) for h in case.held)
    for b, (k, v) in enumerate(held.repeat_interleave(heads // groups, 2) for held in every):
        for s in range(tokens):
            stop = len(k) - tokens + 1 + s
            start = 0 if window is None else max(0, stop - window)
            if stop > start:
                x = torch.einsum("hd,thd->ht", case.q[b, s].double(), k[start:stop]) * width**-0.5
                y[b, s], lse[b, s] = torch.einsum("ht,thd->hd", x.softmax(1), v[start:stop]), x.logsumexp(1)
    return y, lse


def problem(case: Case, options: dict[str, Any], device: str) -> str:
    """What is wrong with one case; empty where nothing is."""
    wanted, sums = exact(case, options)
    whole = case.memory if device == "cpu" else around(case, device)
    before = whole.clone()
    ring = torch.full((case.q.numel() + 2 * GUARD,), 7.0, dtype=case.q.dtype, device=device)
    out = ring[GUARD:-GUARD].view(case.q.shape)
    given = called(case, whole)
    found, lse = ops.paged_decode_with_lse(*given, **options)
    ops.paged_decode(*given, **options, out=out)
    limit = TOLERANCE[case.q.dtype] * (1 if case.dtype in TOLERANCE else 4)
    told = []
    if not torch.equal(out, found):
        told.append("out= differs")
    if not ((out.cpu().double() - wanted).abs() <= limit * (1 + wanted.abs())).all():
        told.append(f"off by {float((out.cpu().double() - wanted).abs().max()):.3g}")
    if not torch.allclose(lse.cpu().double(), sums, rtol=0, atol=1e-2):
        told.append("other logarithms")
    if not ((ring[:GUARD] == 7).all() and (ring[-GUARD:] == 7).all()):
        told.append("wrote around the result")
    if not torch.equal(whole, before):
        told.append("wrote into the cache")
    return "; ".join(told)


def called(case: Case, whole: Any) -> tuple[Any, ...]:
    """What the operator is given, where the cache is."""
    table, lengths = (torch.from_numpy(x).to(whole.device) for x in (case.table, case.lengths))
    return case.q.to(whole.device), *whole.view(case.dtype).unbind(), table, lengths


def around(case: Case, device: str) -> Any:
    """A copy of the cache on the device, amid NaN."""
    made = nans(case.dtype, case.memory.numel() + 2 * GUARD, device=device)
    inner = made[GUARD:-GUARD].view(case.memory.shape)
    inner.copy_(case.memory)
    return inner


# -- campaigns --------------------------------------------------------------------------------------------------------
@contextmanager
def noting(made: set[str]) -> Iterator[None]:
    """Kernels are not run; what they would be compiled for is noted."""
    describe, run = rooms.specialisation.Observed, Kernel._run

    def note(kernel: Kernel, given: dict[str, Any], *_: Any) -> None:
        tensors = {t.name: given[t.name] for t in kernel.function.tensors if given.get(t.name) is not None}
        seen = {n: describe(_dtype(t), t.data_ptr(), tuple(t.shape), t.stride()) for n, t in tensors.items()}
        keywords = {p.name: given[p.name] for p in kernel.function.keywords if p.name in given}
        made.add(f"{kernel.function.where} {keywords} {rooms.specialisation.observe_facts(seen)} {_dtypes(seen)}")

    Kernel._run = note
    try:
        yield
    finally:
        Kernel._run = run


def _dtype(tensor: Any) -> Any:
    return tw.base.dtypes.dtype_named(str(tensor.dtype))


def _dtypes(seen: dict[str, Any]) -> str:
    return " ".join(f"{n}:{x.dtype}" for n, x in seen.items())


def commonest(seeds: range, device: str, count: int) -> list[int]:
    """The cases that need none but the ``count`` artifacts that most of them need."""
    needs = dict[int, set[str]]()
    for seed in seeds:
        case, options = drawn(seed)
        needs[seed] = set()
        with noting(needs[seed]), ops.simulated():
            ops.paged_decode_with_lse(*called(case, case.memory.to(device)), **options)
    chosen = {key for key, _ in Counter(key for made in needs.values() for key in made).most_common(count)}
    return [seed for seed, made in needs.items() if made <= chosen]


@dataclass
class Found:
    """What became of some cases."""

    run: int = 0
    too_large: int = 0
    hostile: int = 0
    options: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    disagree: dict[int, str] = field(default_factory=dict)

    def add(self, other: Found) -> None:
        """The cases of another, too."""
        self.run, self.too_large, self.hostile = (
            self.run + other.run, self.too_large + other.too_large, self.hostile + other.hostile,
        )  # fmt: skip
        self.options += other.options
        self.kinds += other.kinds
        self.disagree |= other.disagree


def of(seeds: range, device: str, until: float, count: int | None) -> Found:
    """The cases, of which none begins after ``until``."""
    found = Found()
    for seed in seeds if count is None else commonest(seeds, device, count):
        if time.time() > until:
            break
        case, options = drawn(seed)
        try:
            with ops.simulated():
                told = problem(case, options, device)
        except tw.TilewrightError as error:
            if error.code != "SIM001":
                raise
            found.too_large += 1
            continue
        width, page, tokens, dtype = KINDS[seed % len(KINDS)]
        found.run += 1
        found.hostile += case.hostile
        found.options.update(f"{name}={x}" if name in ("layout", "balanced") else name for name, x in options.items())
        found.kinds[f"width {width}, pages of {page}, {tokens} new, {str(dtype)[6:]}"] += 1
        if told:
            found.disagree[seed] = told
            print(f"case {seed}: {told}", flush=True)
    return found


def begin(seeds: range, device: str, until: float, count: int | None) -> Callable[[int], Found]:
    """The judge of a process, of kinds by number."""
    return lambda kind: of(range(seeds.start + kind, seeds.stop, len(KINDS)), device, until, count)


def main() -> None:
    """Run the cases, print those that disagree, and exit with 1 if one does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="0:100", help="seeds, first:stop or first:stop:step")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after so long")
    parser.add_argument("--json", default="")
    parser.add_argument("--commonest", type=int, help="of each kind, the cases that need none but so many artifacts")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    seeds, began = range(*map(int, args.cases.split(":"))), time.time()
    given, found = (args.device, began + args.seconds, args.commonest), Found()
    if args.jobs == 1 and args.commonest is None:
        found = of(seeds, *given)
    else:
        for kind, answer in in_processes(begin, (seeds, *given), range(len(KINDS)), args.jobs, args.seconds + 60):
            found.add(answer if isinstance(answer, Found) else Found(disagree={-1 - kind: str(answer)}))
            write(args, began, found)
    write(args, began, found)
    raise SystemExit(bool(found.disagree))


def write(args: argparse.Namespace, began: float, found: Found) -> None:
    """Say what was found so far, and keep it."""
    seconds = round(time.time() - began, 1)
    print(f"{found.run} cases of {args.cases} on {args.device}: {len(found.disagree)} disagree, {found.too_large} too "
          f"large, {seconds} s", flush=True)  # fmt: skip
    if args.json:
        where = torch.cuda.get_device_name() if args.device == "cuda" else "simulator"
        told = {"command": "python " + " ".join(sys.argv), "device": where, "seconds": seconds, **vars(found)}
        Path(args.json).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
