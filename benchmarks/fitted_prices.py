"""Prices of products fitted to recorded times, tested on shapes that they were not fitted to.

    python benchmarks/fitted_prices.py --json benchmarks/results/fitted_prices.json

Reads the times of ``product_choices*.json``; needs no GPU. The time of a way is a sum of six terms with coefficients of
its own, none negative: a launch, a wave, a step of 128 bytes, a step by the share of SMs that work, a step whose rows
begin inside of sectors, and a megabyte of operands. Least squares of relative errors, weighted by how close a way is to
the best; ways that were not timed for a shape count a little, at their rough estimate, so that no price is
extrapolated to next to nothing. Of each fifth of the shapes the prices are fitted to the others.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from product_choices import CLUSTERED_SMS, FIRST, KINDS, SAME, SMS, WAYS, Kind, Prices, Way

RESULTS = Path(__file__).parent / "results"
FILES = {
    "bf16": ("product_choices", "product_choices_held_back", "product_choices_large", "product_choices_drawn_bf16"),
    "row_major": (
        *("product_choices_row_major", "product_choices_row_major_large"),
        *("product_choices_drawn_row_major", "product_choices_table_row_major"),
    ),
    "e4m3": ("product_choices_e4m3", "product_choices_drawn_e4m3", "product_choices_table_e4m3"),
}
LITTLE = 0.3
"""Weight of a way that was not timed."""
PARTS, SEED = 5, 1
PANEL, HIDING_ROWS, SHARE = 64, 256, 0.75
"""Columns of a panel of a row-major operand, and what copying a whole one costs (``schedule.hopper.tile_prices``)."""
ADDED = (
    *(Way(64, 128, parts=2), Way(128, 208, turns=True, cluster=(2, 1)), Way(128, 64)),
    *(Way(128, 128, turns=True), Way(128, 192, cluster=(1, 2))),
)
LEFT_OUT = Way(128, 64, parts=2), Way(128, 160)
"""Ways that the family has not and that are best most often; and ways of the family that hardly are."""


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
        if not fits or (m > way.rows and ((way.swapped and way.rows <= 32) or way.columns == 32)):
            return None
        copied = 1.0
        if not self.kind.transposed and way.rows < HIDING_ROWS:
            copied += SHARE * (-way.columns % PANEL) / (way.rows + way.columns)
        step = waves * ceil(steps / parts) * copied
        inside = max(min(p % 32, 1) for p in pitches)
        return 1, waves, step, step * min(1, ctas / sms), step * inside, (m * k + n * k) * size / 1e6

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
            for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]:
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


def ranked(prices: dict[Way, np.ndarray], case: Case) -> list[Way]:
    """The family's ways for a shape, the quickest by price first."""
    times = {way: float(price @ np.array(own)) for way, price in prices.items() if (own := case.terms(way)) is not None}
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
    family = sorted(schedule["bf16"].ways() & set(WAYS), key=str)
    more = [way for way in (*family, *ADDED) if way not in LEFT_OUT]
    rankings = {
        "the schedule's prices": [(case, schedule[case.kind.name].first(case.shape)) for case in every],
        "fitted, the family's ways": held_out(family, every),
        "fitted, five ways more, two less": held_out(more, every),
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
