"""Bugs in what the schedule and the judges read through one function: what neither can see, validation or a test must."""

from __future__ import annotations

from planted.mutant import Kind, Mutant


def _bug(name: str, what: str, old: str, new: str, *probes: str) -> Mutant:
    return Mutant(name, Kind.SHARED, what, "tile/queries.py", old, new, probes)


def _seen(name: str, what: str, file: str, old: str, new: str, test: str) -> Mutant:
    """What every side reads alike: caught by a test with an answer of its own."""
    return Mutant(name, Kind.PROVERS, what, file, old, new, (test,))


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
    _seen(
        "every scatter is the first",
        "scatters have one number",
        "tile/indirect.py",
        "return [other for other in root.walk() if isinstance(other, _Scattering)].index(op)",
        "return 0 * [other for other in root.walk() if isinstance(other, _Scattering)].index(op)",
        "tests/compiler/test_index_promises.py",
    ),
    _seen(
        "one axis for all",
        "coordinates of gathers and scatters stand along the first axis",
        "lang/axes.py",
        'return own(f"axis{axis}")',
        'return own(f"axis{0 * axis}")',
        "tests/tile/test_promised_indices.py",
    ),
    _seen(
        "one symbol for all indices",
        "elements of all index tensors have one symbol",
        "tile/indirect.py",
        'return own(f"index{operand}")',
        'return own(f"index{0 * operand}")',
        "tests/tile/test_promised_indices.py",
    ),
    _seen(
        "one axis of programs",
        "the coordinates of a program along all axes of the grid have one symbol",
        "tile/ops.py",
        'return own(f"p{axis}")',
        'return own(f"p{0 * axis}")',
        "tests/hopper/test_schedules.py",
    ),
    _seen(
        "the last op of each block",
        "a walk over ops meets one op of a block",
        "tile/ops.py",
        "inner = inner.prev_op",
        "inner = None",
        "tests/hopper/test_schedules.py",
    ),
    _seen(
        "the first op of a block",
        "a block has one op",
        "tile/ops.py",
        "        op = op.next_op\n",
        "        op = None\n",
        "tests/hopper/test_schedules.py",
    ),
    _seen(
        "threads wrap at 64",
        "a symbol has the value of its thread modulo 64",
        "transport/every_thread.py",
        "return np.asarray(node.evaluate(at))",
        "return np.asarray(node.evaluate(at)) % 64",
        "tests/compiler/test_every_thread.py",
    ),
    _seen(
        "xor adds",
        "an exclusive or at every thread is a sum",
        "base/expr/algebra.py",
        "a ^ b",
        "a + b",
        "tests/compiler/test_every_thread.py",
    ),
    _seen(
        "operands of every stride",
        "of the rules of wgmma operands none is broken",
        "legal/wgmma.py",
        "core = broken(RULES, fields, cc_of(target), ENUMERATORS)\n    if core:\n        return Illegal(core)\n    leading",
        "core = broken(RULES[:0], fields, cc_of(target), ENUMERATORS)\n    if core:\n        return Illegal(core)\n    leading",
        "tests/legal/test_wgmma.py",
    ),
    _seen(
        "loops have no steps",
        "the steps of a protocol are those outside of loops and branches",
        "protocol/model.py",
        "yield node\n        else:\n            pending.extend(reversed(body_of(node)))",
        "yield node\n        else:\n            pending.extend(())",
        "tests/protocol/test_pipelines.py",
    ),
)
