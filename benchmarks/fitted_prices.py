"""Prices of the tiles of products, fitted to recorded times and tested on shapes that they were not fitted to.

    python benchmarks/fitted_prices.py --json benchmarks/results/fitted_prices.json

Reads the times of ``product_choices*.json``; needs no GPU. Prints the prices of ``schedule.hopper.product_tiles``: the
time of a tile is a sum of six terms, none negative, as ``schedule.hopper.tile_prices`` has them. Least squares of
relative errors, weighted by how close a way is to the best; ways that were not timed for a shape count a little, at
their rough estimate, so that no price is extrapolated to next to nothing. Of each fifth of the shapes the prices are
fitted to the others.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil, exp, log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from product_choices import CLUSTERED_SMS, FIRST, KINDS, SAME, SMS, WAYS, Kind, Prices, Way

from tilewright.schedule.hopper.product_tiles import TILES, ProductTile
from tilewright.schedule.hopper.tile_choice import COLUMN_TILES, FEW_STEPS, FEW_WAVES
from tilewright.schedule.hopper.tile_prices import READ

RESULTS = Path(__file__).parent / "results"
FILES = {
    "bf16": ("", "held_back", "large", "drawn_bf16", "tables", "head", "all_ways_bf16", "new_bf16"),
    "row_major": ("row_major", "row_major_large", "drawn_row_major", "table_row_major", "all_ways_row_major",
                  "new_row_major"),
    "e4m3": ("e4m3", "drawn_e4m3", "table_e4m3", "all_ways_e4m3", "new_e4m3"),
}  # fmt: skip
LITTLE = 0.3
"""Weight of a way that was not timed."""
PARTS, SEED = 5, 1
PANEL, HIDING_ROWS, SHARE = 64, 256, 0.75
"""Columns of a panel of a row-major operand, and what copying a whole one costs (``schedule.hopper.tile_prices``)."""
ONE_ROW = 16


@dataclass(eq=False)
class Case:
    """A shape and the microseconds of its ways; ``peer`` is cuBLAS's."""

    kind: Kind
    shape: tuple[int, ...]
    times: dict[Way, float]
    peer: float

    @cached_property
    def best(self) -> float:
        return min(self.times.values())

    def terms(self, way: Way) -> tuple[float, ...] | None:
        """Those of the way's time; None where it does not apply."""
        m, n, k = self.shape
        size = 1 if self.kind.dtype == "e4m3" else 2
        pitches = size * k, size * (k if self.kind.transposed else n)
        steps = ceil(k * size / 128)
        rows, columns = (
            ceil(ceil(x / y) / c) * c for x, y, c in ((m, way.rows, way.cluster[0]), (n, way.columns, way.cluster[1]))
        )
        parts = min(SMS // (rows * columns), steps // 16) if way.kernels else way.parts
        ctas = rows * columns * parts
        sms = CLUSTERED_SMS if way.cluster[0] * way.cluster[1] * way.parts > 2 else SMS
        waves = ceil(ctas / sms)
        fits = parts > 1 if way.kernels else waves == 1 if parts > 1 else waves > 1 if way.turns else True
        tile = tiles().get(way)
        aligned = not any(pitch % 128 for pitch in pitches)
        if not fits or (m > way.rows and way.swapped and way.rows <= 32) or (aligned and tile and tile.straddling):
            return None
        copied = 1.0
        if not self.kind.transposed and way.rows < HIDING_ROWS:
            copied += SHARE * (-way.columns % PANEL) / (way.rows + way.columns)
        step = waves * ceil(steps / parts) * copied
        inside = max(min(p % 32, 1) for p in pitches)
        return 1, waves, step, step * min(1, ctas / sms), step * inside, (m * k + n * k) * size / 1e6

    def offered(self, way: Way) -> bool:
        """Whether the schedule has it among the tiles whose prices it compares (``tile_choice``)."""
        m, n, _ = self.shape
        if m <= ONE_ROW:
            few = way == Way(ONE_ROW, 64, swapped=True)
            return few or (ceil(n / 64) <= COLUMN_TILES and (way.parts > 1 or way.kernels))
        waves = ceil(ceil(m / way.rows) * ceil(n / way.columns) / SMS)
        return waves <= FEW_WAVES or not tiles()[way].few_waves

    def estimate(self, way: Way) -> float | None:
        """The way's rough estimate in units of this shape's times."""
        rough = self._rough(way)
        return None if rough is None else max(rough * self._scale, 1.1 * self.best)

    def _rough(self, way: Way) -> float | None:
        m, n, k = self.shape
        return way.estimate(ceil(k / self.kind.depth), m, n)

    @cached_property
    def _scale(self) -> float:
        return median(time / own for way, time in self.times.items() if (own := self._rough(way)) is not None)


def cases() -> list[Case]:
    """All shapes whose ways were timed."""
    ways = {str(way): way for way in WAYS}
    found: list[Case] = []
    for kind, names in FILES.items():
        for name in names:
            file = RESULTS / f"{'_'.join(filter(None, ('product_choices', name)))}.json"
            for row in json.loads(file.read_text())["rows"]:
                times = {ways[n]: t for n, t in row["microseconds"].items() if n in ways}
                found += [Case(KINDS[kind], tuple(row["shape"]), times, row["microseconds"]["cublas"])] * bool(times)
    return found


def fitted(family: Sequence[Way], known: Sequence[Case]) -> dict[Way, np.ndarray]:
    """Coefficients of each way."""
    found: dict[Way, np.ndarray] = {}
    for way in family:
        terms: list[np.ndarray] = []
        for case in known:
            own, time, weight = case.terms(way), case.times.get(way), 1.0
            if time is None:
                time, weight = case.estimate(way), LITTLE
            if own is not None and time is not None:
                terms.append(weight * (case.best / time) ** 2 / time * np.array((*own, time)))
        table = np.array(terms)
        found[way] = not_negative(table[:, :-1], table[:, -1])
    return found


def not_negative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Least squares without negative coefficients (Lawson and Hanson, Solving Least Squares Problems, 23.10)."""
    free = np.zeros(a.shape[1], dtype=bool)
    x = np.zeros(a.shape[1])
    while not free.all():
        gain = np.where(free, -np.inf, a.T @ (b - a @ x))
        if gain.max() <= 1e-9:
            break
        free[gain.argmax()] = True
        while True:
            trial = np.zeros_like(x)
            trial[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
            low = free & (trial <= 0)
            if not low.any():
                break
            ratio = (x[low] / (x[low] - trial[low])).min()
            x = x + ratio * (trial - x)
            free &= x > 1e-12
        x = trial
    return x


@cache
def tiles() -> dict[Way, ProductTile]:
    """The tiles that the schedule offers, by their way."""
    found: dict[Way, ProductTile] = {}
    for own in TILES:
        first = own.candidate
        cluster = (1, 1) if first is None or own.parts > 1 else first.cluster
        turns = first is not None and first.ping_pong > 1
        found[Way(own.rows, own.columns, turns, cluster, own.parts, own.kernels, own.swapped)] = own
    return found


def ranked(prices: dict[Way, np.ndarray], case: Case) -> list[Way]:
    """The ways for a shape, the quickest by price first."""
    times: dict[Way, float] = {}
    for way, price in prices.items():
        own = case.terms(way)
        if own is not None and case.offered(way):
            cost = float(price[1:] @ np.array(own[1:]))
            time = max(cost, READ / 1000 * own[-1]) + cost / 10 + float(price[0])
            few = ceil(case.shape[2] / case.kind.depth) <= FEW_STEPS
            times[way] = time * (0.98 if few and way.turns and way.cluster == (1, 1) else 1)
    return sorted(times, key=lambda way: times[way])


def report(choices: Sequence[tuple[Case, list[Way]]]) -> dict[str, Any]:
    """Regrets of the first way that was timed, against all that were."""
    timed = [(case, [case.times[way] for way in ways if way in case.times]) for case, ways in choices]
    regrets = sorted(times[0] / case.best for case, times in timed if times)
    return {
        "shapes": len(regrets),
        "first_not_timed": sum(ways[0] not in case.times for case, ways in choices),
        "mean_regret": round(sum(regrets) / len(regrets), 4),
        "median_regret": round(median(regrets), 4),
        "p95_regret": round(regrets[int(0.95 * (len(regrets) - 1))], 3),
        "best_within_first": round(
            sum(min(times[:FIRST]) <= SAME * case.best for case, times in timed if times) / len(regrets), 3
        ),
        "geomean_of_cublas": round(exp(sum(log(c.peer / times[0]) for c, times in timed if times) / len(regrets)), 3),
    }


def held_out(family: Sequence[Way], every: Sequence[Case]) -> list[tuple[Case, list[Way]]]:
    """Each case with the ranking by prices that were fitted without its shape."""
    shapes = sorted({case.shape for case in every})
    random.Random(SEED).shuffle(shapes)
    found: list[tuple[Case, list[Way]]] = []
    for part in range(PARTS):
        held = set(shapes[part::PARTS])
        prices = fitted(family, [case for case in every if case.shape not in held])
        found += [(case, ranked(prices, case)) for case in every if case.shape in held]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    every, schedule = cases(), {name: Prices(KINDS[name]) for name in FILES}
    for way, price in fitted(list(tiles()), every).items():
        print(f"{way!s:24}", f"Price({', '.join(str(round(1000 * x)) for x in price)})")
    rankings = {
        "the schedule's": [(case, schedule[case.kind.name].first(case.shape)) for case in every],
        "fitted to other shapes": held_out(list(tiles()), every),
    }
    rows = [
        {"prices": name, "kind": kind, **report([each for each in choices if each[0].kind.name == kind])}
        for name, choices in rankings.items()
        for kind in FILES
    ]
    for row in rows:
        print(row)
    if args.json:
        command = "python benchmarks/fitted_prices.py --json benchmarks/results/fitted_prices.json"
        args.json.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
