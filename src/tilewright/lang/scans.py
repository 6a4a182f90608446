"""Running values along an axis: sums, products, extrema, and scans by a user's associative function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from tilewright.diag import shown, type_shown
from tilewright.lang import arithmetic
from tilewright.lang.axes import Axis
from tilewright.lang.operators import operand_of
from tilewright.lang.recorder import Node, Recorder
from tilewright.lang.running import leave, position_of, refuse_state, state_of, without
from tilewright.lang.traced import Traced
from tilewright.lang.values import Fragment, Tile, Value, carrier_of


def cumsum(
    x: object, axis: int | None = None, *, exclusive: bool = False, reverse: bool = False, carry: Fragment | None = None
) -> Tile:
    """Running sums along an axis: of 16-bit floats carried in f32, of integers and bools in i64.

    ``exclusive`` gives the sum before each element, ``reverse`` goes from the last element to the first. ``carry``, a
    fragment without the axis, holds the sum of what came before, and afterwards that of all.
    """
    return tile_of(x).cumsum(axis, exclusive=exclusive, reverse=reverse, carry=carry)


def cumprod(
    x: object, axis: int | None = None, *, exclusive: bool = False, reverse: bool = False, carry: Fragment | None = None
) -> Tile:
    """Running products along an axis, with the options and dtypes of ``cumsum``."""
    return tile_of(x).cumprod(axis, exclusive=exclusive, reverse=reverse, carry=carry)


def cummax(
    x: object, axis: int | None = None, *, exclusive: bool = False, reverse: bool = False, carry: Fragment | None = None
) -> Tile:
    """The greatest element so far, NaN from the first one on, with the options of ``cumsum``."""
    return tile_of(x).cummax(axis, exclusive=exclusive, reverse=reverse, carry=carry)


def cummin(
    x: object, axis: int | None = None, *, exclusive: bool = False, reverse: bool = False, carry: Fragment | None = None
) -> Tile:
    """The least element so far, NaN from the first one on, with the options of ``cumsum``."""
    return tile_of(x).cummin(axis, exclusive=exclusive, reverse=reverse, carry=carry)


def scan(
    fn: Callable[..., Any],
    values: object,
    axis: int | None = None,
    *,
    init: object = None,
    exclusive: bool = False,
    reverse: bool = False,
    carry: object = None,
) -> Any:
    """Running states along an axis: the first element's, then ``fn(running, element)``, for an associative ``fn``.

    ``values`` is a tile, or a tuple of tiles whose elements make a state together; ``fn`` takes two states and returns
    one, scalars or tuples of them. ``init`` is the state before the first element. ``carry``, a fragment for each tile
    without the axis, is that too, and holds the last state afterwards. ``exclusive`` gives the state before each
    element, ``reverse`` goes from the last element to the first. Returns a tile, or a tuple of them.
    """
    _require_two_arguments(fn)
    several = isinstance(values, tuple)
    rec, nodes = _states(_parts(values))
    at = position_of(axis, nodes[0].axes)
    carriers = () if carry is None else tuple(map(carrier_of, _parts(carry)))
    if carriers and init is not None:
        refuse_state("init= and carry=", "one of them", "set the fragment before the scan: carry.set(init)")
    if carriers and len(carriers) != len(nodes):
        refuse_state(f"{len(carriers)} fragments in carry=", f"one for each of {len(nodes)} values", "carry=(a, b)")
    kept = without(nodes[0].axes, at)
    before = state_of(rec, carriers, [n.dtype for n in nodes], kept)
    if init is not None:
        before = _before(rec, _parts(init), nodes, kept)
    if exclusive and not before:
        refuse_state("exclusive without a state before the first element", "init= or carry=", "tw.scan(..., init=0.0)")

    def combine(running: Sequence[Node], element: Sequence[Node]) -> list[Node]:
        sides = [tuple(Tile(rec, n) for n in side) for side in (running, element)]
        found = fn(*(side if several else side[0] for side in sides))
        return _combined(rec, found, nodes, several=several)

    running, last = rec.scan(combine, nodes, before, at, exclusive=exclusive, reverse=reverse, neutral=None)
    leave(rec, carriers, last)
    return tuple(Tile(rec, n) for n in running) if several else Tile(rec, running[0])


def _require_two_arguments(fn: object) -> None:
    try:
        inspect.signature(cast("Callable[..., object]", fn)).bind(None, None)
    except TypeError:
        refuse_state(
            f"{shown(fn)} as the function", "a function of two states", "tw.scan(lambda a, b: a + b, x[m, n], 1)"
        )
    except ValueError:  # builtins of C may have no signature
        return


def _parts(value: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)


def tile_of(x: object) -> Tile:
    """The operand of a scan or sort, as a tile."""
    rec, (node,) = _states((x,))
    return Tile(rec, node)


def _states(values: Sequence[object]) -> tuple[Recorder, list[Node]]:
    """The scanned values on common axes."""
    rec = next((v.recorder for v in values if isinstance(v, Value)), None)
    wrong = [v for v in values if operand_of(v) is None]
    if rec is None or wrong:
        refuse_state(_shown(wrong or values), "a tile, or a tuple of tiles", "load it first: tw.cumsum(x[m, n], 1)")
    operands = [operand_of(v) for v in values]
    return rec, arithmetic.align(rec, [arithmetic.lift(rec, o) for o in operands if o is not None])


def _before(rec: Recorder, init: Sequence[object], nodes: Sequence[Node], kept: tuple[Axis, ...]) -> list[Node]:
    """The state before the first element, in the states' dtypes."""
    operands = [o for p in init if (o := operand_of(p)) is not None]
    if not len(operands) == len(init) == len(nodes):
        required = f"a number or a tile for each of {len(nodes)} values"
        refuse_state(f"init= of {_shown(init)}", required, "init=(1.0, 0.0)")
    converted = [arithmetic.convert(rec, o, n.dtype) for o, n in zip(operands, nodes, strict=True)]
    return [arithmetic.broadcast(rec, c, kept) for c in converted]


def _combined(rec: Recorder, found: object, nodes: Sequence[Node], *, several: bool) -> list[Node]:
    """The result of a user's function, as a state."""
    parts = tuple(cast("Sequence[object]", found)) if several and isinstance(found, (tuple, list)) else (found,)
    operands = [o for p in parts if (o := operand_of(p)) is not None]
    required = f"a state of {', '.join(str(n.dtype) for n in nodes)}"
    if not len(operands) == len(parts) == len(nodes):
        help = "return as many values as there are tiles: return a * c, b * c + d"
        refuse_state(f"a function that returns {_shown(parts)}", required, help)
    for operand, node in zip(operands, nodes, strict=True):
        if isinstance(operand, Node) and operand.dtype != node.dtype:
            help = f"cast what is scanned, or the result with .to(tw.{node.dtype})"
            refuse_state(f"a function that returns {operand.dtype} for {node.dtype}", required, help)
    return [arithmetic.convert(rec, o, n.dtype) for o, n in zip(operands, nodes, strict=True)]


def _shown(parts: Sequence[object]) -> str:
    return ", ".join(type_shown(p) if isinstance(p, Traced) else shown(p) for p in parts) or "nothing"
