"""Bugs in readings of Tile IR that the schedule and the proofs share: what neither can see, validation must."""

from __future__ import annotations

from planted.mutant import Kind, Mutant


def _bug(name: str, what: str, old: str, new: str, *probes: str, file: str = "tile/queries.py") -> Mutant:
    return Mutant(name, Kind.SHARED, what, file, old, new, probes)


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
    _bug(
        "ranges in reverse",
        "the axes of a tile have each other's ranges",
        "return tuple(a if isinstance(a, Span) else None for a in value.type.axes_tuple)",
        "return tuple(a if isinstance(a, Span) else None for a in reversed(value.type.axes_tuple))",
        "turned",
        "softmax",
        "gated",
    ),
    _bug(
        "a select costs nothing",
        "a select is no op of one element",
        "tile.Compare | tile.Select | tile.Cast | tile.Bitcast",
        "tile.Compare | tile.Cast | tile.Bitcast",
        "attention_causal",
        "experts",
    ),
    _bug(
        "positions are computed anywhere",
        "a reduction is an op of one element",
        "tile.Expand | tile.Broadcast | tile.Transpose | tile.Index | tile.ScalarExpr | tile.Constant",
        "tile.Expand | tile.Broadcast | tile.Transpose | tile.Index | tile.ScalarExpr | tile.Reduce",
        "attention_causal",
        "softmax",
        "experts",
    ),
    _bug(
        "the op before",
        "a value is defined by the op before the one that defines it",
        "return value.owner if isinstance(value.owner, Operation) else None",
        "return (value.owner.prev_op or value.owner) if isinstance(value.owner, Operation) else None",
        "attention",
        "nt",
        "experts",
    ),
    _bug(
        "every scatter is the first",
        "scatters have one number",
        "return [other for other in root.walk() if isinstance(other, _Scattering)].index(op)",
        "return 0 * [other for other in root.walk() if isinstance(other, _Scattering)].index(op)",
        "placed",
        "binned",
        file="tile/indirect.py",
    ),
    _bug(
        "one axis for all",
        "coordinates of gathers and scatters stand along the first axis",
        'return own(f"axis{axis}")',
        'return own(f"axis{0 * axis}")',
        "gathered",
        "turned",
        "placed",
        file="lang/axes.py",
    ),
)
