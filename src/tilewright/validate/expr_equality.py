"""Whether two integer expressions are the same for every launch."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.expr import Expr, ExprError, simplify

_EDGES = (0, 1, 2, 3, 7, 8, 15, 16, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 4096, 4100, 65536, 2**31 - 1)
_LAUNCHES = 64


def difference(found: Expr, required: Expr) -> str:
    """Empty where both are one expression, or simplify to one; else a launch at which they differ, or that none was
    found and they are not shown to be the same."""
    if found == required or simplify(found - required, {}).constant == 0:
        return ""
    for launch in _launches(sorted(found.symbols | required.symbols)):
        try:
            one, other = found.evaluate(launch), required.evaluate(launch)
        except ExprError:
            continue  # a divisor is zero
        if one != other:
            at = ", ".join(f"{name} = {value}" for name, value in launch.items())
            return f"{one} and {other} at {at}" if at else f"{one} and {other}"
    return "not shown to be the same"


def _launches(names: list[str]) -> Iterator[dict[str, int]]:
    """Values of the symbols near the boundaries of tiles, of warps and of 31 bits."""
    for number in range(_LAUNCHES):
        yield {name: _EDGES[number * (2 * i + 1) % len(_EDGES)] for i, name in enumerate(names)}
