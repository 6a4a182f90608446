"""Random decodes over paged caches beside float64: what a pool serves, forked and appended to, and hostile tables.

    python tools/paged_cases.py --cases 0:200                  # in the simulator
    python tools/paged_cases.py --cases 0:2000 --device cuda --jobs 15 --json FILE

Every byte of the cache that no token has is NaN, and so is the memory around the cache. Lengths are 0 and 1 more often
than they should be. A hostile table has entries outside of the cache, pages twice and lengths below 0 or behind its
row; what it should give is read from the table, an entry outside as a page of zeros. The result lies among guards that
must stay as they are, and so must the cache. A case names its seed: ``--cases 17:18`` is that one again.

Most of the time goes to compiling. ``--commonest N`` runs the cases that need none but the N artifacts that most cases
of their kind need; with ``--jobs`` each kind has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
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

GUARD = 4096
"""Elements around the result and around the cache."""
TOLERANCE = {torch.bfloat16: 2.5e-2, torch.float16: 4e-3}
BF16, F16, E4M3, E5M2 = torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2
BITS = {BF16: torch.int16, F16: torch.int16, E4M3: torch.uint8, E5M2: torch.uint8}
SHAPES = (
    (64, 16, 1, BF16), (128, 16, 1, BF16), (128, 64, 1, F16), (128, 1, 1, BF16), (64, 8, 2, F16), (128, 32, 3, BF16),
    (64, 128, 4, BF16), (128, 256, 1, BF16), (128, 16, 8, BF16), (64, 2, 1, BF16), (256, 16, 1, BF16), (64, 4, 5, F16),
    (128, 16, 1, E4M3), (128, 1, 1, E4M3), (64, 64, 2, E5M2),
)  # fmt: skip
"""Widths, tokens of a page, query tokens, dtypes of the cache."""
WAYS: dict[str, dict[str, Any]] = {
    "whole": {"split": 8192}, "parts": {"split": 64}, "listed": {"balanced": True}, "chosen": {},
}  # fmt: skip


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


@dataclass(frozen=True)
class Kind:
    """What artifacts depend on. ``shape`` is of SHAPES, ``way`` of WAYS, ``group`` are the heads of queries over one of
    keys; a table has a multiple of 4 columns and ``odd`` more."""

    shape: tuple[int, int, int, Any]
    groups: int
    group: int
    way: str
    batch: tuple[int, int]
    odd: int
    options: dict[str, Any]

    @classmethod
    def of(cls, number: int) -> Kind:
        random, shape = np.random.default_rng(number), SHAPES[number % len(SHAPES)]
        options: dict[str, Any] = {"window": 24} if random.random() < 0.3 else {}
        options |= {"layout": "HND"} if random.random() < 0.3 else {}
        if shape[3] not in TOLERANCE:
            options |= {"k_scale": 0.5, "v_scale": float(random.choice([0.25, 2.0]))}
        way, group = str(random.choice(list(WAYS))), int(random.choice([1, 2, 4, 4, 8, 8]))
        batch = (1, 1) if way != "listed" and random.random() < 0.2 else (2, 5)
        return cls(
            shape, int(random.integers(1, 4)), group, way, batch, int(random.random() < 0.3), options | WAYS[way]
        )

    def columns(self, wanted: int) -> int:
        """Of a table of so many or more: several parts, unless sequences are to stay whole."""
        least = 0 if self.way == "whole" else 2 * 64 // self.shape[1] + 1
        return -(-max(wanted, least, 4) // 4) * 4 + self.odd

    def __str__(self) -> str:
        width, page, tokens, dtype = self.shape
        told = f"width {width}, pages of {page}, {tokens} new, {str(dtype)[6:]}, {self.groups} x {self.group} heads"
        return ", ".join((told, self.way, *(n for n in self.options if n in ("window", "layout"))))


def drawn(seed: int, kind: Kind) -> tuple[Case, dict[str, Any]]:
    """A case, and what the operator is told besides."""
    random = np.random.default_rng(seed)
    width, page, tokens, dtype = kind.shape
    made = Sequences(random, page, kind.groups, width, dtype)
    for _ in range(int(random.integers(*kind.batch, endpoint=True))):
        if made.requests and random.random() < 0.4:
            made.fork(int(random.integers(len(made.requests))))
        else:
            made.begin()
        for _ in range(int(random.integers(0, 3))):
            made.append(int(random.integers(len(made.requests))), int(random.choice([1, 1, 2, page, page + 1, 37])))
    pad = int(random.choice([-1, 0]))
    rows = pages.block_table([s for s, _ in made.requests], pad=pad)
    table = np.full((len(made.requests), kind.columns(rows.block_table.shape[1])), pad, np.int32)
    table[:, : rows.block_table.shape[1]] = rows.block_table
    held = [h for _, h in made.requests]
    q = torch.from_numpy(random.standard_normal((len(held), tokens, kind.groups * kind.group, width)))
    q = q.to(dtype if dtype in TOLERANCE else BF16)
    memory = nans(dtype, made.memory.numel() + 2 * GUARD)
    memory[GUARD:-GUARD] = made.memory.flatten()
    memory = memory[GUARD:-GUARD].view(made.memory.shape)
    case = Case(memory, table, rows.seq_lens.copy(), held, q, bool(random.random() < 0.3), dtype)
    if case.hostile:
        corrupt(random, case, kind)
    if "layout" in kind.options:
        case.memory = case.memory.transpose(2, 3).contiguous()
    return case, kind.options


def corrupt(random: np.random.Generator, case: Case, kind: Kind) -> None:
    """Entries outside, full pages twice, lengths below 0 or behind the row; ``held`` is what the table says then."""
    page = kind.shape[1]
    for b, length in enumerate(case.lengths.tolist()):
        if random.random() < 0.2:
            case.lengths[b] = int(random.choice([-1, -(2**31), -page]))
            case.held[b] = case.held[b][:, :0]
            continue
        if random.random() < 0.1 and kind.shape[2] == 1 and "window" not in kind.options:  # its row names nothing
            case.lengths[b], case.table[b] = 2**31 - 1, int(random.choice([-1, case.memory.shape[1]]))
            case.held[b] = torch.zeros_like(case.memory[:, :1, 0]).expand(2, case.table.shape[1] * page, -1, -1)
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


def of(kind: Kind, seeds: range, device: str, until: float) -> Found:
    """The cases, of which none begins after ``until``."""
    found = Found()
    for seed in seeds:
        if time.time() > until:
            break
        case, options = drawn(seed, kind)
        try:
            with ops.simulated():
                told = problem(case, options, device)
        except tw.TilewrightError as error:
            if error.code != "SIM001":
                raise
            found.too_large += 1
            continue
        found.run += 1
        found.hostile += case.hostile
        found.options.update((*(x for x in options if x in ("window", "layout")), kind.way))
        found.kinds[str(kind)] += 1
        if told:
            found.disagree[seed] = told
            print(f"case {seed}, {kind}: {told}", flush=True)
    return found


def begin(kinds: int, seeds: range, device: str, until: float) -> Callable[[int], Found]:
    """The judge of a process, of kinds by number."""
    torch.set_num_threads(1)
    return lambda n: of(Kind.of(n), range(seeds.start + (n - seeds.start) % kinds, seeds.stop, kinds), device, until)


def main() -> None:
    """Run the cases, print those that disagree, and exit with 1 if one does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="0:100", help="seeds, first:stop")
    parser.add_argument("--kinds", type=int, default=45, help="a case is of the kind seed %% KINDS")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after so long")
    parser.add_argument("--json", default="")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    seeds, began, found = range(*map(int, args.cases.split(":"))), time.time(), Found()
    given = (args.kinds, seeds, args.device, began + args.seconds)
    kinds = sorted({seed % args.kinds for seed in seeds})
    for kind, answer in in_processes(begin, given, kinds, args.jobs, args.seconds + 60, args.seconds):
        found.add(answer if isinstance(answer, Found) else Found(disagree={-1 - kind: str(answer)}))
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
