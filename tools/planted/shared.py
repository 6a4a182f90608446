"""Bugs in readings of Tile IR that the schedule and the proofs share: what neither can see, validation must."""

from __future__ import annotations

from planted.mutant import Kind, Mutant


def _bug(name: str, what: str, old: str, new: str, *probes: str) -> Mutant:
    return Mutant(name, Kind.SHARED, what, "tile/queries.py", old, new, probes)


SHARED = (
    _bug(
        "coordinates in reverse",
        "the coordinates of an access belong to the dimensions in reverse order",
        "return tuple(c.data for c in op.coords)",
        "return tuple(c.data for c in op.coords)[::-1]",
        "row_sum",
        "softmax",
        "nt",
    ),
    _bug(
        "the first coordinate twice",
        "every dimension is accessed at the coordinate of the first",
        "return tuple(c.data for c in op.coords)",
        "return tuple(op.coords.data[0].data for _ in op.coords)",
        "row_sum",
        "attention",
    ),
    _bug(
        "one name for all tensors",
        "every access is of the first tensor of the kernel",
        '"""Name of the accessed tensor."""\n    return tile.tensor_type(op.tensor).tensor_name.data',
        "return next(x.data for x in getattr(op.tensor.owner.parent_op(), 'arg_names'))",
        "nt",
        "gathered",
    ),
    _bug(
        "no lines",
        "no op knows the line of its user",
        'return loc.data if isinstance(loc, StringAttr) else ""',
        'return ""',
        "attention",
        "gated",
    ),
)
