"""The page pool at 10^6 live pages, and the replay of serving traces beside a reference model. Runs on the CPU.

    python benchmarks/page_pool.py [--events 1000000] [--json benchmarks/results/page_pool.json]

Times: medians and 99th percentiles of single calls and of batches of 256 with 10^6 pages held, in one thread; the work
of the clock itself is in them. Traces: requests arrive in bursts (gamma, CV 2), prompts begin with one of 512 shared
prefixes (Pareto), a part of the sequences is forked, sequences end or are preempted (in every 20th step, and when pages
run out), and cached prefixes are evicted; frees are deferred by two steps. An event is an arrival, a fork, an append of
one sequence, an end or a preemption. Prompt and output lengths are log-normal with the parameters fitted to public
traces (Azure/AzurePublicDataset, 2023; kvcache-ai/Mooncake, FAST25), cut at the traces' maxima. The model has counters
and sets of page numbers, and shares no code with the pool.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import harness
import numpy as np

from tilewright import pages
from tilewright.diag import TilewrightError

LIVE = 1_000_000
BATCH = 256


@dataclass(frozen=True)
class Lengths:
    """A trace's log-normal fits (mu, sigma of ln tokens) and maxima, and what serves it."""

    prompt: tuple[float, float, int]
    output: tuple[float, float, int]
    pages: int
    batch: int


TRACES = {
    "Azure 2023 conversation": Lengths((6.63, 0.99, 14050), (5.02, 0.86, 1000), 18_000, 256),
    "Azure 2023 code": Lengths((7.00, 1.36, 7437), (2.79, 0.85, 1899), 12_000, 128),
    "Mooncake conversation": Lengths((8.74, 1.20, 126195), (5.34, 1.36, 2000), 40_000, 64),
}


# -- single calls -----------------------------------------------------------------------------------------------------
def quantiles(call: Callable[[], Any], undo: Callable[[Any], None], rounds: int) -> tuple[list[int], list[int]]:
    """Nanoseconds of each ``call`` and of each ``undo`` of its result."""
    clock, forth, back = time.perf_counter_ns, list[int](), list[int]()
    for _ in range(rounds):
        a = clock()
        got = call()
        b = clock()
        undo(got)
        c = clock()
        forth.append(b - a)
        back.append(c - b)
    return forth, back


def calls(rounds: int) -> list[dict[str, Any]]:
    """Times of calls with LIVE pages held."""
    pool = pages.PagePool(LIVE + 200_000)
    pool.take(LIVE)
    mixed = pool.take(100_000)
    random.Random(1).shuffle(mixed)
    pool.release(mixed)  # a free list in no order
    gc.collect()
    gc.freeze()
    rows: list[dict[str, Any]] = []
    one = pool.take_one()
    for name, call, undo, size, count in (
        ("take_one, release_one", pool.take_one, pool.release_one, 1, rounds * 10),
        ("share_one, release_one", lambda: pool.share_one(one), pool.release_one, 1, rounds * 10),
        ("take(256), release", lambda: pool.take(BATCH), pool.release, BATCH, rounds),
        ("share(256), release", _sharing(pool), pool.release, BATCH, rounds),
    ):
        forth, back = quantiles(call, undo, count)
        for what, times in zip(name.split(", "), (forth, back), strict=True):
            ordered = sorted(times)
            rows.append(
                {
                    "call": what if "(" in what or size == 1 else f"{what}({size})",
                    "pair": name,
                    "pages": size,
                    "median_us": round(statistics.median(ordered) / 1e3, 3),
                    "p99_us": round(ordered[int(len(ordered) * 0.99)] / 1e3, 3),
                    "us_a_page": round(statistics.median(ordered) / 1e3 / size, 4),
                }
            )
    return rows


def _sharing(pool: pages.PagePool) -> Callable[[], Any]:
    batch = pool.take(BATCH)
    return lambda: pool.share(batch)


