"""Loops over every W-th iteration, as loops over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.base.expr import Const, Expr, sym
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Step, Symbol
from tilewright.protocol.product_graph import OutsideFragment


def first_of(e: Expr) -> int:
    """Where a loop begins, as a number."""
    value = e.constant
    if value is None or value < 0:
        raise OutsideFragment(f"a loop from {e}")
    return value


def unstrided(nodes: tuple[Node, ...], symbols: Mapping[str, Symbol]) -> tuple[Node, ...]:
    """A loop over every W-th iteration as one over all of them, of which the others are skipped.

    A ring's counter that skips what others use in between is advanced by their loops' counts: in the iterations
    left out rather than ahead of them. Symbols that are the same in all iterations make that the same.
    """
    out: list[Node] = []
    for node in nodes:
        if not isinstance(node, Loop) or node.step == 1 or node.end.constant is not None:
            out.append(node)
            continue
        width, mine = node.step, first_of(node.begin)
        if mine >= width:
            raise OutsideFragment(f"a loop from {mine} in steps of {width}")
        body, skips = list(node.body), list[Step]()
        while body and isinstance(last := body[-1], Step) and isinstance(last.op, ops.Advance):
            body.pop()
            skips.insert(0, last)
        kept = [s for s in skips if _by(s).constant is not None]
        moved = [x for s in skips if s not in kept for x in _skip(s, width - 1, symbols)]
        for step in skips if mine else ():
            if step not in kept:
                _take_back(out, step, mine, width - 1)
        condition = (sym(node.counter) % width).eq(mine)
        whole = (If(condition, (*body, *kept), tuple(moved)),)
        out.append(replace(node, begin=Const(0), step=1, body=whole))
    return tuple(out)


def _skip(step: Step, times: int, symbols: Mapping[str, Symbol]) -> list[Step]:
    """An advance by ``times`` a sum of symbols, as one by each."""
    names = sorted(_by(step).symbols)
    total = sum((sym(n) for n in names), Const(0)) * times
    if _by(step) != total or any(n not in symbols or symbols[n].per is not None for n in names):
        raise OutsideFragment(f"a counter that advances by {_by(step)}")
    return [replace(step, op=ops.Advance(_counter(step), sym(n))) for n in names]


def _take_back(before: list[Node], skip: Step, times: int, per: int) -> None:
    """Removes the advance over the first iterations, which others take, from what comes before a loop."""
    for i in range(len(before) - 1, -1, -1):
        node = before[i]
        if not isinstance(node, Step):
            break
        if isinstance(node.op, ops.Advance) and node.op.counter == _counter(skip):
            if _by(node) * per == _by(skip) * times:
                del before[i]
                return
            break
        if _counter(skip) in node.op.symbols:
            break
    raise OutsideFragment(f"counter {_counter(skip)} does not skip the first iterations")


def _by(step: Step) -> Expr:
    assert isinstance(step.op, ops.Advance)
    return step.op.by


def _counter(step: Step) -> str:
    assert isinstance(step.op, ops.Advance)
    return step.op.counter
