"""Loaded operands are chosen together: what the compiler takes is the best combination of what the rules allow."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import tilewright as tw
from support import products as p
from tilewright.base.dtypes import bf16, f32
from tilewright.compiler.program import traced
from tilewright.hw.tensormap import Swizzle
from tilewright.legal.asynchronous import AsyncPlan, ProductReader, StreamedTile, async_plans, choose, undominated
from tilewright.legal.tma import TileAccess
from tilewright.legal.wgmma import Major, OperandRole
from tilewright.schedule.hopper.operands import Analysis, TmaOperand
from tilewright.tile.queries import source_of

KERNELS = (
    (p.nt, {}),
    (p.nt, {"bk": 32}),
    (p.nt, {"bk": 96}),
    (p.nn, {"bn": 96}),
    (p.tn, {"bn": 192}),
    (p.tt, {"bn": 40}),
    (p.gated, {}),
    (p.chained, {}),
    (p.attention, {"causal": True}),
)


def analysis(kernel: tw.Kernel, **keywords: Any) -> Analysis:
    asked = p.request(kernel, **keywords)
    return Analysis(traced(asked), asked.facts, 1)


def copied(made: Analysis) -> list[TmaOperand]:
    dots = made.dots()
    assert not isinstance(dots, str), dots
    return [x for dot in dots for x in (dot.a, dot.b) if isinstance(x, TmaOperand)]


@pytest.mark.parametrize(("kernel", "keywords"), KERNELS, ids=[f"{k.name} {o}" for k, o in KERNELS])
def test_no_combination_of_layouts_has_a_shorter_step(kernel: tw.Kernel, keywords: dict[str, Any]) -> None:
    made = analysis(kernel, **keywords)
    taken = {c.load: c.map.swizzle for c in copied(made)}
    assert taken
    options: dict[Any, dict[Swizzle, AsyncPlan]] = {}
    for (dot, role), operand in made.chosen_layouts.items():
        value, n = (dot.a, 8) if role is OperandRole.A else (dot.b, 8)
        access = TileAccess(bf16, (4096, 4096), (4096, 1), 0, tuple(reversed(operand.shared.extents)))
        reader = ProductReader(role, operand.plan.major, n)
        found = {a.plan.swizzle: a for a in async_plans(StreamedTile(access, (reader,)))}
        ways = {w.map.swizzle for w in made.candidates(value, role, n)}
        options[source_of(value)[0].owner] = {s: a for s, a in found.items() if s in ways}
    best = choose([list(o.values()) for o in options.values()])
    chosen = choose([[o[taken[load]]] for load, o in options.items()])
    assert chosen.step_cycles == best.step_cycles


def test_a_tile_that_two_products_read_lands_once() -> None:
    made = analysis(p.gated)
    rows = [c for c in copied(made) if c.load is copied(made)[0].load]
    assert len(rows) == 2
    assert rows[0].map == rows[1].map


def test_what_others_better_is_in_no_best_combination() -> None:
    def tile(rows: int, columns: int, *readers: ProductReader) -> tuple[AsyncPlan, ...]:
        return async_plans(StreamedTile(TileAccess(bf16, (4096, 4096), (4096, 1), 0, (rows, columns)), readers))

    options = [
        tile(128, 96, ProductReader(OperandRole.A, Major.K)),
        tile(64, 128, ProductReader(OperandRole.B, Major.MN)),
    ]
    options.append(async_plans(StreamedTile(TileAccess(f32, (4096, 4096), (4096, 1), 0, (64, 96)), ())))
    best = min(choose([[a], [b], [c]]).step_cycles for a, b, c in product(*options))
    assert choose(options).step_cycles == best
    assert all(1 <= len(undominated(o)) <= len(o) for o in options)
    assert any(len(undominated(o)) < len(o) for o in options)