# -- the reference model ----------------------------------------------------------------------------------------------
@dataclass
class Model:
    """Who holds which page: counters by page number."""

    owners: Counter[int] = field(default_factory=Counter)
    not_before: dict[int, int] = field(default_factory=dict)
    prefix_of: dict[int, tuple[int, int]] = field(default_factory=dict)
    lost: int = 0
    owned_twice: int = 0
    early: int = 0
    wrong_prefix: int = 0

    def took(self, page: int, step: int) -> None:
        """A page that the pool handed out as a new one."""
        self.owned_twice += self.owners[page] != 0
        self.early += self.not_before.get(page, 0) > step
        self.owners[page] = 1
        self.prefix_of.pop(page, None)

    def matched(self, row: list[int], prefix: int) -> None:
        """Pages that were found under a prefix."""
        for i, page in enumerate(row):
            self.wrong_prefix += self.prefix_of.get(page) != (prefix, i)
            self.owners[page] += 1

    def dropped(self, row: list[int], until: int) -> None:
        """One owner less for each; launches use them before step ``until``."""
        for page in row:
            self.owners[page] -= 1
            self.not_before[page] = max(until, self.not_before.get(page, 0))

    def compare(self, pool: pages.PagePool, count: int) -> None:
        """The pool's counts against the model's, page by page."""
        (state,) = pool.state().values()
        self.owned_twice += sum(self.owners[p] != n for p, n in enumerate(state["refs"]))
        free = Counter(state["free"])
        for deferred in state["deferred"].values():
            free.update(deferred)
        cached = {p for p in state["published"] if not self.owners[p]}
        self.owned_twice += sum(n > 1 or self.owners[p] > 0 for p, n in free.items())
        self.lost += count - len(free) - len(cached) - sum(n > 0 for n in self.owners.values())


# -- traces -----------------------------------------------------------------------------------------------------------
class Step:
    """An event that passes two steps after it was recorded."""

    now = 0

    def __init__(self) -> None:
        self.passes = Step.now + 2

    def query(self) -> bool:
        return Step.now >= self.passes

    def synchronize(self) -> None:
        Step.now = max(Step.now, self.passes)  # the host waited


@dataclass(eq=False)
class Live:
    """A sequence that decodes: its row as the model knows it, and how many tokens are to come."""

    sequence: pages.PageSequence
    row: list[int]
    left: int


