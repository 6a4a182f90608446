"""Random decodes over paged caches beside float64: what a pool serves, forked and appended to, and hostile tables.

    python tools/paged_cases.py --cases 0:200                 # in the simulator
    python tools/paged_cases.py --cases 0:2000 --device cuda  # compiled as they are asked for

Every byte of the cache that no token has is NaN, and so is the memory around the cache. Lengths are 0 and 1 more often
than they should be. A hostile table has entries outside of the cache, pages twice and lengths below 0; what it should
give is read from the table, an entry outside as a page of zeros. The result lies among guards that must stay as they
are, and so must the cache. A case names its seed: ``--cases 17:18`` is that one again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tilewright as tw
from tilewright import ops, pages

GUARD = 4096
"""Elements around the result and around the cache."""
TOLERANCE = {torch.bfloat16: 2.5e-2, torch.float16: 4e-3}
BF16, F16 = torch.bfloat16, torch.float16
KINDS = (
    (64, 16, 1, BF16), (128, 16, 1, BF16), (128, 64, 1, F16), (128, 1, 1, BF16), (64, 8, 2, F16), (128, 32, 3, BF16),
    (64, 128, 4, BF16), (128, 256, 1, BF16), (128, 16, 8, BF16), (64, 2, 1, BF16), (256, 16, 1, BF16), (64, 4, 5, F16),
)  # fmt: skip
"""Widths, tokens of a page, query tokens, dtypes: few, since each is compiled."""


@dataclass
class Case:
    """A cache in the memory of the pool; ``held``: keys and values of each sequence, (2, length, groups, width)."""

    memory: Any
    table: np.ndarray[Any, np.dtype[Any]]
    lengths: np.ndarray[Any, np.dtype[Any]]
    held: list[Any]
    q: Any
    hostile: bool


class Sequences:
    """Requests of a pool, with what their tokens should be."""

    def __init__(self, random: np.random.Generator, page: int, groups: int, width: int, dtype: Any) -> None:
        self.random, self.shape = random, (groups, width)
        self.pool = pages.PagePool(int(max(40, 640 // page)), page_tokens=page)
        self.memory = torch.full((2, self.pool.pages(), page, *self.shape), torch.nan, dtype=dtype)
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
        values = torch.from_numpy(self.random.standard_normal((2, tokens, *self.shape))).to(self.memory.dtype)
        appended = sequence.append(tokens)
        self.memory[:, appended.targets] = self.memory[:, appended.sources]
        appended.copied()
        self.memory.flatten(1, 2)[:, appended.slots.slots] = values
        self.requests[number] = sequence, torch.cat((held, values), 1)


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
    q = torch.from_numpy(random.standard_normal((len(held), tokens, groups * group, width))).to(dtype)
    memory = torch.full((made.memory.numel() + 2 * GUARD,), torch.nan, dtype=dtype)
    memory[GUARD:-GUARD] = made.memory.flatten()
    memory = memory[GUARD:-GUARD].view(made.memory.shape)
    case = Case(memory, table.block_table.copy(), table.seq_lens.copy(), held, q, bool(random.random() < 0.3))
    if case.hostile:
        corrupt(random, case, page)
    options: dict[str, Any] = {"split": int(random.choice([64, 128]))} if random.random() < 0.5 else {}
    options |= {"window": 24} if random.random() < 0.2 else {}
    options |= {"balanced": True} if "split" not in options and random.random() < 0.3 else {}
    if random.random() < 0.3:
        case.memory, options = case.memory.transpose(2, 3).contiguous(), options | {"layout": "HND"}
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


def exact(case: Case, window: int | None) -> tuple[Any, Any]:
    """(attention, logarithms) in float64."""
    y, lse = torch.zeros(case.q.shape, dtype=torch.float64), torch.full(case.q.shape[:-1], -torch.inf).double()
    (_, tokens, heads, width), groups = case.q.shape, case.held[0].shape[2]
    for b, (k, v) in enumerate(held.double().repeat_interleave(heads // groups, 2) for held in case.held):
        for s in range(tokens):
            stop = len(k) - tokens + 1 + s
            start = 0 if window is None else max(0, stop - window)
            if stop > start:
                x = torch.einsum("hd,thd->ht", case.q[b, s].double(), k[start:stop]) * width**-0.5
                y[b, s], lse[b, s] = torch.einsum("ht,thd->hd", x.softmax(1), v[start:stop]), x.logsumexp(1)
    return y, lse


def problem(seed: int, device: str) -> str:
    """What is wrong with one case; empty where nothing is."""
    case, options = drawn(seed)
    wanted, sums = exact(case, options.get("window"))
    whole = case.memory if device == "cpu" else around(case.memory, device)
    before = whole.clone()
    ring = torch.full((case.q.numel() + 2 * GUARD,), 7.0, dtype=case.q.dtype, device=device)
    out = ring[GUARD:-GUARD].view(case.q.shape)
    table, lengths = (torch.from_numpy(x).to(device) for x in (case.table, case.lengths))
    given = (case.q.to(device), whole[0], whole[1], table, lengths)
    found, lse = ops.paged_decode_with_lse(*given, **options)
    ops.paged_decode(*given, **options, out=out)
    limit = TOLERANCE[case.q.dtype]
    told = []
    if not torch.equal(out, found):
        told.append("out= differs")
    if not ((out.cpu().double() - wanted).abs() <= limit * (1 + wanted.abs())).all():
        told.append(f"off by {float((out.cpu().double() - wanted).abs().max()):.3g}")
    if not torch.allclose(lse.cpu().double(), sums, rtol=0, atol=1e-2):
        told.append("other logarithms")
    if not ((ring[:GUARD] == 7).all() and (ring[-GUARD:] == 7).all()):
        told.append("wrote around the result")
    if not torch.equal(whole.view(torch.int16), before.view(torch.int16)):
        told.append("wrote into the cache")
    return "; ".join(told)


def around(memory: Any, device: str) -> Any:
    """A copy on the device, amid NaN."""
    made = torch.full((memory.numel() + 2 * GUARD,), torch.nan, dtype=memory.dtype, device=device)
    inner = made[GUARD:-GUARD].view(memory.shape)
    inner.copy_(memory)
    return inner


def main() -> None:
    """Run the cases, print those that disagree, and exit with 1 if one does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="0:100", help="seeds, first:stop or first:stop:step")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after so long")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    seeds = range(*map(int, args.cases.split(":")))
    began, done, large, wrong = time.perf_counter(), 0, 0, dict[int, str]()
    for seed in seeds:
        if time.perf_counter() - began > args.seconds:
            break
        try:
            with ops.simulated():
                told = problem(seed, args.device)
        except tw.TilewrightError as error:
            if error.code != "SIM001":
                raise
            large += 1
            continue
        done += 1
        if told:
            wrong[seed] = told
            print(f"case {seed}: {told}", flush=True)
    seconds = round(time.perf_counter() - began, 1)
    print(f"{done} cases of {args.cases} on {args.device}: {len(wrong)} disagree, {large} too large, {seconds} s")
    if args.json:
        with open(args.json, "w") as file:
            found = {"cases": args.cases, "run": done, "too_large": large, "disagree": wrong}
            json.dump(found | {"device": args.device, "seconds": seconds}, file)
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