class Serving:
    """A serving loop without a model: what happens to pages, and the reference model beside it."""

    def __init__(self, lengths: Lengths, page_tokens: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.lengths, self.page_tokens = lengths, page_tokens
        self.count = lengths.pages * 16 // page_tokens
        self.evicted = 0
        self.pool = pages.PagePool(self.count, page_tokens=page_tokens, on_evict=self.on_evict)
        self.prefixes = [[i] * self.random.randrange(64, 2048) for i in range(512)]
        self.model = Model()
        self.live: list[Live] = []
        self.counts: Counter[str] = Counter()
        self.waste: list[float] = []
        self.fragmentation: list[float] = []
        self.queue: deque[int] = deque()

    def on_evict(self, evicted: Any, keys: list[bytes]) -> None:
        self.counts["evicted pages"] += len(evicted)

    def length(self, fit: tuple[float, float, int]) -> int:
        mu, sigma, most = fit
        return max(1, min(most, round(math.exp(self.random.gauss(mu, sigma)))))

    def run(self, events: int) -> None:
        Step.now = 0
        while sum(self.counts[k] for k in ("arrivals", "appends", "forks", "ends", "preemptions")) < events:
            Step.now += 1
            for _ in range(min(64, round(self.random.gammavariate(0.25, self.lengths.batch / 24)))):  # CV 2
                self.queue.append(min(round(self.random.paretovariate(0.5)), len(self.prefixes)) - 1)
            while self.queue and len(self.live) < self.lengths.batch and self.arrive(self.queue[0]):
                self.queue.popleft()
            if self.live:
                self.decode()
            if Step.now % 32 == 0 and self.live:
                self.measure()
            if Step.now % 1024 == 0:
                self.model.compare(self.pool, self.count)
        while self.live:
            self.end(self.live[-1], "ends")
        self.model.compare(self.pool, self.count)

    def arrive(self, prefix: int) -> bool:
        tokens, prompt = self.prefixes[prefix], self.length(self.lengths.prompt)
        sequence = pages.PageSequence.matched(self.pool, tokens[:prompt])
        row = sequence.row.tolist()
        self.model.matched(row, prefix)
        self.counts["matched pages"] += len(row)
        entry = Live(sequence, row, self.length(self.lengths.output))
        if not self.append([entry], [max(1, prompt - sequence.length)]):
            self.model.dropped(entry.row, 0)
            sequence.release()
            return False
        full = sequence.publish(tokens[:prompt])
        for i in range(full):
            self.model.prefix_of.setdefault(entry.row[i], (prefix, i))
        self.live.append(entry)
        self.counts["arrivals"] += 1
        if self.random.random() < 0.05:
            for _ in range(self.random.randrange(1, 4)):
                self.fork(entry)
        return True

    def fork(self, entry: Live) -> None:
        made = entry.sequence.fork()
        for page in entry.row:
            self.model.owners[page] += 1
        self.live.append(Live(made, list(entry.row), self.length(self.lengths.output)))
        self.counts["forks"] += 1

    def decode(self) -> None:
        if len(self.live) > 1 and self.random.random() < 0.05:
            self.end(self.random.choice(self.live), "preemptions")
        while self.live and not self.append(self.live, [1] * len(self.live)):
            self.end(self.random.choice(self.live), "preemptions")
        self.counts["appends"] += len(self.live)
        for entry in self.live:
            entry.left -= 1
        for entry in [e for e in self.live if e.left <= 0]:
            self.end(entry, "ends")

    def append(self, entries: list[Live], tokens: list[int]) -> bool:
        try:
            done = pages.append([e.sequence for e in entries], tokens)
        except TilewrightError as error:
            if error.code != "PAG021":
                raise
            return False
        copies = dict(zip(done.targets.tolist(), done.sources.tolist(), strict=True))
        self.counts["copies"] += len(copies)
        for entry in entries:
            row = entry.sequence.row
            if copies and int(row[len(entry.row) - 1]) != entry.row[-1]:
                target = int(row[len(entry.row) - 1])
                if copies.get(target) != entry.row[-1]:
                    self.model.lost += 1
                self.model.took(target, Step.now)
                entry.row[-1] = target
            for page in row[len(entry.row) :].tolist():
                self.model.took(page, Step.now)
                entry.row.append(page)
        self.model.dropped(list(copies.values()), Step.now + 2)
        done.copied(after=Step())
        return True

    def end(self, entry: Live, what: str) -> None:
        self.live.remove(entry)
        self.model.dropped(entry.row, Step.now + 2)
        entry.sequence.release(after=Step())
        self.counts[what] += 1

    def measure(self) -> None:
        used = [len(e.sequence.handles) * self.page_tokens - e.sequence.length for e in self.live]
        self.waste.append(statistics.mean(used))
        self.fragmentation.append(self.pool.stats().fragmentation)


def replayed(name: str, page_tokens: int, events: int) -> dict[str, Any]:
    """One trace: what was lost, wasted and needed."""
    serving = Serving(TRACES[name], page_tokens, seed=7)
    begin = time.perf_counter()
    serving.run(events)
    seconds = time.perf_counter() - begin
    model, stats = serving.model, serving.pool.stats()
    bound = 1.1 * (page_tokens - 1) / 2
    waste = statistics.mean(serving.waste)
    return {
        "trace": name,
        "page_tokens": page_tokens,
        "events": events,
        "seconds": round(seconds, 1),
        "lost": model.lost,
        "owned_twice": model.owned_twice,
        "handed_out_early": model.early,
        "wrong_prefix": model.wrong_prefix,
        "waste_tokens_a_sequence": round(waste, 2),
        "waste_bound": round(bound, 2),
        "fragmentation_mean": round(statistics.mean(serving.fragmentation), 3),
        "fragmentation_max": max(serving.fragmentation),
        "peak_pages": stats.peak,
        "pool_pages": serving.count,
        **{k.replace(" ", "_"): n for k, n in sorted(serving.counts.items())},
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=5000)
    arguments.add_argument("--json", default="")
    given = arguments.parse_args()
    timed = calls(given.rounds)
    for row in timed:
        print(f"{row['call']:14} {row['median_us']:8} us, p99 {row['p99_us']:8}, {row['us_a_page']} a page")
    traces: list[dict[str, Any]] = []
    for name, size, part in (
        ("Azure 2023 conversation", 16, 1),
        ("Azure 2023 conversation", 64, 5),
        ("Azure 2023 code", 16, 5),
        ("Mooncake conversation", 16, 5),
    ):
        traces.append(replayed(name, size, given.events // part))
        print(traces[-1])
    found = {
        "command": "python " + " ".join(sys.argv),
        "date": str(date.today()),
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__},
        "calls": timed,
        "traces": traces,
    }
    harness.write(found, given.json)


if __name__ == "__main__":
    main()
